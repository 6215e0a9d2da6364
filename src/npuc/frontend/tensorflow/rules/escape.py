"""Ops that have an equivalent in ONNX and none in the `top` dialect."""

from __future__ import annotations

import numpy as np

from npuc.frontend.blocks.arithmetic import cast
from npuc.frontend.blocks.movement import reshape
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import DYNAMIC, tensor_type

_OPEN = "the number of its results depends on data"


@rule("Where")
def where(ctx: TensorflowContext) -> Outcome:
    """On the CPU: the number of results depends on data."""
    c, x = ctx.c, ctx.x()
    (indices,) = c.onnx("NonZero", [c.value(x)], [tensor_type((x.rank, DYNAMIC), "i64")], _OPEN)
    kinds = [tensor_type((DYNAMIC, x.rank), "i64")]
    return LayoutTensor(c.onnx("Transpose", [indices], kinds, _OPEN, {"perm": [1, 0]})[0])


@rule("NonMaxSuppressionV3")
def non_max_suppression(ctx: TensorflowContext) -> Outcome:
    """On the CPU: the number of results depends on data."""
    c = ctx.c
    boxes = reshape(c, ctx.x(0), (1, *ctx.x(0).shape))
    scores = reshape(c, ctx.x(1), (1, 1, *ctx.x(1).shape))
    most = cast(c, ctx.x(2), "i64")
    operands = [c.value(x) for x in (boxes, scores, most, ctx.x(3), ctx.x(4))]
    (selected,) = c.onnx("NonMaxSuppression", operands, [tensor_type((DYNAMIC, 3), "i64")], _OPEN)
    column = c.value(c.constant(np.array(2, np.int64)))
    kinds = [tensor_type((DYNAMIC,), "i64")]
    (indices,) = c.onnx("Gather", [selected, column], kinds, _OPEN, {"axis": 1})
    return LayoutTensor(c.onnx("Cast", [indices], [tensor_type((DYNAMIC,), "i32")], _OPEN, {"to": 6})[0])


@rule("ReverseSequence")
def reverse_sequence(ctx: TensorflowContext) -> Outcome:
    """On the CPU; batch and time are the first two axes."""
    batch, time = ctx.node.integer("batch_dim"), ctx.node.integer("seq_dim")
    if {batch, time} != {0, 1}:
        raise ctx.refuse(f"it reverses axis {time} of batches along {batch}")
    c, x = ctx.c, ctx.x(0)
    lengths = c.value(cast(c, ctx.x(1), "i64"))
    kinds = [tensor_type(x.shape, x.dtype)]
    attributes = {"batch_axis": batch, "time_axis": time}
    reason = "the top dialect has no such op"
    return LayoutTensor(c.onnx("ReverseSequence", [c.value(x), lengths], kinds, reason, attributes)[0])
