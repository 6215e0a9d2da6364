"""Parameters and multiply-accumulates, counted by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.ir import Graph, tensor_type
from npuc.ir.top import Attention, Conv, Deconv, MatMul
from npuc.profile.network_drawing import dot_text
from npuc.profile.summary import summarize


def one_op(inputs: dict[str, tuple[int, ...]], build: Any) -> Graph:
    graph = Graph.empty([(name, tensor_type(shape, "f32")) for name, shape in inputs.items()])
    op = build(graph, [port.value for port in graph.inputs])
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    graph.verify()
    return graph


def weight(graph: Graph, *shape: int) -> Any:
    op = graph.add_weight("w", np.zeros(shape, np.float32))
    graph.block.add_op(op)
    return op.output


WINDOW = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}


def test_grouped_convolution() -> None:
    graph = one_op(
        {"x": (2, 4, 5, 5)},
        lambda g, v: Conv.make(v[0], weight(g, 6, 2, 3, 3), None, group=2, name="y", layer="conv", **WINDOW),
    )
    summary = summarize(graph)
    assert summary.macs == 2 * 6 * 3 * 3 * (2 * 3 * 3)
    assert summary.parameters == 6 * 2 * 3 * 3 and summary.weight_bytes == 4 * summary.parameters
    assert summary.layers[0].name == "y" and summary.layers[0].outputs == ("2x6x3x3xf32",)


def test_transposed_convolution() -> None:
    graph = one_op(
        {"x": (1, 4, 5, 5)},
        lambda g, v: Deconv.make(
            v[0], weight(g, 4, 3, 2, 2), None, output_padding=(0, 0), name="y", **WINDOW
        ),
    )
    assert summarize(graph).macs == 4 * 5 * 5 * (3 * 2 * 2)


def test_matrix_product_and_attention() -> None:
    graph = one_op({"a": (7, 2, 3), "b": (7, 3, 5)}, lambda g, v: MatMul.make(*v, name="y"))
    assert summarize(graph).macs == 7 * 2 * 3 * 5
    graph = one_op(
        {"q": (1, 2, 3, 4), "k": (1, 2, 5, 4), "v": (1, 2, 5, 6)},
        lambda g, v: Attention.make(*v, scale=1.0, name="y"),
    )
    assert summarize(graph).macs == 2 * 3 * 5 * (4 + 6)


def test_a_shared_weight_counts_once() -> None:
    def build(graph: Graph, values: list[Any]) -> Any:
        shared = weight(graph, 3, 3)
        first = MatMul.make(values[0], shared, name="a")
        graph.block.add_op(first)
        return MatMul.make(first.results[0], shared, name="y")

    summary = summarize(one_op({"x": (2, 3)}, build))
    assert summary.parameters == 9
    assert [layer.parameters for layer in summary.layers] == [9, 0]


def test_names_are_quoted_in_the_picture() -> None:
    graph = one_op({'x"\\': (2, 3)}, lambda g, v: MatMul.make(v[0], weight(g, 3, 3), name='a"b'))
    text = dot_text(graph)
    assert '"x\\"\\\\"' in text and 'matmul\\na\\"b' in text


@pytest.mark.parametrize(("kind", "gates"), [("rnn", 1), ("gru", 3), ("lstm", 4)])
def test_a_recurrent_layer_multiplies_inputs_and_states_at_every_step(kind: str, gates: int) -> None:
    """Of 5 steps, 2 sequences, 3 values and a state of 4, in both directions."""
    x = lang.input("x", (5, 2, 3))
    weights = np.zeros((2, gates * 4, 3), np.float32), np.zeros((2, gates * 4, 4), np.float32)
    results = getattr(lang, kind)(x, *weights, hidden=4, direction="bidirectional")
    graph = lang.build({"y": results[0]})
    assert summarize(graph).macs == 5 * 2 * 2 * (gates * 4) * (3 + 4)
