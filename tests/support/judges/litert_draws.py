"""One-op networks for the judge: every case draws shapes, windows, types, scales, zero points and data.

`judge(name, examples)` runs drawn networks of one case through LiteRT's reference kernels and graph mode and returns
how many networks and outputs were compared; `conformance(examples)` does so for all cases.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import NpucError
from npuc.ir import Graph, top
from npuc.quant import SCHEMES, Scheme, quantize
from support.graphs import build
from support.judges.litert import assert_equal_bits

Draw = Callable[..., Any]
Network = tuple[dict[str, tuple[int, ...]], Callable[..., Any]]
Case = Callable[[Draw], Network]

INT8 = SCHEMES["tflite"]
INT16 = SCHEMES["tflite-int16"]
UINT8 = Scheme(activation="ui8", per_channel=False, requant="double_rounding")
ALL = (INT8, INT16, UINT8)

CASES: dict[str, tuple[Case, tuple[Scheme, ...]]] = {}


def case(*schemes: Scheme, name: str = "") -> Callable[[Case], Case]:
    """Register a function that draws a network: the shapes of its inputs, and what builds it."""

    def register(function: Case) -> Case:
        CASES[name or function.__name__] = function, schemes or ALL
        return function

    return register


def _size(draw: Draw, least: int = 1, most: int = 9) -> int:
    return int(draw(st.integers(least, most)))


def _image(draw: Draw, least: int = 1, most: int = 9, channels: int = 6) -> tuple[int, int, int, int]:
    return (
        1 + draw(st.booleans()),
        _size(draw, 1, channels),
        _size(draw, least, most),
        _size(draw, least, most),
    )


def _shape(draw: Draw) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))


def _random(draw: Draw) -> np.random.Generator:
    return np.random.default_rng(draw(st.integers(0, 2**32 - 1)))


def _weights(draw: Draw, *shape: int) -> Array:
    generator = _random(draw)
    size = 10 ** generator.uniform(-2, 2, (shape[0], *[1] * (len(shape) - 1)))
    return (generator.normal(size=shape) * size).astype(np.float32)


def _bias(draw: Draw, count: int) -> Array | None:
    return _random(draw).normal(size=count).astype(np.float32) if draw(st.booleans()) else None


def _relu(draw: Draw) -> dict[str, Any]:
    limit = draw(st.sampled_from([None, None, 0.0, 6.0, 1.5]))
    return {} if limit is None else {"relu": True, "relu_limit": limit}


def _window(draw: Draw, kernel: tuple[int, int], dilated: bool = True) -> dict[str, Any]:
    dilation = draw(st.integers(1, 2)) if dilated else 1
    reach = [(k - 1) * dilation for k in kernel]
    # Same, valid, and anything between.
    pads = [draw(st.integers(0, r)) for r in (*reach, *reach)]
    return {
        "strides": (draw(st.integers(1, 3)), draw(st.integers(1, 3))),
        "pads": draw(st.sampled_from([(0, 0, 0, 0), tuple(pads), (*[r // 2 for r in reach],) * 2])),
        "dilations": (dilation, dilation),
    }


def _fits(shape: tuple[int, ...], kernel: tuple[int, ...], window: dict[str, Any]) -> None:
    for i in (0, 1):
        span = (kernel[i] - 1) * window["dilations"][i] + 1
        assume(shape[2 + i] + window["pads"][i] + window["pads"][2 + i] >= span)


# Layers with weights


@case()
def conv(draw: Draw) -> Network:
    x = _image(draw)
    kernel = (_size(draw, 1, 4), _size(draw, 1, 4))
    window = _window(draw, kernel)
    _fits(x, kernel, window)
    group = draw(st.sampled_from([g for g in (1, 1, 2, 3) if x[1] % g == 0]))
    outputs = group * _size(draw, 1, 4)
    weight, bias = _weights(draw, outputs, x[1] // group, *kernel), _bias(draw, outputs)
    options = {**window, **_relu(draw), "group": group}
    return {"x": x}, lambda b, v: b(top.Conv, v, weight, bias, name="y", **options)


@case()
def depthwise(draw: Draw) -> Network:
    x = _image(draw)
    kernel = (_size(draw, 1, 4), _size(draw, 1, 4))
    window = _window(draw, kernel)
    _fits(x, kernel, window)
    outputs = x[1] * _size(draw, 1, 3)
    weight, bias = _weights(draw, outputs, 1, *kernel), _bias(draw, outputs)
    options = {**window, **_relu(draw), "group": x[1]}
    return {"x": x}, lambda b, v: b(top.Conv, v, weight, bias, name="y", **options)


@case(INT8, INT16)
def deconv(draw: Draw) -> Network:
    x = _image(draw, most=5)
    kernel = (_size(draw, 1, 4), _size(draw, 1, 4))
    strides = (_size(draw, 1, 3), _size(draw, 1, 3))
    pads = tuple(draw(st.integers(0, k - 1)) for k in (*kernel, *kernel))
    for i in (0, 1):
        assume((x[2 + i] - 1) * strides[i] + kernel[i] > pads[i] + pads[2 + i])
    outputs = _size(draw, 1, 4)
    weight, bias = _weights(draw, x[1], outputs, *kernel), _bias(draw, outputs)
    options = {
        "strides": strides,
        "pads": pads,
        "dilations": (1, 1),
        "output_padding": tuple(draw(st.integers(0, s - 1)) for s in strides),
        **_relu(draw),
    }
    return {"x": x}, lambda b, v: b(top.Deconv, v, weight, bias, name="y", **options)


@case()
def fully_connected(draw: Draw) -> Network:
    x = (*draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)), _size(draw, 1, 40))
    outputs = _size(draw, 1, 8)
    turned = draw(st.booleans())
    weight = _weights(draw, *((outputs, x[-1]) if turned else (x[-1], outputs)))
    bias, options = _bias(draw, outputs), {"transpose_b": turned, **_relu(draw)}
    return {"x": x}, lambda b, v: b(top.MatMul, v, weight, bias, name="y", **options)


@case(INT8, INT16)
def batch_matmul(draw: Draw) -> Network:
    batch = draw(st.sampled_from([(), (2,), (1, 3)]))
    m, k, n = (_size(draw, 1, 12) for _ in range(3))
    turned = draw(st.booleans())
    b_shape = (*batch, n, k) if turned else (*batch, k, n)
    options = {"transpose_b": turned, **_relu(draw)}
    return (
        {"a": (*batch, m, k), "b": b_shape},
        lambda b, u, v: b(top.MatMul, u, v, None, name="y", **options),
    )


# Elementwise


def _binary(draw: Draw, kind: Any) -> Network:
    a = _shape(draw)
    other = tuple(1 if draw(st.booleans()) and draw(st.booleans()) else n for n in a)
    other = other[draw(st.integers(0, len(other) - 1)) :]
    options = _relu(draw)
    constant = draw(st.booleans())
    if constant:
        weight = _random(draw).normal(size=other).astype(np.float32)
        return {"a": a}, lambda b, u: b(kind, u, weight, name="y", **options)
    return {"a": a, "b": other}, lambda b, u, v: b(kind, u, v, name="y", **options)


for _kind in (top.Add, top.Sub, top.Mul):
    case(name=_kind.name.removeprefix("top."))(lambda draw, kind=_kind: _binary(draw, kind))


def _function(draw: Draw, kind: Any, options: dict[str, Any]) -> Network:
    return {"x": _shape(draw)}, lambda b, v: b(kind, v, name="y", **options)


_FUNCTIONS: dict[str, tuple[Any, Callable[[Draw], dict[str, Any]]]] = {
    "sigmoid": (top.Sigmoid, lambda draw: {}),
    "tanh": (top.Tanh, lambda draw: {}),
    "exp": (top.Exp, lambda draw: {}),
    "silu": (top.SiLU, lambda draw: {}),
    "hard_swish": (top.HardSwish, lambda draw: {}),
    "leaky_relu": (top.LeakyRelu, lambda draw: {"alpha": draw(st.floats(0.01, 2.0))}),
    "relu": (top.Relu, lambda draw: {"limit": draw(st.sampled_from([0.0, 1.5, 6.0]))}),
    "clip": (top.Clip, lambda draw: {"min": -draw(st.floats(0, 2)), "max": draw(st.floats(0, 2))}),
    "gelu": (top.Gelu, lambda draw: {}),
    "mish": (top.Mish, lambda draw: {}),
    "abs": (top.Abs, lambda draw: {}),
    "hard_sigmoid": (top.HardSigmoid, lambda draw: {}),
}
for _name, (_kind, _options) in _FUNCTIONS.items():
    case(name=_name)(
        lambda draw, kind=_kind, options=_options: _function(draw, kind, options(draw))  # type: ignore[misc]
    )


@case(INT8, UINT8)
def prelu(draw: Draw) -> Network:
    x = _image(draw)
    slope = _random(draw).normal(size=(x[1], 1, 1)).astype(np.float32)
    return {"x": x}, lambda b, v: b(top.PRelu, v, slope, name="y")


@case()
def requantize(draw: Draw) -> Network:
    """An average of single elements in another scale: a change of scale and nothing else."""
    options = {"kernel": (1, 1), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}
    return {"x": _image(draw)}, lambda b, v: b(top.AvgPool, v, name="y", **options)


# Windows and rows


@case()
def average_pool(draw: Draw) -> Network:
    x = _image(draw, least=2)
    kernel = (_size(draw, 1, min(4, x[2])), _size(draw, 1, min(4, x[3])))
    counted = draw(st.booleans())
    strides = (_size(draw, 1, 3), _size(draw, 1, 3))
    pads = tuple(draw(st.integers(0, k // 2)) for k in (*kernel, *kernel)) if counted else (0, 0, 0, 0)
    if not counted and strides == (1, 1) and kernel[0] % 2 == kernel[1] % 2 == 1:
        pads = (kernel[0] // 2, kernel[1] // 2) * 2  # SAME
    options = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": (1, 1)}
    return {"x": x}, lambda b, v: b(top.AvgPool, v, name="y", count_include_pad=counted, **options)


@case()
def max_pool(draw: Draw) -> Network:
    x = _image(draw, least=2)
    kernel = (_size(draw, 1, min(4, x[2])), _size(draw, 1, min(4, x[3])))
    options = {
        "kernel": kernel,
        "strides": (_size(draw, 1, 3), _size(draw, 1, 3)),
        "pads": tuple(draw(st.integers(0, k // 2)) for k in (*kernel, *kernel)),
        "dilations": (1, 1),
    }
    return {"x": x}, lambda b, v: b(top.MaxPool, v, name="y", **options)


@case()
def softmax(draw: Draw) -> Network:
    x = _shape(draw)
    axis = draw(st.integers(-len(x), len(x) - 1))
    return {"x": x}, lambda b, v: b(top.Softmax, v, axis=axis, name="y")


@case(INT8, UINT8)
def l2_norm(draw: Draw) -> Network:
    x = _shape(draw)
    axis = draw(st.integers(-len(x), len(x) - 1))
    return {"x": x}, lambda b, v: b(top.L2Norm, v, axis=axis, name="y")


def _axes(draw: Draw, rank: int) -> tuple[int, ...]:
    return tuple(draw(st.lists(st.integers(0, rank - 1), min_size=1, max_size=rank, unique=True)))


@case()
def mean(draw: Draw) -> Network:
    x = _shape(draw)
    options = {"kind": "mean", "axes": _axes(draw, len(x)), "keepdims": draw(st.booleans())}
    return {"x": x}, lambda b, v: b(top.Reduce, v, name="y", **options)


@case()
def extreme(draw: Draw) -> Network:
    x = _shape(draw)
    kind = draw(st.sampled_from(["max", "min"]))
    options = {"kind": kind, "axes": _axes(draw, len(x)), "keepdims": draw(st.booleans())}
    return {"x": x}, lambda b, v: b(top.Reduce, v, name="y", **options)


@case(INT8, UINT8)
def arg_max(draw: Draw) -> Network:
    x = _image(draw)
    options = {"axis": draw(st.integers(0, 3)), "keepdims": draw(st.booleans()), "max": draw(st.booleans())}

    def network(b: Any, v: Any) -> Any:
        return b(top.ArgReduce, b(top.Relu, v, name="r"), name="y", **options)

    return {"x": x}, network


@case(INT8, INT16)
def resize_bilinear(draw: Draw) -> Network:
    x = _image(draw)
    sizes = (*x[:2], _size(draw, 1, 20), _size(draw, 1, 20))
    coordinates = draw(st.sampled_from(["half_pixel", "align_corners", "asymmetric"]))
    return (
        {"x": x},
        lambda b, v: b(top.Resize, v, sizes=sizes, mode="linear", coordinates=coordinates, name="y"),
    )


@case()
def resize_nearest(draw: Draw) -> Network:
    x = _image(draw)
    sizes = (*x[:2], _size(draw, 1, 20), _size(draw, 1, 20))
    options = {
        "coordinates": draw(st.sampled_from(["half_pixel", "align_corners", "asymmetric"])),
        "rounding": draw(st.sampled_from(["floor", "ceil", "round_prefer_floor", "round_prefer_ceil"])),
    }
    return {"x": x}, lambda b, v: b(top.Resize, v, sizes=sizes, mode="nearest", name="y", **options)


# Movement


@case()
def concat(draw: Draw) -> Network:
    a = _shape(draw)
    axis = draw(st.integers(0, len(a) - 1))
    b_shape = tuple(_size(draw, 1, 4) if i == axis else n for i, n in enumerate(a))
    return {"a": a, "b": b_shape}, lambda b, u, v: b(top.Concat, [u, v], axis=axis, name="y")


@case()
def split(draw: Draw) -> Network:
    x = _shape(draw)
    axis = draw(st.integers(0, len(x) - 1))
    assume(x[axis] >= 2)
    first = draw(st.integers(1, x[axis] - 1))
    return (
        {"x": x},
        lambda b, v: b(top.Split, v, axis=axis, sizes=(first, x[axis] - first), name=("y", "z")),
    )


@case()
def slice_(draw: Draw) -> Network:
    x = _shape(draw)
    steps = [draw(st.sampled_from([1, 1, 2, -1, -2])) for _ in x]
    offset = [draw(st.integers(0, n - 1)) for n in x]
    room = [(n - 1 - o if s > 0 else o) // abs(s) for n, o, s in zip(x, offset, steps, strict=True)]
    shape = [1 + draw(st.integers(0, r)) for r in room]
    return {"x": x}, lambda b, v: b(top.Slice, v, offset=offset, steps=steps, shape=shape, name="y")


@case()
def pad(draw: Draw) -> Network:
    x = _shape(draw)
    mode = draw(st.sampled_from(["constant", "constant", "reflect"]))
    most = [2 if mode == "constant" else n - 1 for n in x] * 2
    least = [-(n // 3) if mode == "constant" else 0 for n in x] * 2
    pads = [draw(st.integers(low, high)) for low, high in zip(least, most, strict=True)]
    value = draw(st.sampled_from([0.0, 0.7, -1.0])) if mode == "constant" else 0.0
    return {"x": x}, lambda b, v: b(top.Pad, v, pads=pads, mode=mode, value=value, name="y")


@case()
def reshape_permute(draw: Draw) -> Network:
    """Two reshapes and a permute around a convolution, so that the order of axes is not the program's."""
    n, c, h, w = x = _image(draw)
    weight = _weights(draw, c, c, 1, 1)
    order = tuple(draw(st.permutations(range(4))))
    shape = draw(st.sampled_from([(n, c * h * w), (n, c, h * w), (n * c, h, w), (n, c, h, 1, w)]))
    window = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1)}

    def network(b: Any, v: Any) -> Any:
        y = b(top.Conv, v, weight, None, name="c", **window)
        return [b(top.Permute, y, order=order, name="y"), b(top.Reshape, y, shape=shape, name="z")]

    return {"x": x}, network


@case()
def blocks(draw: Draw) -> Network:
    block = _size(draw, 1, 3)
    n, c, h, w = _image(draw, most=4)
    if draw(st.booleans()):
        return (
            {"x": (n, c, h * block, w * block)},
            lambda b, v: b(top.SpaceToDepth, v, block=block, name="y"),
        )
    mode = draw(st.sampled_from(["DCR", "CRD"]))
    return {"x": (n, c * block**2, h, w)}, lambda b, v: b(
        top.DepthToSpace, v, block=block, mode=mode, name="y"
    )


@case()
def shuffle(draw: Draw) -> Network:
    n, c, h, w = _image(draw)
    group = _size(draw, 1, 3)
    return {"x": (n, c * group, h, w)}, lambda b, v: b(top.ShuffleChannel, v, group=group, name="y")


@case()
def expand_tile(draw: Draw) -> Network:
    x = _shape(draw)
    if draw(st.booleans()):
        repeats = [draw(st.integers(1, 3)) for _ in x]
        return {"x": x}, lambda b, v: b(top.Tile, v, repeats=repeats, name="y")
    x = tuple(1 if draw(st.booleans()) else n for n in x)
    shape = tuple(_size(draw, 1, 4) if n == 1 else n for n in x)
    return {"x": x}, lambda b, v: b(top.Expand, v, shape=shape, name="y")


# Judging


def _range(low: float, high: float, factor: float) -> tuple[float, float]:
    return min(low, 0.0) * factor, max(high, 1e-3) * factor


def drawn(draw: Draw, name: str) -> tuple[Graph, dict[str, Array]]:
    """An integer network of a case, and inputs for it: some of them beyond the range that it was made for."""
    make, schemes = CASES[name]
    scheme = draw(st.sampled_from(schemes))
    shapes, network = make(draw)
    graph = build(shapes, network)
    generator = _random(draw)
    feed = {}
    for port, shape in shapes.items():
        size = 10.0 ** draw(st.floats(-2, 1.5))
        shift = draw(st.sampled_from([-1.0, 0.0, 0.0, 1.0]))
        feed[port] = (generator.uniform(-1 + shift, 1 + shift, shape) * size).astype(np.float32)
    reals = {**feed, **FloatEngine(graph, "all tensors", threads=1).run(feed)}
    ranges = {
        key: _range(float(array.min()), float(array.max()), draw(st.sampled_from([0.3, 0.9, 1.0, 4.0])))
        for key, array in reals.items()
        if array.dtype == np.float32
    }
    return quantize(graph, ranges, scheme), feed


def judge(name: str, examples: int, shrink: bool = True) -> tuple[int, int]:
    """Compare drawn networks of a case; the numbers of networks and of outputs. `shrink`: look for a smaller one that differs."""
    counts = [0, 0]

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[phase for phase in Phase if shrink or phase not in (Phase.shrink, Phase.explain)],
    )
    @given(st.data())
    def compare(data: Any) -> None:
        graph, feed = drawn(data.draw, name)
        counts[1] += assert_equal_bits(graph, feed)
        counts[0] += 1

    compare()
    return counts[0], counts[1]


def conformance(examples: int) -> dict[str, tuple[int, int, str]]:
    """For each case: networks and outputs that were equal, and what was not, in words (empty if all were)."""
    results = {}
    for name in CASES:
        try:
            results[name] = (*judge(name, examples), "")
        except (AssertionError, NpucError, RuntimeError, ValueError) as error:
            results[name] = (0, 0, " ".join(str(error).split())[:200])
    return results
