"""Shapes, axes, slices and borders."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.frontend.blocks import movement as m
from npuc.frontend.blocks.arithmetic import cast, where
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.registry import Outcome, TensorflowContext, rule
from npuc.ir import top
from npuc.ir.definition import broadcast, normal_axis


@rule("Reshape")
def reshape(ctx: TensorflowContext) -> Outcome:
    """The shape must be constant; -1 is what is left."""
    return m.reshape(ctx.c, ctx.x(0), ctx.integers(1, "shape"))


@rule("Squeeze")
def squeeze(ctx: TensorflowContext) -> Outcome:
    """Axes of size 1 removed: those given, or all."""
    x = ctx.x()
    axes = ctx.node.integers("squeeze_dims") or ctx.node.integers("axis")
    gone = {normal_axis(axis, x.rank) for axis in axes} or {i for i, n in enumerate(x.shape) if n == 1}
    if any(x.shape[axis] != 1 for axis in gone):
        raise ctx.wrong(f"an axis of {sorted(gone)} of shape {list(x.shape)} is not 1")
    return m.reshape(ctx.c, x, [n for axis, n in enumerate(x.shape) if axis not in gone])


@rule("ExpandDims")
def expand_dims(ctx: TensorflowContext) -> Outcome:
    """The axis must be constant."""
    shape = list(ctx.x().shape)
    shape.insert(normal_axis(ctx.integer(1, "axis"), len(shape) + 1), 1)
    return m.reshape(ctx.c, ctx.x(), shape)


@rule("Transpose")
def transpose(ctx: TensorflowContext) -> Outcome:
    """The order must be constant."""
    return m.transpose(ctx.c, ctx.x(0), ctx.integers(1, "order"))


@rule("ConcatV2")
def concat(ctx: TensorflowContext) -> Outcome:
    """The axis must be constant."""
    return m.concat(ctx.c, ctx.inputs[:-1], ctx.integer(len(ctx.inputs) - 1, "axis"))


@rule("Concat")
def concat_old(ctx: TensorflowContext) -> Outcome:
    """The axis must be constant."""
    return m.concat(ctx.c, ctx.inputs[1:], ctx.integer(0, "axis"))


@rule("Split")
def split(ctx: TensorflowContext) -> Outcome:
    """Equal parts along a constant axis."""
    x, count = ctx.x(1), ctx.node.integer("num_split")
    axis = normal_axis(ctx.integer(0, "axis"), x.rank)
    if count < 1 or x.shape[axis] % count:
        raise ctx.wrong(f"{count} equal parts of axis {axis} of {list(x.shape)}")
    return m.split(ctx.c, x, axis, m.equal_parts(ctx.node.label, x.shape[axis], count))


@rule("SplitV")
def split_v(ctx: TensorflowContext) -> Outcome:
    """Constant sizes, of which one may be -1, along a constant axis."""
    x, sizes = ctx.x(0), ctx.integers(1, "sizes")
    axis = normal_axis(ctx.integer(2, "axis"), x.rank)
    if sizes.count(-1) == 1:
        sizes = tuple(x.shape[axis] - sum(sizes) - 1 if n == -1 else n for n in sizes)
    return m.split(ctx.c, x, axis, sizes)


@rule("Pack")
def pack(ctx: TensorflowContext) -> Outcome:
    """A new axis anywhere."""
    return m.stack(ctx.c, ctx.inputs, ctx.node.integer("axis"))


@rule("Unpack")
def unpack(ctx: TensorflowContext) -> Outcome:
    """Any axis."""
    return m.unstack(ctx.c, ctx.x(), ctx.node.integer("axis"))


@rule("Slice")
def slice_(ctx: TensorflowContext) -> Outcome:
    """Constant begins and sizes; a size of -1 is all that follows."""
    x, begins, sizes = ctx.x(0), ctx.integers(1, "begin"), ctx.integers(2, "size")
    if not len(begins) == len(sizes) == x.rank:
        raise ctx.wrong(f"{len(begins)} begins and {len(sizes)} sizes for rank {x.rank}")
    counts = [n - b if s == -1 else s for n, b, s in zip(x.shape, begins, sizes, strict=True)]
    return m.cut(ctx.c, x, begins, counts)


@rule("StridedSlice")
def strided_slice(ctx: TensorflowContext) -> Outcome:
    """Constant begins, ends and strides, with all masks of Python's slices."""
    given = [ctx.integers(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides"))]
    if len({len(entries) for entries in given}) != 1:
        raise ctx.wrong("begins, ends and strides differ in number")
    masks = {
        name: ctx.node.integer(f"{name}_mask")
        for name in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")
    }
    entries: list[Any] = []
    for position, (begin, end, step) in enumerate(zip(*given, strict=True)):
        bit = 1 << position
        if masks["ellipsis"] & bit:
            entries.append(Ellipsis)
        elif masks["new_axis"] & bit:
            entries.append(None)
        elif masks["shrink_axis"] & bit:
            entries.append(begin)
        else:
            first = None if masks["begin"] & bit else begin
            entries.append(slice(first, None if masks["end"] & bit else end, step))
    return m.indexed(ctx.c, ctx.x(0), entries)


@rule("Tile")
def tile(ctx: TensorflowContext) -> Outcome:
    """Constant multiples."""
    return m.tile(ctx.c, ctx.x(0), ctx.integers(1, "multiples"))


@rule("BroadcastTo")
def broadcast_to(ctx: TensorflowContext) -> Outcome:
    """A constant shape."""
    shape = ctx.integers(1, "shape")
    if broadcast(ctx.x().shape, shape) != tuple(shape):
        raise ctx.wrong(f"{list(ctx.x().shape)} does not broadcast to {list(shape)}")
    return LayoutTensor(ctx.c.emit(top.Expand, ctx.c.value(ctx.x()), shape=shape).y)


@rule("ReverseV2")
def reverse(ctx: TensorflowContext) -> Outcome:
    """Constant axes."""
    return m.reverse(ctx.c, ctx.x(0), ctx.integers(1, "axes"))


@rule("Pad", "PadV2")
def pad(ctx: TensorflowContext) -> Outcome:
    """Constant paddings; PadV2 with a constant value."""
    value = float(ctx.known(2, "value").reshape(())) if ctx.has(2) else 0.0
    return m.pad(ctx.c, ctx.x(0), ctx.pairs(1, "padding"), value=value)


@rule("MirrorPad")
def mirror_pad(ctx: TensorflowContext) -> Outcome:
    """Constant paddings; REFLECT or SYMMETRIC."""
    pairs = ctx.pairs(1, "padding")
    if ctx.node.text("mode") == "REFLECT":
        return m.pad(ctx.c, ctx.x(0), pairs, mode="reflect")
    return m.mirrored(ctx.c, ctx.x(0), pairs)


@rule("SpaceToDepth", "DepthToSpace")
def depth(ctx: TensorflowContext) -> Outcome:
    """NHWC or NCHW."""
    block = ctx.node.integer("block_size")
    value = ctx.c.image(ctx.x(), ctx.channels_first)
    if ctx.node.op == "SpaceToDepth":
        return ctx.c.framed(ctx.c.emit(top.SpaceToDepth, value, block=block).y, ctx.channels_first)
    return ctx.c.framed(ctx.c.emit(top.DepthToSpace, value, block=block, mode="DCR").y, ctx.channels_first)


@rule("MatrixBandPart")
def band(ctx: TensorflowContext) -> Outcome:
    """Constant numbers of diagonals."""
    x, lower, upper = ctx.x(0), ctx.integer(1, "lower"), ctx.integer(2, "upper")
    if x.rank < 2 or prod(x.shape[-2:]) > 1 << 24:
        raise ctx.refuse(f"it is of the shape {list(x.shape)}")
    rows, columns = np.indices(x.shape[-2:])
    kept = ((lower < 0) | (rows - columns <= lower)) & ((upper < 0) | (columns - rows <= upper))
    return where(ctx.c, ctx.c.constant(kept), x, ctx.c.number(0, x))


@rule("SpaceToBatchND")
def space_to_batch(ctx: TensorflowContext) -> Outcome:
    """Constant blocks and paddings."""
    return m.space_to_batch(ctx.c, ctx.x(0), ctx.integers(1, "blocks"), ctx.pairs(2, "padding"))


@rule("BatchToSpaceND")
def batch_to_space(ctx: TensorflowContext) -> Outcome:
    """Constant blocks and crops."""
    return m.batch_to_space(ctx.c, ctx.x(0), ctx.integers(1, "blocks"), ctx.pairs(2, "crops"))


@rule("Gather", "GatherV2")
def gather(ctx: TensorflowContext) -> Outcome:
    """A constant axis, no batch dimensions but 0."""
    if ctx.node.integer("batch_dims"):
        raise ctx.refuse("it has batch dimensions")
    axis = normal_axis(ctx.integer(2, "axis") if ctx.has(2) else 0, ctx.x().rank)
    return LayoutTensor(ctx.c.emit(top.Gather, ctx.c.value(ctx.x(0)), ctx.c.value(ctx.x(1)), axis=axis).y)


@rule("GatherNd")
def gather_nd(ctx: TensorflowContext) -> Outcome:
    """Any index tuples."""
    indices = cast(ctx.c, ctx.x(1), "i64")
    return LayoutTensor(ctx.c.emit(top.GatherND, ctx.c.value(ctx.x(0)), ctx.c.value(indices)).y)


@rule("ScatterNd")
def scatter_nd(ctx: TensorflowContext) -> Outcome:
    """A constant shape."""
    shape = ctx.integers(2, "shape")
    if min(shape, default=0) < 0 or prod(shape) > 1 << 24:
        raise ctx.refuse(f"its result has the shape {list(shape)}")
    zeros = ctx.c.constant(np.zeros(shape, ctx.x(1).dtype.numpy))
    places = ctx.c.value(cast(ctx.c, ctx.x(0), "i64"))
    return LayoutTensor(
        ctx.c.emit(top.ScatterND, ctx.c.value(zeros), places, ctx.c.value(ctx.x(1)), reduction="add").y
    )


def _shape_type(ctx: TensorflowContext) -> Any:
    return np.int64 if ctx.node.type_code("out_type", 3) == 9 else np.int32


@rule("Shape", "ShapeN")
def shape(ctx: TensorflowContext) -> Outcome:
    """Known now."""
    return [np.array(x.shape, _shape_type(ctx)) for x in ctx.inputs]


@rule("Rank", "Size")
def rank(ctx: TensorflowContext) -> Outcome:
    """Known now."""
    number = ctx.x().rank if ctx.node.op == "Rank" else prod(ctx.x().shape)
    return np.array(number, _shape_type(ctx))


@rule("Fill")
def fill(ctx: TensorflowContext) -> Outcome:
    """A constant shape."""
    target_shape = ctx.integers(0, "shape")
    if min(target_shape, default=0) < 0:
        raise ctx.wrong(f"the shape {list(target_shape)} is not valid")
    value = m.reshape(ctx.c, ctx.x(1), (1,) * len(target_shape))
    return LayoutTensor(ctx.c.emit(top.Expand, ctx.c.value(value), shape=target_shape).y)


@rule("Range")
def range_(ctx: TensorflowContext) -> Outcome:
    """All constant."""
    start, limit, delta = (
        ctx.known(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta"))
    )
    if delta == 0 or not all(np.isfinite(float(x)) for x in (start, limit, delta)):
        raise ctx.wrong(f"from {start} to {limit} by {delta}")
    count = max(0, int(np.ceil((np.float64(limit) - np.float64(start)) / np.float64(delta))))
    if count > 1 << 22:
        raise ctx.wrong(f"it has {count} elements")
    return np.asarray(start + np.arange(count, dtype=start.dtype) * delta).astype(start.dtype)


@rule("BroadcastArgs")
def broadcast_args(ctx: TensorflowContext) -> Outcome:
    """Constant shapes."""
    shapes = ctx.integers(0, "shape"), ctx.integers(1, "shape")
    return np.array(np.broadcast_shapes(*shapes), ctx.x().dtype.numpy)
