"""Headers of `.npy` tensors that lie: refused in a paragraph, whatever NumPy would have made of them."""

from __future__ import annotations

import struct
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

from npuc.errors import FileFormatError, NpucError
from npuc.tensors import TensorFile

FORM = "{'descr': '%s', 'fortran_order': False, 'shape': %s}\n"


def _header(text: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode("latin-1")


CASES = {
    "parentheses": (_header("(" * 60_000), "damaged header"),
    "signs": (_header("-" * 60_000 + "1"), "damaged header"),
    "nested": (_header("{'descr': " + "[" * 5000 + "]" * 5000 + "}"), "damaged header"),
    "a text without end": (_header("{'descr': 'x" + "y" * 60_000), "damaged header"),
    "no bytes an element": (_header(FORM % ("S0", "(1000000000000,)")), "not numbers"),
    "times": (_header(FORM % ("<M8[ns]", "(1,)")) + bytes(8), "holds times"),
    "bytes": (_header(FORM % ("|V8", "(1,)")) + bytes(8), "holds records"),
    "empty and huge": (_header(FORM % ("<f4", f"(0, {2**62}, {2**62})")), "a shape that no tensor has"),
    "many axes": (_header(FORM % ("<f4", "(" + "1," * 100 + ")")) + bytes(4), "a shape that no tensor has"),
    "many digits": (_header(FORM % ("<f4", "(" + "9" * 4000 + ",)")), "needs another number of bytes"),
    "another version": (b"\x93NUMPY\x09\x09" + bytes(100), "damaged header"),
}


@pytest.mark.parametrize("zipped", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_a_header_that_lies_is_refused(tmp_path: Path, name: str, zipped: bool) -> None:
    data, words = CASES[name]
    path = tmp_path / ("x.npz" if zipped else "x.npy")
    if zipped:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("a.npy", data)
    else:
        path.write_bytes(data)
    with pytest.raises(NpucError, match=words) as caught:
        TensorFile(path)["a" if zipped else ""]
    assert str(path) in str(caught.value) and caught.value.exit_status == 2
    assert len(caught.value.paragraph()) < 700 and "\n" not in caught.value.paragraph()


def test_a_header_of_any_length_is_not_unfolded(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive,
        archive.open("a.npy", "w", force_zip64=True) as member,
    ):
        member.write(b"\x93NUMPY\x02\x00" + struct.pack("<I", 64 << 20))
        for _ in range(64):
            member.write(b" " * (1 << 20))
    file = TensorFile(path)
    tracemalloc.start()
    try:
        with pytest.raises(FileFormatError, match="damaged header"):
            file.header("a")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["<f4", ">f4", "|b1", "<c8", "<U3", "|S3"])
def test_plain_tensors_are_read(tmp_path: Path, kind: str) -> None:
    array = np.zeros((2, 3), np.dtype(kind))
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", a=array)
    for found in (TensorFile(tmp_path / "x.npy")[""], TensorFile(tmp_path / "x.npz")["a"]):
        assert found.dtype == array.dtype and found.shape == (2, 3) and (found == array).all()
