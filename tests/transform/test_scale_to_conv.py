"""A scale that stands alone has an integer form as a convolution."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.flow import expanded
from npuc.ir import Graph, tensor_type, top


def _network(shape: tuple[int, ...]) -> Graph:
    graph = Graph.empty([("x", tensor_type(shape, "f32"))])
    random = np.random.default_rng(0)
    values = [graph.add_weight(name, random.normal(size=shape[1]).astype(np.float32)) for name in ("s", "b")]
    for value in values:
        graph.block.add_op(value)
    op = top.Scale.make(
        graph.block.args[0], values[0].output, values[1].output, name="y", relu=True, relu_limit=1.5
    )
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph


def test_a_scale_of_a_picture_becomes_a_convolution_that_computes_the_same() -> None:
    graph = _network((2, 3, 4, 5))
    made = expanded(graph)
    (conv,) = [op for op in made.ops if not isinstance(op, top.WeightOp)]
    assert isinstance(conv, top.Conv) and conv.group == 3 and conv.relu and conv.relu_limit == 1.5
    x = {"x": np.random.default_rng(1).normal(size=(2, 3, 4, 5)).astype(np.float32)}
    assert np.allclose(FloatEngine(graph).run(x)["y"], FloatEngine(made).run(x)["y"], atol=1e-6)


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4), (1, 3, 2, 4, 2)])
def test_a_scale_of_anything_else_does_so_as_an_image(shape: tuple[int, ...]) -> None:
    graph = _network(shape)
    made = expanded(graph)
    assert [type(op) for op in made.ops if not isinstance(op, top.WeightOp)] == [
        top.Reshape,
        top.Conv,
        top.Reshape,
    ]
    x = {"x": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
    assert np.allclose(FloatEngine(graph).run(x)["y"], FloatEngine(made).run(x)["y"], atol=1e-6)
