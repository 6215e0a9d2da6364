"""Ops that have no integer form, spelled out in ops that have one, compute the same."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import expanded
from npuc.ir import Graph, tensor_type, top
from npuc.quant import quantize


def _attention(mask: bool) -> Graph:
    inputs = [(name, tensor_type((1, 2, 5, 4), "f32")) for name in "qkv"]
    if mask:
        inputs.append(("m", tensor_type((1, 1, 5, 5), "f32")))
    graph = Graph.empty(inputs)
    values = [port.value for port in graph.inputs]
    op = top.Attention.make(*values[:3], values[3] if mask else None, scale=0.5, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    return graph


@pytest.mark.parametrize("mask", [False, True])
def test_products_and_a_softmax_compute_the_same(mask: bool) -> None:
    graph = _attention(mask)
    spelled = expanded(graph)
    kinds = [op.name for op in spelled.ops]
    assert kinds.count("top.matmul") == 2 and "top.softmax" in kinds and "top.attention" not in kinds
    rng = np.random.default_rng(0)
    inputs = {port.name: rng.normal(size=port.type.get_shape()).astype(np.float32) for port in graph.inputs}
    want = FloatEngine(graph, threads=1).run(inputs)["y"]
    assert np.allclose(FloatEngine(spelled, threads=1).run(inputs)["y"], want, atol=1e-6)


def test_it_becomes_integer() -> None:
    spelled = expanded(_attention(False))
    names = ["q", "k", "v", *spelled.tensor_names()]
    made = quantize(spelled, {name: (-4.0, 4.0) for name in names})
    assert {op.name for op in made.ops} >= {"npu.matmul", "npu.softmax"}
    rng = np.random.default_rng(1)
    inputs = {name: rng.normal(size=(1, 2, 5, 4)).astype(np.float32) for name in "qkv"}
    want = FloatEngine(spelled, threads=1).run(inputs)["y"]
    got = IntegerEngine(made).run(inputs)["y"]
    assert np.square(got - want).sum() < 0.02 * np.square(want).sum()


@pytest.mark.parametrize("index", [np.array(2), np.array([-1]), np.array(0)])
def test_one_constant_index_is_a_cut(index: np.ndarray) -> None:
    graph = Graph.empty([("x", tensor_type((2, 4, 3), "f32"))])
    weight = graph.add_weight("i", index.astype(np.int64))
    op = top.Gather.make(graph.inputs[0].value, weight.output, axis=1, name="y")
    for one in (weight, op):
        graph.block.add_op(one)
    graph.set_outputs([("y", op.y)])
    cut = expanded(graph)
    assert "top.gather" not in [op.name for op in cut.ops]
    x = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    assert np.array_equal(FloatEngine(cut, threads=1).run({"x": x})["y"], np.take(x, index, axis=1))
