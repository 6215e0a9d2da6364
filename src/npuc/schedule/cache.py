"""What searches found, kept under the user's cache folder: an unchanged network is not searched again.

There are two kinds of entries. A *schedule* is named by a hash of all that a search looks at: the layers (not their weights),
the machine, the options, and the code of the scheduler with what it rests on. It holds decisions, not instructions, in the form
of a schedule file with numbers for names, and is checked like one. *Candidates* of a machine (`candidates.py`) serve where a
network has changed: what was found out about the layers that have not. Entries carry a version and a checksum, and appear whole
or not at all; what is damaged, of another version, or does not fit is passed over.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from npuc import __version__, native
from npuc.errors import OutputError, ScheduleError
from npuc.files import write_atomically
from npuc.format_versions import SCHEDULE_CACHE
from npuc.schedule.candidates import Candidates, Tiling, layer_key
from npuc.schedule.compression import digest
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import ScheduleDecisions
from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network
from npuc.schedule.schedule_file import SubgraphEntry, entry_of, resolve
from npuc.schedule.tiler import Tiler
from npuc.target import Target

_MAX_BYTES = 64 << 20
_MOST = 200_000
"""Candidates that are kept of a machine."""
_CANDIDATES: TypeAdapter[dict[str, Tiling | None]] = TypeAdapter(dict[str, Tiling | None])


@dataclass(frozen=True)
class Cache:
    """A folder of entries."""

    folder: Path
    problems: list[str] = field(default_factory=list, compare=False)
    """Why entries could not be read or written, the first reason only: results do not depend on the cache."""
    only: bool = False
    """Whether a schedule that is not there is an error: nothing is searched."""

    @staticmethod
    def default() -> Cache | None:
        """That of the user: `NPUC_CACHE` names another folder, or is `off`."""
        folder_name = os.environ.get("NPUC_CACHE", "")
        if folder_name.lower() == "off":
            return None
        if folder_name:
            return Cache(Path(folder_name))
        home = os.environ.get("XDG_CACHE_HOME", "")
        with suppress(RuntimeError):  # no home
            return Cache((Path(home) if home.startswith("/") else Path.home() / ".cache") / "npuc")
        return None

    def read(self, key: str, network: Network, target: Target) -> ScheduleDecisions | None:
        """What an earlier search found, if it is there and fits."""
        try:
            entry = SubgraphEntry.model_validate_json(self._read(self._schedule(key)))
            names = [str(number) for number in range(len(network.layers))]
            return resolve(entry, network, target, target.compute.cores, names).schedule_decisions
        except (OSError, ValidationError, ScheduleError, RecursionError):
            return None

    def write(self, key: str, decisions: ScheduleDecisions) -> None:
        """Keep what a search found."""
        count = max(group.last for group in decisions.decisions.groups)
        entry = entry_of(decisions, [str(number) for number in range(count)])
        self._write(self._schedule(key), json.dumps(entry).encode())

    def candidates(self, target: Target) -> Candidates:
        """What is known of a machine."""
        try:
            return Candidates(_CANDIDATES.validate_json(self._read(self._of(target))))
        except (OSError, ValidationError, RecursionError):
            return Candidates()

    def add_candidates(self, target: Target, candidates: Candidates) -> None:
        """Keep what is new, beside what others have added meanwhile."""
        if not candidates.fresh:
            return
        known = self.candidates(target).known
        if len(known) + len(candidates.fresh) > _MOST:
            known = {}
        known.update({key: candidates.known[key] for key in sorted(candidates.fresh)})
        self._write(self._of(target), _CANDIDATES.dump_json(known))

    def _schedule(self, key: str) -> Path:
        return self.folder / "schedules" / key[:2] / f"{key}.json"

    def _of(self, target: Target) -> Path:
        name = f"{target.fingerprint_text}-{code()[:16]}.json"
        return self.folder / "candidates" / name

    def _read(self, path: Path) -> bytes:
        """The content of an entry without its first line; OSError if that is wrong."""
        try:
            if path.stat().st_size > _MAX_BYTES:
                raise OSError("too large")
            head, _, content = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            raise
        except OSError as error:
            self._problem("read", error)
            raise
        if head != _head(content):
            raise OSError("damaged, or of another version")
        return content

    def _write(self, path: Path, content: bytes) -> None:
        """A folder that cannot be written costs time, not the result."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with write_atomically(path) as out:
                out.write(_head(content) + b"\n" + content)
        except OutputError as error:
            self._problem("written", error.__cause__ or error)
        except OSError as error:
            self._problem("written", error)

    def _problem(self, what: str, error: BaseException) -> None:
        if not self.problems:
            words = getattr(error, "strerror", None) or str(error)
            self.problems.append(f"the cache folder {self.folder} cannot be {what}: {words}")


def _head(content: bytes) -> bytes:
    """The first line of an entry: the version of the format, and the checksum of the rest."""
    return f"npuc cache, version {SCHEDULE_CACHE.version}, {sha256(content).hexdigest()}".encode()


_DECIDING = ("arithmetic", "program", "schedule", "sim")
"""The packages that a schedule depends on; the cycle simulator and the memory planner are in the native library."""


@cache
def code() -> str:
    """A hash of the code that decides on a schedule: another scheduler, instruction set or simulator finds another one."""
    code_hash = sha256(__version__.encode())
    package = Path(__file__).parent.parent
    sources = (path for folder in _DECIDING for path in package.glob(f"{folder}/**/*.py"))
    for path in sorted(sources):
        code_hash.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes() + b"\0")
    code_hash.update(native.find().read_bytes())
    return code_hash.hexdigest()


def key_of(network: Network, target: Target, options: Mapping[str, Any]) -> str:
    """The name of the schedule of a network."""
    numbers: dict[Tensor, int] = {}

    def number(tensor: Tensor) -> int:
        return numbers.setdefault(tensor.storage, len(numbers))

    tiler = Tiler(Costs(target))
    described: dict[str, Any] = {
        "code": code(),
        "target": target.fingerprint_text,
        "options": options,
        "layers": [
            [layer_key(layer, tiler), *map(number, (*layer.inputs, *layer.outputs))]
            for layer in network.layers
        ],
        "ports": [[number(t), t.shape, t.dtype] for t in (*network.inputs, *network.stored_results)],
        "inputs": len(network.inputs),
    }
    if tiler.costs.decoder is not None:
        described["constants"] = digest(network.layers)
    return sha256(json.dumps(described, sort_keys=True, default=str).encode()).hexdigest()
