"""Constants that ops put beside data (pads, concats, choices) survive quantization, and so do the data."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import compile_network, quantize_network, quantize_on_data
from npuc.ir import Graph, Value, npu, top
from npuc.ir.dtypes import quant_of
from npuc.quant import quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.scheme import SCHEMES
from npuc.runtime.runner import Runner
from npuc.target import load_target

Regions = dict[str, Array]
SHAPE = (1, 4, 8, 8)


def _weights(*shape: int, seed: int = 0) -> Array:
    random = np.random.default_rng(seed)
    return (random.normal(size=shape) / np.prod(shape[1:]) ** 0.5).astype(np.float32)


def _map() -> Any:
    x = lang.input("x", SHAPE)
    return lang.conv(x, _weights(4, 4, 3, 3), _weights(4, 1)[:, 0], pads=1, name="stem")


def _conv(x: Any) -> Any:
    return lang.conv(x, _weights(4, 4, 1, 1, seed=1), np.zeros(4, np.float32), name="tail")


def _padded(value: float, x: Any = None, name: str = "y") -> Any:
    return lang.pad(_map() if x is None else x, pads=(0, 0, 2, 2, 0, 0, 2, 2), value=value, name=name)


def _two_pads() -> Any:
    stem = _map()
    return lang.concat([_padded(5.0, stem), _padded(0.0, stem, "other")], axis=1, name="z")


def _border(channels: int = 4) -> Regions:
    inside = np.zeros((1, channels, 12, 12), bool)
    inside[:, :, 2:10, 2:10] = True
    return {"data": inside, "constants": ~inside}


def _concatenated() -> Any:
    return lang.concat([_map(), np.full((1, 2, 8, 8), -9.0, np.float32)], axis=1, name="y")


def _channels(data: int, constants: int) -> Regions:
    inside = np.zeros((1, data + constants, 8, 8), bool)
    inside[:, :data] = True
    return {"data": inside, "constants": ~inside}


_MASK = np.arange(64).reshape(8, 8) % 7 == 0


def _chosen() -> Any:
    return lang.where(np.broadcast_to(_MASK, SHAPE).copy(), np.float32(6.0), _map(), name="y")


def _scattered() -> Any:
    indices = np.zeros((1, 1, 8, 8), np.int64)
    return lang.scatter_elements(_map(), indices, np.full((1, 1, 8, 8), 7.0, np.float32), axis=1, name="y")


def _first_channel() -> Regions:
    first = np.zeros(SHAPE, bool)
    first[:, :1] = True
    return {"data": ~first, "constants": first}


def _masked() -> Regions:
    mask = np.broadcast_to(_MASK, SHAPE)
    return {"data": ~mask, "constants": mask}


CASES: dict[str, tuple[Any, Regions]] = {
    "pad": (lambda: _padded(5.0), _border()),
    "pad below": (lambda: _padded(-12.0), _border()),
    "pad, then a layer": (lambda: _conv(_padded(5.0)), _border()),
    "pad of an input": (
        lambda: _padded(30.0, lang.input("x", SHAPE)),
        _border(),
    ),
    "pad, moved": (lambda: lang.permute(_padded(5.0), order=(0, 2, 3, 1), name="z"), {}),
    "concat": (_concatenated, _channels(4, 2)),
    "concat of a pad": (
        lambda: _two_pads(),
        {},
    ),
    "where": (_chosen, _masked()),
    "scatter": (_scattered, _first_channel()),
    "clip": (lambda: lang.clip(_map(), min=4.0, max=6.0, name="y"), {}),
    "clip, then a layer": (lambda: _conv(lang.clip(_map(), min=4.0, max=6.0, name="y")), {}),
    "max": (lambda: lang.max(_map(), np.float32(3.0), name="y"), {}),
    "where, then a layer": (lambda: _conv(_chosen()), _masked()),
    "scatter, then a layer": (lambda: _conv(_scattered()), {}),
}


def _samples() -> list[dict[str, Array]]:
    random = np.random.default_rng(1)
    return [{"x": random.normal(size=SHAPE).astype(np.float32)} for _ in range(6)]


def _sqnr(wanted: Array, found: Array, region: Array) -> float:
    signal, error = wanted[region].astype(np.float64), (found - wanted)[region].astype(np.float64)
    return float(10 * np.log10(np.square(signal).sum() / max(np.square(error).sum(), 1e-12)))


def _check(graph: Graph, made: Graph, regions: Regions, least: float) -> None:
    sample = _samples()[0]
    wanted = FloatEngine(graph, threads=1).run(sample)["out"]
    found = IntegerEngine(made, threads=1).run(sample)["out"]
    for name, region in (regions or {"all": np.ones(wanted.shape, bool)}).items():
        assert _sqnr(wanted, found, region) > least, name


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("scheme", [None, "int8", "uint8", "pow2"])
def test_constants_and_data_are_both_there(name: str, scheme: str | None) -> None:
    function, regions = CASES[name]
    graph = lang.build({"out": function()})
    config = None if scheme is None else QuantizationConfig(scheme=scheme)
    made, _ = quantize_on_data(graph, open_data(graph, _samples()), config, threads=1)
    _check(graph, made.graph, regions, 18.0)


@pytest.mark.parametrize("name", ["pad", "pad of an input", "pad, moved", "concat of a pad", "concat"])
def test_a_compiled_program_has_them_too(name: str) -> None:
    function, regions = CASES[name]
    graph, target = lang.build({"out": function()}), load_target("edge-4t")
    made, _ = quantize_on_data(graph, open_data(graph, _samples()), target=target, threads=1)
    _check(graph, made.graph, regions, 18.0)
    sample = _samples()[0]
    with Runner(compile_network(made.graph, target).model) as runner:
        found = runner.run(sample)["out"]
    np.testing.assert_array_equal(found, IntegerEngine(made.graph, threads=1).run(sample)["out"])


def _quantized(graph: Graph, ranges: dict[str, tuple[float, float]]) -> Graph:
    return quantize_network(graph, ranges).graph


def _scale(value: Value) -> float:
    kind = quant_of(value)
    assert kind is not None
    return kind.scale


def test_data_with_other_readers_keep_their_own_steps() -> None:
    """What only the pad reads is made in its type; what others read too is requantized in front of it."""
    stem = _map()
    ranges = {"x": (-3.0, 3.0), "stem": (-1.0, 1.0), "y": (-1.0, 5.0), "tail": (-1.0, 1.0)}
    shared = _quantized(lang.build({"out": _padded(5.0, stem), "other": _conv(stem)}), ranges)
    assert [_scale(op.y) for op in shared.ops if isinstance(op, npu.Requant)] == [pytest.approx(6 / 255)]
    alone = _quantized(lang.build({"out": _padded(5.0)}), ranges)
    assert not any(isinstance(op, npu.Requant) for op in alone.ops)


def test_zero_pads_change_nothing() -> None:
    ranges = {"x": (-3.0, 3.0), "stem": (-1.0, 1.0), "y": (-0.9, 0.9)}
    made = _quantized(lang.build({"out": _padded(0.0)}), ranges)
    pad = next(op for op in made.ops if isinstance(op, top.Pad))
    assert _scale(pad.y) == pytest.approx(2 / 255)


def test_constants_that_would_take_all_steps_are_clipped_and_named() -> None:
    ranges = {"x": (-3.0, 3.0), "stem": (-1.0, 1.0), "y": (-1.0, 1.0), "top": (-1.0, 1.0)}
    made = _quantized(lang.build({"out": _padded(1e6)}), ranges)
    assert [note for note in made.notes if "constants in 'y'" in note and "1e+06" in note]
    pooled = lang.max_pool(_padded(float("-inf")), kernel=(3, 3), name="top")
    assert not _quantized(lang.build({"out": pooled}), ranges).notes


def test_a_softmax_sees_no_padding_of_minus_infinity() -> None:
    """Its operand reaches as far down as a softmax looks, and no further."""
    pad = lang.pad(_map(), pads=(0, 0, 0, 0, 0, 0, 0, 8), value=float("-inf"), name="y")
    graph = lang.build({"out": lang.softmax(pad, axis=-1, name="weights")})
    ranges = {"x": (-3.0, 3.0), "stem": (-3.0, 3.0), "y": (-3.0, 3.0), "weights": (0.0, 1.0)}
    made, sample = _quantized(graph, ranges), _samples()[0]
    found = IntegerEngine(made, threads=1).run(sample)["out"]
    wanted = FloatEngine(graph, threads=1).run(sample)["out"]
    assert not found[..., 8:].any() and np.abs(found - wanted).max() < 0.08


def test_a_16_bit_result_holds_more() -> None:
    ranges = {"x": (-3.0, 3.0), "stem": (-1.0, 1.0), "y": (-1.0, 1.0)}
    made = quantize(lang.build({"out": _padded(1000.0)}), ranges, SCHEMES["int16"])
    found = IntegerEngine(made, threads=1).run(_samples()[0])["out"]
    assert found[0, 0, 0, 0] == pytest.approx(1000.0, rel=1e-3) and not made.notes
