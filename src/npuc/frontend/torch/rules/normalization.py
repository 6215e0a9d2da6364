"""Normalization."""

from __future__ import annotations

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, dtype_of, shape_of, top


def _channel(ctx: TorchContext, name: str, number: float, channels: int) -> Value:
    value = ctx.optional(name, dtype_of("f32"))
    return value if value is not None else ctx.literal(np.full(channels, number, np.float32), name)


@rule(
    "aten.batch_norm", "aten._native_batch_norm_legit_no_training", "aten.native_batch_norm",
    "aten._batch_norm_impl_index", "aten._native_batch_norm_legit", "aten.cudnn_batch_norm",
    limits="with stored statistics",
)  # fmt: skip
def batch_norm(ctx: TorchContext) -> Outcome:
    """With the statistics of training; without any, those of the batch, which is instance norm for one image."""
    several = isinstance(ctx.result, tuple | list)
    x = ctx.value("input", dtype_of("f32"))
    shape = shape_of(x)
    epsilon = ctx.number("eps" if "eps" in ctx.args else "epsilon")
    if ctx.flag("training") or not ctx.has("running_mean"):
        if shape[0] != 1 or len(shape) < 3:
            raise NoTopForm("it takes its statistics from the batch")
        weight, bias = ctx.optional("weight"), ctx.optional("bias")
        y = ctx.emit(top.InstanceNorm, x, weight, bias, epsilon=epsilon).y
    else:
        parameters = (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))
        given = [_channel(ctx, name, number, shape[1]) for name, number in parameters]
        y = ctx.emit(top.BatchNorm, x, *given, epsilon=epsilon).y
    return [y, *[None] * (len(ctx.result) - 1)] if several else y


@rule("aten.instance_norm", limits="with stored statistics it is batch norm")
def instance_norm(ctx: TorchContext) -> Outcome:
    """An image and a channel at a time."""
    x = ctx.value("input")
    if not ctx.flag("use_input_stats"):
        parameters = (("weight", 1.0), ("bias", 0.0), ("running_mean", 0.0), ("running_var", 1.0))
        given = [_channel(ctx, name, number, shape_of(x)[1]) for name, number in parameters]
        return ctx.emit(top.BatchNorm, x, *given, epsilon=ctx.number("eps")).y
    weight, bias = ctx.optional("weight"), ctx.optional("bias")
    return ctx.emit(top.InstanceNorm, x, weight, bias, epsilon=ctx.number("eps")).y


@rule("aten.layer_norm", "aten.native_layer_norm")
def layer_norm(ctx: TorchContext) -> Outcome:
    """Over the last axes."""
    f32 = dtype_of("f32")
    axis = -len(ctx.ints("normalized_shape"))
    y = ctx.emit(
        top.LayerNorm,
        ctx.value("input", f32),
        ctx.optional("weight", f32),
        ctx.optional("bias", f32),
        axis=axis,
        epsilon=ctx.number("eps"),
    ).y
    return [y, None, None] if isinstance(ctx.result, tuple | list) else y


@rule("aten.rms_norm")
def rms_norm(ctx: TorchContext) -> Outcome:
    """Over the last axes; without an epsilon, torch takes the smallest step of the type."""
    f32 = dtype_of("f32")
    epsilon = ctx.number("eps") if ctx.has("eps") else float(np.finfo(np.float32).eps)
    return ctx.emit(
        top.RMSNorm,
        ctx.value("input", f32),
        ctx.optional("weight", f32),
        None,
        axis=-len(ctx.ints("normalized_shape")),
        epsilon=epsilon,
    ).y


@rule("aten.group_norm", "aten.native_group_norm")
def group_norm(ctx: TorchContext) -> Outcome:
    """Channels in groups."""
    f32 = dtype_of("f32")
    groups = ctx.integer("num_groups" if "num_groups" in ctx.args else "group")
    x = ctx.value("input", f32)
    y = ctx.emit(
        top.GroupNorm,
        x,
        ctx.optional("weight", f32),
        ctx.optional("bias", f32),
        groups=groups,
        epsilon=ctx.number("eps"),
    ).y
    return [y, None, None] if isinstance(ctx.result, tuple | list) else y


@rule("aten.local_response_norm", keep=False)
def local_response_norm(ctx: TorchContext) -> Outcome:
    """Over neighbouring channels."""
    return ctx.emit(
        top.LRN,
        ctx.value("input"),
        size=ctx.integer("size"),
        alpha=ctx.number("alpha"),
        beta=ctx.number("beta"),
        bias=ctx.number("k"),
    ).y
