"""Products and windows: convolutions, matrix products, pooling, resizing, recurrent layers, sampling by a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from npuc.arrays import Array
from npuc.codegen.host_ops.builder import Builder, HostTensor, kind, real
from npuc.codegen.host_ops.elementwise import binary, cast
from npuc.codegen.host_ops.rules import Node, NoHostOperator, axis_of, host_rule

_SPACE = 3
_REALS = ("f32", "f64")


def _require(x: HostTensor, *dtypes: str) -> None:
    if x.dtype not in dtypes:
        raise NoHostOperator(f"C has it for {', '.join(dtypes)}, not for {x.dtype}")


@dataclass(frozen=True)
class _Window:
    """A window that moves over an image."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]


def _window(node: Node, kernel: Sequence[int], inputs: Sequence[int], outputs: Sequence[int]) -> _Window:
    """Strides, dilations and pads, with those that `auto_pad` asks for."""
    axes = len(kernel)
    if not 1 <= axes <= _SPACE:
        raise NoHostOperator(f"C has it for up to {_SPACE} axes of space")
    strides = tuple(node.attribute("strides") or (1,) * axes)
    dilations = tuple(node.attribute("dilations") or (1,) * axes)
    pads = tuple(node.attribute("pads") or (0,) * (2 * axes))
    auto = node.attribute("auto_pad", "NOTSET")
    before, behind = pads[:axes], pads[axes:]
    if auto in ("SAME_UPPER", "SAME_LOWER"):
        spans = [(size - 1) * dilation + 1 for size, dilation in zip(kernel, dilations, strict=True)]
        totals = [
            max(0, (out - 1) * stride + span - size)
            for out, stride, span, size in zip(outputs, strides, spans, inputs, strict=True)
        ]
        before = tuple(total // 2 if auto == "SAME_UPPER" else total - total // 2 for total in totals)
        behind = tuple(total - first for total, first in zip(totals, before, strict=True))
    return _Window(strides, dilations, before, behind)


@host_rule("Conv")
def convolution(node: Node, build: Builder) -> None:
    """A window of weights."""
    x, weight, y = node.static(0), node.static(1), node.output()
    _require(x, *_REALS)
    w = _window(node, weight.shape[2:], x.shape[2:], y.shape[2:])
    numbers = (len(w.strides), node.attribute("group", 1), *w.strides, *w.dilations, *w.before)
    build.add("convolution", [x, weight, node.given(2)], [y], *numbers)


@host_rule("ConvInteger")
def integer_convolution(node: Node, build: Builder) -> None:
    """Of integers in 32 bits, without their zero points."""
    x, weight = _centred(node, build, 0, 2), _centred(node, build, 1, 3)
    y = node.output()
    w = _window(node, weight.shape[2:], x.shape[2:], y.shape[2:])
    numbers = (len(w.strides), node.attribute("group", 1), *w.strides, *w.dilations, *w.before)
    build.add("convolution", [x, weight, None], [y], *numbers)


def _centred(node: Node, build: Builder, index: int, zero_point: int) -> HostTensor:
    x = cast(build, node.static(index), "i32")
    zero = node.given(zero_point)
    if zero is None:
        return x
    zero = cast(build, zero, "i32")
    if index == 1 and zero.shape not in ((), (1,)) and node.proto.op_type == "ConvInteger":
        zero = build.view(zero, (*zero.shape, *(1,) * (len(x.shape) - 1)))
    return binary(build, "sub", x, zero, build.like(x))


@host_rule("ConvTranspose")
def deconvolution(node: Node, build: Builder) -> None:
    """The transposed convolution; pads may be stated by the size of the result."""
    x, weight, y = node.static(0), node.static(1), node.output()
    _require(x, *_REALS)
    w = _window(node, weight.shape[2:], x.shape[2:], y.shape[2:])
    before = w.before
    if node.attribute("output_shape") is not None or node.attribute("auto_pad", "NOTSET").startswith("SAME"):
        extra = node.attribute("output_padding") or (0,) * len(before)
        totals = [
            stride * (size - 1) + more + (taps - 1) * dilation + 1 - out
            for stride, size, more, taps, dilation, out in zip(
                w.strides, x.shape[2:], extra, weight.shape[2:], w.dilations, y.shape[2:], strict=True
            )
        ]
        upper = node.attribute("auto_pad", "NOTSET") == "SAME_UPPER"
        before = tuple(total // 2 if upper else total - total // 2 for total in totals)
    numbers = (len(w.strides), node.attribute("group", 1), *w.strides, *w.dilations, *before)
    build.add("deconvolution", [x, weight, node.given(2)], [y], *numbers)


def _matmul(
    build: Builder,
    a: HostTensor,
    b: HostTensor,
    y: HostTensor,
    turned: tuple[int, int] = (0, 0),
    factor: float = 1.0,
) -> HostTensor:
    build.add("matmul", [a, b], [y], *turned, real(factor))
    return y


def _products(node: Node, build: Builder, a: HostTensor, b: HostTensor) -> None:
    """Matrix products of batches; a vector is a matrix of one row or column."""
    shape = node.shape()
    rows = (1,) if len(a.shape) == 1 else ()
    columns = (1,) if len(b.shape) == 1 else ()
    a = build.view(a, (1, *a.shape)) if rows else a
    b = build.view(b, (*b.shape, 1)) if columns else b
    batches = shape[: len(shape) - (not rows) - (not columns)]
    y = build.tensor(a.dtype, (*batches, a.shape[-2], b.shape[-1]))
    node.bind_view(_matmul(build, a, b, y), shape)


@host_rule("MatMul")
def matmul(node: Node, build: Builder) -> None:
    """Of reals, or of integers of 32 and 64 bits."""
    a, b = node.static(0), node.static(1)
    _require(a, *_REALS, "i32", "i64")
    _products(node, build, a, b)


@host_rule("MatMulInteger")
def integer_matmul(node: Node, build: Builder) -> None:
    """Of integers in 32 bits, without their zero points."""
    for index in (2, 3):
        zero = node.given(index)
        if (
            zero is not None
            and zero.shape not in ((), (1,))
            and (index == 2 or len(node.static(1).shape) != 2)
        ):
            raise NoHostOperator("it has a zero point for each row")
    _products(node, build, _centred(node, build, 0, 2), _centred(node, build, 1, 3))


@host_rule("Gemm")
def gemm(node: Node, build: Builder) -> None:
    """A product of matrices and a sum."""
    a, b, c, y = node.static(0), node.static(1), node.given(2), node.output()
    _require(a, *_REALS)
    turned = (node.attribute("transA", 0), node.attribute("transB", 0))
    alpha, beta = float(node.attribute("alpha", 1.0)), float(node.attribute("beta", 1.0))
    if c is None or beta == 0:
        _matmul(build, a, b, y, turned, alpha)
        return
    product = _matmul(build, a, b, build.like(y), turned, alpha)
    if beta != 1:
        factor = build.constant(np.array(beta, np.float32 if c.dtype == "f32" else np.float64))
        c = binary(build, "mul", c, factor, build.like(c))
    binary(build, "add", product, c, y)


@host_rule("MaxPool", "AveragePool", "LpPool")
def pool(node: Node, build: Builder) -> None:
    """The largest element, the mean or the power mean of windows."""
    x, y = node.static(0), node.output()
    if node.wants(1):
        raise NoHostOperator("its second result, the places of the largest, is used")
    name = {"MaxPool": "max", "LpPool": "lp"}.get(node.proto.op_type, "mean")
    if name == "mean" and node.attribute("count_include_pad", 0):
        name = "mean_with_pads"
    _require(x, *_REALS, *(("i8", "ui8") if name == "max" else ()))
    kernel = node.attribute("kernel_shape")
    w = _window(node, kernel, x.shape[2:], y.shape[2:])
    numbers = (kind("pool", name), len(kernel), node.attribute("p", 2))
    build.add("pool", [x], [y], *numbers, *kernel, *w.strides, *w.dilations, *w.before, *w.behind)


# ---- resizing ----


def _source_places(n_in: int, n_out: int, scale: float, mode: str) -> Array:
    """Where on an axis each result is, in the single precision of ONNX Runtime."""
    f = np.float32
    at = np.arange(n_out, dtype=f)
    ratio = f(scale)
    if mode == "asymmetric":
        return at / ratio
    if mode == "align_corners":
        return at * f(n_in - 1) / f(n_out - 1) if n_out > 1 else np.zeros(1, f)
    if mode == "pytorch_half_pixel" and n_out == 1:
        return np.zeros(1, f)
    if mode in ("half_pixel", "pytorch_half_pixel"):
        return (at + f(0.5)) / ratio - f(0.5)
    if mode == "half_pixel_symmetric":
        adjustment = f(n_out) / (f(scale) * f(n_in))
        center = f(n_in) / f(2)
        return center * (f(1) - adjustment) + (at + f(0.5)) / ratio - f(0.5)
    raise NoHostOperator(f"C has no coordinates '{mode}'")


def _nearest(places: Array, how: str, n_in: int) -> Array:
    half = np.float32(0.5)
    if how == "round_prefer_floor":
        rounded = np.ceil(places - half)
    elif how == "round_prefer_ceil":
        rounded = np.floor(places + half)
    else:
        rounded = np.ceil(places) if how == "ceil" else np.floor(places)
    return np.asarray(np.clip(rounded, 0, n_in - 1).astype(np.int64))


def _linear(places: Array, n_in: int) -> tuple[Array, Array]:
    at = np.clip(places, 0, np.float32(n_in - 1))
    low = np.minimum(at.astype(np.int32), n_in - 1)
    high = np.minimum(low + 1, n_in - 1)
    behind = np.where(low == high, np.float32(0.5), np.abs(at - low.astype(np.float32)))
    before = np.where(low == high, np.float32(0.5), np.abs(at - high.astype(np.float32)))
    return np.stack([low, high], 1), np.stack([before, behind], 1).astype(np.float32)


def _cubic(places: Array, n_in: int, a: float, exclude_outside: bool) -> tuple[Array, Array]:
    low = np.floor(places)
    t = (places - low).astype(np.float64)
    u = 1 - t
    outer = [((a * (v + 1) - 5 * a) * (v + 1) + 8 * a) * (v + 1) - 4 * a for v in (t, u)]
    inner = [((a + 2) * v - (a + 3)) * v * v + 1 for v in (t, u)]
    weights = np.stack([outer[0], inner[0], inner[1], outer[1]], 1)
    numbers = low.astype(np.int64)[:, None] + np.arange(-1, 3)
    if exclude_outside:
        weights = np.where((numbers < 0) | (numbers >= n_in), 0.0, weights)
        weights = weights / weights.sum(1, keepdims=True)
    return np.clip(numbers, 0, n_in - 1).astype(np.int32), weights.astype(np.float32)


@host_rule("Resize")
def resize(node: Node, build: Builder) -> None:
    """One axis after the other: slices by number, or weighted sums of them."""
    x, shape = node.static(0), node.shape()
    mode, coordinates = (
        node.attribute("mode", "nearest"),
        node.attribute("coordinate_transformation_mode", "half_pixel"),
    )
    if node.attribute("antialias", 0):
        raise NoHostOperator("C has no antialiasing")
    if mode != "nearest":
        _require(x, "f32")
    axes = node.attribute("axes") or range(len(shape))
    scales = [size / own for size, own in zip(shape, x.shape, strict=True)]
    given = node.given(2)
    if given is not None and np.prod(given.shape) > 0:
        for axis, scale in zip(axes, node.constant(2), strict=True):
            scales[axis_of(axis, len(shape))] = float(scale)
    for axis, (size, scale) in enumerate(zip(shape, scales, strict=True)):
        length = x.shape[axis]
        if size == length and scale == 1.0:
            continue
        places = _source_places(length, size, scale, coordinates)
        y = build.tensor(x.dtype, (*x.shape[:axis], size, *x.shape[axis + 1 :]))
        if mode == "nearest":
            how = node.attribute("nearest_mode", "round_prefer_floor")
            build.add("gather", [x, build.constant(_nearest(places, how, length))], [y], axis)
        else:
            numbers, weights = (
                _linear(places, length)
                if mode == "linear"
                else _cubic(
                    places,
                    length,
                    node.attribute("cubic_coeff_a", -0.75),
                    bool(node.attribute("exclude_outside", 0)),
                )
            )
            operands = [x, build.constant(numbers.astype(np.int32)), build.constant(weights)]
            build.add("resample", operands, [y], axis)
        x = y
    node.bind(x)


@host_rule("GridSample")
def grid_sample(node: Node, build: Builder) -> None:
    """Elements at fractional places of an image."""
    x = node.static(0)
    _require(x, "f32")
    if len(x.shape) != 4:
        raise NoHostOperator("C has it for images, not for volumes")
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        node.attribute("mode", "linear"), node.attribute("mode", "linear")
    )
    numbers = (kind("grid", mode), kind("outside", node.attribute("padding_mode", "zeros")))
    build.add(
        "grid_sample", [x, node.static(1)], [node.output()], *numbers, node.attribute("align_corners", 0)
    )


# ---- recurrent layers ----

_ACTIVATIONS = {
    "Sigmoid": ("sigmoid", 0.0, 0.0), "Tanh": ("tanh", 0.0, 0.0), "Relu": ("relu", 0.0, 0.0),
    "LeakyRelu": ("leaky_relu", 0.01, 0.0), "HardSigmoid": ("hard_sigmoid", 0.2, 0.5), "Elu": ("elu", 1.0, 0.0),
    "Softsign": ("softsign", 0.0, 0.0),
}  # fmt: skip
_WITH_ALPHA, _WITH_BETA = ("LeakyRelu", "HardSigmoid", "Elu"), ("HardSigmoid",)
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}


@host_rule("RNN", "GRU", "LSTM")
def recurrent(node: Node, build: Builder) -> None:
    """A layer over time, in one direction or in both."""
    name = node.proto.op_type
    x = node.static(0)
    _require(x, "f32")
    direction = node.attribute("direction", "forward")
    directions = 2 if direction == "bidirectional" else 1
    hidden = node.attribute("hidden_size") or node.static(2).shape[-1]
    raw = node.attribute("activations") or _DEFAULTS[name] * directions
    names = [value.decode() if isinstance(value, bytes) else value for value in raw]
    alphas, betas = (
        iter(node.attribute("activation_alpha") or ()),
        iter(node.attribute("activation_beta") or ()),
    )
    numbers: list[int] = []
    for start in range(0, len(names), len(names) // directions):
        own = names[start : start + len(names) // directions]
        for activation in (own + own[-1:] * 3)[:3]:
            if activation not in _ACTIVATIONS:
                raise NoHostOperator(f"C has no '{activation}' inside of recurrent layers")
        for activation in own:
            function, alpha, beta = _ACTIVATIONS[activation]
            alpha = next(alphas, alpha) if activation in _WITH_ALPHA else alpha
            beta = next(betas, beta) if activation in _WITH_BETA else beta
            numbers += [kind("unary", function), real(float(alpha)), real(float(beta))]
        numbers += [0, 0, 0] * (3 - len(own))
    operands = [*(node.given(k) for k in range(5)), node.given(5), node.given(6), node.given(7)]
    scratch = build.tensor("f32", (4 * hidden,))
    outputs = [node.output(k) if node.wants(k) else None for k in range(len(node.proto.output))]
    build.add(
        "recurrent",
        [*operands, scratch],
        [*outputs, None, None, None][:3],
        kind("recurrent", name.lower()),
        directions,
        hidden,
        direction == "reverse",
        node.attribute("linear_before_reset", 0),
        node.attribute("input_forget", 0),
        node.attribute("layout", 0),
        real(float(node.attribute("clip", 0.0))),
        *numbers,
    )
