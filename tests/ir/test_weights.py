"""The weight store: judged by the safetensors package, and by files that lie."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.errors import NpucError, WeightFileError
from npuc.ir import WeightStore
from npuc.ir.weights import FileSlice, load_safetensors, save_safetensors


def store(**arrays: Array) -> WeightStore:
    weights = WeightStore()
    for name, array in arrays.items():
        weights.add(name, array)
    return weights


def test_the_safetensors_package_reads_what_is_written(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.array([True, False]),
        "c": np.arange(5, dtype=np.int8),
        "d": np.array(2.5, np.float64),
        "e": np.zeros((0, 3), np.float16),
        "f": np.arange(4, dtype=np.uint64),
    }
    save_safetensors(tmp_path / "w.safetensors", store(**arrays))
    judge = safetensors.numpy.load_file(tmp_path / "w.safetensors")
    assert judge.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(judge[name], array)
        assert judge[name].dtype == array.dtype


@pytest.mark.parametrize(
    "dtype",
    [ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.uint4, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2fnuz],
)
def test_narrow_types_come_back_as_they_were(tmp_path: Path, dtype: Any) -> None:
    array = np.arange(6).astype(dtype).reshape(2, 3)
    save_safetensors(tmp_path / "w.safetensors", store(w=array))
    loaded = load_safetensors(tmp_path / "w.safetensors")
    assert loaded.array("w").dtype == array.dtype
    np.testing.assert_array_equal(loaded.array("w").astype(np.float32), array.astype(np.float32))


def test_loaded_weights_are_mapped_and_aligned(tmp_path: Path) -> None:
    arrays = {
        "b": np.arange(3, dtype=np.int8),
        "a": np.arange(4, dtype=np.float64),
        "c": np.ones(5, np.float32),
    }
    save_safetensors(tmp_path / "w.safetensors", store(**arrays))
    loaded = load_safetensors(tmp_path / "w.safetensors")
    for name in arrays:
        assert isinstance(loaded[name].data, FileSlice)
        array = loaded.array(name)
        assert not array.flags.owndata and not array.flags.writeable and array.flags.aligned


def test_names_are_unique_and_the_stored_array_is_read_only() -> None:
    weights = WeightStore()
    assert [weights.add("w", np.zeros(1)) for _ in range(3)] == ["w", "w.1", "w.2"]
    with pytest.raises(ValueError, match="read-only"):
        weights.array("w")[0] = 1


def test_a_copy_grows_alone() -> None:
    first = store(a=np.zeros(1))
    second = first.copy()
    second.add("b", np.zeros(1))
    assert "b" not in first and "a" in second


@pytest.mark.parametrize(
    "header",
    [
        b"not json",
        json.dumps([1, 2]).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [0, 1 << 40]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 16]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [-4], "data_offsets": [0, 16]}}).encode(),
        json.dumps({"w": {"dtype": "F99", "shape": [4], "data_offsets": [0, 16]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [4], "data_offsets": [16, 0]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [4]}}).encode(),
    ],
)
def test_lying_headers_are_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "w.safetensors"
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(16))
    with pytest.raises(WeightFileError):
        load_safetensors(path)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.data())
def test_mutated_files_never_crash(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("w") / "w.safetensors"
    save_safetensors(path, store(a=np.arange(6, dtype=np.float32), b=np.ones((2, 2), np.int64)))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content = content[: data.draw(st.integers(0, len(content)))]
    else:
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content)
    try:
        for name in (loaded := load_safetensors(path)):
            loaded.array(name).sum()
    except NpucError as error:
        assert error.exit_status == 2
