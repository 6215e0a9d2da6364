"""A quotient of two tensors: the reciprocal of the divisor by a table, and a product.

The steps of the reciprocal are those of its largest values: rounding it costs a quotient up to |a| times half a step, below 1/250
of the largest quotient in 8 bits. The rounding of the divisor costs more the wider its range is: half of its step, relative to
the least divisor, is the span of divisors / 510, or 3 % at a span of 16. Beyond that the op stays float.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.requantization import mul_parameters
from npuc.ir import Value, npu, top, value_name
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.scaling import flat, product_span, require_multipliers, require_room
from npuc.quant.lowering.tables import table_codes
from npuc.quant.parameters import activation_type, output_limits, quantize_array

_WIDEST = 16.0
"""How many times its least magnitude the greatest of a divisor may be: of 8 bits because of its steps, of 16 because tables
are interpolated, which needs entries between zero and the least."""


@lowers(top.Div)
def div(op: top.Div, context: LoweringContext) -> Value:
    """By the reciprocal."""
    scheme, a, b, y = (
        context.scheme(op),
        context.type_of(op.a),
        context.type_of(op.b),
        context.type_of(op.y),
    )
    low, high = _range(op.b, context)
    least, most = sorted((abs(low), abs(high)))
    if low * high <= 0 or most > least * _WIDEST:
        raise NoIntegerForm(
            f"its divisor is between {low:.3g} and {high:.3g}, and a reciprocal of {8 * b.dtype.itemsize} bits "
            f"serves divisors of one sign within a factor of {_WIDEST:g}"
        )
    ends = sorted((0.0, 1 / (least if low > 0 else -least)))
    reciprocal = activation_type(ends[0], ends[1], scheme)
    real = b.scale * (table_codes(b, scheme) - b.zero_point).astype(np.float64)
    # Divisors nearer to zero than any that was seen, and zero, count as the least that was.
    bounded = np.clip(real, least, None) if low > 0 else np.clip(real, None, -least)
    name = context.derived(op.y, "reciprocal")
    inverse = context.emit(
        npu.Table,
        context.integer(op.b),
        context.weight(
            f"{name}/table", quantize_array(1 / bounded, reciprocal, narrow=scheme.narrow_activations)
        ),
        to=reciprocal,
        function="reciprocal",
        name=name,
    ).y
    try:
        scaling = mul_parameters(scheme.requant, a.scale, reciprocal.scale, y.scale, **scheme.stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    require_multipliers(scaling, a.scale * reciprocal.scale * 2.0 ** (16 * b.dtype.itemsize) / y.scale)
    require_room(scaling, product_span(a, reciprocal))
    lo, hi = output_limits(y, narrow=scheme.narrow_activations)
    quotient: Value = context.emit(
        npu.Mul,
        context.integer(op.a),
        inverse,
        to=y,
        kind=scheme.requant,
        lo=lo,
        hi=hi,
        loc=op.location,
        **flat(scaling),
    ).y
    return quotient


def _range(value: Value, context: LoweringContext) -> tuple[float, float]:
    """The least and the greatest value that a divisor is known to have."""
    array = context.constant(value)
    if array is not None:
        return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    entry: Any = context.ranges.get(value_name(value))
    if entry is None:
        raise NoIntegerForm("the range of its divisor is not known")
    return (entry[0], entry[1]) if isinstance(entry, tuple) else (entry.min, entry.max)
