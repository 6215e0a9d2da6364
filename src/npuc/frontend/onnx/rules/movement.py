"""Operators that move elements."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arrays import ceil_div
from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import Value, top
from npuc.ir.definition import broadcast, normal_axis


def _reshaped(ctx: NodeContext, shape: tuple[int, ...]) -> Value:
    return ctx.emit(top.Reshape, ctx.operand(0), shape=shape).y


@rule("Reshape")
def reshape(ctx: NodeContext) -> Outcome:
    """-1 is what is left; 0 copies, unless `allowzero`."""
    shape = ctx.node.ints("shape") if ctx.opset < 5 else ctx.known_ints(1, "shape")
    old = ctx.shape(0)
    if not ctx.node.flag("allowzero"):
        if any(n == 0 and i >= len(old) for i, n in enumerate(shape)):
            raise InvalidModelError(
                f"{ctx.node.label}: the shape {list(shape)} copies an axis that is not there"
            )
        shape = tuple(old[i] if n == 0 else n for i, n in enumerate(shape))
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise InvalidModelError(f"{ctx.node.label}: the shape {list(shape)} is not valid")
    if -1 in shape:
        rest = -prod(shape)
        if rest == 0 or prod(old) % rest:
            raise InvalidModelError(
                f"{ctx.node.label}: {prod(old)} elements do not fit the shape {list(shape)}"
            )
        shape = tuple(prod(old) // rest if n == -1 else n for n in shape)
    return _reshaped(ctx, shape)


@rule("Flatten")
def flatten(ctx: NodeContext) -> Outcome:
    """To two axes."""
    old = ctx.shape(0)
    axis = ctx.node.int("axis", 1)
    if not -len(old) <= axis <= len(old):
        raise InvalidModelError(f"{ctx.node.label}: axis {axis} of rank {len(old)}")
    axis = axis + len(old) if axis < 0 else axis
    return _reshaped(ctx, (prod(old[:axis]), prod(old[axis:])))


def _axes(ctx: NodeContext, index: int, since: int) -> tuple[int, ...] | None:
    if ctx.opset < since:
        axes: tuple[int, ...] | None = ctx.node.ints("axes", None)
        return axes
    return ctx.known_ints(index, "axes") if ctx.has(index) else None


@rule("Squeeze")
def squeeze(ctx: NodeContext) -> Outcome:
    """Axes of size 1 removed."""
    old = ctx.shape(0)
    axes = _axes(ctx, 1, 13)
    if axes is None:
        gone = {i for i, n in enumerate(old) if n == 1}
    else:
        gone = {normal_axis(axis, len(old)) for axis in axes}
        if any(old[axis] != 1 for axis in gone):
            raise InvalidModelError(
                f"{ctx.node.label}: an axis of {sorted(gone)} of shape {list(old)} is not 1"
            )
    return _reshaped(ctx, tuple(n for i, n in enumerate(old) if i not in gone))


@rule("Unsqueeze")
def unsqueeze(ctx: NodeContext) -> Outcome:
    """Axes of size 1 added."""
    old = ctx.shape(0)
    axes = _axes(ctx, 1, 13)
    if axes is None:
        raise InvalidModelError(f"{ctx.node.label}: its axes are missing")
    rank = len(old) + len(axes)
    new = {normal_axis(axis, rank) for axis in axes}
    if len(new) != len(axes):
        raise InvalidModelError(f"{ctx.node.label}: an axis of {list(axes)} is given twice")
    rest = iter(old)
    return _reshaped(ctx, tuple(1 if i in new else next(rest) for i in range(rank)))


@rule("Transpose")
def transpose(ctx: NodeContext) -> Outcome:
    """Axes reordered, reversed by default."""
    rank = len(ctx.shape(0))
    order = ctx.node.ints("perm", tuple(reversed(range(rank))))
    return ctx.emit(top.Permute, ctx.operand(0), order=tuple(order)).y


@rule("Concat")
def concat(ctx: NodeContext) -> Outcome:
    """Tensors end to end."""
    axis = ctx.node.int("axis", 1) if ctx.opset < 4 else ctx.node.int("axis")
    return ctx.emit(top.Concat, ctx.operands(), axis=axis).y


@rule("Split")
def split(ctx: NodeContext) -> list[Outcome]:
    """Given sizes, or equal parts, the last one smaller if need be."""
    node = ctx.node
    shape = ctx.shape(0)
    axis = normal_axis(node.int("axis", 0), len(shape))
    if not shape:
        raise InvalidModelError(f"{node.label}: a scalar cannot be split")
    given = ctx.known_ints(1, "split sizes") if ctx.opset >= 13 and ctx.has(1) else ()
    sizes = node.ints("split", ()) if ctx.opset < 13 else given
    if not sizes:
        count = node.int("num_outputs", len(node.outputs)) if ctx.opset >= 18 else len(node.outputs)
        if count < 1 or count > max(shape[axis], 1):
            raise InvalidModelError(f"{node.label}: {shape[axis]} elements in {count} parts")
        part = ceil_div(shape[axis], count)
        sizes = tuple(max(0, min(part, shape[axis] - i * part)) for i in range(count))
    return list(ctx.emit(top.Split, ctx.operand(0), axis=axis, sizes=tuple(sizes)).results)


@rule("Slice")
def slice_(ctx: NodeContext) -> Outcome:
    """Bounds as attributes (before opset 10) or inputs, clamped as ONNX says."""
    node, shape = ctx.node, ctx.shape(0)
    rank = len(shape)
    if ctx.opset < 10:
        starts, ends = node.ints("starts"), node.ints("ends")
        axes = node.ints("axes", tuple(range(len(starts))))
        steps = (1,) * len(starts)
    else:
        starts, ends = ctx.known_ints(1, "starts"), ctx.known_ints(2, "ends")
        axes = ctx.known_ints(3, "axes") if ctx.has(3) else tuple(range(len(starts)))
        steps = ctx.known_ints(4, "steps") if ctx.has(4) else (1,) * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise InvalidModelError(f"{node.label}: its bounds do not fit together")
    offset, stride, count = [0] * rank, [1] * rank, list(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        axis = normal_axis(axis, rank)
        begin, stop, step = slice(start, end, step).indices(shape[axis])
        if step < 0 and end < -shape[axis]:
            stop = -1
        length = len(range(begin, stop, step))
        offset[axis], stride[axis], count[axis] = (begin if length else 0), step, length
    return ctx.emit(
        top.Slice, ctx.operand(0), offset=tuple(offset), steps=tuple(stride), shape=tuple(count)
    ).y


@rule("ReverseSequence")
def reverse_sequence(ctx: NodeContext) -> Outcome:
    """Sequences of one known length are a slice backwards."""
    shape, time = ctx.shape(0), ctx.node.int("time_axis", 0)
    lengths = set(ctx.known_ints(1, "lengths"))
    if len(lengths) != 1 or not 0 <= time < len(shape):
        raise NoTopForm("its sequences are of different lengths")
    length = lengths.pop()
    if not 0 <= length <= shape[time]:
        raise InvalidModelError(f"{ctx.node.label}: sequences of {length} on an axis of {shape[time]}")

    def part(first: int, count: int, step: int) -> Value:
        offset = tuple(first if axis == time else 0 for axis in range(len(shape)))
        steps = tuple(step if axis == time else 1 for axis in range(len(shape)))
        sizes = tuple(count if axis == time else n for axis, n in enumerate(shape))
        return ctx.emit(top.Slice, ctx.operand(0), offset=offset, steps=steps, shape=sizes).y

    if length == 0:
        return ctx.emit(top.Reshape, ctx.operand(0), shape=tuple(shape)).y
    back = part(length - 1, length, -1)
    if length == shape[time]:
        return back
    return ctx.emit(top.Concat, [back, part(length, shape[time] - length, 1)], axis=time).y


@rule("Pad")
def pad(ctx: NodeContext) -> Outcome:
    """A border on some or all axes."""
    node, rank = ctx.node, len(ctx.shape(0))
    mode = node.string("mode", "constant")
    if ctx.opset < 11:
        pads = node.ints("pads") if node.has("pads") else node.ints("paddings")
        value = float(node.float("value", 0.0))
    else:
        pads = ctx.known_ints(1, "pads")
        fill = ctx.known(2, "pad value") if ctx.has(2) else np.zeros(())
        if fill.dtype.kind not in "fiu" or (
            abs(float(fill.reshape(-1)[0])) > 2**53 and not ctx.dtype(0).is_float
        ):
            raise NoTopForm("its pad value is not a number")
        value = float(fill.reshape(-1)[0])
    if ctx.has(3):
        axes = [normal_axis(axis, rank) for axis in ctx.known_ints(3, "axes")]
        if len(pads) != 2 * len(axes):
            raise InvalidModelError(f"{node.label}: {len(pads)} pads for {len(axes)} axes")
        full = [0] * (2 * rank)
        for i, axis in enumerate(axes):
            full[axis], full[axis + rank] = pads[i], pads[i + len(axes)]
        pads = tuple(full)
    return ctx.emit(top.Pad, ctx.operand(0), pads=tuple(pads), mode=mode, value=value).y


@rule("Expand")
def expand(ctx: NodeContext) -> Outcome:
    """Broadcast to a shape, which itself broadcasts."""
    shape = broadcast(ctx.shape(0), ctx.known_ints(1, "shape"))
    return ctx.emit(top.Expand, ctx.operand(0), shape=shape).y


@rule("Tile")
def tile(ctx: NodeContext) -> Outcome:
    """Repeated along each axis."""
    if ctx.opset < 6:
        raise NoTopForm("its old form repeats one axis")
    return ctx.emit(top.Tile, ctx.operand(0), repeats=ctx.known_ints(1, "repeats")).y


@rule("DepthToSpace")
def depth_to_space(ctx: NodeContext) -> Outcome:
    """Channels into pixels."""
    return ctx.emit(
        top.DepthToSpace, ctx.operand(0), block=ctx.node.int("blocksize"), mode=ctx.node.string("mode", "DCR")
    ).y


@rule("SpaceToDepth")
def space_to_depth(ctx: NodeContext) -> Outcome:
    """Pixels into channels."""
    if ctx.node.string("mode", "DCR") != "DCR":
        raise NoTopForm("its channel order is not DCR")
    return ctx.emit(top.SpaceToDepth, ctx.operand(0), block=ctx.node.int("blocksize")).y


@rule("Shape")
def shape(ctx: NodeContext) -> Outcome:
    """Known at compile time."""
    whole = ctx.shape(0)
    rank = len(whole)
    begin, end = ctx.node.int("start", 0), ctx.node.int("end", rank)
    begin, end = (max(0, min(rank, i + rank if i < 0 else i)) for i in (begin, end))
    return np.array(whole[begin:end], np.int64)


@rule("Size")
def size(ctx: NodeContext) -> Outcome:
    """Known at compile time."""
    return np.array(prod(ctx.shape(0)), np.int64)
