"""Ops that move integers as they moved reals, and the joins that need equal types."""

from __future__ import annotations

from typing import Any

from npuc.ir import Value, shape_of, top
from npuc.ir.definition import TopOp
from npuc.ir.top.movement import MOVERS
from npuc.quant.lower import LoweringContext
from npuc.quant.lowering.registry import NoIntegerForm, lowers
from npuc.quant.lowering.rows import bilinear


def _moved(op: Any, context: LoweringContext) -> list[Value]:
    properties = {key: op.properties[key] for key in op.CONVERTERS if key in op.properties}
    return list(
        context.emit(type(op), context.integer(op.operands[0]), loc=op.location, **properties).results
    )


@lowers(*MOVERS, same_type=True)
def move(op: TopOp, context: LoweringContext) -> list[Value]:
    """The same op on integers."""
    return _moved(op, context)


@lowers(top.MaxPool, same_type=True)
def max_pool(op: top.MaxPool, context: LoweringContext) -> list[Value]:
    """The largest integer stands for the largest real."""
    if len(op.kernel) != 2:
        raise NoIntegerForm(f"it has {len(op.kernel)} spatial axes, not 2")
    return _moved(op, context)


@lowers(top.Pad, same_type=True)
def pad(op: top.Pad, context: LoweringContext) -> list[Value]:
    """The border holds the integer that stands for the pad value."""
    return _moved(op, context)


@lowers(top.Gather, same_type=True)
def gather(op: top.Gather, context: LoweringContext) -> Value:
    """Integers chosen by indices, which may be known at run time only."""
    indices = context.constant(op.indices)
    size = shape_of(op.x)[op.axis]
    if indices is not None and indices.size and not -size <= indices.min() <= indices.max() < size:
        raise NoIntegerForm(f"an index is not in -{size}..{size - 1}")
    gathered: Value = context.emit(
        top.Gather, context.integer(op.x), context.real(op.indices), axis=op.axis, loc=op.location
    ).y
    return gathered


@lowers(top.Resize, same_type=True)
def resize(op: top.Resize, context: LoweringContext) -> list[Value]:
    """Nearest neighbours are copied, bilinear ones blended; the type stays."""
    if op.mode == "nearest":
        return _moved(op, context)
    if op.mode == "linear":
        return [bilinear(op, context)]
    raise NoIntegerForm(f"{op.mode} interpolation has no integer form")


@lowers(top.Concat)
def concat(op: top.Concat, context: LoweringContext) -> Value:
    """All operands in the type of the result."""
    to = context.type_of(op.results[0])
    values = [context.joined(value, to) for value in op.inputs]
    joined: Value = context.emit(top.Concat, values, axis=op.axis, loc=op.location).y
    return joined
