"""A small network for tests of widths: two convolutions with a function between them, and the ranges of its tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.ir import Graph, tensor_type, top

WINDOW: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
RANGES = {"x": (-1.0, 1.0), "a": (-3.0, 3.0), "b": (0.0, 1.0), "y": (-2.0, 2.0)}


def network(then: type[Any] = top.Sigmoid) -> Graph:
    """Two convolutions with a function between them."""
    random = np.random.default_rng(9)
    graph = Graph.empty([("x", tensor_type((1, 5, 7, 6), "f32"))])
    arrays = {"v": (9, 5, 3, 3), "w": (4, 9, 3, 3), "c": (4,)}
    values = {n: graph.add_weight(n, random.normal(0, 0.2, s).astype(np.float32)) for n, s in arrays.items()}
    a = top.Conv.make(graph.inputs[0].value, values["v"].output, None, name="a", **WINDOW)
    b = then.make(a.y, name="b")
    y = top.Conv.make(b.results[0], values["w"].output, values["c"].output, name="y", **WINDOW)
    for op in (*values.values(), a, b, y):
        graph.block.add_op(op)
    graph.set_outputs([("y", y.y)])
    return graph
