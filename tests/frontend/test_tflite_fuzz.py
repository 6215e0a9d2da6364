"""Truncated and mutated TensorFlow Lite files: an import ends in a verified graph or in an error of the user's.

Each mutation is made from its number alone; `python tests/frontend/test_tflite_fuzz.py NUMBER` runs one again. The
imports run in a worker with a limit on its memory, so that a crash, a hang or a file that lies about its sizes is a
failure like any other.
"""

from __future__ import annotations

import sys
import tempfile
import time
import traceback
from pathlib import Path

import pytest

from npuc.errors import NpucError
from npuc.export.tflite.model import TFLiteTensor
from npuc.frontend.tflite import import_tflite
from support.hostile.isolation import isolated
from support.hostile.tflite_models import files, mutated
from support.networks.tflite import Net

_CHUNKS, _CHUNK = 4, 550
_SLOW = 10.0
"""Seconds that no import of these small models may take, however it is mutated."""


def _check(name: str, number: int, path: Path) -> str:
    """What is wrong with the import of a mutation; empty if nothing is."""
    path.write_bytes(mutated(files()[name], number))
    start = time.perf_counter()
    try:
        import_tflite(path).verify()
    except NpucError as error:
        if error.exit_status != 2 or "\n" in str(error) or len(str(error)) > 1000:
            return f"mutation {number} of {name}: exit status {error.exit_status}, {error}"
    except BaseException:
        return f"mutation {number} of {name}: {traceback.format_exc()}"
    seconds = time.perf_counter() - start
    return f"mutation {number} of {name}: it took {seconds:.1f} s" if seconds > _SLOW else ""


def _run(begin: int, end: int, log: str) -> list[str]:
    """Check mutations begin..end; the number that is being worked on is in the file `log`."""
    problems = []
    names = sorted(files())
    with tempfile.TemporaryDirectory() as folder:
        for number in range(begin, end):
            name = names[number % len(names)]
            Path(log).write_text(f"{name} {number}")
            problems.append(_check(name, number, Path(folder) / "model.tflite"))
    return [problem for problem in problems if problem]


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_mutations_are_imported_or_refused(tmp_path: Path, chunk: int) -> None:
    log = tmp_path / "log"
    outcome = isolated(_run, chunk * _CHUNK, (chunk + 1) * _CHUNK, str(log), seconds=120)
    assert not outcome.died, f"the process died ({outcome.died}) at mutation {log.read_text()}"
    assert isinstance(outcome.value, list), outcome.value
    assert not outcome.value, "\n".join(outcome.value[:10])
    assert outcome.mib < 512, f"{outcome.mib:.0f} MiB"


def test_thousands_of_tensors_of_one_name() -> None:
    """A table may be named by many offsets; the work grows with their number, not with its square."""
    net = Net()
    x = net.input("x", (2,))
    for _ in range(6000):
        net.model.tensors.append(TFLiteTensor("x", (2,), "f32"))
    start = time.process_time()
    graph = import_tflite(net.data(net.op("RELU", [x])))
    assert sum(1 for _ in graph.ops) == 1 and time.process_time() - start < 5


def test_the_originals_are_imported() -> None:
    for data in files().values():
        import_tflite(data).verify()


if __name__ == "__main__":
    chosen = int(sys.argv[1])
    with tempfile.TemporaryDirectory() as place:
        names = sorted(files())
        print(_check(names[chosen % len(names)], chosen, Path(place) / "model.tflite") or "nothing is wrong")
