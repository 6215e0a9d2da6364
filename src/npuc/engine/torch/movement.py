"""What moves or picks elements and computes nothing."""

from __future__ import annotations

from math import prod
from typing import Any

import torch
import torch.nn.functional as F

from npuc.engine.torch.registry import handles
from npuc.ir import shape_of, top


def _batched(shape: tuple[int, ...], op: Any, x: Any) -> tuple[int, ...]:
    """A stated shape for more samples than the network was made for: they are along the first axis, also where the operand has
    them along another (the parts of a joint projection of queries, keys and values)."""
    own = shape_of(op.x)
    more = own and shape and tuple(x.shape) != own and shape[0] == own[0] == 1
    return (x.numel() // prod(own), *shape[1:]) if more else shape


@handles(top.Reshape)
def reshape(op: Any, x: Any) -> Any:
    """Another shape."""
    return x.reshape(_batched(op.shape, op, x))


@handles(top.Permute)
def permute(op: Any, x: Any) -> Any:
    """Another order of axes."""
    return x.permute(op.order)


@handles(top.Concat)
def concat(op: Any, inputs: Any) -> Any:
    """End to end."""
    return torch.cat(inputs, op.axis)


@handles(top.Split)
def split(op: Any, x: Any) -> Any:
    """Parts."""
    return torch.split(x, list(op.sizes), op.axis)


@handles(top.Slice)
def cut(op: Any, x: Any) -> Any:
    """A part with steps."""
    for axis, (start, step, size) in enumerate(zip(op.offset, op.steps, op.shape, strict=True)):
        if step == 1 and size == shape_of(op.x)[axis]:
            continue
        if step > 0:
            index = (slice(None),) * axis + (slice(start, start + (size - 1) * step + 1, step),)
            x = x[index]
        else:
            x = x.index_select(axis, torch.arange(size, device=x.device) * step + start)
    return x


@handles(top.Pad)
def pad(op: Any, x: Any) -> Any:
    """A border; negative pads crop."""
    rank = x.dim()
    if op.mode == "constant":
        pairs = [(op.pads[axis], op.pads[axis + rank]) for axis in range(rank)]
        return F.pad(x, [amount for pair in reversed(pairs) for amount in pair], value=op.value)
    for axis in range(rank):
        before, after, size = op.pads[axis], op.pads[axis + rank], x.shape[axis]
        if not before and not after:
            continue
        at = torch.arange(-before, size + after, device=x.device)
        if op.mode == "reflect":
            period = max(2 * (size - 1), 1)
            at = at.remainder(period)
            at = torch.where(at >= size, period - at, at)
        else:
            at = at.remainder(size) if op.mode == "wrap" else at.clamp(0, size - 1)
        x = x.index_select(axis, at)
    return x


@handles(top.Expand)
def expand(op: Any, x: Any) -> Any:
    """Broadcast."""
    return x.expand(torch.broadcast_shapes(tuple(x.shape), _batched(op.shape, op, x)))


@handles(top.Tile)
def tile(op: Any, x: Any) -> Any:
    """Repeated."""
    return x.repeat(op.repeats)


@handles(top.DepthToSpace)
def depth_to_space(op: Any, x: Any) -> Any:
    """Channels into pixels."""
    n, c, h, w = x.shape
    b = op.block
    if op.mode == "DCR":
        y = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        y = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return y.reshape(n, c // (b * b), h * b, w * b)


@handles(top.SpaceToDepth)
def space_to_depth(op: Any, x: Any) -> Any:
    """Pixels into channels."""
    n, c, h, w = x.shape
    b = op.block
    y = x.reshape(n, c, h // b, b, w // b, b).permute(0, 3, 5, 1, 2, 4)
    return y.reshape(n, c * b * b, h // b, w // b)


@handles(top.ShuffleChannel)
def shuffle_channel(op: Any, x: Any) -> Any:
    """Interleaved."""
    n, c = x.shape[:2]
    return x.reshape(n, op.group, c // op.group, *x.shape[2:]).transpose(1, 2).reshape(x.shape)


def _positive(indices: Any, size: int) -> Any:
    indices = indices.long()
    return torch.where(indices < 0, indices + size, indices)


@handles(top.Gather)
def gather(op: Any, x: Any, indices: Any) -> Any:
    """Slices by index."""
    axis = op.axis % x.dim()
    at = _positive(indices, x.shape[axis])
    y = x.index_select(axis, at.reshape(-1))
    return y.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@handles(top.GatherElements)
def gather_elements(op: Any, x: Any, indices: Any) -> Any:
    """Elements by index."""
    return torch.gather(x, op.axis, _positive(indices, x.shape[op.axis]))


@handles(top.GatherND)
def gather_nd(op: Any, x: Any, indices: Any) -> Any:
    """Slices by index tuples."""
    batch = op.batch_dims
    at = list(indices.long().unbind(-1))
    for axis in range(batch):
        shape = [1] * (indices.dim() - 1)
        shape[axis] = -1
        at.insert(axis, torch.arange(x.shape[axis], device=x.device).reshape(shape))
    return x[tuple(at)]


@handles(top.ScatterElements)
def scatter_elements(op: Any, x: Any, indices: Any, updates: Any) -> Any:
    """Elements replaced."""
    at = _positive(indices, x.shape[op.axis])
    if op.reduction == "none":
        return x.scatter(op.axis, at, updates)
    kind = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}[op.reduction]
    return x.scatter_reduce(op.axis, at, updates, kind)


@handles(top.ScatterND)
def scatter_nd(op: Any, x: Any, indices: Any, updates: Any) -> Any:
    """Slices replaced."""
    if op.reduction not in ("none", "add"):
        raise NotImplementedError(f"scatter_nd with reduction '{op.reduction}'")
    at = tuple(indices.long().unbind(-1))
    return x.index_put(at, updates, accumulate=op.reduction == "add")


@handles(top.ArgReduce)
def arg(op: Any, x: Any) -> Any:
    """The place of the largest or smallest."""
    axis = op.axis % x.dim()
    y = x.flip(axis) if op.select_last else x
    best = y.argmax(axis, op.keepdims) if op.max else y.argmin(axis, op.keepdims)
    return x.shape[axis] - 1 - best if op.select_last else best


@handles(top.TopK)
def topk(op: Any, x: Any) -> Any:
    """The largest and their places; of equal ones the first."""
    order = torch.sort(x, dim=op.axis, descending=op.largest, stable=True)
    return order.values.narrow(op.axis, 0, op.k), order.indices.narrow(op.axis, 0, op.k)


@handles(top.CumSum)
def cumsum(op: Any, x: Any) -> Any:
    """Running sums."""
    y = x.flip(op.axis) if op.reverse else x
    total = y.cumsum(op.axis)
    total = total - y if op.exclusive else total
    return total.flip(op.axis) if op.reverse else total


@handles(top.OneHot)
def one_hot(op: Any, indices: Any, values: Any) -> Any:
    """Ones among zeros."""
    at = _positive(indices, op.depth).unsqueeze(op.axis)
    shape = [1] * at.dim()
    shape[op.axis] = -1
    hit = at == torch.arange(op.depth, device=at.device).reshape(shape)
    return torch.where(hit, values[1], values[0])
