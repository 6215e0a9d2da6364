"""Every op of the `top` dialect, exported to ONNX and run, against a reference that does not know npuc.

References are NumPy formulas, or ONNX's own reference evaluator on a node that the test spells out by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx.reference import ReferenceEvaluator

from npuc.arithmetic.quantized_lstm import Multiplier, QuantizedLstm
from npuc.export.onnx import embed, model, to_onnx
from npuc.export.onnx.registry import RULES
from npuc.ir import Graph, top
from npuc.ir.definition import TOP_OPS, TopOp
from npuc.kernels.quantized_lstm import run_quantized_lstm
from support.graphs import Array, assert_close, build, evaluate, random_inputs

QUICK = settings(max_examples=40, deadline=None, derandomize=True)
GENERATOR = np.random.default_rng(7)


def weights(*shape: int) -> Array:
    return GENERATOR.standard_normal(shape).astype(np.float32)


def reference(op_type: str, outputs: int = 1, opset: int = 21, **attributes: Any) -> Callable[..., Any]:
    """ONNX's reference evaluator on one node; None is an input that is left out."""

    def run(*inputs: Array | None) -> Any:
        names = [f"i{n}" if value is not None else "" for n, value in enumerate(inputs)]
        node = onnx.helper.make_node(op_type, names, [f"o{n}" for n in range(outputs)], **attributes)
        infos = [
            onnx.helper.make_tensor_value_info(
                name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
            )
            for name, value in zip(names, inputs, strict=True)
            if value is not None
        ]
        results = [onnx.helper.make_empty_tensor_value_info(f"o{n}") for n in range(outputs)]
        proto = onnx.helper.make_model(
            onnx.helper.make_graph([node], "g", infos, results),
            opset_imports=[onnx.helper.make_opsetid("", opset)],
        )
        feed = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
        found = ReferenceEvaluator(proto).run(None, feed)
        return found[0] if outputs == 1 else found

    return run


@dataclass(frozen=True)
class Case:
    """A graph of one interesting op, and what its outputs should be as a function of its inputs."""

    name: str
    inputs: dict[str, Any]
    function: Callable[..., Any]
    expected: Callable[..., Any]
    feed: dict[str, Array] = field(default_factory=dict)
    tolerance: float = 2e-5

    def graph(self) -> Graph:
        return build(self.inputs, self.function)

    def check(self) -> None:
        graph = self.graph()
        feed = {**random_inputs(graph, seed=len(self.name)), **self.feed}
        actual = evaluate(graph, feed)
        wanted = self.expected(*(feed[port.name] for port in graph.inputs))
        wanted = wanted if isinstance(wanted, list | tuple) else [wanted]
        for (name, value), target in zip(actual.items(), wanted, strict=True):
            assert_close(value, np.asarray(target).astype(value.dtype), self.tolerance, name)


def one(kind: type[TopOp], /, *constants: Array, **properties: Any) -> Callable[..., Any]:
    """A graph with a single op on the inputs and then the constants."""
    return lambda b, *inputs: b(kind, *inputs, *constants, name="y", layer="node", **properties)


X = {"x": (2, 3, 4)}
IMAGE = {"x": (2, 4, 7, 6)}
PAIR = {"a": (2, 3, 4), "b": (3, 1)}
BOOLS = {"a": ((2, 3), "i1"), "b": ((3,), "i1")}
POSITIVE = {"x": np.abs(weights(2, 3, 4)) + 0.1}
UNIT = {"x": GENERATOR.uniform(-0.9, 0.9, (2, 3, 4)).astype(np.float32)}

CASES: list[Case] = []


def case(name: str, inputs: dict[str, Any], function: Any, expected: Any, **options: Any) -> None:
    CASES.append(Case(name, inputs, function, expected, **options))


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def erf(x: Array) -> Array:
    return np.vectorize(math.erf)(x)


def relu6(x: Array) -> Array:
    return np.clip(x, 0, 6)


# Elementwise
for kind, formula in {
    top.Abs: np.abs,
    top.Neg: np.negative,
    top.Sign: np.sign,
    top.Exp: np.exp,
    top.Floor: np.floor,
    top.Ceil: np.ceil,
    top.Round: np.round,
    top.Erf: erf,
    top.Sin: np.sin,
    top.Cos: np.cos,
    top.Tan: np.tan,
    top.Atan: np.arctan,
    top.Sinh: np.sinh,
    top.Cosh: np.cosh,
    top.Asinh: np.arcsinh,
}.items():
    case(kind.name, X, one(kind), formula)
for kind, formula in {
    top.Log: np.log,
    top.Sqrt: np.sqrt,
    top.Rsqrt: lambda x: 1 / np.sqrt(x),
    top.Reciprocal: lambda x: 1 / x,
}.items():
    case(kind.name, X, one(kind), formula, feed=POSITIVE)
for kind, formula in {top.Asin: np.arcsin, top.Acos: np.arccos, top.Atanh: np.arctanh}.items():
    case(kind.name, X, one(kind), formula, feed=UNIT)
case("acosh", X, one(top.Acosh), np.arccosh, feed={"x": POSITIVE["x"] + 1})
case(
    "round half to even",
    {"x": (4,)},
    one(top.Round),
    lambda x: [np.array([0, 2, 2, -2])],
    feed={"x": np.array([0.5, 1.5, 2.5, -2.5], np.float32)},
)
for kind, formula in {top.Add: np.add, top.Sub: np.subtract, top.Mul: np.multiply}.items():
    case(kind.name, PAIR, one(kind), formula)
    case(f"{kind.name} relu", PAIR, one(kind, relu=True), lambda a, b, f=formula: np.maximum(f(a, b), 0))
    limited = one(kind, relu=True, relu_limit=1.5)
    case(f"{kind.name} limited", PAIR, limited, lambda a, b, f=formula: np.clip(f(a, b), 0, 1.5))
    for dtype in ("f64", "f16", "i32", "i64"):
        pair = {"a": ((2, 3), dtype), "b": ((3,), dtype)}
        bound = one(kind, relu=True, relu_limit=2.0)
        case(
            f"{kind.name} {dtype}",
            pair,
            bound,
            lambda a, b, f=formula: np.clip(f(a, b), 0, 2),
            tolerance=1e-2,
        )
for kind, formula in {top.Div: np.divide, top.Max: np.maximum, top.Min: np.minimum}.items():
    case(kind.name, PAIR, one(kind), formula)
INTEGERS = {"a": np.array([7, -7, 7, -7]), "b": np.array([2, 2, -2, -2])}
FOUR = {"a": ((4,), "i64"), "b": ((4,), "i64")}
case("div truncates", FOUR, one(top.Div), lambda a, b: np.array([3, -3, -3, 3]), feed=INTEGERS)
case("mod", FOUR, one(top.Mod), np.mod, feed=INTEGERS)
case("fmod", FOUR, one(top.Mod, fmod=True), np.fmod, feed=INTEGERS)
case("mod of floats", PAIR, one(top.Mod), np.mod, tolerance=1e-4)
case("fmod of floats", PAIR, one(top.Mod, fmod=True), np.fmod, tolerance=1e-4)
case("pow", {"a": (2, 3), "b": ((), "i64")}, one(top.Pow), lambda a, b: a**b, feed={"b": np.array(3)})
for mode, formula in {
    "equal": np.equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}.items():
    integers = {"a": ((4, 4), "i32"), "b": ((4,), "i32")}
    case(f"compare {mode}", integers, one(top.Compare, mode=mode), formula)
    case(f"compare {mode} of floats", PAIR, one(top.Compare, mode=mode), formula)
for mode, formula in {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}.items():
    case(f"logical {mode}", BOOLS, one(top.Logical, mode=mode), formula)
case("not", {"x": ((2, 3), "i1")}, one(top.Not), np.logical_not)
case("where", {"c": ((2, 1), "i1"), "a": (2, 3), "b": (3,)}, one(top.Where), np.where)
for to, numpy_type in {
    "i32": np.int32,
    "f64": np.float64,
    "f16": np.float16,
    "i1": np.bool_,
    "ui8": np.uint8,
}.items():
    values = {"x": np.array([0, 1.75, 2.25], np.float32)}
    case(f"cast {to}", {"x": (3,)}, one(top.Cast, to=to), lambda x, t=numpy_type: x.astype(t), feed=values)

# Activations
case("relu", X, one(top.Relu), lambda x: np.maximum(x, 0))
case("relu6", X, one(top.Relu, limit=6.0), relu6)
for dtype in ("f64", "f16", "i8", "i32", "i64"):
    case(f"relu {dtype}", {"x": ((3, 4), dtype)}, one(top.Relu), lambda x: np.maximum(x, 0))
    limited_clip = one(top.Clip, min=-1.5, max=2.0)
    low = -1 if dtype.startswith("i") else -1.5
    case(f"clip {dtype}", {"x": ((3, 4), dtype)}, limited_clip, lambda x, low=low: np.clip(x, low, 2))
case("clip ui8", {"x": ((3, 4), "ui8")}, one(top.Clip, min=-3.0, max=2.0), lambda x: np.clip(x, 0, 2))
case("clip below", X, one(top.Clip, min=0.5, max=math.inf), lambda x: np.maximum(x, 0.5))
case("clip above", X, one(top.Clip, min=-math.inf, max=0.5), lambda x: np.minimum(x, 0.5))
case("no clip", X, one(top.Clip, min=-math.inf, max=math.inf), lambda x: x)
case("leaky relu", X, one(top.LeakyRelu, alpha=0.2), lambda x: np.where(x >= 0, x, 0.2 * x))
SLOPE = weights(3, 1)
case("prelu", X, one(top.PRelu, SLOPE), lambda x: np.where(x >= 0, x, SLOPE * x))
case("thresholded relu", X, one(top.ThresholdedRelu, alpha=0.7), lambda x: np.where(x > 0.7, x, 0))
case("elu", X, one(top.Elu, alpha=1.3), lambda x: np.where(x >= 0, x, 1.3 * np.expm1(x)))
case("celu", X, one(top.Celu, alpha=1.3), lambda x: np.maximum(x, 0) + np.minimum(1.3 * np.expm1(x / 1.3), 0))
case(
    "selu",
    X,
    one(top.Selu),
    lambda x: 1.0507009873554805 * np.where(x > 0, x, 1.6732632423543772 * np.expm1(x)),
)
case("sigmoid", X, one(top.Sigmoid), sigmoid)
case("hard sigmoid", X, one(top.HardSigmoid, alpha=0.3, beta=0.4), lambda x: np.clip(0.3 * x + 0.4, 0, 1))
case("tanh", X, one(top.Tanh), np.tanh)
case("silu", X, one(top.SiLU), lambda x: x * sigmoid(x))
case("hard swish", X, one(top.HardSwish), lambda x: x * np.clip(x / 6 + 0.5, 0, 1))
case("gelu", X, one(top.Gelu), lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))))
case(
    "gelu tanh",
    X,
    one(top.Gelu, tanh=True),
    lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
)
case("mish", X, one(top.Mish), lambda x: x * np.tanh(np.log1p(np.exp(x))))
case("softplus", X, one(top.Softplus), lambda x: np.log1p(np.exp(x)))
case("softsign", X, one(top.Softsign), lambda x: x / (1 + np.abs(x)))
for axis in (-1, 1):

    def softmax(x: Array, axis: int = axis) -> Array:
        return np.exp(x) / np.exp(x).sum(axis, keepdims=True)

    case(f"softmax {axis}", X, one(top.Softmax, axis=axis), softmax)
    case(f"log softmax {axis}", X, one(top.LogSoftmax, axis=axis), lambda x, f=softmax: np.log(f(x)))

# Convolution, matrix product, pooling
KERNEL, BIAS = weights(6, 2, 3, 2), weights(6)
WINDOW = {"strides": (2, 1), "pads": (1, 0, 2, 1), "dilations": (1, 2)}
case(
    "conv",
    IMAGE,
    one(top.Conv, KERNEL, BIAS, group=2, **WINDOW),
    lambda x: reference("Conv", group=2, **WINDOW)(x, KERNEL, BIAS),
)
case(
    "conv relu",
    IMAGE,
    one(top.Conv, KERNEL, group=2, relu=True, **WINDOW),
    lambda x: np.maximum(reference("Conv", group=2, **WINDOW)(x, KERNEL), 0),
)
case(
    "conv relu6",
    IMAGE,
    one(top.Conv, KERNEL, BIAS, group=2, relu=True, relu_limit=6.0, **WINDOW),
    lambda x: relu6(reference("Conv", group=2, **WINDOW)(x, KERNEL, BIAS)),
)
LINE, VOLUME = weights(5, 3, 3), weights(2, 3, 2, 2, 2)
case(
    "conv 1d",
    {"x": (1, 3, 9)},
    one(top.Conv, LINE, strides=(2,), pads=(1, 0), dilations=(1,)),
    lambda x: reference("Conv", strides=(2,), pads=(1, 0))(x, LINE),
)
case("conv 3d", {"x": (1, 3, 4, 4, 4)}, one(top.Conv, VOLUME, strides=(1,) * 3, pads=(0,) * 6, dilations=(1,) * 3),
     lambda x: reference("Conv", pads=(0,) * 6)(x, VOLUME))  # fmt: skip
TRANSPOSED = weights(4, 3, 3, 3)
SPREAD = {"strides": (2, 3), "pads": (1, 0, 0, 1), "dilations": (1, 1), "output_padding": (1, 0)}
DECONV_BIAS = weights(6)


def deconv(x: Array, group: int) -> Array:
    """By the definition: every input pixel adds its weighted kernel to the output."""
    n, c, h, w = x.shape
    per = TRANSPOSED.shape[1]
    full = np.zeros((n, per * group, (h - 1) * 2 + 3 + 1, (w - 1) * 3 + 3))
    for channel in range(c):
        first = channel // (c // group) * per
        for i in range(h):
            for j in range(w):
                patch = x[:, channel, i, j][:, None, None, None] * TRANSPOSED[channel][None]
                full[:, first : first + per, i * 2 : i * 2 + 3, j * 3 : j * 3 + 3] += patch
    return full[:, :, 1:, : full.shape[3] - 1]


case("deconv", IMAGE, one(top.Deconv, TRANSPOSED, **SPREAD), lambda x: deconv(x, 1))
case(
    "deconv groups",
    IMAGE,
    one(top.Deconv, TRANSPOSED, DECONV_BIAS, group=2, relu=True, **SPREAD),
    lambda x: np.maximum(deconv(x, 2) + DECONV_BIAS[:, None, None], 0),
)
MATRIX, COLUMN = weights(4, 5), weights(5)
case("matmul", {"a": (3, 4)}, one(top.MatMul, MATRIX), lambda a: a @ MATRIX)
case(
    "matmul bias",
    {"a": (3, 4)},
    one(top.MatMul, MATRIX, COLUMN, relu=True, relu_limit=1.0),
    lambda a: np.clip(a @ MATRIX + COLUMN, 0, 1),
)
turned = np.ascontiguousarray(MATRIX.T)
case("matmul transposed", {"a": (3, 4)}, one(top.MatMul, turned, transpose_b=True), lambda a: a @ MATRIX)
case("matmul transposed bias", {"a": (2, 3, 4)}, one(top.MatMul, turned, COLUMN, transpose_b=True, relu=True),
     lambda a: np.maximum(a @ MATRIX + COLUMN, 0))  # fmt: skip
case(
    "matmul batched",
    {"a": (2, 1, 3, 4), "b": (5, 6, 4)},
    one(top.MatMul, transpose_b=True),
    lambda a, b: a @ b.swapaxes(-1, -2),
)
whole = {"a": ((3, 4), "i64"), "b": ((4, 2), "i64"), "c": ((2,), "i64")}
case("matmul of integers", whole, one(top.MatMul, relu=True), lambda a, b, c: np.maximum(a @ b + c, 0))
double = {"a": ((3, 4), "f64"), "b": ((4, 2), "f64"), "c": ((2,), "f64")}
case("matmul f64", double, one(top.MatMul), lambda a, b, c: a @ b + c, tolerance=1e-12)


def pooled(
    x: Array, kind: str, kernel: Any, strides: Any, pads: Any, out: Any, include: bool = False
) -> Array:
    """By the definition, with windows that may reach beyond the padded image."""
    result = np.zeros((*x.shape[:2], *out))
    for i in range(out[0]):
        for j in range(out[1]):
            top_, left = i * strides[0] - pads[0], j * strides[1] - pads[1]
            bottom, right = top_ + kernel[0], left + kernel[1]
            part = x[:, :, max(top_, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
            if kind == "max":
                result[:, :, i, j] = part.max((2, 3), initial=-np.inf)
            else:
                rows = min(bottom, x.shape[2] + pads[2]) - top_
                columns = min(right, x.shape[3] + pads[3]) - left
                count = rows * columns if include else part.shape[2] * part.shape[3]
                result[:, :, i, j] = part.sum((2, 3)) / count
    return result


POOL = {"kernel": (4, 2), "strides": (2, 2), "pads": (1, 0, 1, 1), "dilations": (1, 1)}
for ceil in (False, True):
    out = (4, 3) if ceil else (3, 3)
    args = ((4, 2), (2, 2), (1, 0, 1, 1), out)
    label = " ceil" if ceil else ""
    case(
        f"max pool{label}",
        IMAGE,
        one(top.MaxPool, ceil_mode=ceil, **POOL),
        lambda x, a=args: pooled(x, "max", *a),
    )
    for include in (False, True):
        average = one(top.AvgPool, ceil_mode=ceil, count_include_pad=include, **POOL)
        case(
            f"avg pool{label} {include}", IMAGE, average, lambda x, a=args, i=include: pooled(x, "avg", *a, i)
        )
DILATED = {"kernel": (2, 2), "strides": (1, 2), "pads": (1, 1, 0, 0), "dilations": (2, 2)}
case(
    "max pool dilated",
    IMAGE,
    one(top.MaxPool, **DILATED),
    lambda x: reference("MaxPool", kernel_shape=(2, 2), strides=(1, 2), pads=(1, 1, 0, 0), dilations=(2, 2))(
        x
    ),
)
case(
    "avg pool dilated",
    IMAGE,
    one(top.AvgPool, **DILATED),
    lambda x: reference(
        "AveragePool", kernel_shape=(2, 2), strides=(1, 2), pads=(1, 1, 0, 0), dilations=(2, 2)
    )(x),
)
GLOBAL = {"kernel": (7, 6), "strides": (1, 1), "pads": (0,) * 4, "dilations": (1, 1)}
case("global avg pool", IMAGE, one(top.AvgPool, **GLOBAL), lambda x: x.mean((2, 3), keepdims=True))
case("global max pool", IMAGE, one(top.MaxPool, **GLOBAL), lambda x: x.max((2, 3), keepdims=True))
case(
    "max pool i8",
    {"x": ((1, 2, 7, 6), "i8")},
    one(top.MaxPool, **GLOBAL),
    lambda x: x.max((2, 3), keepdims=True),
)

# Movement
case("reshape", X, one(top.Reshape, shape=(6, 4)), lambda x: x.reshape(6, 4))
case("reshape to a scalar", {"x": (1, 1)}, one(top.Reshape, shape=()), lambda x: x.reshape(()))
case("reshape of nothing", {"x": (0, 3)}, one(top.Reshape, shape=(3, 0, 2)), lambda x: x.reshape(3, 0, 2))
case("permute", X, one(top.Permute, order=(2, 0, 1)), lambda x: x.transpose(2, 0, 1))
case(
    "concat",
    {"a": (2, 3), "b": (2, 1)},
    lambda b, *x: b(top.Concat, x, axis=-1, name="y"),
    lambda *x: np.concatenate(x, -1),
)
case(
    "split",
    X,
    lambda b, x: b(top.Split, x, axis=2, sizes=(1, 3), name=("p", "q")),
    lambda x: ([x[..., :1], x[..., 1:]]),
)
case(
    "slice",
    {"x": (4, 5, 6)},
    one(top.Slice, offset=(3, 1, 0), steps=(-1, 2, 1), shape=(4, 2, 6)),
    lambda x: x[::-1, 1:5:2],
)
case("slice of all", X, one(top.Slice, offset=(0, 0, 0), steps=(1, 1, 1), shape=(2, 3, 4)), lambda x: x)
case(
    "slice of nothing",
    X,
    one(top.Slice, offset=(0, 3, 0), steps=(1, -1, 1), shape=(2, 0, 4)),
    lambda x: x[:, :0],
)
for mode in ("reflect", "edge", "wrap"):
    case(
        f"pad {mode}",
        X,
        one(top.Pad, pads=(0, 1, 2, 1, 0, 1), mode=mode),
        lambda x, m=mode: np.pad(x, ((0, 1), (1, 0), (2, 1)), m),
    )
case(
    "pad crops",
    X,
    one(top.Pad, pads=(0, -1, 1, 0, 0, -2)),
    lambda x: np.pad(x[:, 1:, :2], ((0, 0), (0, 0), (1, 0))),
)
for dtype in ("f32", "f64", "i32", "i64", "ui8", "i8"):
    case(
        f"pad {dtype}",
        {"x": ((2, 3), dtype)},
        one(top.Pad, pads=(1, 0, 0, 2), value=3.0),
        lambda x: np.pad(x, ((1, 0), (0, 2)), constant_values=3),
    )
case(
    "pad below",
    {"x": (2, 3)},
    one(top.Pad, pads=(1, 0, 0, 0), value=-math.inf),
    lambda x: np.pad(x, ((1, 0), (0, 0)), constant_values=-np.inf),
)
case("expand", {"x": (3, 1)}, one(top.Expand, shape=(2, 3, 4)), lambda x: np.broadcast_to(x, (2, 3, 4)))
case("tile", X, one(top.Tile, repeats=(2, 1, 3)), lambda x: np.tile(x, (2, 1, 3)))
BLOCKS = {"x": (2, 8, 3, 2)}
for mode, order in {"DCR": (0, 3, 4, 1, 5, 2), "CRD": (0, 1, 4, 2, 5, 3)}.items():
    split_channels = (2, 2, 2, 2, 3, 2)
    case(
        f"depth to space {mode}",
        BLOCKS,
        one(top.DepthToSpace, block=2, mode=mode),
        lambda x, o=order, s=split_channels: x.reshape(s).transpose(o).reshape(2, 2, 6, 4),
    )
case(
    "space to depth",
    {"x": (2, 3, 4, 6)},
    one(top.SpaceToDepth, block=2),
    lambda x: x.reshape(2, 3, 2, 2, 3, 2).transpose(0, 3, 5, 1, 2, 4).reshape(2, 12, 2, 3),
)
case(
    "shuffle channel", {"x": (2, 6, 3)}, one(top.ShuffleChannel, group=2), lambda x: x[:, [0, 3, 1, 4, 2, 5]]
)

# Normalization
CHANNELS = [np.abs(weights(4)) + 0.5 for _ in range(4)]


def per_channel(value: Array) -> Array:
    return value[:, None, None]


def standard(x: Array, axes: Any, epsilon: float = 1e-5) -> Array:
    return (x - x.mean(axes, keepdims=True)) / np.sqrt(x.var(axes, keepdims=True) + epsilon)


def normed(x: Array) -> Array:
    s, b, m, v = map(per_channel, CHANNELS)
    return (x - m) / np.sqrt(v + 1e-3) * s + b


def affine(x: Array) -> Array:
    return x * per_channel(CHANNELS[0]) + per_channel(CHANNELS[1])


case("batch norm", IMAGE, one(top.BatchNorm, *CHANNELS, epsilon=1e-3), normed)
case(
    "scale",
    IMAGE,
    one(top.Scale, CHANNELS[0], -CHANNELS[1], relu=True),
    lambda x: np.maximum(x * per_channel(CHANNELS[0]) - per_channel(CHANNELS[1]), 0),
)
case("scale by values", {"x": (2, 4), "s": (4,), "b": (4,)}, one(top.Scale), lambda x, s, b: x * s + b)
INNER = weights(3, 4)
for present in (False, True):
    given_scale = (INNER, INNER + 1) if present else ()
    label = " affine" if present else ""
    case(
        f"layer norm{label}",
        X,
        one(top.LayerNorm, *given_scale, axis=1),
        lambda x, p=present: standard(x, (1, 2)) * (INNER if p else 1) + (INNER + 1 if p else 0),
    )
    case(
        f"rms norm{label}",
        X,
        one(top.RMSNorm, *given_scale, axis=1, epsilon=1e-2),
        lambda x, p=present: (
            x / np.sqrt((x**2).mean((1, 2), keepdims=True) + 1e-2) * (INNER if p else 1)
            + (INNER + 1 if p else 0)
        ),
    )
    given_channels = CHANNELS[:2] if present else ()
    case(
        f"instance norm{label}",
        IMAGE,
        one(top.InstanceNorm, *given_channels),
        lambda x, p=present: affine(standard(x, (2, 3))) if p else standard(x, (2, 3)),
    )

    def grouped(x: Array, p: bool = present) -> Array:
        y = standard(x.reshape(2, 2, 2, 7, 6), (2, 3, 4)).reshape(x.shape)
        return affine(y) if p else y

    case(f"group norm{label}", IMAGE, one(top.GroupNorm, *given_channels, groups=2), grouped)
HALF = weights(3).astype(np.float16)
case(
    "rms norm f16",
    {"x": ((2, 3), "f16")},
    one(top.RMSNorm, HALF),
    lambda x: x / np.sqrt((x.astype(np.float32) ** 2).mean(1, keepdims=True)) * HALF,
    tolerance=1e-2,
)
case("l2 norm", X, one(top.L2Norm, axis=1), lambda x: x / np.sqrt((x**2).sum(1, keepdims=True)))
case(
    "l2 norm bounded",
    X,
    one(top.L2Norm, axis=1, epsilon=2.0),
    lambda x: x / np.maximum(np.sqrt((x**2).sum(1, keepdims=True)), 2),
)


def local_response(x: Array) -> Array:
    squares = np.pad(x**2, ((0, 0), (1, 1), (0, 0), (0, 0)))
    near = squares[:, :-2] + squares[:, 1:-1] + squares[:, 2:]
    return x / (1.2 + 0.1 / 3 * near) ** 0.6


case("lrn", IMAGE, one(top.LRN, size=3, alpha=0.1, beta=0.6, bias=1.2), local_response)

# Attention
HEADS = {"q": (2, 3, 4, 8), "k": (2, 3, 5, 8), "v": (2, 3, 5, 6), "m": (4, 5)}


def attended(q: Array, k: Array, v: Array, m: Any = 0.0) -> Array:
    scores = 0.3 * q @ k.swapaxes(-1, -2) + m
    return np.exp(scores) / np.exp(scores).sum(-1, keepdims=True) @ v


case("attention", HEADS, one(top.Attention, scale=0.3), attended)
case("attention without mask", {n: HEADS[n] for n in "qkv"}, one(top.Attention, scale=0.3), attended)

# Indexing
INDEX = {"i": np.array([[2, -1], [0, 1]])}
case(
    "gather",
    {"x": (4, 3), "i": ((2, 2), "i64")},
    one(top.Gather, axis=1),
    lambda x, i: np.take(x, i, 1),
    feed=INDEX,
)
case("gather elements", {"x": (4, 3), "i": ((2, 2), "i64")}, one(top.GatherElements, axis=1), lambda x, i: (
    np.take_along_axis(x[:2], i, 1)
), feed=INDEX)  # fmt: skip
case(
    "gather nd",
    {"x": (4, 3, 2), "i": ((2, 2), "i64")},
    one(top.GatherND),
    lambda x, i: x[i[:, 0], i[:, 1]],
    feed={"i": np.array([[3, 2], [0, 1]])},
)
for reduction, result in {"none": [[1, 5, 6], [4, 1, 1]], "add": [[1, 6, 7], [5, 1, 1]], "max": [[1, 5, 6], [4, 1, 1]],
                          "min": [[1, 1, 1], [1, 1, 1]], "mul": [[1, 5, 6], [4, 1, 1]]}.items():  # fmt: skip
    ones, updates = np.ones((2, 3), np.float32), np.array([[5, 6], [4, 1]], np.float32)
    places = {"i": np.array([[1, 2], [0, 2]])}
    if reduction == "add":
        result[1][2] = 2
    case(f"scatter elements {reduction}", {"x": (2, 3), "i": ((2, 2), "i64"), "u": (2, 2)},
         one(top.ScatterElements, axis=1, reduction=reduction), lambda x, i, u, r=result: np.array(r, np.float32),
         feed={**places, "x": ones, "u": updates})  # fmt: skip


def scattered(x: Array, i: Array, u: Array) -> Array:
    y = x.copy()
    np.add.at(y, tuple(i.T), u)
    return y


case("scatter nd", {"x": (4, 3), "i": ((3, 1), "i64"), "u": (3, 3)}, one(top.ScatterND, reduction="add"), scattered,
     feed={"i": np.array([[1], [3], [1]])})  # fmt: skip
TIES = {"x": np.array([[1, 3, 3, 0], [2, 0, 0, 2]], np.float32)}
for largest in (True, False):
    for last in (True, False):
        wanted = {(True, False): [1, 0], (True, True): [2, 3], (False, False): [3, 1], (False, True): [3, 2]}
        found = one(top.ArgReduce, max=largest, axis=1, keepdims=False, select_last=last)
        case(f"arg {largest} {last}", {"x": (2, 4)}, found,
             lambda x, w=wanted[largest, last]: np.array(w), feed=TIES)  # fmt: skip
case(
    "topk",
    {"x": (3, 5)},
    lambda b, x: b(top.TopK, x, k=2, axis=1, name=("v", "i")),
    lambda x: ([-np.sort(-x, 1)[:, :2], np.argsort(-x, 1)[:, :2]]),
)
case(
    "topk smallest",
    {"x": (3, 5)},
    lambda b, x: b(top.TopK, x, k=2, axis=0, largest=False, name=("v", "i")),
    lambda x: ([np.sort(x, 0)[:2], np.argsort(x, 0)[:2]]),
)
case("cumsum", X, one(top.CumSum, axis=-1), lambda x: np.cumsum(x, -1))
case(
    "cumsum reversed",
    X,
    one(top.CumSum, axis=1, exclusive=True, reverse=True),
    lambda x: np.cumsum(x[:, ::-1], 1)[:, ::-1] - x,
)
for dtype in ("f32", "i64", "i32", "f64", "ui8", "i1"):
    for indices in ("i64", "i32", "f32"):
        typed = {"i": ((2, 2), indices), "v": ((2,), dtype)}
        case(f"one hot {dtype} {indices}", typed, one(top.OneHot, depth=3, axis=1),
             lambda i, v: np.moveaxis(np.where((i.astype(int) % 3)[..., None] == np.arange(3), v[1], v[0]), -1, 1),
             feed={"i": np.array([[0, 2], [-1, 1]]).astype(
                 {"i64": np.int64, "i32": np.int32, "f32": np.float32}[indices])})  # fmt: skip

# Reduction
for reduction, formula in {
    "mean": np.mean, "sum": np.sum, "max": np.max, "min": np.min, "prod": np.prod,
    "l1": lambda x, a, keepdims: np.abs(x).sum(a, keepdims=keepdims),
    "l2": lambda x, a, keepdims: np.sqrt((x**2).sum(a, keepdims=keepdims)),
    "sum_square": lambda x, a, keepdims: (x**2).sum(a, keepdims=keepdims),
    "log_sum": lambda x, a, keepdims: np.log(x.sum(a, keepdims=keepdims)),
    "log_sum_exp": lambda x, a, keepdims: np.log(np.exp(x).sum(a, keepdims=keepdims)),
}.items():  # fmt: skip
    for axes, keep in (((1, -1), True), ((0,), False), ((), True)):
        reduced = one(top.Reduce, kind=reduction, axes=axes, keepdims=keep)
        case(
            f"reduce {reduction} {axes}",
            X,
            reduced,
            lambda x, f=formula, a=axes, k=keep: f(x, a, keepdims=k),
            feed=POSITIVE,
        )
case(
    "reduce of integers",
    {"x": ((3, 4), "i32")},
    one(top.Reduce, kind="sum", axes=(1,)),
    lambda x: x.sum(1, keepdims=True),
)

# Resampling
LARGER = (2, 4, 14, 9)
for mode, coordinates in (
    ("nearest", "asymmetric"), ("nearest", "half_pixel"), ("linear", "half_pixel"), ("linear", "align_corners"),
    ("linear", "pytorch_half_pixel"), ("cubic", "half_pixel"),
):  # fmt: skip
    resized = one(top.Resize, sizes=LARGER, mode=mode, coordinates=coordinates, rounding="floor")
    case(f"resize {mode} {coordinates}", IMAGE, resized, lambda x, m=mode, c=coordinates: (
        reference("Resize", mode=m, coordinate_transformation_mode=c, nearest_mode="floor")(
            x, None, None, np.array(LARGER))
    ), tolerance=1e-4)  # fmt: skip
scaled = one(top.Resize, sizes=(2, 4, 10, 9), scales=(1.0, 1.0, 1.5, 1.6), mode="linear")
case("resize by scales", IMAGE, scaled, lambda x: (
    reference("Resize", mode="linear")(x, None, np.array([1, 1, 1.5, 1.6], np.float32))
), tolerance=1e-4)  # fmt: skip
POINTS = {"g": GENERATOR.uniform(-1.2, 1.2, (2, 3, 5, 2)).astype(np.float32)}
for mode, padding in (("linear", "border"), ("nearest", "reflection"), ("cubic", "zeros")):
    case(
        f"grid sample {mode}",
        {**IMAGE, "g": (2, 3, 5, 2)},
        one(top.GridSample, mode=mode, padding=padding, align_corners=mode == "cubic"),
        lambda x, g, m=mode, p=padding: reference(
            "GridSample", mode=m, padding_mode=p, align_corners=int(m == "cubic")
        )(x, g),
        feed=POINTS,
        tolerance=1e-4,
    )

# Quantization
SCALES, ZEROS = np.array([0.1, 0.2, 0.3], np.float32), np.array([3, 0, -5], np.int8)
ROW = {"x": (2, 3)}
case(
    "quantize",
    ROW,
    one(top.Quantize, np.array(0.02, np.float32), np.array(100, np.uint8), to="ui8"),
    lambda x: np.clip(np.round(x / np.float32(0.02)) + 100, 0, 255),
)
case(
    "quantize per channel",
    ROW,
    one(top.Quantize, SCALES, ZEROS, to="i8"),
    lambda x: np.clip(np.round(x / SCALES) + ZEROS, -128, 127),
)
for to in ("i8", "i16", "ui16"):
    case(
        f"quantize {to}",
        ROW,
        one(top.Quantize, np.array(0.5, np.float32), to=to),
        lambda x, t=to: np.round(x / np.float32(0.5)).clip(0 if t.startswith("ui") else None),
    )
case(
    "dequantize",
    {"x": ((2, 3), "i8")},
    one(top.Dequantize, SCALES, ZEROS),
    lambda x: (x.astype(np.float32) - ZEROS) * SCALES,
)
case("dequantize i32", {"x": ((2, 3), "i32")}, one(top.Dequantize, SCALES, axis=-1), lambda x: x * SCALES)

# Recurrent layers
SEQUENCE = {"x": (5, 2, 3)}


def recurrent(kind: type[TopOp], gates: int, results: int, directions: int, **options: Any) -> None:
    w, r, b = (
        weights(directions, gates * 4, 3),
        weights(directions, gates * 4, 4),
        weights(directions, gates * 8),
    )
    direction = "bidirectional" if directions == 2 else "reverse"
    names = ("whole", "last", "cell")[:results]
    case(
        f"{kind.name} {direction} {options}",
        SEQUENCE,
        lambda bld, x: bld(kind, x, w, r, b, hidden=4, direction=direction, name=names, **options),
        lambda x: reference(
            kind.name[4:].upper(),
            results,
            hidden_size=4,
            direction=direction,
            **{k: int(v) for k, v in options.items()},
        )(x, w, r, b),
    )


for kind, gates, results in ((top.RNN, 1, 2), (top.GRU, 3, 2), (top.LSTM, 4, 3)):
    recurrent(kind, gates, results, 1)
recurrent(top.GRU, 3, 2, 1, linear_before_reset=True)

INTEGERS = np.random.default_rng(2)
LSTM_SCALE = Multiplier(1 << 30, 33)
QUANTIZED_LSTM = QuantizedLstm(
    weight=INTEGERS.integers(-128, 128, (16, 3)).astype(np.int8),
    recurrence=INTEGERS.integers(-128, 128, (16, 4)).astype(np.int8),
    bias_x=INTEGERS.integers(-5000, 5000, 16).astype(np.int32),
    bias_h=INTEGERS.integers(-5000, 5000, 16).astype(np.int32),
    scales_x=(LSTM_SCALE,) * 4,
    scales_h=(LSTM_SCALE,) * 4,
    integer_bits=4,
    cell_clip=0,
    first_h=3,
    hidden=Multiplier(1 << 30, 53),
    hidden_zero_point=3,
)
case(
    "quantized lstm",
    {"x": (2, 5, 3)},
    lambda bld, x: bld(
        top.QuantizedLSTM,
        x,
        QUANTIZED_LSTM.weight,
        QUANTIZED_LSTM.recurrence,
        np.stack([QUANTIZED_LSTM.bias_x, QUANTIZED_LSTM.bias_h]),
        x_parameters=(0.03, -5.0),
        y_parameters=(0.01, 3.0),
        integer_bits=4,
        first_h=3,
        gate_scales=[*LSTM_SCALE] * 8,
        hidden_scale=(*QUANTIZED_LSTM.hidden, 3),
    ),
    lambda x: (
        np.float32(0.01)
        * (
            run_quantized_lstm(
                np.clip(np.round(x / np.float32(0.03)) - 5, -128, 127).astype(np.int8), QUANTIZED_LSTM
            )
            - np.float32(3)
        )
    ),
)


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.name)
def test_an_op_computes_what_its_definition_says(item: Case) -> None:
    item.check()


@pytest.mark.parametrize("item", CASES, ids=lambda item: item.name)
def test_the_export_is_valid_onnx(item: Case) -> None:
    exported = to_onnx(item.graph())
    embed(exported.proto, exported.external)
    onnx.checker.check_model(exported.proto, full_check=True)


@pytest.mark.parametrize("opset", [22, 23, 24, 25, 26])
def test_rules_are_valid_for_newer_opsets(opset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kept ONNX op may raise the opset of the whole model; every rule has to stand that."""
    monkeypatch.setattr(model, "OPSET", opset)
    for item in CASES if opset in (23, 26) else CASES[::7]:
        assert to_onnx(item.graph()).proto.opset_import[0].version == opset
        item.check()


def test_every_op_has_a_rule_and_a_case() -> None:
    assert {kind.name for kind in RULES} == set(TOP_OPS)
    covered = {op.name for item in CASES for op in item.graph().ops}
    assert set(TOP_OPS) - covered == {"top.onnx"}


SHAPES = st.lists(st.integers(1, 4), max_size=4)


@QUICK
@given(SHAPES, st.data())
def test_binary_ops_broadcast_as_numpy_does(shape: list[int], data: st.DataObject) -> None:
    drop = data.draw(st.integers(0, len(shape)))
    other = [data.draw(st.sampled_from([1, size])) for size in shape[drop:]]
    graph = build(
        {"a": shape, "b": other}, lambda b, x, y: [b(top.Sub, x, y, name="p"), b(top.Sub, y, x, name="q")]
    )
    feed = random_inputs(graph)
    found = evaluate(graph, feed)
    assert_close(found["y"], feed["a"] - feed["b"])
    assert_close(found["y1"], feed["b"] - feed["a"])


@QUICK
@given(
    st.lists(
        st.tuples(st.integers(1, 6), st.integers(0, 5), st.integers(-3, 3), st.integers(0, 6)),
        min_size=1,
        max_size=3,
    )
)
def test_any_slice_that_fits_is_numpys(axes: list[tuple[int, int, int, int]]) -> None:
    shape, parts = [], []
    for size, begin, step, count in axes:
        step = step or 1
        begin = min(begin, size - 1)
        room = (size - 1 - begin) // step + 1 if step > 0 else begin // -step + 1
        shape.append(size)
        parts.append((begin, step, min(count, room)))
    offset, steps, counts = zip(*parts, strict=True)
    graph = build({"x": shape}, one(top.Slice, offset=offset, steps=steps, shape=counts))
    feed = random_inputs(graph)
    wanted = feed["x"]
    for axis, (begin, step, count) in enumerate(parts):
        wanted = np.take(wanted, [begin + step * n for n in range(count)], axis)
    assert_close(evaluate(graph, feed)["y"], wanted)


@QUICK
@given(
    st.integers(1, 9), st.integers(1, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3),
    st.booleans(), st.booleans(), st.booleans(),
)  # fmt: skip
def test_pools_of_any_geometry(
    size: int, kernel: int, stride: int, before: int, after: int, ceil: bool, include: bool, average: bool
) -> None:
    if average:  # a window of nothing but padding has no mean
        before, after = min(before, kernel - 1), min(after, kernel - 1)
    if size + before + after < kernel:
        return
    pads = (0, before, 0, after)
    options = {
        "kernel": (1, kernel),
        "strides": (1, stride),
        "pads": pads,
        "dilations": (1, 1),
        "ceil_mode": ceil,
    }
    if average:
        options["count_include_pad"] = include
    graph = build({"x": (1, 2, 1, size)}, one(top.AvgPool if average else top.MaxPool, **options))
    feed = random_inputs(graph)
    found = evaluate(graph, feed)["y"]
    kind = "avg" if average else "max"
    wanted = pooled(feed["x"], kind, (1, kernel), (1, stride), pads, found.shape[2:], include)
    real = np.isfinite(wanted)
    assert_close(found[real], wanted[real].astype(np.float32))
    assert (found[~real] < -1e30).all()
