"""Whether tests notice a fault: those that run its statement, in a process of their own that ends at the first failure.

A fault is noticed when a test fails, crashes or uses up its CPU time with the fault, and the same test passes without it. When
pytest ends in any other way (a file of tests that cannot be imported, no test found, a limit of wall time), nothing was judged:
the fault is `unclear` and counts neither as noticed nor as missed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import subprocess
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from support.faults.planting import Fault
from support.faults.records import PYTEST, Project, RecordedTest, digest, environment

MOST_TESTS = 60
FEW = 6
"""Tests of one file, at most, before tests of other files get their turn."""
MEMORY = 4 << 30
"""Bytes that a process with a fault may take: an allocation that runs away is noticed, and harms nobody."""
WALL = 300.0
"""Seconds of wall time, at most, for the tests of a fault."""

Outcome = Literal["noticed", "missed", "unclear"]


@dataclass(frozen=True)
class Verdict:
    """What became of a fault."""

    outcome: Outcome
    by: str
    """The test that failed, how many passed, or why nothing was judged."""
    source: str
    """The digest of the source file."""
    tests: list[str]


class Verdicts:
    """Verdicts of earlier runs, by fault."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known: dict[str, Verdict] = {}
        if path.exists():
            self.known = {key: Verdict(**value) for key, value in json.loads(path.read_text()).items()}

    def keep(self, key: str, verdict: Verdict) -> None:
        """Write one more verdict; the file is whole at any time."""
        self.known[key] = verdict
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps({name: asdict(value) for name, value in self.known.items()}, indent=1))
        part.replace(self.path)


def chosen(tests: list[RecordedTest], folder: str, seconds: float) -> list[RecordedTest]:
    """Tests of the package's own folder first and then the quickest, a few of each file before more of any, as long as the
    recorded seconds last.
    """
    by_file: dict[str, int] = {}
    turns = []
    for test in sorted(tests, key=lambda test: (test.seconds, test.name)):
        by_file[test.path] = by_file.get(test.path, 0) + 1
        turns.append(
            ((by_file[test.path] - 1) // FEW, not test.path.startswith(folder), test.seconds, test.name, test)
        )
    picked, spent = [], 0.0
    for *_, test in sorted(turns):
        if picked and spent + test.seconds > seconds:
            continue
        picked.append(test)
        spent += test.seconds
        if len(picked) == MOST_TESTS:
            break
    return picked


def judge(
    project: Project, fault: Fault, tests: list[RecordedTest], verdicts: Verdicts, seconds: float
) -> Verdict:
    """Run the tests of a fault, unless the same was judged before; of a fault that was missed, only tests that are new."""
    room = fault.path.removeprefix(f"{project.package}/").split("/")[0]
    picked = chosen(tests, f"tests/{room}/", seconds)
    names, source = [test.name for test in picked], digest(project.root / fault.path)
    known = verdicts.known.get(fault.key)
    passed: set[str] = set()
    if known and known.source == source:
        if known.outcome != "missed" or set(names) <= set(known.tests):
            return known
        passed = set(known.tests)
    left = [test for test in picked if test.name not in passed]
    outcome, by = _outcome(project, fault, left)
    total = sorted(passed | set(names))
    if outcome == "missed":
        by = f"{len(total)} tests pass" if total else "no test runs its file"
    verdict = Verdict(outcome, by, source, total)
    verdicts.keep(fault.key, verdict)
    return verdict


def _outcome(project: Project, fault: Fault, tests: list[RecordedTest]) -> tuple[Outcome, str]:
    """Judge by these tests; one that fails without the fault too judges nothing, and is left out."""
    surroundings = {"NPUC_FAULT": f"{project.root / fault.path}:{fault.number}"}
    while tests:
        status, failed = run_tests(project, tests, surroundings)
        if status == 0:
            break
        suspects = [test for test in tests if not failed or test.name == failed]
        if status not in (1, *_KILLED) or not suspects:
            return "unclear", f"pytest ends with status {status}"
        control, _ = run_tests(project, suspects, {})
        if control == 0:
            return "noticed", failed or f"a process that ends by {signal.Signals(-status).name}"
        if not failed:
            return "unclear", f"pytest ends with status {control} without the fault"
        tests = [test for test in tests if test.name != failed]
    return "missed", ""


_KILLED = tuple(
    -one
    for one in (signal.SIGXCPU, signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE, signal.SIGBUS, signal.SIGILL)
)
"""Statuses of a process that a fault has brought down, or that has used up its CPU time."""


def run_tests(project: Project, tests: list[RecordedTest], surroundings: dict[str, str]) -> tuple[int, str]:
    """The status with which pytest ends, and the first test that fails."""
    limit = 60 + 8 * sum(test.seconds for test in tests)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as listing:
        listing.write("\n".join(test.name for test in tests))
        listing.flush()
        process = subprocess.Popen(
            [*PYTEST, "-x", "--tb=no", "-rfE", f"@{listing.name}"],
            cwd=project.root,
            env=environment() | surroundings,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            preexec_fn=lambda: _limit(limit),
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=WALL)
        except subprocess.TimeoutExpired:
            output = ""
        _end(process)
    lines = [line.partition(" ")[2] for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))]
    failed = (
        test.name
        for line in lines
        for test in tests
        if line == test.name or line.startswith(f"{test.name} - ")
    )
    return process.returncode, next(failed, "")


def _end(process: subprocess.Popen[str]) -> None:
    """End the process, and what its tests have left running."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _limit(seconds: float) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
