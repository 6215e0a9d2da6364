"""Average pooling."""

from __future__ import annotations

from math import prod
from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.requantization import pool_parameters
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.rows import mean
from npuc.quant.lowering.scaling import flat, require_multipliers
from npuc.quant.parameters import output_limits


@lowers(top.AvgPool)
def avg_pool(op: top.AvgPool, context: LoweringContext) -> Value:
    """The sum of a window times 1 / count, with a multiplier for every count that occurs."""
    scheme, x, y = context.scheme(op), context.type_of(op.x), context.type_of(op.y)
    if len(op.kernel) != 2 or set(op.dilations) != {1}:
        raise NoIntegerForm("it is not a plain window of two axes")
    if op.counts_vary:
        raise NoIntegerForm(
            "its windows reach beyond padding that counts: the canonical form has a pad for it"
        )
    if scheme.requant is Kind.DOUBLE_ROUNDING:
        return _of_one_type(op, context)
    count = prod(op.kernel)
    counts = list(range(1, count + 1)) if _partial(op) and not op.count_include_pad else [count]
    if len(counts) > 4096:
        raise NoIntegerForm(f"a padded window of {count} positions has too many counts")
    try:
        width = 8 * max(x.dtype.itemsize, y.dtype.itemsize)
        kind, stage = scheme.averages
        scaling = pool_parameters(kind, x.scale, y.scale, counts, width=width, **stage)
    except ValueError as error:
        raise NoIntegerForm(str(error)) from error
    require_multipliers(scaling, 2.0**width * x.scale / y.scale)
    limits = output_limits(y, narrow=scheme.narrow_activations)
    return _pooled(op, context, y, scaling.kind, limits, loc=op.location, **flat(scaling))


def _of_one_type(op: top.AvgPool, context: LoweringContext) -> Value:
    """Kind `double_rounding` has no multiplier: a window over the whole input is a mean, others keep the type of their input.

    The input in the type of the result, whose range is narrower, would lose its large values.
    """
    x, y = context.type_of(op.x), context.type_of(op.y)
    if x != y and not _partial(op) and op.kernel == shape_of(op.x)[2:]:
        return mean(op, context, (2, 3), keepdims=True)
    narrow = context.scheme(op).narrow_activations
    if x == y:
        return _pooled(op, context, y, Kind.DOUBLE_ROUNDING, output_limits(y, narrow=narrow), loc=op.location)
    name = context.derived(op.y, "pooled")
    pooled = _pooled(op, context, x, Kind.DOUBLE_ROUNDING, output_limits(x, narrow=narrow), name=name)
    return context.requantized(pooled, y, value_name(op.y))


def _partial(op: top.AvgPool) -> bool:
    return any(op.pads) or op.ceil_mode


def _pooled(
    op: top.AvgPool, context: LoweringContext, to: Any, kind: str, limits: tuple[int, int], **properties: Any
) -> Value:
    pooled: Value = context.emit(
        npu.AvgPool,
        context.integer(op.x),
        to=to,
        kind=kind,
        lo=limits[0],
        hi=limits[1],
        kernel=op.kernel,
        strides=op.strides,
        pads=op.pads,
        ceil_mode=op.ceil_mode,
        count_include_pad=op.count_include_pad,
        **properties,
    ).y
    return pooled
