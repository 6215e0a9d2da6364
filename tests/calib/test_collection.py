"""One streaming pass sees every tensor, in bounded memory, and says what it left out."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.calibration import calibrate, resolve_overrides, table_from
from npuc.calib.collection import channel_axes, collect, observed_tensors
from npuc.calib.limits import ValueLimits
from npuc.calib.sources import DataOptions, random_data
from npuc.calib.statistics import ObserverOptions, Statistics, load_statistics, save_statistics
from npuc.errors import FileFormatError, UnknownTensorError, UsageError
from npuc.ir import Graph, top
from support.graphs import build, evaluate

RNG = np.random.default_rng(4)


def network(batch: int = 1) -> Graph:
    """conv with relu, a product, a logarithm that can be infinite, and an index that is no float."""
    weight = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)

    def body(b: Any, x: Any) -> dict[str, Any]:
        hidden = b(
            top.Conv,
            x,
            weight,
            None,
            strides=(1, 1),
            pads=(1, 1, 1, 1),
            dilations=(1, 1),
            relu=True,
            name="hidden",
            layer="conv",
        )
        flat = b(top.Reshape, hidden, shape=(batch, 4 * 36), name="flat")
        scores = b(
            top.MatMul,
            flat,
            RNG.standard_normal((144, 5)).astype(np.float32),
            None,
            name="scores",
            layer="fc",
        )
        return {"out": scores, "best": b(top.ArgReduce, scores, axis=1, name="best")}

    return build({"x": (batch, 3, 6, 6)}, body)


def data(count: int, seed: int = 0) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal((3, 6, 6)).astype(np.float32) * (1 + index % 3) for index in range(count)]


def assert_same(one: Statistics, other: Statistics) -> None:
    assert list(one) == list(other)
    for name in one:
        for field, value in vars(one[name]).items():
            if isinstance(value, np.ndarray):
                np.testing.assert_array_equal(value, getattr(other[name], field), err_msg=f"{name}.{field}")
            else:
                assert value == getattr(other[name], field), f"{name}.{field}"


def test_inputs_and_float_results_are_observed() -> None:
    assert observed_tensors(network()) == ["x", "hidden", "flat", "scores"]


def test_statistics_are_those_of_all_values_at_once() -> None:
    graph, samples = network(), data(7)
    statistics = collect(graph, samples, threads=1)
    values = [evaluate(graph, {"x": sample[None]}, fetch=["hidden", "scores"]) for sample in samples]
    assert statistics.samples == 7
    for name in ("x", "hidden", "scores"):
        every = np.concatenate(
            [(s[None] if name == "x" else v[name]).reshape(-1) for s, v in zip(samples, values, strict=True)]
        )
        found = statistics[name]
        assert found.count == every.size and found.batches == 7
        assert (found.min, found.max) == pytest.approx((every.min(), every.max()), rel=1e-5)
        assert found.mean == pytest.approx(every.mean(), rel=1e-4, abs=1e-5)
        assert found.deviation == pytest.approx(every.std(), rel=1e-4)
        counts, _ = np.histogram(every, found.edges())
        assert np.abs(counts - found.histogram.astype(int)).sum() <= every.size // 100


@pytest.mark.parametrize("threads", [1, 2])
def test_streaming_again_gives_the_same_statistics(threads: int) -> None:
    graph, samples = network(), data(5)
    assert_same(
        collect(graph, samples, threads=threads), collect(graph, lambda: iter(samples), threads=threads)
    )


def test_the_padding_of_the_last_batch_is_not_counted() -> None:
    statistics = collect(network(batch=4), data(6), threads=1)
    assert statistics.samples == 6
    assert statistics["x"].count == 6 * 108 and statistics["scores"].count == 6 * 5
    single = collect(network(batch=1), data(6), threads=1)
    np.testing.assert_array_equal(statistics["x"].histogram, single["x"].histogram)


def test_memory_does_not_grow_with_the_samples() -> None:
    held: list[int] = []

    def stream() -> Iterator[Array]:
        for index in range(401):
            if index % 100 == 0:
                gc.collect()
                held.append(tracemalloc.get_traced_memory()[0])
            yield np.random.default_rng(index).standard_normal((3, 6, 6)).astype(np.float32)

    tracemalloc.start()
    try:
        collect(network(), stream(), threads=1)
    finally:
        tracemalloc.stop()
    # Small blocks that NumPy keeps for reuse are a few kB; holding on to the input of each sample would be 130 kB.
    assert held[-1] < held[1] + 80_000, held


def infinite_network() -> Graph:
    return build({"x": (1, 4)}, lambda b, x: b(top.Relu, b(top.Log, x, name="logarithm"), name="relu"))


def test_nan_and_infinity_are_left_out_and_named() -> None:
    samples = [np.float32([1.0, 2.0, 0.0, -1.0]), np.float32([1.0, 3.0, 1.0, 1.0])]
    heard: list[str] = []
    statistics = collect(infinite_network(), samples, threads=1, warn=heard.append)
    found = statistics["logarithm"]
    assert (found.count, found.nans, found.infinite) == (6, 1, 1)
    assert (found.min, found.max) == pytest.approx((0.0, np.log(3.0)))
    words = "tensor 'logarithm': left out 1 NaN and 1 infinite or beyond ±1e+30 of 8 values"
    assert words in statistics.notes and words in heard


def test_values_beyond_limits_are_clipped_or_left_out_and_named() -> None:
    graph, samples = network(), data(4)
    whole = collect(graph, samples)
    assert whole["x"].min < -1.0 and whole["x"].max > 0.5
    clipped = collect(graph, samples, limits=ValueLimits(-1.0, 0.5, clips=True))
    assert (clipped["x"].min, clipped["x"].max) == (-1.0, 0.5) and clipped["x"].count == whole["x"].count
    assert not clipped.notes
    left = collect(graph, samples, limits=ValueLimits(-1.0, 0.5))
    values = np.concatenate([sample.reshape(-1) for sample in samples])
    inside = values[(values >= -1.0) & (values <= 0.5)]
    assert left["x"].count == inside.size
    assert (left["x"].min, left["x"].max) == (inside.min(), inside.max())
    assert any("'x': left out" in note and "infinite or beyond -1 to 0.5" in note for note in left.notes)


def test_a_tensor_that_is_never_finite_has_no_range_and_is_named() -> None:
    statistics = collect(infinite_network(), [np.full(4, -1.0, np.float32)], threads=1)
    table = table_from(statistics, "max")
    assert "logarithm" not in table and "x" in table
    assert "tensor 'logarithm' never had a finite value, so it has no range" in table.notes


def test_channel_extremes_are_recorded_where_asked() -> None:
    graph = network()
    axes = channel_axes(graph)
    assert axes == {"x": 1, "flat": -1}
    samples = data(4)
    statistics = collect(graph, samples, threads=1, channels=axes)
    every = np.stack(samples)
    assert statistics["x"].channel_min is not None and statistics["hidden"].channel_min is None
    np.testing.assert_array_equal(statistics["x"].channel_min, every.min(axis=(0, 2, 3)))
    np.testing.assert_array_equal(statistics["x"].channel_max, every.max(axis=(0, 2, 3)))


def test_statistics_are_saved_and_loaded(tmp_path: Path) -> None:
    graph = network()
    statistics = collect(
        graph, data(5), threads=1, channels={"x": 1}, options=ObserverOptions(bins=512, momenta=(0.5,))
    )
    save_statistics(statistics, tmp_path / "s.npz")
    again = load_statistics(tmp_path / "s.npz")
    assert_same(statistics, again)
    assert (again.samples, again.options, again.notes) == (5, statistics.options, statistics.notes)
    assert table_from(again, "kl") == table_from(statistics, "kl")


def test_a_file_that_is_no_statistics_is_an_error(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=np.zeros(3))
    with pytest.raises(FileFormatError, match="does not hold the statistics of a calibration"):
        load_statistics(tmp_path / "s.npz")


def test_calibrate_gives_a_range_for_every_tensor() -> None:
    graph = network()
    table = calibrate(graph, data(5), "max", threads=1)
    assert list(table) == observed_tensors(graph)
    assert table["hidden"].min == 0.0
    assert table["x"].threshold == pytest.approx(max(-table["x"].min, table["x"].max))
    assert table.comments == ("method: max", "bits: 8", "samples: 5")


def test_methods_are_chosen_for_a_tensor_or_a_layer() -> None:
    graph = network()
    table = calibrate(graph, data(5), "max", overrides={"x": "percentile:ratio=0.5", "fc": "kl"}, threads=1)
    assert [entry.method for entry in table.values()] == ["percentile:ratio=0.5", "max", "max", "kl"]
    assert table["x"].threshold < 2.5
    with pytest.raises(UnknownTensorError, match="hidden"):
        resolve_overrides(graph, {"hiden": "kl"})


def test_statistics_of_another_network_are_refused() -> None:
    statistics = collect(infinite_network(), [np.ones(4, np.float32)], threads=1)
    with pytest.raises(UnknownTensorError, match="such as 'hidden'"):
        calibrate(network(), statistics=statistics)


def test_neither_or_both_of_data_and_statistics_is_an_error() -> None:
    with pytest.raises(UsageError):
        calibrate(network())


def test_random_data_makes_a_smoke_run() -> None:
    graph = network()
    table = calibrate(graph, random_data(graph, 2, 1), "mse", threads=1)
    assert 0 < table["x"].max <= 1


def test_the_count_is_a_bound(tmp_path: Path) -> None:
    statistics = collect(network(), data(9), DataOptions(max_count=4), threads=1)
    assert statistics.samples == 4
