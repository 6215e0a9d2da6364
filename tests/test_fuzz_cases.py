"""Files that the fuzzers found: each is read again, and ends in a result or in an error of the user's.

`tests/fuzz.py` puts them here. What only the C runtime can trip over is read by it, with the checks of `make sanitize` where
that library is loaded.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from npuc.native import library
from support.fuzzing.formats import FORMATS, fault
from support.paths import ROOT

CASES = sorted((ROOT / "tests" / "fuzz_cases").glob("*-*"))


@pytest.mark.parametrize("name", FORMATS)
def test_the_seeds_are_read(name: str, tmp_path: Path) -> None:
    """Fuzzing starts from files that are sound: a seed that is refused leads nowhere."""
    seeds = FORMATS[name].seeds()
    assert seeds
    for data in seeds.values():
        path = tmp_path / f"seed.{FORMATS[name].suffix}"
        path.write_bytes(data)
        FORMATS[name].read(path)


@pytest.mark.parametrize("name", FORMATS)
def test_mutators_give_the_same_bytes_again(name: str) -> None:
    mutate = FORMATS[name].mutate
    data = next(iter(FORMATS[name].seeds().values()))
    assert mutate is not None
    made = [mutate(data, number) for number in range(8)]
    assert made == [mutate(data, number) for number in range(8)]
    assert any(one != data for one in made)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.name)
def test_what_was_found_is_mended(path: Path, tmp_path: Path) -> None:
    name = path.name.split("-", 1)[0]
    if name == "runtime":
        model = ctypes.c_void_p()
        load = library().npu_load
        load.argtypes = [ctypes.c_char_p, ctypes.POINTER(ctypes.c_void_p)]
        load(str(path).encode(), ctypes.byref(model))
        library().npu_free(model)
        return
    copy = tmp_path / path.name
    copy.write_bytes(path.read_bytes())
    assert fault(FORMATS[name], copy) == ""


def test_a_reader_that_crashes_is_a_finding(tmp_path: Path) -> None:
    from dataclasses import replace

    def broken(path: Path) -> None:
        raise KeyError("shape")

    assert fault(replace(FORMATS["onnx"], read=broken), tmp_path) == "KeyError: 'shape'"
