"""Which test runs which statements: recorded once with probes, a file of tests at a time, kept in build/mutate.

A record stays as long as its test file is unchanged. Sources may change: probes are known by name (function and number in it),
and a probe that is gone is one that no test is known for. Choosing wrongly costs a verdict of `missed`, never one of `noticed`.
"""

from __future__ import annotations

import ast
import bisect
import hashlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from support.faults.planting import Fault
from support.faults.probes import Probe, instrument
from support.paths import ROOT

HOOK = Path(__file__).parent / "hook"


@dataclass(frozen=True)
class Project:
    """Sources in which faults are planted, their tests, and where records and verdicts are kept."""

    root: Path
    package: str
    """The folder of the package, from the root."""
    folder: Path

    def sources(self, room: str = "") -> list[Path]:
        """The files of the package, or of one folder in it."""
        return sorted((self.root / self.package / room).rglob("*.py"))


NPUC = Project(ROOT, "src/npuc", ROOT / "build" / "mutate")


@dataclass(frozen=True)
class Record:
    """The tests of a file that passed: name, CPU seconds, numbers of probes."""

    path: str
    digest: str
    tests: list[tuple[str, float, np.ndarray]]


@dataclass(frozen=True)
class RecordedTest:
    """A test that may judge a fault."""

    name: str
    path: str
    seconds: float


def digest(path: Path) -> str:
    """Of the bytes of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@cache
def probes_of(root: Path, name: str) -> list[Probe]:
    """The probes of a source file, in the order of lines."""
    return instrument(ast.parse((root / name).read_bytes()), name)


def number_probes(project: Project) -> None:
    """Number the probes of all sources, and make the file that holds the marks."""
    bases, names, folder = {}, [], project.folder
    for path in project.sources():
        bases[str(path)] = (len(names), digest(path))
        names += [probe.name for probe in probes_of(project.root, path.relative_to(project.root).as_posix())]
    (folder / "code").mkdir(parents=True, exist_ok=True)
    for kept in (folder / "code").iterdir():  # numbers are part of the code
        kept.unlink()
    (folder / "bases.json").write_text(json.dumps(bases))
    (folder / "names.json").write_text(json.dumps(names))
    (folder / "hits").write_bytes(bytes(len(names)))


def save(folder: Path, record: Record) -> None:
    """Write the record of a file; names of probes are written once for all its tests."""
    used = np.unique(np.concatenate([hits for *_, hits in record.tests] or [np.zeros(0, np.int64)]))
    names = json.loads((folder / "names.json").read_text())
    document = {
        "path": record.path,
        "digest": record.digest,
        "probes": [names[k] for k in used],
        "tests": [
            [name, seconds, np.searchsorted(used, hits).tolist()] for name, seconds, hits in record.tests
        ],
    }
    (folder / "records").mkdir(exist_ok=True)
    path = _record_path(folder, record.path)
    path.with_suffix(".part").write_text(json.dumps(document))
    path.with_suffix(".part").replace(path)


def _record_path(folder: Path, name: str) -> Path:
    return folder / "records" / (name.replace("/", "--").removesuffix(".py") + ".json")


def is_recorded(project: Project, name: str) -> bool:
    """Whether the record of a test file is there and the file is the same."""
    path = _record_path(project.folder, name)
    if not path.exists():
        return False
    with path.open() as file:
        head = file.read(400)
    return digest(project.root / name) in head


def record(project: Project, tests: list[str], seconds: float) -> None:
    """Run files of tests with probes, in one process; what is done when the time is over is kept."""
    project.folder.mkdir(parents=True, exist_ok=True)
    number_probes(project)
    surroundings = environment() | {"NPUC_PROBES": str(project.folder)}
    command = [*PYTEST, "-m", "not slow and not browser", "-p", "support.faults.recorder", *tests]
    with (project.folder / "record.log").open("ab") as log:
        try:
            subprocess.run(
                command, cwd=project.root, env=surroundings, timeout=seconds, stdout=log, stderr=log
            )
        except subprocess.TimeoutExpired:
            print(f"stopped after {seconds:.0f} s; the next run goes on", flush=True)


PYTEST = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]


def environment() -> dict[str, str]:
    """Of processes in which npuc's modules get a fault or probes."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | {"PYTHONPATH": os.pathsep.join([str(HOOK), str(ROOT / "tests")]), "OMP_NUM_THREADS": "1"}


class Map:
    """Statement -> tests, from all records."""

    def __init__(self, project: Project) -> None:
        self.root = project.root
        self.tests: dict[str, list[RecordedTest]] = {}
        for path in sorted((project.folder / "records").glob("*.json")):
            document = json.loads(path.read_text())
            file = project.root / document["path"]
            if not file.exists() or digest(file) != document["digest"]:
                continue
            for name, seconds, hits in document["tests"]:
                test = RecordedTest(name, document["path"], seconds)
                for hit in hits:
                    self.tests.setdefault(document["probes"][hit], []).append(test)

    def judges(self, fault: Fault) -> list[RecordedTest]:
        """The tests that run the statement of a fault. For one that none is known to run (most such run while a module is
        imported, or once for all tests), those that run the nearest other statement of the file.
        """
        probes = probes_of(self.root, fault.path)
        place = bisect.bisect_right([probe.line for probe in probes], fault.line) - 1
        nearest = sorted(range(len(probes)), key=lambda k: (abs(k - place), k))
        return next((self.tests[probes[k].name] for k in nearest if probes[k].name in self.tests), [])
