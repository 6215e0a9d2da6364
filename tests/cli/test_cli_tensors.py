"""`npuc tensors`: dump, compare, to-dat, stats."""

from __future__ import annotations

import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def files(here: Path) -> None:
    rng = np.random.default_rng(0)
    a = {name: rng.standard_normal((4, 5)).astype(np.float32) for name in ("good", "bad", "/deep/name")}
    b = {**a, "bad": -a["bad"], "more": np.zeros(1)}
    np.savez("a.npz", **a)
    np.savez("b.npz", **b)


@pytest.mark.usefixtures("files")
def test_compare_puts_the_worst_first_and_fails(npuc: Any) -> None:
    done = npuc("tensors", "compare", "a.npz", "b.npz")
    assert done.status == 2
    assert done.out.splitlines()[1].split()[0] == "bad" and "-1.000000" in done.out
    assert "error[E403]" in done.err and "'bad'" in done.err
    assert "only in b.npz: more" in done.err


@pytest.mark.usefixtures("files")
def test_compare_passes_without_what_is_left_out(npuc: Any) -> None:
    done = npuc("tensors", "compare", "a.npz", "b.npz", "--except", "bad")
    assert done.status == 0 and "2 of 2 tensors" in done.out
    assert npuc("tensors", "compare", "a.npz", "b.npz", "--tolerance", "-1").status == 0


@pytest.mark.usefixtures("files")
def test_compare_as_json(npuc: Any) -> None:
    done = npuc("tensors", "compare", "a.npz", "b.npz", "--json", "--sort", "name")
    result = json.loads(done.out)
    assert result["passed"] is False
    assert [entry["name"] for entry in result["tensors"]] == ["/deep/name", "bad", "good"]
    assert result["tensors"][2]["sqnr"] == "inf"


def test_compare_of_files_with_nothing_in_common(npuc: Any, here: Path) -> None:
    np.savez("a.npz", x=np.zeros(1))
    np.savez("b.npz", y=np.zeros(1))
    done = npuc("tensors", "compare", "a.npz", "b.npz")
    assert done.status == 2 and "'x'" in done.err and "'y'" in done.err


def test_compare_of_different_shapes(npuc: Any, here: Path) -> None:
    np.savez("a.npz", x=np.zeros(1))
    np.savez("b.npz", x=np.zeros(2))
    done = npuc("tensors", "compare", "a.npz", "b.npz")
    assert done.status == 2 and "shape [1] against [2]" in done.out


@pytest.mark.usefixtures("files")
def test_dump_lists_and_prints(npuc: Any) -> None:
    done = npuc("tensors", "dump", "a.npz")
    assert done.status == 0 and "/deep/name  4x5    float32" in done.out
    done = npuc("tensors", "dump", "a.npz", "good", "--json")
    np.testing.assert_array_equal(json.loads(done.out)["values"], np.load("a.npz")["good"])
    done = npuc("tensors", "dump", "a.npz", "nothing")
    assert done.status == 2 and "good" in done.err


@pytest.mark.usefixtures("files")
def test_to_dat_writes_little_endian_rows(npuc: Any, here: Path) -> None:
    np.savez("c.npz", x=np.array([[1, 2], [3, 4]], ">i2", order="F"))
    assert npuc("tensors", "to-dat", "c.npz", "x", "-o", "x.dat").status == 0
    assert Path("x.dat").read_bytes() == struct.pack("<4h", 1, 2, 3, 4)
    assert npuc("tensors", "to-dat", "a.npz", "--all", "out").status == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["bad.dat", "deep_name.dat", "good.dat"]
    assert npuc("tensors", "to-dat", "a.npz", "-o", "x.dat").status == 2
    assert npuc("tensors", "to-dat", "a.npz", "good").status == 2


def test_stats(npuc: Any, here: Path) -> None:
    np.savez("a.npz", x=np.array([0.0, 2.0, np.nan, np.inf]), i=np.arange(3))
    done = npuc("tensors", "stats", "a.npz", "--json")
    x, i = json.loads(done.out)
    assert (x["minimum"], x["maximum"], x["mean"], x["not_finite"], x["zeros"]) == (0, 2, 1, 2, 0.5)
    assert i["mean"] == 1
    assert npuc("tensors", "stats", "a.npz").out.splitlines()[1].startswith("x ")


def test_an_npy_file_is_one_tensor(npuc: Any, here: Path) -> None:
    np.save("a.npy", np.arange(3.0))
    assert npuc("tensors", "compare", "a.npy", "a.npy").status == 0
    assert "2" in npuc("tensors", "dump", "a.npy", "--full").out


class TestHostileFiles:
    """Every one of these is an error with status 2, whatever the command."""

    @staticmethod
    def header(shape: str, descr: str = "<f4") -> bytes:
        text = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
        text += b" " * (-(len(text) + 11) % 64) + b"\n"
        return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text

    def refused(self, npuc: Any, word: str) -> None:
        for command in ("dump", "stats"):
            done = npuc("tensors", command, "h.npz")
            assert done.status == 2 and word in done.err, done

    def write(self, content: bytes, compression: int = zipfile.ZIP_STORED) -> None:
        with zipfile.ZipFile("h.npz", "w", compression) as archive:
            archive.writestr("x.npy", content)

    def test_a_header_that_claims_more_than_there_is(self, npuc: Any, here: Path) -> None:
        self.write(self.header("(1000000000, 1000000)") + b"1234")
        self.refused(npuc, "bytes")

    def test_a_negative_size(self, npuc: Any, here: Path) -> None:
        self.write(self.header("(-1,)") + b"1234")
        self.refused(npuc, "")

    def test_a_pickle(self, npuc: Any, here: Path) -> None:
        np.savez("h.npz", x=np.array([{}], dtype=object))
        self.refused(npuc, "unpickle")

    def test_code_in_the_header(self, npuc: Any, here: Path) -> None:
        self.write(self.header("__import__('os').getcwd()") + b"1234")
        self.refused(npuc, "header")

    def test_a_cut_off_file(self, npuc: Any, here: Path) -> None:
        np.savez("full.npz", x=np.zeros(1000))
        Path("h.npz").write_bytes(Path("full.npz").read_bytes()[:4000])
        self.refused(npuc, "damaged")

    def test_a_changed_byte(self, npuc: Any, here: Path) -> None:
        np.savez("full.npz", x=np.zeros(1000))
        data = bytearray(Path("full.npz").read_bytes())
        data[4000] ^= 1
        Path("h.npz").write_bytes(data)
        done = npuc("tensors", "stats", "h.npz")
        assert done.status == 2 and "CRC" in done.err

    def test_a_bomb(self, npuc: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("npuc.tensors.MAX_UNPACKED", 1 << 16)
        self.write(self.header("(100000,)") + bytes(400000), zipfile.ZIP_DEFLATED)
        self.refused(npuc, "limit")

    def test_something_else(self, npuc: Any, here: Path) -> None:
        Path("h.npz").write_bytes(b"hello")
        self.refused(npuc, "neither")
        with zipfile.ZipFile("h.npz", "w") as archive:
            archive.writestr("readme.txt", "hello")
        self.refused(npuc, "without tensors")

    def test_random_damage_never_shows_a_traceback(self, npuc: Any, here: Path) -> None:
        np.savez_compressed("full.npz", x=np.arange(100), y=np.ones((3, 4)))
        good = Path("full.npz").read_bytes()
        rng = np.random.default_rng(0)
        for _ in range(100):
            data = bytearray(good)
            for position in rng.integers(0, len(data), 3):
                data[position] = rng.integers(0, 256)
            Path("h.npz").write_bytes(data)
            assert npuc("tensors", "stats", "h.npz").status in (0, 2)
