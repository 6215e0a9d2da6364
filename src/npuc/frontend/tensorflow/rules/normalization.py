"""Normalization, and what works along an axis."""

from __future__ import annotations

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks.normalization import batch_norm
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import top


@rule("FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3")
def fused_batch_norm(ctx: TensorflowContext) -> Outcome:
    """Inference only: with the running mean and variance, not those of the batch."""
    if ctx.node.flag("is_training", True):
        raise ctx.refuse("it is in training mode, and normalizes by the batch")
    scale, offset, mean, variance = (ctx.x(index) for index in range(1, 5))
    axis = 1 if ctx.channels_first else -1
    epsilon = ctx.node.real("epsilon", 1e-4)
    normalized = batch_norm(ctx.c, ctx.x(0), scale, offset, mean, variance, epsilon, axis)
    return [normalized, mean, variance, mean, variance, mean]


@rule("Softmax", "LogSoftmax")
def softmax(ctx: TensorflowContext) -> Outcome:
    """Along the last axis."""
    return a.along(ctx.c, ctx.x(), top.Softmax if ctx.node.op == "Softmax" else top.LogSoftmax)


@rule("LRN")
def lrn(ctx: TensorflowContext) -> Outcome:
    """Over a window of channels, which are last."""
    size = 2 * ctx.node.integer("depth_radius", 5) + 1
    normalized = ctx.c.emit(
        top.LRN,
        ctx.c.image(ctx.x()),
        size=size,
        alpha=ctx.node.real("alpha", 1.0) * size,
        beta=ctx.node.real("beta", 0.5),
        bias=ctx.node.real("bias", 1.0),
    ).y
    return LayoutTensor(normalized, True)


@rule("L2Loss")
def l2_loss(ctx: TensorflowContext) -> Outcome:
    """Half the sum of squares."""
    total = a.reduce(ctx.c, ctx.x(), "sum_square", range(ctx.x().rank))
    return a.scaled(ctx.c, total, 0.5)
