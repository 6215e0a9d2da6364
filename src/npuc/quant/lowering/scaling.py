"""The parameters of an output stage as properties of an op."""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import Scaling
from npuc.ir.dtypes import QuantType
from npuc.quant.lowering.registry import NoIntegerForm


def flat(scaling: Scaling) -> dict[str, Any]:
    """A scaling as the properties of an op: (multiplier, shift) pairs, shifts, or factors."""
    if scaling.scale is not None:
        return {"factors": scaling.scale.tolist()}
    columns = [column.tolist() for column in (scaling.multiplier, scaling.shift) if column is not None]
    return {"parameters": [number for row in zip(*columns, strict=True) for number in row]}


def require_multipliers(scaling: Scaling, largest: float) -> None:
    """Refuse multipliers that the largest shift made 0, if the output could be more than half a step."""
    if largest >= 0.5 and scaling.multiplier is not None and not scaling.multiplier.all():
        raise NoIntegerForm("the shift that its multiplier needs is above the largest that there is")


def span_of(x: QuantType) -> tuple[int, int]:
    """The least and the greatest of q - zero_point.

    >>> span_of(QuantType.of("i8", 0.5, 3))
    (-131, 124)
    """
    least, most = x.dtype.limits
    return least - x.zero_point, most - x.zero_point


def product_span(a: QuantType, b: QuantType) -> tuple[int, int]:
    """The least and the greatest product of two such integers."""
    corners = [i * j for i in span_of(a) for j in span_of(b)]
    return min(corners), max(corners)


def require_room(scaling: Scaling, span: tuple[int, int]) -> None:
    """Refuse a change of scale under `double_rounding` whose shift to the left takes integers of a span out of int32.

    They wrap around, as in TFLite: what is far below zero would come out as the largest value.
    """
    if scaling.kind is not Kind.DOUBLE_ROUNDING or scaling.shift is None:
        return
    left = max(31 - int(scaling.shift.min()), 0)
    if span[1] << left >= 1 << 31 or -span[0] << left > 1 << 31:
        raise NoIntegerForm(
            f"its result is so much finer than its operand that a shift of {left} to the left leaves 32 bits"
            if left
            else "its sum can leave 32 bits"
        )
