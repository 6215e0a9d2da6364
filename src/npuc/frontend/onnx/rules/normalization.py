"""Normalization operators, and functions along an axis."""

from __future__ import annotations

from math import prod

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import shape_of, top
from npuc.ir.definition import normal_axis


def _single_output(ctx: NodeContext) -> None:
    if len([name for name in ctx.node.outputs if name]) > 1:
        raise NoTopForm("its statistics are used")


@rule("BatchNormalization")
def batch_norm(ctx: NodeContext) -> Outcome:
    """Inference mode only."""
    node = ctx.node
    training = node.flag("training_mode") if ctx.opset >= 14 else ctx.opset < 7 and not node.flag("is_test")
    _single_output(ctx)
    if training or not node.flag("spatial", True):
        raise NoTopForm("it is in training mode, or not per channel")
    if len({ctx.dtype(i) for i in range(5)}) > 1 or len(ctx.shape(0)) < 2:
        raise NoTopForm("its operands are of mixed types, or have no channel axis")
    x, scale, bias, mean, variance = (ctx.operand(i) for i in range(5))
    return ctx.emit(top.BatchNorm, x, scale, bias, mean, variance, epsilon=node.float("epsilon", 1e-5)).y


@rule("InstanceNormalization")
def instance_norm(ctx: NodeContext) -> Outcome:
    """Per image and channel."""
    if ctx.opset < 6:
        raise NoTopForm("its old form consumes its inputs")
    return ctx.emit(
        top.InstanceNorm,
        ctx.operand(0),
        ctx.operand(1),
        ctx.operand(2),
        epsilon=ctx.node.float("epsilon", 1e-5),
    ).y


def _stash(ctx: NodeContext) -> None:
    if ctx.node.int("stash_type", 1) != 1:
        raise NoTopForm("it computes in another type than float")


@rule("LayerNormalization")
def layer_norm(ctx: NodeContext) -> Outcome:
    """Over the axes from `axis` on."""
    _single_output(ctx)
    _stash(ctx)
    axis = ctx.node.int("axis", -1)
    shape = ctx.shape(0)
    inner = shape[normal_axis(axis, len(shape)) :]
    for index in (1, 2):
        if ctx.has(index) and ctx.shape(index) != inner:
            raise NoTopForm("its scale or bias is broadcast")
    return ctx.emit(
        top.LayerNorm,
        ctx.operand(0),
        ctx.optional(1),
        ctx.optional(2),
        axis=axis,
        epsilon=ctx.node.float("epsilon", 1e-5),
    ).y


@rule("RMSNormalization")
def rms_norm(ctx: NodeContext) -> Outcome:
    """Over the axes from `axis` on."""
    _stash(ctx)
    axis = ctx.node.int("axis", -1)
    shape = ctx.shape(0)
    if ctx.shape(1) != shape[normal_axis(axis, len(shape)) :]:
        raise NoTopForm("its scale is broadcast")
    return ctx.emit(
        top.RMSNorm, ctx.operand(0), ctx.operand(1), None, axis=axis, epsilon=ctx.node.float("epsilon", 1e-5)
    ).y


@rule("GroupNormalization")
def group_norm(ctx: NodeContext) -> Outcome:
    """Scale and bias are per channel from opset 21 on; before, they were per group."""
    _stash(ctx)
    groups, x = ctx.node.int("num_groups"), ctx.operand(0)
    shape = shape_of(x)
    scale, bias = ctx.operand(1), ctx.operand(2)
    if ctx.opset < 21 and shape_of(scale) == (groups,) and groups != shape[1]:
        if groups < 1 or shape[1] % groups:
            raise InvalidModelError(f"{ctx.node.label}: {shape[1]} channels in {groups} groups")
        width = shape[1] // groups
        wide = []
        for value in (scale, bias):
            column = ctx.emit(top.Reshape, value, shape=(groups, 1)).y
            spread = ctx.emit(top.Expand, column, shape=(groups, width)).y
            wide.append(ctx.emit(top.Reshape, spread, shape=(shape[1],)).y)
        scale, bias = wide
    return ctx.emit(top.GroupNorm, x, scale, bias, groups=groups, epsilon=ctx.node.float("epsilon", 1e-5)).y


@rule("LpNormalization")
def lp_norm(ctx: NodeContext) -> Outcome:
    """The Euclidean one."""
    if ctx.node.int("p", 2) != 2:
        raise NoTopForm("its norm is not Euclidean")
    return ctx.emit(top.L2Norm, ctx.operand(0), axis=ctx.node.int("axis", -1)).y


@rule("LRN")
def lrn(ctx: NodeContext) -> Outcome:
    """Across channels."""
    node = ctx.node
    return ctx.emit(
        top.LRN,
        ctx.operand(0),
        size=node.int("size"),
        alpha=node.float("alpha", 1e-4),
        beta=node.float("beta", 0.75),
        bias=node.float("bias", 1.0),
    ).y


@rule("Softmax", "LogSoftmax")
def softmax(ctx: NodeContext) -> Outcome:
    """Along one axis; before opset 13, over all axes from `axis` on as one."""
    kind = top.Softmax if ctx.node.op_type == "Softmax" else top.LogSoftmax
    x = ctx.operand(0)
    if ctx.opset >= 13:
        return ctx.emit(kind, x, axis=ctx.node.int("axis", -1)).y
    shape = shape_of(x)
    axis = ctx.node.int("axis", 1)
    axis += len(shape) if axis < 0 else 0
    if not 0 <= axis <= len(shape):
        raise InvalidModelError(f"{ctx.node.label}: axis {axis} of rank {len(shape)}")
    if axis == len(shape) - 1:
        return ctx.emit(kind, x, axis=axis).y
    flat = ctx.emit(top.Reshape, x, shape=(prod(shape[:axis]), prod(shape[axis:]))).y
    return ctx.emit(top.Reshape, ctx.emit(kind, flat, axis=1).y, shape=shape).y
