"""Further operators of TpuLang on `npuc.lang`: comparisons, selections, movements, norms, resizing.

Comparisons give 0 and 1 in the type of what they compare, and logic takes any number but 0 for true, as TpuLang has it. With
scales they compare integers.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from npuc import lang
from npuc.compat.tpumlir.tpulang_tensors import (
    SESSION,
    TYPES,
    Tensor,
    apply,
    apply_scaled,
    integers,
    moved,
    refuse_scales,
    result,
    spelled,
)
from npuc.errors import NetworkError

__all__ = [
    "and_op", "ands", "arccos", "arctanh", "argsort", "avgpool3d", "batch_norm", "broadcast", "cond_select", "conv3d", "copy",
    "cosh", "cumsum", "eq", "eqs", "extract", "gather_elements", "ge", "ges", "group_norm", "gt", "gts", "index_select",
    "interpolate", "layer_norm", "le", "les", "log_sigmoid", "lt", "lts", "maxpool3d", "mean_std_scale", "ne", "nes", "normalize",
    "not_op", "or_op", "ors", "pad", "pow", "repeat", "rms_norm", "roll", "scatter", "scatterND", "select", "shape_fetch", "sinh",
    "slice", "sort", "split", "tan", "topk", "upsample", "xor_op", "xors",
]  # fmt: skip

_MODES = {
    "gt": "greater", "lt": "less", "ge": "greater_equal", "le": "less_equal", "eq": "equal", "ne": "",
    "Greater": "greater", "Less": "less", "GreaterOrEqual": "greater_equal", "LessOrEqual": "less_equal", "Equal": "equal",
    "NotEqual": "",
}  # fmt: skip
"""Comparisons by their names here; there is no op for 'not equal', which is 'equal' turned round."""
_COORDINATES = {
    "pytorch_half_pixel": "pytorch_half_pixel", "half_pixel": "half_pixel", "asymmetric": "asymmetric",
    "align_corners": "align_corners",
}  # fmt: skip


def _value(operand: Any) -> Any:
    return operand.value if isinstance(operand, Tensor) else operand


def _named(out_name: str | None) -> str:
    return out_name or SESSION.next_name()


def _compared(a: Any, b: Any, mode: str, name: str) -> lang.Tensor:
    """A comparison as booleans."""
    if _MODES[mode]:
        return lang.compare(_value(a), _value(b), mode=_MODES[mode], name=name)
    return lang.not_(lang.compare(_value(a), _value(b), mode="equal", name=f"{name}/equal"), name=name)


def _truth(operand: Any, name: str) -> Any:
    """Whether the elements of a tensor, or a number, are not 0."""
    if not isinstance(operand, Tensor):
        return lang.constant(np.array(bool(operand)))
    return _compared(operand, 0.0 if operand.dtype.startswith("float") else 0, "ne", f"{name}/{operand.name}")


def _comparison(mode: str) -> Callable[..., Tensor]:
    def operator(
        tensor_i0: Tensor,
        tensor_i1: Any,
        scale: Any = None,
        zero_point: Any = None,
        out_name: str | None = None,
    ) -> Tensor:
        name = _named(out_name)
        if scale is not None or zero_point is not None:
            return _compared_integers(mode, tensor_i0, tensor_i1, scale, zero_point, name)
        other = tensor_i1 if isinstance(tensor_i1, Tensor) else np.array(tensor_i1, tensor_i0.dtype)
        truth = _compared(tensor_i0, other, mode, f"{name}/truth")
        return result(lang.cast(truth, to=TYPES[tensor_i0.dtype], name=name), name)

    operator.__doc__ = f"1 where {_MODES[mode] or 'not equal'}, else 0"
    return operator


gt, lt, ge, le, eq, ne = (_comparison(mode) for mode in ("gt", "lt", "ge", "le", "eq", "ne"))
gts, lts, ges, les, eqs, nes = (spelled(scalar_i1="tensor_i1")(own) for own in (gt, lt, ge, le, eq, ne))


def _logic(mode: str) -> Callable[..., Tensor]:
    def operator(
        tensor_i0: Tensor,
        tensor_i1: Any,
        scale: Any = None,
        zero_point: Any = None,
        out_name: str | None = None,
    ) -> Tensor:
        name = _named(out_name)
        given: Sequence[Any] = (tensor_i0, tensor_i1)
        if scale is not None or zero_point is not None:
            if any(value != 1 for value in scale or ()) or any(zero_point or ()):
                raise NetworkError(
                    f"the scales {scale} and zero points {zero_point} are not those of 0 and 1",
                    where=f"{mode}_op",
                    fix="Scales are 1 and zero points 0",
                )
            given = [_integers(operand) for operand in given]
        sides = [_truth(operand, f"{name}/{index}") for index, operand in enumerate(given)]
        truth = lang.logical(*sides, mode=mode, name=f"{name}/truth")
        built = result(lang.cast(truth, to=TYPES[tensor_i0.dtype], name=name), name)
        if scale is not None:
            built.quantization(1.0, 0)
        return built

    operator.__doc__ = f"1 where {mode} holds of what is not 0"
    return operator


and_op, or_op, xor_op = _logic("and"), _logic("or"), _logic("xor")
ands, ors, xors = (spelled(scalar_i1="tensor_i1")(own) for own in (and_op, or_op, xor_op))


def not_op(
    tensor_i0: Tensor, scale: Any = None, zero_point: Any = None, out_name: str | None = None
) -> Tensor:
    """1 where x is 0, else 0."""
    return eq(tensor_i0, 0, scale, zero_point, out_name)


def cond_select(cond: Tensor, tbrn: Any, fbrn: Any, out_name: str | None = None) -> Tensor:
    """The second where the first is not 0, else the third."""
    name = _named(out_name)
    return result(lang.where(_truth(cond, name), _value(tbrn), _value(fbrn), name=name), name)


def select(
    lhs: Tensor, rhs: Tensor, tbrn: Tensor, fbrn: Tensor, type: str, out_name: str | None = None
) -> Tensor:
    """The third where a comparison (`Greater`, `Less`, ...) of the first two holds, else the fourth."""
    if type not in _MODES:
        raise NetworkError(
            f"there is no comparison '{type}'", where="select", fix=f"There are {', '.join(_MODES)}"
        )
    name = _named(out_name)
    return result(
        lang.where(_compared(lhs, rhs, type, f"{name}/truth"), _value(tbrn), _value(fbrn), name=name), name
    )


def _integers(operand: Any) -> Any:
    """A tensor as its integers, which stand for themselves; a number as it is."""
    return result(operand.integers, operand.name) if isinstance(operand, Tensor) else operand


def _compared_integers(mode: str, x: Tensor, other: Any, scale: Any, zero_point: Any, name: str) -> Tensor:
    """A comparison of integers as TPU-MLIR 1.30.2 computes it.

    Two tensors have one scale, and the result's integers are 0 and 1, whatever its own scale says of them. A number becomes an
    integer of the operand's scale, and the result stands for 0 and 1.
    """
    scales, zeros = list(scale or ()), list(zero_point or [0] * len(scale or ()))
    count = 3 if isinstance(other, Tensor) else 2
    if len(scales) != count or len(zeros) != count:
        raise NetworkError(
            f"{len(scales)} scales and {len(zeros)} zero points for {count - 1} operands and a result",
            where=mode,
        )
    x.quantization(scales[0], zeros[0])
    if isinstance(other, Tensor):
        if scales[0] != scales[1] or zeros[0] != zeros[1]:
            raise NetworkError(
                f"the operands have the scales {scales[:2]} and the zero points {zeros[:2]}",
                where=mode,
                fix="Give both one scale and one zero point",
            )
        other.quantization(scales[1], zeros[1])
        truth = _compared(_integers(x), _integers(other), mode, f"{name}/truth")
        built = result(lang.cast(truth, to=TYPES[x.dtype], name=name), name)
        built.quantization(scales[-1], zeros[-1])
        return built
    limits = np.iinfo(x.dtype)
    steps = np.float64(other) / scales[0] + zeros[0]
    nearest = np.clip(np.copysign(np.floor(np.abs(steps) + 0.5), steps), limits.min, limits.max)
    truth = _compared(_integers(x), np.array(nearest, x.dtype), mode, f"{name}/truth")
    unit = round(1 / scales[-1])
    if abs(unit * scales[-1] - 1) > 1e-3 or unit + zeros[-1] > limits.max:
        raise NetworkError(
            f"no integer of scale {scales[-1]} and zero point {zeros[-1]} is 1",
            where=mode,
            fix="Give the result the scale 1, or 1/n",
        )
    return integers(lang.cast(truth, to="f32", name=f"{name}/real"), scales[-1], zeros[-1], x.dtype, name)


def _function(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(
        input: Tensor, scale: Any = None, zero_point: Any = None, out_name: str | None = None
    ) -> Tensor:
        return apply_scaled(words, function, [input], scale, zero_point, out_name)

    operator.__doc__ = words
    return operator


tan, sinh, cosh = _function(lang.tan, "tan"), _function(lang.sinh, "sinh"), _function(lang.cosh, "cosh")
arccos, arctanh = _function(lang.acos, "arccos"), _function(lang.atanh, "arctanh")


def log_sigmoid(
    input: Tensor, scale: Any = None, zero_point: Any = None, out_name: str | None = None
) -> Tensor:
    """log(1 / (1 + exp(-x))), which is -softplus(-x)."""

    def function(x: lang.Tensor, name: str) -> lang.Tensor:
        inner = lang.softplus(lang.neg(x, name=f"{name}/negative"), name=f"{name}/softplus")
        return lang.neg(inner, name=name)

    return apply_scaled("log_sigmoid", function, [input], scale, zero_point, out_name)


def pow(base: Any, expn: Any, out_name: str | None = None) -> Tensor:
    """A power; one of the two may be a number."""
    return apply(
        lang.pow,
        [np.float32(side) if isinstance(side, int | float) else side for side in (base, expn)],
        out_name,
    )


def copy(input: Tensor, out_name: str | None = None) -> Tensor:
    """The same elements."""
    return apply(lang.reshape, [input], out_name, shape=tuple(input.shape))


def broadcast(input: Tensor, reps: Sequence[int], out_name: str | None = None) -> Tensor:
    """The elements repeated to a shape."""
    return moved(lang.expand, input, out_name, shape=np.broadcast_shapes(tuple(input.shape), tuple(reps)))


def repeat(input: Tensor, reps: Any, out_name: str | None = None) -> Tensor:
    """Copies along each axis; their counts are numbers, or a constant."""
    counts = reps.data.reshape(-1) if isinstance(reps, Tensor) and reps.data is not None else reps
    return apply(lang.tile, [input], out_name, repeats=tuple(int(count) for count in counts))


def split(
    input: Tensor, axis: int = 0, num: int = 1, size: Sequence[int] = (), out_name: str | None = None
) -> list[Tensor]:
    """Parts along an axis: `num` equal ones, or those of `size`."""
    side = input.shape[axis]
    sizes = list(size) or [side // num] * num
    if sum(sizes) != side or len(sizes) != num:
        raise NetworkError(f"{num} parts of {sizes} do not make {side}", where="split")
    name = _named(out_name)
    parts = lang.split(input.value, axis=axis, sizes=tuple(sizes), name=name)
    return [result(part, f"{name}_{index}") for index, part in enumerate(parts)]


def extract(input: Tensor, start: Sequence[int] | None = None, end: Sequence[int] | None = None,
            stride: Sequence[int] | None = None, out_name: str | None = None) -> Tensor:  # fmt: skip
    """Every `stride`-th element from `start` to `end`, on every axis."""
    rank = len(input.shape)
    cuts = zip(start or [0] * rank, end or input.shape, stride or [1] * rank, strict=True)
    ranges = [range(side)[builtins.slice(*cut)] for side, cut in zip(input.shape, cuts, strict=True)]
    offset, steps, shape = zip(*((taken.start, taken.step, len(taken)) for taken in ranges), strict=True)
    return apply(lang.slice, [input], out_name, offset=offset, steps=steps, shape=shape)


def slice(
    input: Tensor, starts: Any, ends: Any, steps: Any = None, axes: Any = None, out_name: str | None = None
) -> Tensor:
    """Every `steps`-th element from `starts` to `ends`, on some axes."""
    listed = [[number] if isinstance(number, int) else number for number in (starts, ends, steps, axes)]
    first, last = listed[0], listed[1]
    every, sides = listed[2] or [1] * len(first), listed[3] or range(len(first))
    cuts = {
        side % len(input.shape): (a, b, c) for side, a, b, c in zip(sides, first, last, every, strict=True)
    }
    whole = [cuts.get(index, (0, size, 1)) for index, size in enumerate(input.shape)]
    start, end, stride = (list(column) for column in zip(*whole, strict=True))
    return extract(input, start, end, stride, out_name)


def pad(input: Tensor, method: str = "constant", value: Any = None, padding: Sequence[int] | None = None,
        out_name: str | None = None) -> Tensor:  # fmt: skip
    """A border of `padding` before every axis, then behind every axis: constant, reflect or edge."""
    if method not in ("constant", "reflect", "edge"):
        raise NetworkError(
            f"there is no border '{method}'", where="pad", fix="There are constant, reflect and edge"
        )
    border = tuple(padding or [0] * 2 * len(input.shape))
    return apply(lang.pad, [input], out_name, pads=border, mode=method, value=float(value or 0))


def roll(input: Tensor, shifts: Any, dims: Any = None, out_name: str | None = None) -> Tensor:
    """Elements moved along axes, and round the end; without axes, along all elements in a row."""
    name = _named(out_name)
    moves, axes = ([shifts], [0]) if dims is None else (_listed(shifts), _listed(dims))
    built = (
        input.value
        if dims is not None
        else lang.reshape(input.value, shape=(prod(input.shape),), name=f"{name}/flat")
    )
    for number, (move, axis) in enumerate(zip(moves, axes, strict=True)):
        side = built.shape[axis]
        cut = (-move) % side
        if cut:
            front, back = lang.split(built, axis=axis, sizes=(cut, side - cut), name=f"{name}/cut{number}")
            built = lang.concat([back, front], axis=axis, name=f"{name}/turned{number}")
    return result(lang.reshape(built, shape=tuple(input.shape), name=name), name)


def _listed(numbers: Any) -> list[int]:
    return [numbers] if isinstance(numbers, int) else list(numbers)


def topk(input: Tensor, axis: int, k: int, out_name: str | None = None) -> tuple[Tensor, Tensor]:
    """The `k` largest elements along an axis, and where they are."""
    return _ordered(input, axis, k, True, out_name)


def sort(
    input: Tensor, axis: int = -1, descending: bool = True, out_name: str | None = None
) -> tuple[Tensor, Tensor]:
    """All elements along an axis in order, and where they were."""
    return _ordered(input, axis, input.shape[axis], descending, out_name)


def argsort(input: Tensor, axis: int = -1, descending: bool = True, out_name: str | None = None) -> Tensor:
    """Where the elements along an axis are in order."""
    name = _named(out_name)
    _, places = lang.topk(
        input.value, k=input.shape[axis], axis=axis, largest=descending, name=f"{name}/sorted"
    )
    return result(lang.cast(places, to="i32", name=name), name)


def _ordered(
    input: Tensor, axis: int, k: int, descending: bool, out_name: str | None
) -> tuple[Tensor, Tensor]:
    name = _named(out_name)
    values, places = lang.topk(input.value, k=k, axis=axis, largest=descending, name=f"{name}_val")
    indices = lang.cast(places, to="i32", name=f"{name}_ind")
    return result(values, f"{name}_val"), result(indices, f"{name}_ind")


def index_select(
    input: Tensor, index: Tensor, axis: int = -1, out_name: str | None = None, keep_dims: bool = True
) -> Tensor:
    """Slices along an axis."""
    along = axis % len(input.shape)
    if keep_dims:
        return apply(lang.gather, [input, index], out_name, axis=along)
    if index.shape != [1]:
        raise NetworkError(
            f"keep_dims=False is for one index, and there are {index.shape}", where="index_select"
        )
    name = _named(out_name)
    taken = lang.gather(input.value, index.value, axis=along, name=f"{name}/slice")
    sides = [side for axis, side in enumerate(input.shape) if axis != along]
    return result(lang.reshape(taken, shape=tuple(sides), name=name), name)


@spelled(index="indices")
def gather_elements(input: Tensor, indices: Tensor, axis: int = 2, out_name: str | None = None) -> Tensor:
    """Elements by their place along an axis."""
    return apply(lang.gather_elements, [input, indices], out_name, axis=axis)


def scatter(
    input: Tensor, index: Tensor, updates: Tensor, axis: int = 0, out_name: str | None = None
) -> Tensor:
    """The elements at places along an axis replaced."""
    return apply(lang.scatter_elements, [input, index, updates], out_name, axis=axis)


def scatterND(input: Tensor, indices: Tensor, updates: Tensor, out_name: str | None = None) -> Tensor:
    """The slices at tuples of indices replaced."""
    return apply(lang.scatter_nd, [input, indices, updates], out_name)


def cumsum(input: Tensor, axis: Any = -1, out_name: str | None = None) -> Tensor:
    """Running sums along an axis."""
    along = int(axis.data.reshape(-1)[0]) if isinstance(axis, Tensor) and axis.data is not None else int(axis)
    return apply(lang.cumsum, [input], out_name, axis=along)


def shape_fetch(tensor_i: Tensor, begin_axis: int | None = None, end_axis: int | None = None, step: int = 1,
                out_name: str | None = None) -> Tensor:  # fmt: skip
    """The sides of a tensor as a constant."""
    sides = np.array(tensor_i.shape[begin_axis:end_axis:step], np.int32)
    return Tensor(list(sides.shape), out_name, "coeff", sides, "int32")


def upsample(input: Tensor, scale: int = 2, out_name: str | None = None) -> Tensor:
    """Each pixel as a square of pixels."""
    return interpolate(input, scale, scale, "nearest", "asymmetric", out_name)


def interpolate(input: Tensor, scale_h: float, scale_w: float, method: str = "nearest", coord_mode: str = "pytorch_half_pixel",
                out_name: str | None = None) -> Tensor:  # fmt: skip
    """Another size, by nearest or linear interpolation."""
    if method not in ("nearest", "linear") or coord_mode not in _COORDINATES:
        raise NetworkError(f"there is no interpolation '{method}' with '{coord_mode}'", where="interpolate")
    *others, height, width = input.shape
    sizes = (*others, int(height * scale_h), int(width * scale_w))
    return apply(lang.resize, [input], out_name, sizes=sizes, mode=method, coordinates=_COORDINATES[coord_mode],
                 rounding="floor" if coord_mode == "asymmetric" else "round_prefer_floor")  # fmt: skip


def batch_norm(input: Tensor, mean: Tensor, variance: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None,
               epsilon: float = 1e-5, out_name: str | None = None) -> Tensor:  # fmt: skip
    """Each channel by its mean and variance."""
    count = input.shape[1]
    scale = gamma if gamma is not None else np.ones(count, np.float32)
    bias = beta if beta is not None else np.zeros(count, np.float32)
    return apply(lang.batch_norm, [input, scale, bias, mean, variance], out_name, epsilon=epsilon)


def layer_norm(input: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: float = 1e-5, axis: int = 2,
               out_name: str | None = None) -> Tensor:  # fmt: skip
    """Zero mean and unit variance over the axes from `axis` on."""
    return apply(lang.layer_norm, [input, gamma, beta], out_name, epsilon=epsilon, axis=axis)


def group_norm(input: Tensor, gamma: Tensor | None = None, beta: Tensor | None = None, epsilon: float = 1e-5,
               num_groups: int = 1, out_name: str | None = None) -> Tensor:  # fmt: skip
    """Zero mean and unit variance in groups of channels."""
    return apply(lang.group_norm, [input, gamma, beta], out_name, epsilon=epsilon, groups=num_groups)


def rms_norm(
    input: Tensor,
    gamma: Tensor | None = None,
    epsilon: float = 1e-5,
    axis: int = -1,
    out_name: str | None = None,
) -> Tensor:
    """x by the root of its mean square."""
    return apply(lang.rms_norm, [input, gamma], out_name, epsilon=epsilon, axis=axis)


def normalize(
    input: Tensor, p: float = 2.0, axes: Any = 1, eps: float = 1e-12, out_name: str | None = None
) -> Tensor:
    """x by its p-norm along axes, which is at least `eps`."""
    name = _named(out_name)
    size = lang.pow(lang.abs(input.value, name=f"{name}/abs"), np.float32(p), name=f"{name}/powers")
    total = lang.reduce(size, kind="sum", axes=tuple(_listed(axes)), keepdims=True, name=f"{name}/sums")
    norm = lang.max(
        lang.pow(total, np.float32(1 / p), name=f"{name}/norm"), np.float32(eps), name=f"{name}/limited"
    )
    return result(lang.div(input.value, norm, name=name), name)


def mean_std_scale(input: Tensor, std: Sequence[float], mean: Sequence[float], scale: Any = None, zero_points: Any = None,
                   out_name: str | None = None, odtype: str = "float32", round_mode: str = "half_up") -> Tensor:  # fmt: skip
    """(x - mean) / std of each channel, in float32."""
    if odtype != "float32":
        raise NetworkError(
            f"mean_std_scale gives float32 here, not {odtype}", where="mean_std_scale", fix="cast the result"
        )
    if round_mode not in ("half_up", "half_away_from_zero"):
        raise NetworkError("mean_std_scale gives float32 here, and rounds nothing", where="mean_std_scale")
    refuse_scales("mean_std_scale", scale, zero_points)
    name = _named(out_name)
    real = input.value if input.dtype == "float32" else lang.cast(input.value, to="f32", name=f"{name}/real")
    factor = 1 / np.asarray(std, np.float64)
    bias = -np.asarray(mean, np.float64) * factor
    return result(lang.scale(real, factor.astype(np.float32), bias.astype(np.float32), name=name), name)


def conv3d(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] | None = None,
           dilation: Sequence[int] | None = None, pad: Sequence[int] | None = None, group: int = 1, out_dtype: str | None = None,
           out_name: str | None = None) -> Tensor:  # fmt: skip
    """A convolution over depth, height and width; `pad` is front, back, up, down, left, right."""
    if out_dtype not in (None, input.dtype):
        raise NetworkError(
            f"a convolution of {input.dtype} gives {input.dtype}, not {out_dtype}", where="conv3d"
        )
    operands = [input, weight] if bias is None else [input, weight, bias]
    return apply(lang.conv, operands, out_name, strides=tuple(stride or (1, 1, 1)), dilations=tuple(dilation or (1, 1, 1)),
                 pads=_pads3(pad), group=group)  # fmt: skip


def _pads3(pad: Sequence[int] | None) -> tuple[int, ...]:
    """Front, back, up, down, left, right as npuc has it: the fronts of all axes, then the backs."""
    sides = tuple(pad or (0,) * 6)
    if len(sides) != 6:
        raise NetworkError(f"pad {list(sides)} is not [front, back, up, down, left, right]")
    return (*sides[0::2], *sides[1::2])


def _pool3(function: Callable[..., lang.Tensor], words: str) -> Callable[..., Tensor]:
    def operator(input: Tensor, kernel: Any = None, stride: Any = None, pad: Sequence[int] | None = None, ceil_mode: bool = False,
                 scale: Any = None, zero_point: Any = None, out_name: str | None = None) -> Tensor:  # fmt: skip
        window = (kernel,) * 3 if isinstance(kernel, int) else tuple(kernel or input.shape[2:])
        steps = (stride,) * 3 if isinstance(stride, int) else tuple(stride or window)
        return apply_scaled(words, function, [input], scale, zero_point, out_name, kernel=window, strides=steps, pads=_pads3(pad),
                            ceil_mode=ceil_mode)  # fmt: skip

    operator.__doc__ = words
    return operator


maxpool3d, avgpool3d = (
    _pool3(lang.max_pool, "maxpool3d"),
    _pool3(lang.avg_pool, "avgpool3d"),
)
