"""Averages: no shift divides by 9, reciprocals must be as wide as the activations, and TFLite's pool has one type."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.requantization import mean_parameters, pool_parameters
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph, npu, tensor_type, top
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import Scheme

SIDE = 7


def network(kind: str) -> Graph:
    """One average of 7 x 7 or, padded, of fewer pixels."""
    graph = Graph.empty([("x", tensor_type((1, 2, SIDE, SIDE), "f32"))])
    x = graph.inputs[0].value
    window = {"strides": (1, 1), "ceil_mode": False, "dilations": (1, 1)}
    op: Any
    if kind == "global":
        op = top.AvgPool.make(x, kernel=(SIDE, SIDE), pads=(0,) * 4, name="y", **window)
    elif kind == "padded":
        op = top.AvgPool.make(x, kernel=(3, 3), pads=(1,) * 4, count_include_pad=False, name="y", **window)
    else:
        op = top.Reduce.make(x, kind="mean", axes=(2, 3), keepdims=True, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph


def largest_error(kind: str, scheme: Scheme) -> float:
    """In steps of the result, against the exact mean of the integers that went in."""
    graph = network(kind)
    made = quantize(graph, {"x": (-1.0, 1.0), "y": (-1.0, 1.0)}, scheme)
    assert made.notes == []
    pool = next(op for op in made.ops if isinstance(op, npu.AvgPool | npu.ReduceSum))
    step = quant_of(pool.y).scale  # type: ignore[union-attr]
    worst = 0.0
    for level in (0.999, -0.97, 0.6):
        x = np.full((1, 2, SIDE, SIDE), level, np.float32)
        held = np.rint(level / step)
        ours = IntegerEngine(made).run({"x": x})["y"]
        worst = max(worst, float(np.abs(np.asarray(ours) / step - held).max()))
    return worst


@pytest.mark.parametrize("kind", ["global", "padded", "mean"])
@pytest.mark.parametrize("scheme", ["pow2", "dfp16"])
def test_an_average_is_within_a_step_and_a_half(kind: str, scheme: str) -> None:
    assert largest_error(kind, SCHEMES[scheme]) <= 1.5


@pytest.mark.parametrize(("kind", "steps"), [("global", 1.0 / SIDE**2), ("padded", 1.0)])
@pytest.mark.parametrize("scheme", ["tflite", "tflite-int16"])
def test_large_values_count_where_the_mean_is_small(kind: str, steps: float, scheme: str) -> None:
    """TFLite's average pool has one type: the narrow one of the result would clip what goes in."""
    x = np.zeros((1, 2, SIDE, SIDE), np.float32)
    x[:, 0, 3, 3], x[:, 1, 3, 3] = 9.0, -9.0
    exact = FloatEngine(network(kind)).run({"x": x})["y"]
    made = quantize(network(kind), {"x": (-10.0, 10.0), "y": (-1.0, 1.0)}, SCHEMES[scheme])
    assert made.notes == []
    types = integer_types(made)
    allowed = types["y"].scale + steps * types["x/quantized"].scale
    np.testing.assert_allclose(IntegerEngine(made).run({"x": x})["y"], exact, rtol=0, atol=allowed)


@pytest.mark.parametrize(("width", "bits"), [(8, 7), (16, 15)])
def test_the_reciprocal_has_the_bits_of_the_activations(width: int, bits: int) -> None:
    for count in range(1, 200):
        found = pool_parameters("pow2", 0.5, 0.5, count, width=width)
        assert found.multiplier is not None and found.shift is not None
        assert 2 ** (bits - 1) <= int(found.multiplier[0]) < 2**bits
        error = abs(found.multiplier[0] * 2.0 ** -found.shift[0] * count - 1)
        assert error * 2 ** (width - 1) <= 1
        mean = mean_parameters("pow2", 0.5, 0.5, count, width=width)
        assert mean.multiplier == found.multiplier and mean.shift == found.shift


def test_a_small_largest_shift_costs_bits_not_the_average() -> None:
    found = pool_parameters("pow2", 1.0, 1.0, [1, 1000], width=16, max_shift=16)
    assert found.multiplier is not None and found.shift is not None
    assert found.shift.max() <= 16 and found.multiplier.all()
    np.testing.assert_allclose(found.multiplier * 2.0**-found.shift, [1, 1e-3], rtol=0.01)
