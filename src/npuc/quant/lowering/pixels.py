"""Inputs that are integers already: pixels, samples of sound. They are their own quantized form, with a scale of 1."""

from __future__ import annotations

from npuc.ir import Value, npu, top
from npuc.ir.dtypes import QuantType
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import lowers
from npuc.quant.type_assignment import TypeAssignment, integers_of


def _as_given(op: top.Cast, assignment: TypeAssignment) -> list[QuantType | None]:
    return [integers_of(op.y)]


@lowers(top.Cast, types=_as_given)
def cast(op: top.Cast, context: LoweringContext) -> Value:
    """The integers as they are, read with a scale of 1 and a zero point of 0."""
    integers: Value = context.emit(
        npu.Reinterpret, context.real(op.x), to=context.type_of(op.y), loc=op.location
    ).y
    return integers
