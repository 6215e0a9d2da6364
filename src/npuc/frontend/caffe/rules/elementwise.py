"""Several tensors into one, element by element."""

from __future__ import annotations

from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.ir import Value, top

_OPERATIONS = ("PROD", "SUM", "MAX", "MIN")


@rule("Eltwise")
def eltwise(ctx: CaffeContext) -> Value:
    """PROD, SUM with `coeff`, MAX, and MIN of forks."""
    given = ctx.parameters("eltwise_param")
    kind = given.enum("operation", _OPERATIONS, "SUM")
    coefficients = given.floats("coeff")
    if coefficients and (kind != "SUM" or len(coefficients) != ctx.count):
        raise ctx.invalid(f"{len(coefficients)} coefficients for {kind} of {ctx.count} tensors")
    values = ctx.values()
    if len(values) < 1 or any(ctx.shape(i) != ctx.shape(0) for i in range(ctx.count)):
        raise ctx.invalid("its inputs have different shapes")
    scaled = [
        value if factor == 1 else ctx.emit(top.Mul, value, ctx.number(factor))
        for value, factor in zip(values, coefficients or [1.0] * len(values), strict=True)
    ]
    op = {"PROD": top.Mul, "SUM": top.Add, "MAX": top.Max, "MIN": top.Min}[kind]
    y = scaled[0]
    for value in scaled[1:]:
        y = ctx.emit(op, y, value)
    return y
