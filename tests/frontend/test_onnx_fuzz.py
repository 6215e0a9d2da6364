"""Mutations of small real models: an import ends in a verified graph or in an error of the user's, and in nothing else.

Each mutation is made from its number alone; a failure prints it, and `python tests/frontend/test_onnx_fuzz.py NUMBER`
runs it again. The imports run in a worker, so that a crash or a hang of native code is a failure like any other.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import traceback
from functools import cache
from pathlib import Path

import pytest

from npuc.errors import NpucError
from npuc.flow import ImportOptions, check_model, import_model
from npuc.frontend.onnx import import_onnx
from support.hostile import mutation
from support.hostile.isolation import isolated
from support.networks import onnx_zoo as zoo

_ROOT = Path(__file__).resolve().parents[2]
_SHARED = _ROOT.parent / "shared" / "models" / "onnx"
_CHUNKS, _CHUNK = 8, 800
_SLOW = 10.0
"""Seconds that no import of these small models may take, however it is mutated."""


@cache
def _files() -> dict[str, bytes]:
    files = {name: zoo.model(name).SerializeToString() for name in zoo.NAMES if name != "external"}
    files["digits"] = (_ROOT / "examples" / "digits.onnx").read_bytes()
    return files


def _shared() -> dict[str, bytes]:
    found = (_SHARED / name for name in ("mnist.onnx", "yunet_n_320.onnx"))
    return {path.stem: path.read_bytes() for path in found if path.is_file()}


def _check(name: str, original: bytes, number: int, path: Path) -> str:
    """What is wrong with the import of a mutation; empty if nothing is."""
    path.write_bytes(mutation.mutated(original, number))
    start = time.perf_counter()
    try:
        import_onnx(path).verify()
    except NpucError as error:
        if error.exit_status != 2 or "\n" in str(error) or len(str(error)) > 1000:
            return f"mutation {number} of {name}: exit status {error.exit_status}, {error}"
    except BaseException:
        return f"mutation {number} of {name}: {traceback.format_exc()}"
    seconds = time.perf_counter() - start
    return f"mutation {number} of {name}: it took {seconds:.1f} s" if seconds > _SLOW else ""


def _run(begin: int, end: int, kind: str, log: str) -> list[str]:
    """Check mutations begin..end; the number that is being worked on is in the file `log`."""
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        files = _files() | {"external": zoo.external(folder).read_bytes()} if kind == "zoo" else _shared()
        names = sorted(files)
        for number in range(begin, end):
            chosen = names[number % len(names)]
            Path(log).write_text(f"{chosen} {number}")
            problems.append(_check(chosen, files[chosen], number, folder / "model.onnx"))
    return [problem for problem in problems if problem]


def _fuzz(begin: int, end: int, kind: str, folder: Path) -> None:
    log = folder / "log"
    outcome = isolated(_run, begin, end, kind, str(log), memory=6 << 30, seconds=120)
    assert not outcome.died, f"the process died ({outcome.died}) at mutation {log.read_text()}"
    assert isinstance(outcome.value, list), outcome.value
    assert not outcome.value, "\n".join(outcome.value[:10])


@pytest.mark.parametrize("chunk", range(_CHUNKS))
def test_mutated_models_give_a_graph_or_an_error(chunk: int, tmp_path: Path) -> None:
    _fuzz(chunk * _CHUNK, (chunk + 1) * _CHUNK, "zoo", tmp_path)


def test_mutated_shared_models_give_a_graph_or_an_error(tmp_path: Path) -> None:
    if not _shared():
        pytest.skip("the folder of shared models is not here")
    _fuzz(0, 200, "shared", tmp_path)


_NOT_INVALID = re.compile(
    r"No Op registered|not a registered function/op|NOT_IMPLEMENTED|is under development|IR version|cannot run it"
)
"""What keeps ONNX Runtime from judging a file that may be valid: an operator or a version that it does not know."""


def _unjudged(begin: int, end: int) -> list[str]:
    """Mutations that are taken unchecked although ONNX Runtime finds no fault but with the file."""
    found = []
    files = _files()
    names = sorted(name for name in files if name != "shapes")  # ONNX Runtime refuses the whole of that one
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.onnx")
        for number in range(begin, end):
            path.write_bytes(mutation.mutated(files[names[number % len(names)]], number))
            try:
                report = check_model(path, import_model(path), ImportOptions())
            except NpucError:
                continue
            if report.impossible and not _NOT_INVALID.search(report.impossible):
                found.append(f"mutation {number}: {report.impossible}")
    return found


@pytest.mark.slow
def test_what_onnx_runtime_calls_invalid_is_not_taken_unchecked() -> None:
    outcome = isolated(_unjudged, 10_000, 10_600, memory=6 << 30, seconds=300)
    assert not outcome.died, outcome.died
    assert not outcome.value, "\n".join(outcome.value)


def test_mutations_are_reproducible_and_reach_the_importer() -> None:
    """The same number gives the same bytes, and enough mutations get past the decoder to be worth their time."""
    original = _files()["shapes"]
    first = [mutation.mutated(original, number) for number in range(200)]
    assert first == [mutation.mutated(original, number) for number in range(200)]
    outcomes = []
    for data in first:
        try:
            import_onnx(data)
            outcomes.append("graph")
        except NpucError as error:
            outcomes.append(error.code)
    assert outcomes.count("graph") > 20
    assert outcomes.count("E201") > 40


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        print(_run(int(argument), int(argument) + 1, "zoo", "/dev/null") or "nothing is wrong")
