"""Softmax, norms, reductions and resize as integers: within a step or two of the float result, under every kind."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph, npu, tensor_type, top
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize

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
