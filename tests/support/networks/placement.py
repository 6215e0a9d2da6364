"""Small networks of the kinds that end up on several devices: each is a way into which `inspect` and `compile` may differ.

`NETWORKS` maps a name to a function that builds the float network, in canonical form.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.flow import bring_in_form
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, Value, tensor_type, top
from npuc.quant import SCHEMES, quantize
from support.graphs import Builder, build


def _random(*shape: int, seed: int = 0, spread: float = 0.3) -> Array:
    return (np.random.default_rng((seed, *shape)).standard_normal(shape) * spread).astype(np.float32)


def _conv(b: Builder, x: Value, name: str, inputs: int, outputs: int, kernel: int = 3, **more: Any) -> Value:
    group = more.get("group", 1)
    weight = _random(outputs, inputs // group, kernel, kernel, seed=len(name))
    pads = more.pop("pads", [kernel // 2] * 4)
    more = {"strides": [1, 1], "dilations": [1, 1], "group": 1, **more}
    y: Value = b(top.Conv, x, weight, _random(outputs), pads=pads, name=name, layer=f"layer/{name}", **more)
    return y


def convs_around(*, middle: type[Any] = top.Relu, channels: int = 8, size: int = 8) -> Graph:
    """conv, a float layer, conv, softmax (which stays float)."""
    graph = Graph.empty([("x", tensor_type((1, channels, size, size), "f32"))])
    value = graph.inputs[0].value

    def conv(name: str) -> None:
        nonlocal value
        weight = graph.add_weight(f"{name}.w", np.ones((channels, channels, 3, 3), np.float32) * 0.01)
        graph.block.add_op(weight)
        common = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
        op = top.Conv.make(value, weight.output, None, **common, name=name, layer=f"layer_{name}")
        graph.block.add_op(op)
        value = op.y

    conv("first")
    for kind, name in ((middle, "between"), (None, "second"), (top.Softmax, "chances")):
        if kind is None:
            conv(name)
            continue
        op = kind.make(value, name=name, layer=f"layer_{name}")
        graph.block.add_op(op)
        value = op.y
    graph.set_outputs([("chances", value)])
    graph.verify()
    return graph


def quantized(graph: Graph, scheme: str = "int8", keep: Any = None) -> Graph:
    """With made-up ranges; layers that `keep` picks stay float."""
    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    ranges = dict.fromkeys(names, (-2.0, 3.0))
    return quantize(graph, ranges, lambda op: None if keep is not None and keep(op) else SCHEMES[scheme])


def transformer() -> Graph:
    """A block of a vision transformer: patches, attention as one op, layer norms, gelu."""

    def body(b: Builder, x: Value) -> Value:
        x = _conv(b, x, "patches", 3, 16, 4, strides=[4, 4], pads=[0, 0, 0, 0])
        x = b(top.Permute, b(top.Reshape, x, shape=(1, 16, 16), name="flat"), order=[0, 2, 1], name="tokens")
        n = b(top.LayerNorm, x, _random(16) + 1, _random(16), axis=2, name="norm")
        heads = []
        for part in "qkv":
            linear = b(top.MatMul, n, _random(16, 16, seed=ord(part)), _random(16), name=part)
            split = b(top.Reshape, linear, shape=(1, 16, 2, 8), name=f"{part}_split")
            heads.append(b(top.Permute, split, order=[0, 2, 1, 3], name=f"{part}_heads"))
        a = b(top.Attention, *heads, None, scale=8**-0.5, name="attention", layer="block/attention")
        joined = b(
            top.Reshape, b(top.Permute, a, order=[0, 2, 1, 3], name="back"), shape=(1, 16, 16), name="joined"
        )
        x = b(
            top.Add, x, b(top.MatMul, joined, _random(16, 16, seed=9), _random(16), name="proj"), name="sum"
        )
        m = b(top.MatMul, x, _random(16, 32), _random(32), name="up")
        m = b(top.MatMul, b(top.Gelu, m, name="gelu"), _random(32, 16), _random(16), name="down")
        return b(top.Add, x, m, name="y")  # type: ignore[no-any-return]

    return build({"x": (1, 3, 16, 16)}, body)


def dense() -> Graph:
    """A dense block: a norm and an activation before each convolution, and concatenation."""

    def body(b: Builder, x: Value) -> Value:
        x = _conv(b, x, "stem", 3, 8)
        for index in range(3):
            width = 8 + 8 * index
            n = b(top.Scale, x, _random(width, spread=0.2) + 1, _random(width), name=f"norm{index}")
            grown = _conv(b, b(top.Relu, n, name=f"relu{index}"), f"conv{index}", width, 8)
            x = b(top.Concat, [x, grown], axis=1, name=f"cat{index}")
        pooled = b(top.AvgPool, x, kernel=[8, 8], strides=[1, 1], pads=[0] * 4, dilations=[1, 1], name="pool")
        return b(top.Reshape, pooled, shape=(1, 32), name="y")  # type: ignore[no-any-return]

    return build({"x": (1, 3, 8, 8)}, body)


def recurrent() -> Graph:
    """A convolution before an LSTM, and scores behind it."""

    def body(b: Builder, x: Value) -> Value:
        f = b(top.MatMul, x, _random(12, 16), _random(16), name="features")
        weights = _random(1, 32, 16), _random(1, 32, 8), _random(1, 64)
        whole, _, _ = b(
            top.LSTM,
            f,
            *weights,
            None,
            None,
            None,
            None,
            hidden=8,
            name=["steps", "last", "cell"],
            layer="lstm",
        )
        flat = b(top.Reshape, whole, shape=(6, 8), name="flat")
        return b(top.Softmax, b(top.MatMul, flat, _random(8, 5), _random(5), name="scores"), axis=1, name="y")  # type: ignore[no-any-return]

    return build({"x": (6, 1, 12)}, body)


def segmenter() -> Graph:
    """Grouped and transposed convolutions, a bilinear resize, the largest of the channels."""

    def body(b: Builder, x: Value) -> Value:
        x = _conv(b, x, "stem", 4, 8, strides=[2, 2], relu=True)
        x = _conv(b, x, "grouped", 8, 8, group=2)
        x = b(
            top.Deconv,
            x,
            _random(8, 4, 2, 2),
            _random(8),
            strides=[2, 2],
            pads=[0] * 4,
            dilations=[1, 1],
            output_padding=[0, 0],
            group=2,
            name="up",
        )
        x = b(top.Tanh, x, name="tanh")
        x = b(top.Resize, x, sizes=(1, 8, 24, 24), mode="linear", coordinates="half_pixel", name="resized")
        return b(top.ArgReduce, x, axis=1, max=True, keepdims=False, name="y")  # type: ignore[no-any-return]

    return build({"x": (1, 4, 16, 16)}, body)


def detector() -> Graph:
    """Boxes that are decoded behind the last convolution, and scores."""

    def body(b: Builder, x: Value) -> dict[str, Value]:
        x = b(top.HardSwish, _conv(b, x, "stem", 3, 8, strides=[2, 2]), name="swish")
        h = b(top.Reshape, _conv(b, x, "head", 8, 6, 1), shape=(1, 6, 64), name="rows")
        size = b(top.Slice, h, offset=[0, 0, 0], steps=[1, 1, 1], shape=[1, 4, 64], name="size")
        score = b(top.Slice, h, offset=[0, 4, 0], steps=[1, 1, 1], shape=[1, 2, 64], name="score")
        boxes = b(top.Mul, b(top.Exp, size, name="exp"), np.full((1, 4, 1), 8, np.float32), name="boxes")
        return {"boxes": boxes, "scores": b(top.Sigmoid, score, name="scores")}

    return build({"x": (1, 3, 16, 16)}, body)


def embedding() -> Graph:
    """A table of words, one row of it by a constant position, and a float output that is normalized."""

    def body(b: Builder, ids: Value) -> Value:
        words = b(top.Gather, _random(20, 16), ids, axis=0, name="words")
        x = b(top.MatMul, words, _random(16, 16), _random(16), name="dense")
        first = b(top.Gather, x, np.array(0), axis=0, name="first")
        return b(top.L2Norm, b(top.Reshape, first, shape=(1, 16), name="row"), axis=1, name="y")  # type: ignore[no-any-return]

    return build({"ids": ((6,), "i64")}, body)


def gated() -> Graph:
    """Squeeze and excitation with the activations that few machines have."""

    def body(b: Builder, x: Value) -> Value:
        x = b(top.SiLU, _conv(b, x, "stem", 3, 8), name="silu")
        s = b(top.Reduce, x, kind="mean", axes=[2, 3], keepdims=True, name="squeeze")
        s = b(top.Mish, _conv(b, s, "reduce", 8, 4, 1), name="mish")
        s = b(top.Sigmoid, _conv(b, s, "expand", 4, 8, 1), name="gate")
        return b(top.Mul, x, s, name="y")  # type: ignore[no-any-return]

    return build({"x": (1, 3, 12, 12)}, body)


def joined() -> Graph:
    """Boxes of hundreds of pixels and scores below 1 in one output, as detectors export them."""

    def body(b: Builder, x: Value) -> Value:
        x = b(top.Relu, _conv(b, x, "stem", 3, 8, strides=[2, 2]), name="relu")
        boxes = b(top.Reshape, _conv(b, x, "head", 8, 4, 1), shape=(1, 4, 64), name="rows")
        boxes = b(top.Mul, boxes, np.full((1, 4, 1), 200, np.float32), name="boxes")
        scores = b(top.Reshape, _conv(b, x, "classes", 8, 3, 1), shape=(1, 3, 64), name="logits")
        return b(top.Concat, [boxes, b(top.Sigmoid, scores, name="scores")], axis=1, name="y")  # type: ignore[no-any-return]

    return build({"x": (1, 3, 16, 16)}, body)


_BUILDERS: tuple[Callable[[], Graph], ...] = (
    transformer,
    dense,
    recurrent,
    segmenter,
    detector,
    embedding,
    gated,
    joined,
)
NETWORKS: dict[str, Callable[[], Graph]] = {
    function.__name__: lambda function=function: bring_in_form(function(), ImportOptions())  # type: ignore[misc]
    for function in _BUILDERS
}
