"""Samples of files fit the inputs of a network, in batches of its size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.calib.random_inputs import random_inputs
from npuc.calib.samples import batch_size, load_samples, parse_assignments
from npuc.errors import InputDataError
from npuc.ir import Graph, tensor_type
from npuc.tensors import TensorSpool, write_npz


def graph(**inputs: tuple[tuple[int, ...], str]) -> Graph:
    made = Graph.empty([(name, tensor_type(shape, dtype)) for name, (shape, dtype) in inputs.items()])
    made.set_outputs([(port.name, port.value) for port in made.inputs])
    return made


@settings(deadline=None, derandomize=True, max_examples=50)
@given(st.integers(1, 4), st.integers(1, 11))
def test_batches_hold_every_sample_once_and_the_spool_puts_them_together(
    tmp_path_factory: pytest.TempPathFactory, batch: int, total: int
) -> None:
    folder = tmp_path_factory.mktemp("s")
    data = np.arange(total * 2, dtype=np.float32).reshape(total, 2)
    write_npz(folder / "in.npz", {"x": data})
    samples = load_samples(graph(x=((batch, 2), "f32")), [(None, folder / "in.npz")])
    assert (samples.total, samples.runs) == (total, -(-total // batch))
    with TensorSpool(folder / "out.npz", samples.batch) as spool:
        for one in samples:
            assert one.inputs["x"].shape == (batch, 2)
            spool.append({"x": one.inputs["x"], "sum": one.inputs["x"].sum()}, one.keep)
        shapes = spool.finish()
    with np.load(folder / "out.npz") as out:
        np.testing.assert_array_equal(out["x"], data)
        assert out["sum"].shape == shapes["sum"] == ((samples.runs,) if samples.runs > 1 else ())


def test_tensors_that_change_their_shape_are_kept_apart(tmp_path: Path) -> None:
    with TensorSpool(tmp_path / "o.npz", 1) as spool:
        spool.append({"boxes": np.ones((2, 4))})
        spool.append({"boxes": np.ones((5, 4))})
        assert spool.finish() == {"boxes[0]": (2, 4), "boxes[1]": (5, 4)}
    assert [path.name for path in tmp_path.iterdir()] == ["o.npz"]


def test_an_input_given_once_serves_all_runs(tmp_path: Path) -> None:
    write_npz(tmp_path / "i.npz", {"a": np.arange(3.0).reshape(3, 1), "b": np.ones((1, 1))})
    samples = load_samples(graph(a=((1, 1), "f32"), b=((1, 1), "f32")), [(None, tmp_path / "i.npz")])
    assert [float(batch.inputs["a"][0, 0] + batch.inputs["b"][0, 0]) for batch in samples] == [1, 2, 3]


def test_different_numbers_of_samples_are_refused(tmp_path: Path) -> None:
    write_npz(tmp_path / "i.npz", {"a": np.zeros((3, 1)), "b": np.zeros((2, 1))})
    with pytest.raises(InputDataError, match="different numbers"):
        load_samples(graph(a=((1, 1), "f32"), b=((1, 1), "f32")), [(None, tmp_path / "i.npz")])


def test_inputs_without_a_common_batch_take_whole_runs(tmp_path: Path) -> None:
    net = graph(a=((2, 1), "f32"), b=((), "f32"))
    assert batch_size(net) is None
    write_npz(tmp_path / "i.npz", {"a": np.zeros((4, 1)), "b": np.zeros(2)})
    assert load_samples(net, [(None, tmp_path / "i.npz")]).runs == 2
    write_npz(tmp_path / "i.npz", {"a": np.zeros((3, 1)), "b": np.zeros(())})
    with pytest.raises(InputDataError, match="2 rows"):
        load_samples(net, [(None, tmp_path / "i.npz")])


def test_types_convert_where_nothing_is_lost(tmp_path: Path) -> None:
    net = graph(a=((2,), "i64"))
    for array in (np.array([1, 2], np.uint8), np.array([1.0, 2.0])):
        np.save(tmp_path / "a.npy", array)
        batch = next(iter(load_samples(net, [(None, tmp_path / "a.npy")])))
        assert batch.inputs["a"].dtype == np.int64
    for bad in (np.array([1.5, 2.0]), np.array([np.nan, 1.0]), np.array([1e300, 1.0])):
        np.save(tmp_path / "a.npy", bad)
        with pytest.raises(InputDataError):
            load_samples(net, [(None, tmp_path / "a.npy")])


def test_assignments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("strange=name.npz").touch()
    assert parse_assignments(["strange=name.npz"], ["x"]) == [(None, Path("strange=name.npz"))]
    with pytest.raises(InputDataError):
        parse_assignments(["y=a.npz"], ["x"])


@pytest.mark.parametrize(
    "dtype", ["f32", "f16", "bf16", "f64", "i64", "i8", "ui8", "i1", "f8E4M3FN", "complex64"]
)
def test_random_inputs_of_every_type(dtype: str) -> None:
    net = graph(x=((3, 4), dtype))
    one, again, other = (random_inputs(net, seed)["x"] for seed in (0, 0, 1))
    assert one.shape == (3, 4) and one.dtype == again.dtype
    np.testing.assert_array_equal(one.astype(np.complex64), again.astype(np.complex64))
    if dtype.startswith("f3"):
        assert not np.array_equal(one, other)


def test_random_masks_are_ones_and_random_images_are_preprocessed() -> None:
    assert (random_inputs(graph(attention_mask=((5,), "i64")))["attention_mask"] == 1).all()
    net = Graph.empty(
        [("x", tensor_type((1, 3, 4, 4), "f32"))], preprocess={"x": {"mean": (127.5,), "scale": (1 / 127.5,)}}
    )
    net.set_outputs([("y", net.inputs[0].value)])
    x: Any = random_inputs(net)["x"]
    assert -1 <= x.min() < -0.5 and 0.5 < x.max() <= 1
