"""Ops that choose integers: the larger or smaller of two, and slices by index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.ir import Graph, npu, tensor_type, top
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize


def graph_of(kind: Any, shapes: list[tuple[int, ...]], *constants: Array, **properties: Any) -> Graph:
    """One op on inputs x0, x1, ... and constants, with the result y."""
    graph = Graph.empty([(f"x{i}", tensor_type(shape, "f32")) for i, shape in enumerate(shapes)])
    values = list(graph.block.args)
    for i, array in enumerate(constants):
        weight = graph.add_weight(f"w{i}", array)
        graph.block.add_op(weight)
        values.append(weight.results[0])
    op = kind.make(*values, **properties, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16", "pow2", "tflite"])
@pytest.mark.parametrize(("kind", "choose"), [(top.Max, np.maximum), (top.Min, np.minimum)])
def test_the_larger_integer_stands_for_the_larger_real(scheme: str, kind: Any, choose: Any) -> None:
    graph = graph_of(kind, [(1, 3, 4, 5), (3, 1, 1)])
    made = quantize(graph, {"x0": (-1.0, 1.0), "x1": (-0.5, 0.5), "y": (-1.0, 1.0)}, SCHEMES[scheme])
    assert any(isinstance(op, kind) and quant_of(op.y) is not None for op in made.ops)
    random = np.random.default_rng(0)
    inputs = {
        "x0": random.uniform(-1, 1, (1, 3, 4, 5)).astype(np.float32),
        "x1": random.uniform(-0.5, 0.5, (3, 1, 1)).astype(np.float32),
    }
    got = IntegerEngine(made).run(inputs)["y"]
    kind_of_y = next(quant_of(op.y) for op in made.ops if isinstance(op, kind))
    assert kind_of_y is not None
    np.testing.assert_allclose(got, choose(inputs["x0"], inputs["x1"]), atol=1.01 * kind_of_y.scale)


@pytest.mark.parametrize("indices", [np.array(1), np.array([2, 0, -1, 2])])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_slices_are_taken_as_they_are(indices: Array, axis: int) -> None:
    graph = graph_of(top.Gather, [(3, 4, 5)], indices.astype(np.int64), axis=axis)
    made = quantize(graph, {"x0": (-1.0, 1.0), "y": (-1.0, 1.0)}, SCHEMES["int8"])
    x = np.random.default_rng(1).uniform(-1, 1, (3, 4, 5)).astype(np.float32)
    raw = IntegerEngine(made, fetch=["x0/quantized", "y"], raw=True).run({"x0": x})
    np.testing.assert_array_equal(raw["y"], np.take(raw["x0/quantized"], indices, axis=axis))


def test_indices_that_leave_the_tensor_are_left_to_the_float_op() -> None:
    graph = graph_of(top.Gather, [(3, 4)], np.array([3], np.int64), axis=0)
    made = quantize(graph, {"x0": (-1.0, 1.0), "y": (-1.0, 1.0)}, SCHEMES["int8"])
    assert not any(isinstance(op, npu.Quantize) for op in made.ops)
