"""Products, reductions, norms, softmax: what sums over axes."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from npuc.engine.torch.registry import fused, handles
from npuc.ir import top


@handles(top.MatMul)
def matmul(op: Any, a: Any, b: Any, bias: Any) -> Any:
    """a @ b + bias."""
    y = a @ (b.transpose(-1, -2) if op.transpose_b else b)
    return fused(op, y if bias is None else y + bias)


@handles(top.Attention)
def attention(op: Any, query: Any, key: Any, value: Any, mask: Any) -> Any:
    """softmax(scale q k^T + mask) v."""
    scores = op.scale * (query @ key.transpose(-1, -2))
    return torch.softmax(scores if mask is None else scores + mask, -1) @ value


@handles(top.Softmax)
def softmax(op: Any, x: Any) -> Any:
    """Along an axis."""
    return torch.softmax(x, op.axis)


@handles(top.LogSoftmax)
def log_softmax(op: Any, x: Any) -> Any:
    """Along an axis."""
    return torch.log_softmax(x, op.axis)


@handles(top.Reduce)
def reduce(op: Any, x: Any) -> Any:
    """One number of many."""
    axes, keep = op.axes, op.keepdims
    if op.kind == "mean":
        return x.mean(axes, keep)
    if op.kind == "max":
        return x.amax(axes, keep)
    if op.kind == "min":
        return x.amin(axes, keep)
    if op.kind == "prod":
        for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
            x = x.prod(axis, keep)
        return x
    if op.kind == "log_sum_exp":
        return torch.logsumexp(x, axes, keep)
    inner = {"l1": torch.abs, "l2": torch.square, "sum_square": torch.square}.get(op.kind, lambda v: v)
    total = inner(x).sum(axes, keep)
    return {"l2": torch.sqrt, "log_sum": torch.log}.get(op.kind, lambda v: v)(total)


def _per_channel(values: Any, rank: int) -> Any:
    return values.reshape(1, -1, *(1,) * (rank - 2))


@handles(top.BatchNorm)
def batch_norm(op: Any, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """By stored statistics."""
    return F.batch_norm(x, mean, variance, scale, bias, False, 0.0, op.epsilon)


@handles(top.Scale)
def scale(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    """A channel."""
    return fused(op, x * _per_channel(scale, x.dim()) + _per_channel(bias, x.dim()))


def _affine(y: Any, scale: Any, bias: Any) -> Any:
    y = y if scale is None else y * scale
    return y if bias is None else y + bias


@handles(top.LayerNorm)
def layer_norm(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Over the axes from `axis` on."""
    axes = tuple(range(op.axis % x.dim(), x.dim()))
    mean = x.mean(axes, True)
    variance = (x - mean).square().mean(axes, True)
    return _affine((x - mean) * torch.rsqrt(variance + op.epsilon), scale, bias)


@handles(top.RMSNorm)
def rms_norm(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Without a mean."""
    axes = tuple(range(op.axis % x.dim(), x.dim()))
    return _affine(x * torch.rsqrt(x.square().mean(axes, True) + op.epsilon), scale, bias)


@handles(top.InstanceNorm)
def instance_norm(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Over space."""
    return F.group_norm(x, x.shape[1], scale, bias, op.epsilon)


@handles(top.GroupNorm)
def group_norm(op: Any, x: Any, scale: Any, bias: Any) -> Any:
    """Over space and the channels of a group."""
    return F.group_norm(x, op.groups, scale, bias, op.epsilon)


@handles(top.L2Norm)
def l2_norm(op: Any, x: Any) -> Any:
    """Unit length; zeros stay zeros."""
    length = x.square().sum(op.axis, True).sqrt().clamp(min=op.epsilon)
    return x / length.masked_fill(length == 0, 1)


@handles(top.LRN)
def lrn(op: Any, x: Any) -> Any:
    """Over neighbouring channels."""
    before = (op.size - 1) // 2
    squares = F.pad(x.square().movedim(1, -1), (before, op.size - 1 - before)).movedim(-1, 1)
    total = sum(squares[:, at : at + x.shape[1]] for at in range(op.size))
    return x / (op.bias + op.alpha / op.size * total) ** op.beta
