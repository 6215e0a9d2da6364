"""Every elementwise function of one operand is a table, made of the formula in its record (`npuc.ir.top.functions`)."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import mul_parameters, requant_parameters, round_away
from npuc.arithmetic.tflite import function_table, prelu_table
from npuc.arrays import Array
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import QuantType
from npuc.ir.top.functions import FUNCTIONS, function_of
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.scaling import flat, product_span, require_room, span_of
from npuc.quant.parameters import quantize_array
from npuc.quant.scheme import Scheme

LEAST_ENTRIES = 17
"""A table that is interpolated between fewer entries is no function."""


def _require_entries(there: int, needed: int) -> None:
    if there < needed:
        raise NoIntegerForm(f"its table needs {needed} entries, and one may have {there}")


def table_codes(x: QuantType, scheme: Scheme, continuous: bool = True) -> Array:
    """The integers that a table of a function of `x` has entries for."""
    eight = x.dtype.itemsize == 1
    least, most = (x.dtype.carrier if eight else x.dtype).limits
    if eight and scheme.table_entries >= 256:
        return np.arange(least, most + 1)
    if not eight and x.dtype.name != "i16":
        raise NoIntegerForm(f"there are no tables for {x.dtype.name}")
    if not continuous and eight:
        _require_entries(scheme.table_entries, 256)
    if not continuous:
        raise NoIntegerForm("it jumps, and a table for 16 bits is interpolated")
    entries = scheme.table_entries if eight else scheme.wide_table_entries
    _require_entries(entries, LEAST_ENTRIES)
    # 2^k + 1 entries, as many as there may be.
    segments = min((entries - 1).bit_length() - 1, 8 * x.dtype.itemsize - 1)
    step = (most - least + 1) >> segments
    return np.arange((1 << segments) + 1) * step + least


@lowers(*(kind for kind in FUNCTIONS if kind not in (top.SiLU, top.Relu, top.Clip)))
def table(op: TopOp, context: LoweringContext) -> Value:
    """One entry for each 8-bit value; for 16 bits as many as the target has, interpolated between."""
    return _table(op, context)


def _table(op: TopOp, context: LoweringContext) -> Value:
    x, y = context.type_of(op.operands[0]), context.type_of(op.results[0])
    scheme = context.scheme(op)
    if x.dtype.itemsize == 2 and x.dtype.name != "i16":
        x = _stretched(x)
    codes = table_codes(x, scheme, FUNCTIONS[type(op)].continuous)
    if x.dtype.itemsize != y.dtype.itemsize:
        raise NoIntegerForm(f"its operand is {x.dtype.name} and its result {y.dtype.name}")
    function, constants = function_of(op)
    own = scheme.requant is Kind.DOUBLE_ROUNDING and scheme.table_entries >= 256
    entries = function_table(function, constants, _whole(x), y) if own else None
    if entries is None:
        with np.errstate(all="ignore"):
            real = FUNCTIONS[type(op)](op, x.scale * (codes - x.zero_point).astype(np.float64))
        real = np.nan_to_num(real, nan=0.0, posinf=3e38, neginf=-3e38)
        entries = quantize_array(real, y, narrow=scheme.narrow_activations)
    name = value_name(op.results[0])
    looked_up: Value = context.emit(
        npu.Table,
        context.integer(op.operands[0], x),
        context.weight(f"{name}/table", entries),
        to=y,
        function=function,
        constants=constants,
        loc=op.location,
    ).y
    return looked_up


def _whole(x: QuantType) -> QuantType:
    """The same scale for all elements that the machine can hold: its tables have an entry for each."""
    return QuantType.of(x.dtype.carrier, x.scale, x.zero_point)


def _stretched(x: QuantType) -> QuantType:
    """The same range on all of 16 bits, so that all entries of a table serve it.

    >>> _stretched(QuantType.of("i12", 0.5, -3)).scale, _stretched(QuantType.of("i12", 0.5, -3)).zero_point
    (0.03125, -48)
    """
    more = 1 << (16 - x.dtype.bits)
    return QuantType.of("i16", x.scale / more, x.zero_point * more)


@lowers(top.Relu, top.Clip)
def bounded(op: Any, context: LoweringContext) -> Value:
    """A table; under `double_rounding`, where TFLite has no such function, a change of scale between two limits."""
    x, y = context.type_of(op.x), context.type_of(op.y)
    own = isinstance(op, top.Relu) and op.limit in (0.0, 6.0) and x.dtype.itemsize == 1
    if own or context.scheme(op).requant is not Kind.DOUBLE_ROUNDING:
        return _table(op, context)
    low, high = (0.0, op.limit or np.inf) if isinstance(op, top.Relu) else (op.min, op.max)
    least, most = y.dtype.limits
    steps = round_away(np.clip(np.array([low, high]) / y.scale, -1e9, 1e9))
    ends = np.clip(steps + y.zero_point, least, most)
    try:
        scaling = requant_parameters(Kind.DOUBLE_ROUNDING, x.scale, y.scale)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    require_room(scaling, span_of(x))
    clipped: Value = context.emit(
        npu.Requant,
        context.integer(op.x),
        to=y,
        kind=Kind.DOUBLE_ROUNDING,
        lo=int(ends[0]),
        hi=int(max(ends)),
        loc=op.location,
        **flat(scaling),
    ).y
    return clipped


@lowers(top.SiLU)
def silu(op: top.SiLU, context: LoweringContext) -> Value:
    """A table; under `double_rounding` of 8 bits a sigmoid and a product, which is what TFLite has."""
    x, y = context.type_of(op.x), context.type_of(op.y)
    if context.scheme(op).requant is not Kind.DOUBLE_ROUNDING or x.dtype.itemsize != 1 or x.dtype != y.dtype:
        return _table(op, context)
    gate = QuantType.of(x.dtype, 1 / 256, x.dtype.limits[0])
    entries = function_table("sigmoid", (), x, gate)
    assert entries is not None
    name, source = f"{value_name(op.y)}/sigmoid", context.integer(op.x)
    sigmoid = context.emit(
        npu.Table, source, context.weight(f"{name}/table", entries), to=gate, function="sigmoid", name=name
    ).y
    try:
        scaling = mul_parameters(Kind.DOUBLE_ROUNDING, x.scale, gate.scale, y.scale)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    require_room(scaling, product_span(x, gate))
    lo, hi = y.dtype.limits
    product: Value = context.emit(
        npu.Mul,
        source,
        sigmoid,
        to=y,
        kind=Kind.DOUBLE_ROUNDING,
        lo=lo,
        hi=hi,
        loc=op.location,
        **flat(scaling),
    ).y
    return product


@lowers(top.PRelu)
def prelu(op: top.PRelu, context: LoweringContext) -> Value:
    """A table for each channel, by its slope."""
    x, y = context.type_of(op.x), context.type_of(op.y)
    slope = context.constant(op.slope)
    if slope is None:
        raise NoIntegerForm("its slope is computed at run time")
    channels = shape_of(op.x)[1]
    spatial = len(shape_of(op.x)) - 2
    shape = (channels, *[1] * spatial)
    per_channel = slope.size == 1 or (slope.size == channels and tuple(slope.shape[-spatial - 1 :]) == shape)
    if x.dtype.itemsize != 1 or y.dtype.itemsize != 1 or not per_channel:
        raise NoIntegerForm("its slope is not per channel, or its tensors are not of 8 bits")
    scheme = context.scheme(op)
    _require_entries(scheme.table_entries, 256)
    least, most = x.dtype.limits
    real = x.scale * (np.arange(least, most + 1) - x.zero_point).astype(np.float64)
    slopes = np.broadcast_to(slope.reshape(-1, 1).astype(np.float64), (channels, 1))
    stated: dict[str, Any] = {}
    if scheme.requant is Kind.DOUBLE_ROUNDING:
        # TFLite's slopes are integers of one scale.
        scale = float(np.float32(max(np.abs(slopes).max(initial=0.0) / 127, 2.0**-40)))
        codes = np.clip(np.rint(slopes.reshape(-1) / scale), -127, 127).astype(np.int64)
        own = context.own_integers(op.slope)
        if own is not None:
            codes, scale = np.broadcast_to(own[0].reshape(-1), channels), own[1]
        entries = prelu_table(codes, scale, x, y)
        stated = {"slopes": codes.tolist(), "slope_scale": scale}
    else:
        reals = np.where(real >= 0, real, slopes * real)
        entries = quantize_array(reals, y, narrow=scheme.narrow_activations)
    looked_up: Value = context.emit(
        npu.ChannelTable,
        context.integer(op.x),
        context.weight(f"{value_name(op.y)}/table", entries),
        to=y,
        loc=op.location,
        **stated,
    ).y
    return looked_up
