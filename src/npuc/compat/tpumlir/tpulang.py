"""TpuLang on `npuc.lang`: networks built op by op, under the names of TPU-MLIR's module `transform.TpuLang`.

    import transform.TpuLang as tpul

    tpul.init("BM1684X")
    x = tpul.Tensor(dtype="float32", shape=[1, 3, 8, 8])
    w = tpul.Tensor(dtype="float32", shape=[4, 3, 3, 3], data=weights, ttype="coeff")
    y = tpul.relu(tpul.conv(x, w, pad=[1, 1, 1, 1]))
    tpul.compile("net", [x], [y])

Tensors without a name are called `BMTensor0`, `BMTensor1` and so on, in the order in which they are built, constants included.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.compare.tensors import Tolerance, compare_sets
from npuc.compat.running import warn
from npuc.compat.tpumlir import tpulang_integers, tpulang_operators
from npuc.compat.tpumlir.chips import chip_named
from npuc.compat.tpumlir.inputs import as_float
from npuc.compat.tpumlir.tpulang_tensors import (
    SESSION,
    TYPES,
    Tensor,
    apply,
    apply_scaled,
    moved,
    only_even,
    pads,
    result,
    spelled,
)
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.errors import EngineError, NetworkError, NumericMismatchError, UsageError
from npuc.flow import save_graph
from npuc.ir import Graph
from npuc.ir.passes import run_pipeline
from npuc.quant.prequantized import is_quantized
from npuc.tensors import TensorFile, write_npz
from npuc.transform import CANONICAL

__all__ = [
    "Tensor", "abs", "add", "arg", "avgpool", "avgpool2d", "cast", "ceil", "clamp", "clip", "compile", "compile_f32",
    "concat", "conv", "conv_int", "conv_v2", "cos", "custom", "deconv", "deinit", "div", "elu", "erf", "exp", "floor", "gelu",
    "get_default_graph", "hsigmoid", "hswish", "init", "leaky_relu", "ln", "matmul", "max", "maxpool", "maxpool2d", "min",
    "mish", "mul", "permute", "prelu", "reduce", "relu", "reset_default_graph", "reset_graph", "reshape", "round", "rsqrt",
    "sigmoid", "sign", "silu", "sin", "softmax", "softplus", "softsign", "sqrt", "square", "squeeze", "sub", "swish", "tanh",
    "tile", "unsqueeze",
]  # fmt: skip

_MODULES = (tpulang_operators, tpulang_integers)
"""Where further operators are."""
_EXACT = 1 << 24
"""Integers up to here are exact in float32, in which an integer convolution is computed."""


def init(device: str = "BM1684X", assign: bool = True) -> None:
    """Begin a network for a device."""
    if not assign:
        warn("TpuLang: assign=False has no effect here: tensors are placed when a network is compiled")
    chip_named(device, "TpuLang")
    SESSION.begin(device)


def deinit() -> None:
    """Forget the network."""
    SESSION.begin("")


def reset_default_graph(graph: Any = None) -> None:
    """Begin again, for the same device; a graph that is given is the one to go on with."""
    if graph is None:
        SESSION.begin(SESSION.device)
    elif graph is not SESSION:
        raise UsageError(
            "there is one graph at a time here", fix="Give what get_default_graph returns, or nothing"
        )


def reset_graph(graph: Any = None) -> None:
    """Empty the graph; there is one."""
    if graph not in (None, SESSION):
        raise UsageError(
            "there is one graph at a time here", fix="Give what get_default_graph returns, or nothing"
        )
    SESSION.begin(SESSION.device)


def get_default_graph() -> Any:
    """The network that is being built."""
    return SESSION


@spelled(input="tensor_i")
def conv_v2(
    tensor_i: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    group: int = 1,
    input_zp: int | Sequence[int] | None = None,
    weight_zp: int | Sequence[int] | None = None,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """A convolution; of integers, with an int32 result."""
    channels = tensor_i.shape[1]
    if len(weight.shape) == 4 and weight.shape[1] * group != channels:
        raise NetworkError(
            f"the weight {weight.shape} has {weight.shape[1]} input channels for each of {group} groups, and the input has "
            f"{channels} channels",
            where="conv_v2",
            fix=f"With group={group} the weight is [{weight.shape[0]}, {channels // group}, ...]",
        )
    flat = (
        None
        if bias is None
        else Tensor([weight.shape[0]], f"{bias.name}_flat", "coeff", bias.data, bias.dtype)
    )
    window = {
        "strides": tuple(stride or (1, 1)),
        "dilations": tuple(dilation or (1, 1)),
        "pads": pads(pad),
        "group": group,
    }
    if tensor_i.dtype.startswith("float"):
        if out_dtype not in (None, tensor_i.dtype):
            raise NetworkError(
                f"a convolution of {tensor_i.dtype} gives {tensor_i.dtype}, not {out_dtype}", where="conv_v2"
            )
        if input_zp or weight_zp:
            raise NetworkError("zero points are for integer convolutions", where="conv_v2")
        operands = [tensor_i, weight] if flat is None else [tensor_i, weight, flat]
        return apply(lang.conv, operands, out_name, **window)
    if input_zp is None:
        input_zp = tensor_i.zero_point
    if weight_zp is None:
        weight_zp = weight.zero_point
    return _integer_conv(tensor_i, weight, flat, input_zp, weight_zp, out_dtype or "int32", out_name, window)


conv = conv_int = conv_v2


def _integer_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    input_zp: int | Sequence[int] | None,
    weight_zp: int | Sequence[int] | None,
    out_dtype: str,
    out_name: str | None,
    window: Mapping[str, Any],
) -> Tensor:
    """Exact sums of integers: as floats, while no sum can leave what float32 represents."""
    if weight.data is None:
        raise NetworkError("an integer convolution needs a constant weight", where="conv_v2")
    if out_dtype not in ("int32", "uint32"):
        raise NetworkError(f"an integer convolution gives int32 or uint32, not {out_dtype}", where="conv_v2")
    kernel = weight.data.astype(np.float64) - _zero_points(weight_zp, x.shape[1] // window["group"])
    limits = np.iinfo(x.dtype)
    zero = _zero_points(input_zp, x.shape[1])
    reach = float(np.maximum(np.abs(limits.max - zero), np.abs(limits.min - zero)).max())
    sums = np.abs(kernel).reshape(len(kernel), -1).sum(axis=1) * reach
    if bias is not None and bias.data is not None:
        sums = sums + np.abs(bias.data.astype(np.float64).reshape(-1))
    if sums.max() >= _EXACT:
        raise NetworkError(
            f"a sum of this convolution can reach {int(sums.max())}, and only {_EXACT} is exact here (values reach {int(reach)})",
            where="conv_v2",
            fix="Use a smaller kernel, or float32",
        )
    name = out_name or SESSION.next_name()
    real = lang.cast(x.integers, to="f32", name=f"{name}/input")
    if np.any(zero):
        real = lang.sub(real, lang.constant(zero.astype(np.float32)), name=f"{name}/centred")
    flat = None if bias is None or bias.data is None else bias.data.astype(np.float32).reshape(-1)
    built = lang.conv(real, lang.constant(kernel.astype(np.float32)), flat, name=f"{name}/sums", **window)
    return result(lang.cast(built, to=TYPES[out_dtype], name=name), name)


def _zero_points(value: int | Sequence[int] | None, channels: int) -> Array:
    """Zero points in a shape that broadcasts along the channels."""
    points = np.atleast_1d(np.asarray(0 if value is None else value, np.float64))
    if points.size not in (1, channels):
        raise NetworkError(f"{points.size} zero points for {channels} channels", where="conv_v2")
    return points.reshape(1, -1, 1, 1)


@spelled(input="tensor_i")
def deconv(
    tensor_i: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Sequence[int] | None = None,
    dilation: Sequence[int] | None = None,
    pad: Sequence[int] | None = None,
    output_padding: Sequence[int] | None = None,
    group: int = 1,
    out_dtype: str | None = None,
    out_name: str | None = None,
) -> Tensor:
    """A transposed convolution; its weight is [output channels, input channels of a group, rows, columns]."""
    if weight.data is None:
        raise NetworkError("a transposed convolution needs a constant weight", where="deconv")
    if out_dtype not in (None, tensor_i.dtype):
        raise NetworkError(
            f"a convolution of {tensor_i.dtype} gives {tensor_i.dtype}, not {out_dtype}", where="deconv"
        )
    parts = np.split(weight.data, group)
    turned = np.concatenate([part.swapaxes(0, 1) for part in parts])
    flat = None if bias is None or bias.data is None else bias.data.reshape(-1)
    return apply(
        lang.deconv, [tensor_i, turned, flat], out_name, strides=tuple(stride or (1, 1)), dilations=tuple(dilation or (1, 1)),
        pads=pads(pad), output_padding=tuple(output_padding or (0, 0)), group=group,
    )  # fmt: skip


def custom(
    tensors_in: Sequence[Tensor],
    shape_func: Callable[[Sequence[Tensor]], Sequence[Sequence[int]]],
    op_name: str,
    out_dtypes: Sequence[str],
    out_names: Sequence[str] | None = None,
    params: Mapping[str, Any] | None = None,
) -> list[Tensor]:
    """An operator that a plugin provides under this name; its parameters are numbers, or lists of up to 16 numbers."""
    if not callable(shape_func):
        raise UsageError(
            f"custom needs shape_func=, a function of the tensors that gives the shapes of the results, not {shape_func!r}"
        )
    shapes = [list(shape) for shape in shape_func(list(tensors_in))]
    if len(shapes) != len(out_dtypes):
        raise NetworkError(
            f"{len(shapes)} shapes and {len(out_dtypes)} types of results", where=f"custom '{op_name}'"
        )
    for key, value in (params or {}).items():
        numbers = value if isinstance(value, list | tuple) else [value]
        if len(numbers) > 16 or not all(isinstance(number, int | float) for number in numbers):
            raise NetworkError(
                f"parameter '{key}' is no number or list of up to 16 numbers", where=f"custom '{op_name}'"
            )
    results = [(shape, TYPES[dtype]) for shape, dtype in zip(shapes, out_dtypes, strict=True)]
    names = list(out_names or [])
    name = names[0] if len(names) == 1 else ""
    operands = [tensor.value for tensor in tensors_in]
    built = lang.custom(op_name, operands, results, attributes=dict(params or {}), name=name)
    names += [SESSION.next_name() for _ in built[len(names) :]]
    return [result(tensor, own) for tensor, own in zip(built, names, strict=True)]


def _unary(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(
        input: Tensor,
        scale: Any = None,
        zero_point: Any = None,
        out_name: str | None = None,
        round_mode: str = "half_away_from_zero",
    ) -> Tensor:
        if isinstance(scale, str):  # releases without scales have the name here
            scale, out_name = None, scale
        return apply_scaled(words, function, [input], scale, zero_point, out_name, round_mode)

    operator.__doc__ = words
    return operator


def _binary(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(
        tensor_i0: Tensor | float,
        tensor_i1: Tensor | float,
        scale: Any = None,
        zero_point: Any = None,
        out_dtype: str | None = None,
        out_name: str | None = None,
    ) -> Tensor:
        if scale is not None or any(
            isinstance(side, Tensor) and side.scale is not None for side in (tensor_i0, tensor_i1)
        ):
            return apply_scaled(
                words, function, [tensor_i0, tensor_i1], scale, zero_point, out_name, out_dtype=out_dtype
            )
        if zero_point is not None:
            raise NetworkError("zero_point= needs scale=", where=words)
        if out_dtype is None:
            return apply(function, [tensor_i0, tensor_i1], out_name)
        name = out_name or SESSION.next_name()
        return cast(apply(function, [tensor_i0, tensor_i1], f"{name}/exact"), out_dtype, name)

    operator.__doc__ = words
    return operator


relu, sigmoid, tanh = _unary(lang.relu, "relu"), _unary(lang.sigmoid, "sigmoid"), _unary(lang.tanh, "tanh")
exp, ln, sqrt, rsqrt = (
    _unary(lang.exp, "exp"),
    _unary(lang.log, "ln"),
    _unary(lang.sqrt, "sqrt"),
    _unary(lang.rsqrt, "rsqrt"),
)
abs, ceil, floor = _unary(lang.abs, "abs"), _unary(lang.ceil, "ceil"), _unary(lang.floor, "floor")
round = _unary(lang.round, "round")
sin, cos, erf, sign = (
    _unary(lang.sin, "sin"),
    _unary(lang.cos, "cos"),
    _unary(lang.erf, "erf"),
    _unary(lang.sign, "sign"),
)
silu, mish = _unary(lang.silu, "silu"), _unary(lang.mish, "mish")
gelu, softplus, softsign = (
    _unary(lang.gelu, "gelu"),
    _unary(lang.softplus, "softplus"),
    _unary(lang.softsign, "softsign"),
)
hswish = _unary(lang.hard_swish, "hswish")
hsigmoid = _unary(partial(lang.hard_sigmoid, alpha=1 / 6), "hsigmoid")
add, sub, mul, div = (
    _binary(lang.add, "add"),
    _binary(lang.sub, "sub"),
    _binary(lang.mul, "mul"),
    _binary(lang.div, "div"),
)
max, min = _binary(lang.max, "max"), _binary(lang.min, "min")


def _squared(x: Any, name: str) -> lang.Tensor:
    return lang.mul(x, x, name=name)


square = _unary(_squared, "square")
elu = _unary(lang.elu, "elu")


def swish(input: Tensor, beta: float | str | None = None, scale: Any = None, zero_point: Any = None,
          round_mode: str = "half_away_from_zero", out_name: str | None = None) -> Tensor:  # fmt: skip
    """x * sigmoid(beta * x)"""
    if isinstance(beta, str):
        beta, out_name = None, beta

    def function(x: lang.Tensor, name: str) -> lang.Tensor:
        if beta in (None, 1):
            return lang.silu(x, name=name)
        inner = lang.mul(x, np.float32(beta), name=f"{name}/scaled")
        return lang.mul(x, lang.sigmoid(inner, name=f"{name}/gate"), name=name)

    return apply_scaled("swish", function, [input], scale, zero_point, out_name, round_mode)


def leaky_relu(
    input: Tensor,
    negative_slope: float = 0.01,
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """x, or x times the slope below 0."""
    only_even("leaky_relu", round_mode)
    return apply(lang.leaky_relu, [input], out_name, alpha=negative_slope)


@spelled(slope="slope_coeff")
def prelu(input: Tensor, slope_coeff: Tensor, out_name: str | None = None) -> Tensor:
    """x, or x times a constant below 0."""
    return apply(lang.prelu, [input, slope_coeff], out_name)


def clamp(input: Tensor, min: float, max: float, out_name: str | None = None) -> Tensor:
    """Values limited to [min, max]."""
    return apply(lang.clip, [input], out_name, min=float(min), max=float(max))


clip = clamp


def matmul(
    input: Tensor,
    right: Tensor,
    bias: Tensor | None = None,
    input_transpose: bool = False,
    right_transpose: bool = False,
    output_transpose: bool = False,
    keep_dims: bool = True,
    out_dtype: str | None = None,
    out_name: str | None = None,
    do_relu: bool = False,
    relu_limit: float = -1.0,
) -> Tensor:
    """The product of matrices; each may be turned, which exchanges its last two axes."""
    if not keep_dims or out_dtype not in (None, input.dtype):
        raise NetworkError(
            f"the product of {input.dtype} is {input.dtype} with all its axes: keep_dims=False and out_dtype={out_dtype} are "
            "not supported",
            where="matmul",
        )
    name = out_name or SESSION.next_name()
    sides = [
        _turned(side.value, f"{name}/{which}") if turned else side.value
        for side, turned, which in ((input, input_transpose, "left"), (right, right_transpose, "right"))
    ]
    if bias is not None:
        sides.append(bias.value)
    product = lang.matmul(*sides, name=f"{name}/product" if output_transpose or do_relu else name)
    if do_relu:
        limited = f"{name}/limited" if output_transpose else name
        product = (
            lang.clip(product, min=0.0, max=float(relu_limit), name=limited)
            if relu_limit > 0
            else lang.relu(product, name=limited)
        )
    return result(_turned(product, name) if output_transpose else product, name)


def _turned(x: lang.Tensor, name: str) -> lang.Tensor:
    """A tensor with its last two axes exchanged."""
    order = (*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2)
    return lang.permute(x, order=order, name=name)


def softmax(input: Tensor, axis: int, out_name: str | None = None) -> Tensor:
    """Softmax along an axis."""
    return apply(lang.softmax, [input], out_name, axis=axis)


def concat(
    inputs: Sequence[Tensor],
    scales: Any = None,
    zero_points: Any = None,
    axis: int = 0,
    out_name: str | None = None,
    dtype: str = "float32",
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """Tensors one behind the other; the second argument may also be the axis."""
    if isinstance(scales, int):
        scales, axis = None, scales

    def function(*parts: lang.Tensor, name: str) -> lang.Tensor:
        return lang.concat(list(parts), axis=axis, name=name)

    own = None if dtype.startswith("float") else dtype
    return apply_scaled("concat", function, inputs, scales, zero_points, out_name, round_mode, own)


def reshape(tensor: Tensor, new_shape: Sequence[int], out_name: str | None = None) -> Tensor:
    """The same elements in another shape; one -1 is what is left."""
    shape = [tensor.shape[axis] if side == 0 else side for axis, side in enumerate(new_shape)]
    if shape.count(-1) == 1:
        known = int(np.prod([side for side in shape if side != -1], dtype=object)) or 1
        shape[shape.index(-1)] = int(np.prod(tensor.shape, dtype=object)) // known
    return moved(lang.reshape, tensor, out_name, shape=tuple(shape))


def squeeze(tensor_i: Tensor, axis: Sequence[int] | int | None = None, out_name: str | None = None) -> Tensor:
    """Without axes of size 1."""
    axes = [axis] if isinstance(axis, int) else list(axis or [])
    chosen = {side % len(tensor_i.shape) for side in axes} if axes else None
    shape = [
        size
        for index, size in enumerate(tensor_i.shape)
        if size != 1 or (chosen is not None and index not in chosen)
    ]
    return reshape(tensor_i, shape, out_name)


@spelled(axis="axes")
def unsqueeze(input: Tensor, axes: Sequence[int] | int = (1, 2), out_name: str | None = None) -> Tensor:
    """With further axes of size 1."""
    axes = [axes] if isinstance(axes, int) else list(axes)
    return reshape(input, list(np.expand_dims(np.empty(input.shape, np.bool_), tuple(axes)).shape), out_name)


def permute(input: Tensor, order: Sequence[int], out_name: str | None = None) -> Tensor:
    """The axes in another order."""
    return moved(lang.permute, input, out_name, order=tuple(order))


@spelled(input="tensor_i")
def tile(tensor_i: Tensor, reps: Sequence[int], out_name: str | None = None) -> Tensor:
    """Copies along each axis."""
    return moved(lang.tile, tensor_i, out_name, repeats=tuple(reps))


def cast(
    tensor_i: Tensor,
    out_dtype: str = "float32",
    out_name: str | None = None,
    round_mode: str = "half_away_from_zero",
) -> Tensor:
    """The elements in another type; reals are rounded to integers as `round_mode` says."""
    if out_dtype not in TYPES:
        raise NetworkError(
            f"'{out_dtype}' is no type of TpuLang", where="cast", fix=f"There are: {', '.join(TYPES)}"
        )
    if round_mode not in _ROUNDING:
        raise NetworkError(
            f"there is no round_mode '{round_mode}'", where="cast", fix=f"There are {', '.join(_ROUNDING)}"
        )
    name = out_name or SESSION.next_name()
    x = tensor_i.value
    if tensor_i.dtype.startswith("float") and not out_dtype.startswith("float"):
        x = _ROUNDING[round_mode](x, f"{name}/rounded")
    return result(lang.cast(x, to=TYPES[out_dtype], name=name), name)


def _half_away(x: lang.Tensor, name: str) -> lang.Tensor:
    """sign(x) * floor(|x| + 1/2)"""
    size = lang.floor(
        lang.add(lang.abs(x, name=f"{name}/size"), np.float32(0.5), name=f"{name}/half"), name=f"{name}/floor"
    )
    return lang.mul(lang.sign(x, name=f"{name}/sign"), size, name=name)


_ROUNDING: Mapping[str, Callable[[lang.Tensor, str], lang.Tensor]] = {
    "half_away_from_zero": _half_away,
    "half_to_even": lambda x, name: lang.round(x, name=name),
    "towards_zero": lambda x, name: x,
    "down": lambda x, name: lang.floor(x, name=name),
    "up": lambda x, name: lang.ceil(x, name=name),
}
"""How a real becomes an integer, by TpuLang's words."""


@spelled(input="tensor_i")
def reduce(tensor_i: Tensor, method: str = "ReduceSum", axes: Sequence[int] | int = (1, 2), keep_dims: bool = True,
           out_name: str | None = None) -> Tensor:  # fmt: skip
    """Sum, mean, largest, smallest or product over axes: ReduceSum, ReduceMean, ReduceMax, ReduceMin, ReduceProd."""
    axes = (axes,) if isinstance(axes, int) else tuple(axes)
    kind = method.removeprefix("Reduce").lower()
    return apply(lang.reduce, [tensor_i], out_name, kind=kind, axes=axes, keepdims=keep_dims)


def arg(
    input: Tensor, method: str = "max", axis: int = 0, keep_dims: bool = True, out_name: str | None = None
) -> tuple[Tensor, Tensor]:
    """Where the largest or the smallest element is (in float32, of a float tensor), and the element itself."""
    if method not in ("max", "min"):
        raise NetworkError(f"there is no method '{method}'", where="arg", fix="There are max and min")
    name = out_name or SESSION.next_name()
    index = lang.arg(input.value, max=method == "max", axis=axis, keepdims=keep_dims, name=f"{name}/place")
    places = lang.cast(index, to="f32" if input.dtype == "float32" else "i32", name=f"{name}_ind")
    extremes = lang.reduce(input.value, kind=method, axes=(axis,), keepdims=keep_dims, name=f"{name}_val")
    return result(places, f"{name}_ind"), result(extremes, f"{name}_val")


def maxpool2d(input: Tensor, kernel: Sequence[int] | None = None, stride: Sequence[int] | None = None,
              pad: Sequence[int] | None = None, ceil_mode: bool = False, scale: Any = None, zero_point: Any = None,
              out_name: str | None = None, round_mode: str = "half_away_from_zero") -> Tensor:  # fmt: skip
    """The largest element of each window; windows are one pixel apart unless `stride` says otherwise."""
    window = _window(input, kernel, stride, pad, ceil_mode)
    return apply_scaled(
        "maxpool2d", lang.max_pool, [input], scale, zero_point, out_name, round_mode, **window
    )


def avgpool2d(input: Tensor, kernel: Sequence[int] | None = None, stride: Sequence[int] | None = None,
              pad: Sequence[int] | None = None, ceil_mode: bool = False, scale: Any = None, zero_point: Any = None,
              out_name: str | None = None, count_include_pad: bool = False, round_mode: str = "half_away_from_zero",
              first_round_mode: str = "half_away_from_zero") -> Tensor:  # fmt: skip
    """The mean of each window; windows are one pixel apart unless `stride` says otherwise."""
    only_even("avgpool2d", first_round_mode)
    window = {**_window(input, kernel, stride, pad, ceil_mode), "count_include_pad": count_include_pad}
    return apply_scaled(
        "avgpool2d", lang.avg_pool, [input], scale, zero_point, out_name, round_mode, **window
    )


def _window(input: Tensor, kernel: Any, stride: Any, pad: Any, ceil_mode: bool) -> dict[str, Any]:
    """The properties of a pool; without a kernel it takes the whole image."""
    return {
        "kernel": tuple(kernel or input.shape[2:]),
        "strides": tuple(stride or (1, 1)),
        "pads": pads(pad),
        "ceil_mode": ceil_mode,
    }


maxpool, avgpool = maxpool2d, avgpool2d


def compile(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    cmp: bool = True,
    refs: Any = None,
    mode: str = "f32",
    dynamic: bool = False,
    asymmetric: bool = False,
    no_save: bool = False,
    opt: int = 2,
    mlir_inference: bool = True,
    *,
    has_custom: bool = False,
    **others: Any,
) -> Graph:
    """Write the network as `name.mlir`, with its sample inputs in `name_in_f32.npz`; the fifth argument may also be `opt`.

    With `cmp` the network is run on the data of its inputs, and compared with `refs`, a mapping or an .npz file. `mode` f16 and
    bf16 compile a program `name_f16.bmodel`, too, and all one of each float type; int8 compiles a network whose tensors have
    scales.
    """
    _check_others(others)
    if isinstance(refs, int):
        refs, opt = None, refs
    if dynamic:
        raise UsageError("dynamic=True is not supported: programs have static shapes")
    if mode.lower() not in _MODES:
        raise UsageError(f"mode '{mode}' is unknown", fix=f"There are {', '.join(_MODES)}")
    origin = lang.build({tensor.name: tensor.integers for tensor in outputs})
    if mode.lower() in ("int8", "quantized") and not is_quantized(origin):
        raise UsageError(
            f"mode='{mode}' is for networks whose tensors have scales, and no tensor of this one has",
            fix=f"Leave it out, then: run_calibration.py {name}.mlir ..., model_deploy.py --quantize INT8 [--asymmetric]",
        )
    if asymmetric:
        warn(
            "TpuLang: asymmetric=True has no effect here: integers have the zero points that their tensors state"
        )
    known = {port.name for port in origin.inputs}
    missing = [tensor.name for tensor in inputs if tensor.name not in known]
    if missing:
        warn(f"TpuLang: no output depends on the input {', '.join(missing)}")
    unstated = known - {tensor.name for tensor in inputs}
    if unstated:
        raise NetworkError(f"the outputs depend on '{sorted(unstated)[0]}', which is not among the inputs")
    origin.name = name
    graph = origin if opt == 0 else run_pipeline(origin, CANONICAL)
    samples = {
        tensor.name: tensor.data for tensor in inputs if tensor.data is not None and tensor.name in known
    }
    if not no_save:
        save_graph(origin, f"{name}_origin.mlir")
        save_graph(graph, f"{name}.mlir")
        write_npz(
            f"{name}_top_f32_all_weight.npz", {ref: graph.weights.array(ref) for ref in graph.used_weights()}
        )
        if samples:
            write_npz(f"{name}_in_f32.npz", as_float(samples))
    if cmp and mlir_inference and set(samples) == known:
        _compare(name, graph, samples, refs, has_custom, no_save)
    if not no_save:
        _deploy(name, _MODES[mode.lower()])
    return graph


_MODES: Mapping[str, tuple[str, ...]] = {
    "f32": (), "f16": ("F16",), "bf16": ("BF16",), "all": ("F32", "F16", "BF16"), "int8": ("INT8",),
    "quantized": ("INT8",),
}  # fmt: skip
"""The programs that a mode asks for beside the .mlir file."""


def _deploy(name: str, types: Sequence[str]) -> None:
    """Compile the network that was written, once for each type."""
    from npuc.compat.tpumlir.deploy_command import main

    for kind in types:
        program = f"{name}_{kind.lower()}.bmodel"
        main(["--mlir", f"{name}.mlir", "--quantize", kind, "--chip", SESSION.device, "--model", program])


_WITHOUT_EFFECT = {
    "bmodel_inference": (True, "programs compute what the network does, to the bit"),
    "top_mlir_inference": (True, "mlir_inference says whether the network is run"),
    "tpu_mlir_inference": (True, "mlir_inference says whether the network is run"),
    "log_level": ("normal", "npuc -v logs what the stages do"),
    "embed_debug_info": (False, "compiled models have the names of their layers anyway"),
    "addr_mode": ("auto", "npuc relocate moves a compiled model"),
    "gdma_check": (False, "every access of a program is checked anyway"),
    "layer_group_config": ("", "layers are grouped by the schedule"),
    "enable_lghash": (False, "schedules are cached by content"),
    "lghash_dir": ("", "schedules are cached by content"),
    "disable_topo_sort": (True, "ops keep the order in which they were made"),
    "enable_affine": (False, "layers are grouped by the schedule"),
}
"""Arguments of later releases that mean nothing here: what they are unless said, and why."""
_REFUSED = {
    "num_core": (1, "model_deploy.py --num_core compiles for several cores"),
    "spec_op_mode": (None, "model_deploy.py --quantize_table gives ops other types"),
    "debug_dump_mode": ("normal", "the network is written as .mlir"),
}
"""Arguments that would change what is written, and what does that here."""


def _check_others(others: Mapping[str, Any]) -> None:
    """A word about arguments without effect; an error for what is not supported, and for what nobody knows."""
    for name, value in others.items():
        if name in _REFUSED:
            if value != _REFUSED[name][0]:
                raise UsageError(f"compile does not support {name}={value!r}", fix=_REFUSED[name][1])
        elif name not in _WITHOUT_EFFECT:
            raise UsageError(f"compile has no argument '{name}'")
        elif value != _WITHOUT_EFFECT[name][0]:
            warn(f"TpuLang: {name}={value!r} has no effect here: {_WITHOUT_EFFECT[name][1]}")


def compile_f32(
    name: str,
    inputs: Sequence[Tensor],
    outputs: Sequence[Tensor],
    cmp: bool = True,
    refs: Any = None,
    mode: str = "f32",
    dynamic: bool = False,
    opt: int = 2,
    no_save: bool = False,
    mlir_inference: bool = True,
    **others: Any,
) -> Graph:
    """`compile` in a float type: f32, f16, bf16 or all of them."""
    if mode.lower() in ("int8", "quantized"):
        raise UsageError(f"compile_f32 has no mode '{mode}'", fix="compile has it")
    return compile(
        name,
        inputs,
        outputs,
        cmp,
        refs,
        mode,
        dynamic,
        no_save=no_save,
        opt=opt,
        mlir_inference=mlir_inference,
        **others,
    )


def _compare(
    name: str, graph: Graph, samples: Mapping[str, Array], refs: Any, has_custom: bool, no_save: bool
) -> None:
    """Run the network on its sample, and compare it with what is expected."""
    try:
        results = FloatEngine(graph, fetch=ALL_TENSORS).run(samples)
    except EngineError as error:
        if not has_custom:
            raise
        warn(f"TpuLang: the network was not run: {error.message}")
        return
    if not no_save:
        write_npz(f"{name}_top_outputs.npz", as_float({**samples, **results}))
    if refs is None:
        return
    expected = refs if isinstance(refs, Mapping) else TensorFile(Path(refs))
    wrong = [entry for entry in compare_sets(results, expected) if not entry.passes(Tolerance())]
    if wrong:
        raise NumericMismatchError(
            f"'{wrong[0].name}' is not as expected: cosine {wrong[0].cosine:.6f}, euclid {wrong[0].euclid:.6f}",
            where=name,
        )


def __getattr__(name: str) -> Any:
    for module in _MODULES:
        if name in module.__all__:
            return getattr(module, name)
    if name.startswith("_"):
        raise AttributeError(name)
    known = ", ".join(sorted([*__all__, *(own for module in _MODULES for own in module.__all__)]))
    raise AttributeError(f"TpuLang's operator '{name}' is not supported here; there are: {known}")
