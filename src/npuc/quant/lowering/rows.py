"""Softmax, normalization, reductions and bilinear resize."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import mean_parameters, requant_parameters
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.definition import normal_axis
from npuc.kernels.normalization import norm_parameters
from npuc.kernels.softmax import check_width, softmax_parameters
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.scaling import flat, require_multipliers, require_room, span_of
from npuc.quant.parameters import output_limits


@lowers(top.Softmax)
def softmax(op: top.Softmax, context: LoweringContext) -> Value:
    """Exponentials by table, one division."""
    x, y = context.type_of(op.x), context.type_of(op.y)
    kind = context.scheme(op).requant
    try:
        check_width(kind, x.dtype.numpy.name, shape_of(op.x)[normal_axis(op.axis, len(shape_of(op.x)))])
        constants = softmax_parameters(kind, x.scale, y.scale, y.zero_point, x.dtype.numpy, y.dtype.numpy)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    name = value_name(op.y)
    element = np.int16 if kind is Kind.DOUBLE_ROUNDING else np.uint32
    tables = [
        context.weight(f"{name}/{what}", np.array(table, element)) if table else None
        for what, table in zip(("coarse", "fine"), constants.tables, strict=True)
    ]
    lo, hi = output_limits(y, narrow=context.scheme(op).narrow_activations)
    probabilities: Value = context.emit(
        npu.Softmax,
        context.integer(op.x),
        *tables,
        to=y,
        kind=kind,
        lo=lo,
        hi=hi,
        axis=op.axis,
        parameters=(constants.multiplier, constants.shift, constants.left, constants.diff_min),
        loc=op.location,
    ).y
    return probabilities


def _affine(op: Any, context: LoweringContext) -> tuple[Any, Any]:
    values = []
    for value, neutral in ((op.scale, 1.0), (op.bias, 0.0)):
        array = context.constant(value)
        if value is not None and array is None:
            raise NoIntegerForm("its scale or bias is computed at run time")
        values.append(neutral if array is None else array.reshape(-1).astype(np.float64))
    return values[0], values[1]


def _norm(
    op: Any, context: LoweringContext, mode: str, width: int, gamma: Any, beta: Any, **properties: Any
) -> Value:
    x, y = context.type_of(op.x), context.type_of(op.y)
    kind = context.scheme(op).requant
    try:
        constants = norm_parameters(kind, x.scale, y.scale, gamma, beta, width, op.epsilon)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    name = value_name(op.y)
    lo, hi = output_limits(y, narrow=context.scheme(op).narrow_activations)
    normalized: Value = context.emit(
        npu.Norm,
        context.integer(op.x),
        context.weight(f"{name}/gain", constants.gain),
        context.weight(f"{name}/bias", constants.bias),
        to=y,
        kind=kind,
        lo=lo,
        hi=hi,
        mode=mode,
        parameters=(constants.shift, constants.epsilon, width),
        loc=op.location,
        **properties,
    ).y
    return normalized


@lowers(top.LayerNorm, top.RMSNorm)
def over_last_axes(op: Any, context: LoweringContext) -> Value:
    """Rows are the axes from `axis` on."""
    shape = shape_of(op.x)
    axis = normal_axis(op.axis, len(shape))
    gamma, beta = _affine(op, context)
    mode = "layer" if isinstance(op, top.LayerNorm) else "rms"
    return _norm(op, context, mode, prod(shape[axis:]), gamma, beta, axis=axis)


@lowers(top.InstanceNorm, top.GroupNorm)
def over_space(op: Any, context: LoweringContext) -> Value:
    """Rows are the pixels of a channel, or of the channels of a group."""
    shape = shape_of(op.x)
    if len(shape) != 4:
        raise NoIntegerForm(f"its operand has rank {len(shape)}, not 4")
    groups = op.groups if isinstance(op, top.GroupNorm) else shape[1]
    gamma, beta = _affine(op, context)
    mode = "group" if isinstance(op, top.GroupNorm) else "instance"
    return _norm(op, context, mode, prod(shape[1:]) // groups, gamma, beta, groups=groups)


@lowers(top.L2Norm)
def l2_norm(op: top.L2Norm, context: LoweringContext) -> Value:
    """An RMS norm with a gamma of 1 / sqrt(width)."""
    if op.epsilon > 1e-6:
        raise NoIntegerForm(f"its lower bound of {op.epsilon:g} has no integer form")
    shape = shape_of(op.x)
    width = shape[normal_axis(op.axis, len(shape))]
    return _norm(op, context, "l2", width, 1 / sqrt(width), 0.0, axis=op.axis)


def _compares(op: top.Reduce) -> bool:
    return op.kind in ("max", "min")


def _extreme(op: top.Reduce, context: LoweringContext) -> Value:
    x, properties = context.integer(op.x), {"kind": op.kind, "axes": op.axes, "keepdims": op.keepdims}
    extremum: Value = context.emit(top.Reduce, x, loc=op.location, **properties).y
    return extremum


@lowers(top.Reduce, same_type=_compares)
def reduce(op: top.Reduce, context: LoweringContext) -> Value:
    """Sums and means; the largest and smallest, whose type stays; other reductions stay float."""
    if _compares(op):
        return _extreme(op, context)
    if op.kind not in ("sum", "mean"):
        raise NoIntegerForm(f"a reduction by {op.kind} has no integer form")
    if op.kind == "mean":
        return mean(op, context, op.axes, op.keepdims)
    scheme, x, y = context.scheme(op), context.type_of(op.x), context.type_of(op.y)
    try:
        scaling = requant_parameters(scheme.requant, x.scale, y.scale, **scheme.stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    return _summed(op, context, scaling, op.axes, op.keepdims, _count(op, op.axes))


def _count(op: Any, axes: Sequence[int]) -> int:
    """How many elements make one of the result."""
    shape = shape_of(op.x)
    return prod(shape[normal_axis(axis, len(shape))] for axis in axes)


def mean(op: Any, context: LoweringContext, axes: Sequence[int], keepdims: bool) -> Value:
    """The mean of an op's operand `x` over some axes as its result `y`: a sum whose multiplier divides."""
    scheme, x, y = context.scheme(op), context.type_of(op.x), context.type_of(op.y)
    count = _count(op, axes)
    width = 8 * max(x.dtype.itemsize, y.dtype.itemsize)
    try:
        kind, stage = scheme.averages
        scaling = mean_parameters(kind, x.scale, y.scale, count, width=width, **stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    return _summed(op, context, scaling, axes, keepdims, 1)


def _summed(
    op: Any, context: LoweringContext, scaling: Any, axes: Sequence[int], keepdims: bool, terms: int
) -> Value:
    """A sum over axes; the result is as large as the sum of `terms` elements, one for a mean."""
    x, y = context.type_of(op.x), context.type_of(op.y)
    require_multipliers(scaling, terms * 2.0 ** (8 * x.dtype.itemsize) * x.scale / y.scale)
    count = _count(op, axes)
    require_room(scaling, (count * span_of(x)[0], count * span_of(x)[1]))
    lo, hi = output_limits(y, narrow=context.scheme(op).narrow_activations)
    total: Value = context.emit(
        npu.ReduceSum,
        context.integer(op.x),
        to=y,
        kind=scaling.kind,
        lo=lo,
        hi=hi,
        axes=tuple(axes),
        keepdims=keepdims,
        loc=op.location,
        **flat(scaling),
    ).y
    return total


@lowers(top.ArgReduce, types=lambda op, context: [None])
def where(op: top.ArgReduce, context: LoweringContext) -> Value:
    """Integers compare as the reals that they stand for."""
    if not context.is_integer(op.x):
        raise NoIntegerForm("what it compares is float")
    indices: Value = context.emit(
        top.ArgReduce,
        context.integer(op.x),
        max=op.max,
        axis=op.axis,
        keepdims=op.keepdims,
        select_last=op.select_last,
        loc=op.location,
    ).y
    return indices


@lowers(
    top.TopK, types=lambda op, context: [context.best_type(op), None], reals=lambda op: (op.x, op.parts[0])
)
def best(op: top.TopK, context: LoweringContext) -> list[Value]:
    """Integers compare as the reals that they stand for."""
    if not context.is_integer(op.x):
        raise NoIntegerForm("what it compares is float")
    if op.k < 1:
        raise NoIntegerForm("it chooses nothing")
    chosen = context.emit(
        top.TopK,
        context.integer(op.x, context.type_of(op.parts[0])),
        k=op.k,
        axis=op.axis,
        largest=op.largest,
        sorted=op.sorted,
        loc=op.location,
    )
    return list(chosen.results)


def bilinear(op: top.Resize, context: LoweringContext) -> Value:
    """Linear interpolation of height and width."""
    shape = shape_of(op.x)
    if not op.blends_images:
        raise NoIntegerForm("it is not a plain interpolation of height and width")
    kind = context.scheme(op).requant
    coordinates, scales = op.coordinates, op.scales
    if kind is Kind.DOUBLE_ROUNDING:
        # TFLite has factors of size / size only, and no special case for one pixel.
        if scales and any(s != n / m for s, n, m in zip(scales, op.sizes, shape, strict=True)):
            raise NoIntegerForm("its factors are not those of its sizes")
        scales = ()
        if coordinates == "pytorch_half_pixel":
            if min(op.sizes[2:]) == 1:
                raise NoIntegerForm("it shrinks to one pixel by a rule that TFLite does not have")
            coordinates = "half_pixel"
    resized: Value = context.emit(
        npu.ResizeBilinear,
        context.integer(op.x),
        to=context.type_of(op.y),
        kind=kind,
        sizes=op.sizes,
        scales=scales,
        coordinates=coordinates,
        loc=op.location,
    ).y
    return resized
