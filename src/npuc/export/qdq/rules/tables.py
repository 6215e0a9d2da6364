"""Tables: the float function that a table stands for, or the look-up itself where there is none.

An `npu.table` names its function. The op of that name, computed here for every entry, has to give the entries of the table
(one step apart at most, because ties are rounded differently); otherwise the table itself is written, as a Gather.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.requantization import round_away
from npuc.arrays import Array
from npuc.export.qdq.form import QdqForm
from npuc.export.qdq.registry import expresses
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.ir.definition import TOP_OPS, TopOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.top.functions import FUNCTIONS
from npuc.kernels.tables import lookup

_CLOSE = 1
"""Steps between an entry and what the function gives."""


@expresses(npu.Table)
def table(op: npu.Table, form: QdqForm) -> None:
    """A function of reals, or a look-up."""
    entries = form.constant(op.table)
    x, y = quant_of(op.x), op.to
    assert entries is not None and x is not None and isinstance(y, QuantType)
    if entries.size not in (256, 513):  # of a size of its own: an entry for each value
        codes = np.arange(x.dtype.limits[0], x.dtype.limits[1] + 1).astype(x.dtype.carrier.numpy)
        form.become(op.y, _looked_up(op, form, lookup(codes, entries), None))
        return
    properties = function_properties(op.function, op.constants, entries, x, y)
    if properties is not None:
        kind, given = properties
        form.quantize(op.y, form.emit(kind, form.real(op.x), loc=op.location, **given).results[0])
    elif entries.size == 256:
        form.become(op.y, _looked_up(op, form, entries.astype(y.dtype.carrier.numpy), None))
    else:
        form.become(op.y, _interpolated(op, form, entries))


@expresses(npu.ChannelTable)
def channel_table(op: npu.ChannelTable, form: QdqForm) -> None:
    """PRelu where the slopes are stated or the tables tell them, else a look-up in all tables side by side."""
    entries, y = form.constant(op.table), op.to
    x = quant_of(op.x)
    assert entries is not None and x is not None and isinstance(y, QuantType)
    slopes = _slopes(op, entries, x, y)
    if slopes is None:
        form.become(op.y, _looked_up(op, form, entries.reshape(-1), len(entries)))
        return
    shape = (len(entries), *[1] * (len(shape_of(op.x)) - 2))
    slope = form.weight(f"{value_name(op.y)}/slope", slopes.astype(np.float32).reshape(shape))
    form.quantize(op.y, form.emit(top.PRelu, form.real(op.x), slope, loc=op.location).y)


def function_properties(
    name: str, constants: tuple[float, ...], entries: Array, x: QuantType, y: QuantType
) -> tuple[type[TopOp], dict[str, Any]] | None:
    """The op of a function and its properties with which it gives the entries of a table; None if there is none."""
    kind = TOP_OPS.get(f"top.{name}")
    record = None if kind is None else FUNCTIONS.get(kind)
    if kind is None or record is None:
        return None
    stated = dict(zip(record.constants, constants, strict=False))
    least, most = x.dtype.limits
    codes = (
        np.arange(least, most + 1)
        if entries.size == 256
        else np.minimum(np.arange(513) * 128 + least, most + 1)
    )
    reals = x.scale * (codes - x.zero_point).astype(np.float64)
    low, high = y.dtype.limits
    for properties in _candidates(kind, stated, entries, y):
        with np.errstate(all="ignore"):
            values = np.nan_to_num(
                record(_Stated(kind, properties), reals), nan=0.0, posinf=3e38, neginf=-3e38
            )
        expected = np.clip(round_away(values / y.scale) + y.zero_point, low, high)
        if np.abs(expected - entries.astype(np.float64)).max() <= _CLOSE:
            return kind, properties
    return None


class _Stated:
    """The properties of an op that is not built, for its formula."""

    def __init__(self, kind: type[TopOp], properties: dict[str, Any]) -> None:
        self.__dict__.update(kind.DEFAULTS | properties)


def _candidates(
    kind: type[TopOp], stated: dict[str, Any], entries: Array, y: QuantType
) -> list[dict[str, Any]]:
    """Properties to try: what is stated, and what a table tells of the rest."""
    if kind is top.Clip:
        ends = (float(entries.min()), float(entries.max()))
        low, high = ((end - y.zero_point) * y.scale for end in ends)
        return [{"min": low, "max": high}]
    if kind is top.Gelu:
        return [{"tanh": False}, {"tanh": True}]
    return [stated]


def _slopes(op: npu.ChannelTable, entries: Array, x: QuantType, y: QuantType) -> Array | None:
    """Slopes of a PRelu that give its tables: as stated, or as the entries tell them; None if there are none."""
    least, most = x.dtype.limits
    reals = x.scale * (np.arange(least, most + 1) - x.zero_point).astype(np.float64)
    low, high = y.dtype.limits
    slopes = (
        np.array(op.slopes, np.float64) * op.slope_scale if op.slopes else _likely_slopes(entries, reals, y)
    )
    slopes = slopes.astype(np.float32).astype(np.float64)
    values = np.where(reals >= 0, reals, slopes[:, None] * reals)
    expected = np.clip(round_away(values / y.scale) + y.zero_point, low, high)
    same = np.abs(expected - entries).max(initial=0) <= (_CLOSE if op.slopes else 0)
    return slopes if same else None


def _likely_slopes(entries: Array, reals: Array, y: QuantType) -> Array:
    """The middle of the slopes with which every negative operand is rounded to its entry.

    An entry e of the operand x < 0 says that slope * x is within half a step of e; a saturated one bounds one side only.
    """
    negative = reals < 0
    if not negative.any():
        return np.zeros(len(entries))
    low, high = y.dtype.limits
    steps = entries[:, negative].astype(np.float64) - y.zero_point
    operands = reals[negative] / y.scale
    least = np.where(entries[:, negative] == high, -np.inf, (steps + 0.5) / operands)
    most = np.where(entries[:, negative] == low, np.inf, (steps - 0.5) / operands)
    bottom, top_ = least.max(axis=1), most.min(axis=1)
    middle: Array = np.where(
        np.isfinite(bottom) & np.isfinite(top_), (bottom + top_) / 2, np.clip(0.0, bottom, top_)
    )
    return middle


def _looked_up(op: Any, form: QdqForm, entries: Array, channels: int | None) -> Value:
    """Gather of a table, or of one of many by the channel."""
    x, name = quant_of(op.x), value_name(op.y)
    assert x is not None
    first: Array = np.array(-x.dtype.limits[0], np.int64)
    if channels is not None:
        rank = len(shape_of(op.x))
        first = first + 256 * np.arange(channels).reshape(channels, *[1] * (rank - 2))
    index = form.emit(top.Cast, form.plain(op.x), to="i64", name=f"{name}/integer").y
    index = form.emit(top.Add, index, form.weight(f"{name}/first", first), name=f"{name}/index").y
    entry: Value = form.emit(top.Gather, form.weight(f"{name}/table", entries), index, loc=op.location).y
    return entry


def _interpolated(op: npu.Table, form: QdqForm, entries: Array) -> Value:
    """The 16-bit table of docs/arithmetic-tables.md; every number on the way is an integer or a 128th that float32 has."""
    name = value_name(op.y)
    assert isinstance(op.to, QuantType)

    def real(what: str, number: float) -> Value:
        return form.weight(f"{name}/{what}", np.asarray(number, np.float32))

    def step(kind: type[TopOp], what: str, *values: Any, **properties: Any) -> Value:
        value: Value = form.emit(kind, *values, name=f"{name}/{what}", **properties).results[0]
        return value

    code = step(top.Cast, "real", form.plain(op.x), to="f32")
    code = step(top.Add, "code", code, real("offset", 32768))
    place = step(top.Div, "place", code, real("interval", 128))
    whole = step(top.Floor, "whole", place)
    rest = step(top.Sub, "rest", place, whole)
    index = step(top.Cast, "index", whole, to="i64")
    following = step(top.Add, "following", index, form.weight(f"{name}/one", np.asarray(1, np.int64)))
    values = form.weight(f"{name}/table", entries.astype(np.float32))
    low, high = (step(top.Gather, what, values, at) for what, at in (("low", index), ("high", following)))
    part = step(top.Mul, "part", step(top.Sub, "span", high, low), rest)
    rounded = step(top.Floor, "rounded", step(top.Add, "half", part, real("tie", 0.5)))
    blend = step(top.Add, "blend", low, rounded)
    integers: Value = form.emit(top.Cast, blend, to=op.to.dtype.carrier.name, loc=op.location).y
    return integers
