"""Softmax, norms, reductions and resize as integers: within a step or two of the float result, under every kind."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import Scaling
from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph, npu, tensor_type, top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize
from npuc.quant.lowering.registry import NoIntegerForm
from npuc.quant.lowering.scaling import require_multipliers

Make = Callable[[Graph, Any], TopOp]


def weight(graph: Graph, name: str, array: Array) -> Any:
    op = graph.add_weight(name, array.astype(np.float32))
    graph.block.add_op(op)
    return op.output


RNG = np.random.default_rng(0)
GAMMA, BETA = RNG.normal(1, 0.2, 8), RNG.normal(0, 0.5, 8)
CASES: dict[str, tuple[tuple[int, ...], Make, type]] = {
    "softmax": ((2, 3, 8), lambda g, x: top.Softmax.make(x, axis=-1, name="y"), npu.Softmax),
    "softmax over channels": ((2, 5, 4, 4), lambda g, x: top.Softmax.make(x, axis=1, name="y"), npu.Softmax),
    "layer norm": (
        (2, 3, 8),
        lambda g, x: top.LayerNorm.make(x, weight(g, "s", GAMMA), weight(g, "b", BETA), axis=-1, name="y"),
        npu.Norm,
    ),
    "rms norm": (
        (2, 3, 8),
        lambda g, x: top.RMSNorm.make(x, weight(g, "s", GAMMA), axis=-1, name="y"),
        npu.Norm,
    ),
    "instance norm": (
        (2, 8, 4, 5),
        lambda g, x: top.InstanceNorm.make(x, weight(g, "s", GAMMA), weight(g, "b", BETA), name="y"),
        npu.Norm,
    ),
    "group norm": (
        (2, 8, 4, 5),
        lambda g, x: top.GroupNorm.make(x, weight(g, "s", GAMMA), weight(g, "b", BETA), groups=2, name="y"),
        npu.Norm,
    ),
    "l2 norm": ((2, 6, 8), lambda g, x: top.L2Norm.make(x, axis=-1, name="y"), npu.Norm),
    "mean": ((2, 6, 8), lambda g, x: top.Reduce.make(x, kind="mean", axes=(1,), name="y"), npu.ReduceSum),
    "sum": (
        (2, 6, 8),
        lambda g, x: top.Reduce.make(x, kind="sum", axes=(0, 2), keepdims=False, name="y"),
        npu.ReduceSum,
    ),
    "prelu": (
        (1, 8, 4, 5),
        lambda g, x: top.PRelu.make(x, weight(g, "s", BETA.reshape(8, 1, 1)), name="y"),
        npu.ChannelTable,
    ),
    "bilinear": (
        (1, 3, 4, 5),
        lambda g, x: top.Resize.make(x, sizes=(1, 3, 8, 10), mode="linear", name="y"),
        npu.ResizeBilinear,
    ),
}


@pytest.mark.parametrize("scheme", ["int8", "int8-symmetric", "uint8", "int16", "tflite", "pow2"])
@pytest.mark.parametrize("case", sorted(CASES))
def test_the_integer_op_is_within_steps_of_the_float_one(case: str, scheme: str) -> None:
    shape, make, kind = CASES[case]
    graph = Graph.empty([("x", tensor_type(shape, "f32"))])
    op = make(graph, graph.inputs[0].value)
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    if case == "prelu" and scheme == "int16":
        pytest.skip("tables by channel are for 8 bits")
    x = np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)
    exact = FloatEngine(graph, threads=1).run({"x": x})["y"]
    ranges = {"x": (float(x.min()), float(x.max())), "y": (float(exact.min()), float(exact.max()))}
    integer = quantize(graph, ranges, SCHEMES[scheme])
    integer.verify()
    assert any(isinstance(made, kind) for made in integer.ops), integer.notes
    # The operand as the integers hold it is what the op sees: its own error is not the op's.
    engine = IntegerEngine(integer, fetch=["x/quantized", "y"])
    results = engine.run({"x": x})
    seen = FloatEngine(graph, threads=1).run({"x": results["x/quantized"]})["y"]
    value = integer.find("y")
    assert value is not None
    step = quant_of(value)
    assert step is not None
    least, most = ((end - step.zero_point) * step.scale for end in step.dtype.limits)
    error = np.abs(results["y"] - np.clip(seen, least, most)) / step.scale
    assert error.max() <= (2.01 if step.dtype.itemsize == 1 else 40), error.max()


def test_a_row_too_long_for_tflites_softmax_stays_float_with_the_reason() -> None:
    # Text recognizers choose among thousands of characters.
    graph = Graph.empty([("x", tensor_type((1, 2, 6625), "f32"))])
    op = top.Softmax.make(graph.inputs[0].value, axis=-1, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    ranges = {"x": (-4.0, 4.0), "y": (0.0, 1.0)}
    refused = quantize(graph, ranges, SCHEMES["tflite"])
    refused.verify()
    assert not any(isinstance(made, npu.Softmax) for made in refused.ops)
    assert refused.float_reasons["y"].endswith("at most 4,095 elements a row in 8 bits, not 6,625")
    x = np.random.default_rng(1).normal(0, 1, (1, 2, 6625)).astype(np.float32)
    assert np.isfinite(IntegerEngine(refused).run({"x": x})["y"]).all()
    taken = quantize(graph, ranges, SCHEMES["int8"])
    assert any(isinstance(made, npu.Softmax) for made in taken.ops)


_SHORT = dataclasses.replace(SCHEMES["int8"], multiplier_bits=15, max_shift=24)
"""A machine whose least factor is 2 ** -10: multipliers of 15 bits are 2 ** 14 at least, and shifts end at 24."""


def _reduced(kind: str, count: int, ranges: dict[str, tuple[float, float]]) -> tuple[Graph, Graph]:
    graph = Graph.empty([("x", tensor_type((2, count), "f32"))])
    op = top.Reduce.make(graph.inputs[0].value, kind=kind, axes=(1,), name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph, quantize(graph, ranges, _SHORT)


@pytest.mark.parametrize(
    ("kind", "count", "most", "refused"),
    [
        ("sum", 4, 4.0, False),  # in reach
        ("sum", 4096, 4096.0, True),  # a factor of 2 ** -12 is not, and the sum uses all of its range
        ("sum", 4096, 1e7, False),  # not in reach, but the sum is less than half a step
        ("mean", 4096, 1.0, True),
        ("mean", 4, 100.0, False),
        ("mean", 4, 1e5, False),
    ],
)
def test_a_factor_below_the_least_is_refused_unless_the_result_is_below_half_a_step(
    kind: str, count: int, most: float, refused: bool
) -> None:
    """A multiplier that the largest shift makes 0 is right only where the exact result rounds to 0."""
    graph, integer = _reduced(kind, count, {"x": (-1.0, 1.0), "y": (-most, most)})
    x = np.stack([np.full(count, 1, np.float32), np.linspace(-0.5, 1, count, dtype=np.float32)])
    exact = FloatEngine(graph, threads=1).run({"x": x})["y"]
    step = most / 127
    assert np.abs(IntegerEngine(integer).run({"x": x})["y"] - exact).max() <= 1.01 * step
    assert ("y" in integer.float_reasons) == refused
    if refused:
        reason = "the shift that its multiplier needs is above the largest that there is"
        assert reason in integer.float_reasons["y"]
    made = [op for op in integer.ops if isinstance(op, npu.ReduceSum)]
    assert len(made) == (not refused)


def test_half_a_step_is_where_a_multiplier_of_0_begins_to_be_wrong() -> None:
    """`require_multipliers` itself, on both sides of half a step."""
    zero = Scaling(Kind.SINGLE_ROUNDING, np.zeros(1, np.int32), np.full(1, 24))
    require_multipliers(zero, float(np.nextafter(0.5, 0)))
    with pytest.raises(NoIntegerForm, match="above the largest that there is"):
        require_multipliers(zero, 0.5)
    with pytest.raises(NoIntegerForm, match="above the largest that there is"):
        require_multipliers(Scaling(Kind.SINGLE_ROUNDING, np.array([7, 0]), np.full(2, 24)), 0.5)
    require_multipliers(Scaling(Kind.SINGLE_ROUNDING, np.array([7, 9]), np.full(2, 24)), 0.5)
