"""Ops that move elements."""

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import shape_of, top


@exports(top.Reshape)
def reshape(op: top.Reshape, emit: Emitter) -> None:
    """Reshape; a size of zero means zero."""
    emit("Reshape", op.x, emit.ints(*op.shape), to=op.y, allowzero=1 if 0 in op.shape else None)


@exports(top.Permute)
def permute(op: top.Permute, emit: Emitter) -> None:
    """Transpose."""
    emit("Transpose", op.x, to=op.y, perm=op.order or None)


@exports(top.Concat)
def concat(op: top.Concat, emit: Emitter) -> None:
    """Concat."""
    emit("Concat", *op.inputs, to=op.y, axis=op.axis)


@exports(top.Split)
def split(op: top.Split, emit: Emitter) -> None:
    """Split by explicit sizes."""
    if op.parts:
        emit.node(
            "Split", [op.x, emit.ints(*op.sizes)], [emit.name(part) for part in op.parts], {"axis": op.axis}
        )


@exports(top.Slice)
def slice_(op: top.Slice, emit: Emitter) -> None:
    """Slice over the axes that it changes."""
    starts, ends, axes, steps = [], [], [], []
    for axis, (size, begin, step, count) in enumerate(
        zip(shape_of(op.x), op.offset, op.steps, op.shape, strict=True)
    ):
        if (begin, step, count) == (0, 1, size):
            continue
        end = begin + count * step
        if count == 0:
            begin, end, step = 0, 0, 1
        elif end < 0:
            # A backward slice that reaches element 0; -1 would mean the last one.
            end = np.iinfo(np.int64).min
        starts.append(begin)
        ends.append(end)
        axes.append(axis)
        steps.append(step)
    if not axes:
        emit("Identity", op.x, to=op.y)
        return
    vectors = [emit.ints(*values) for values in (starts, ends, axes)]
    emit("Slice", op.x, *vectors, emit.ints(*steps) if any(step != 1 for step in steps) else None, to=op.y)


@exports(top.Pad)
def pad(op: top.Pad, emit: Emitter) -> None:
    """Pad; the constant has the element type of x."""
    if not op.pads:
        emit("Identity", op.x, to=op.y)
        return
    value = emit.scalar(op.value, op.x) if op.mode == "constant" and op.value else None
    emit("Pad", op.x, emit.ints(*op.pads), value, to=op.y, mode=op.mode)


@exports(top.Expand)
def expand(op: top.Expand, emit: Emitter) -> None:
    """Expand."""
    emit("Expand", op.x, emit.ints(*op.shape), to=op.y)


@exports(top.Tile)
def tile(op: top.Tile, emit: Emitter) -> None:
    """Tile."""
    emit("Tile", op.x, emit.ints(*op.repeats), to=op.y)


@exports(top.DepthToSpace)
def depth_to_space(op: top.DepthToSpace, emit: Emitter) -> None:
    """DepthToSpace."""
    emit("DepthToSpace", op.x, to=op.y, blocksize=op.block, mode=op.mode)


@exports(top.SpaceToDepth)
def space_to_depth(op: top.SpaceToDepth, emit: Emitter) -> None:
    """SpaceToDepth."""
    emit("SpaceToDepth", op.x, to=op.y, blocksize=op.block)


@exports(top.ShuffleChannel)
def shuffle_channel(op: top.ShuffleChannel, emit: Emitter) -> None:
    """Channels as a matrix of groups, transposed."""
    n, c, *spatial = shape_of(op.x)
    split_shape = emit.ints(n, op.group, c // op.group, *spatial)
    zero = 1 if 0 in shape_of(op.x) else None
    grouped = emit("Reshape", op.x, split_shape, allowzero=zero)
    swapped = emit("Transpose", grouped, perm=(0, 2, 1, *range(3, 3 + len(spatial))))
    emit("Reshape", swapped, emit.ints(n, c, *spatial), to=op.y, allowzero=zero)
