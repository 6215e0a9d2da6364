"""Operators that have an equivalent in ONNX and none in the `top` dialect."""

from __future__ import annotations

from npuc.errors import InvalidModelError
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.scope import DEPENDS_ON_DATA, TfliteContext
from npuc.ir import DYNAMIC, dtype_of, shape_of, tensor_type, top


@rule("REVERSE_SEQUENCE")
def reverse_sequence(ctx: TfliteContext) -> Outcome:
    """x, lengths: the first entries of each sequence backwards."""
    options = ctx.needed("ReverseSequenceOptions")
    batch, steps, rank = int(options.number("BatchDim")), int(options.number("SeqDim")), ctx.rank(0)
    if batch == steps or not (0 <= batch < rank and 0 <= steps < rank):
        raise InvalidModelError(f"{ctx.label}: axes {batch} and {steps} of rank {rank}")
    order = [batch, steps, *(axis for axis in range(rank) if axis not in (batch, steps))]
    lengths = ctx.emit(top.Cast, ctx.value(1), to="i64").y
    x = ctx.emit(top.Permute, ctx.value(0), order=order).y
    kind = tensor_type(shape_of(x), dtype_of(x.type))
    reason = "the top dialect has no such op"
    (y,) = ctx.onnx("ReverseSequence", [x, lengths], [kind], reason, {"batch_axis": 0, "time_axis": 1})
    return ctx.emit(top.Permute, y, order=[order.index(axis) for axis in range(rank)]).y


@rule("WHERE")
def where(ctx: TfliteContext) -> Outcome:
    """The places of what is not zero, one a row."""
    rank = ctx.rank(0)
    places = ctx.onnx("NonZero", [ctx.value(0)], [tensor_type((rank, DYNAMIC), "i64")], DEPENDS_ON_DATA)
    turned = [tensor_type((DYNAMIC, rank), "i64")]
    return ctx.onnx("Transpose", places, turned, DEPENDS_ON_DATA, {"perm": [1, 0]})[0]
