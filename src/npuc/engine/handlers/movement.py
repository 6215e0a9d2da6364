"""Ops that move integers: views where strides can say it, and copies in the order that memory has already.

Elements of rank 4 are N x H x W x C in memory; copies keep it so, in runs that are as long as they can be.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.engine.handlers import Step, always, handles
from npuc.engine.handlers.layout import inward, memory_order, outward
from npuc.ir import Graph, shape_of, top
from npuc.ir.dtypes import QuantType, quant_of
from npuc.kernels.tape import contiguous, copy, do, empty


def _one(function: Any) -> Step:
    return lambda arrays: [function(arrays[0])]


@handles(top.Reshape, only_integer=True, floats=always, recordable=True)
def reshape(op: top.Reshape, graph: Graph, threads: int) -> Step:
    """The same elements in logical order."""
    shape = op.shape
    return _one(lambda x: _reshaped(x, shape))


def _reshaped(x: Array, shape: tuple[int, ...]) -> Array:
    """A view if strides can say it, or a copy."""
    view = x.view()
    try:
        view.shape = shape
    except AttributeError:
        return contiguous(x).reshape(shape)
    return view


@handles(top.Permute, only_integer=True, floats=always, recordable=True)
def permute(op: top.Permute, graph: Graph, threads: int) -> Step:
    """A view."""
    order = op.order
    return _one(lambda x: np.transpose(x, order))


@handles(top.Expand, only_integer=True, floats=always, recordable=True)
def expand(op: top.Expand, graph: Graph, threads: int) -> Step:
    """A view."""
    shape = op.shape
    return _one(lambda x: np.broadcast_to(x, shape))


@handles(top.Tile, only_integer=True, floats=always, recordable=True)
def tile(op: top.Tile, graph: Graph, threads: int) -> Step:
    """Repeated."""
    repeats, shape = op.repeats, shape_of(op.x)
    split = [size for pair in zip(repeats, shape, strict=True) for size in pair]
    spread = [size for length in shape for size in (1, length)]

    def run(x: Array) -> Array:
        return _reshaped(np.broadcast_to(x.reshape(spread), split), shape_of(op.y))

    return _one(run)


@handles(top.Slice, only_integer=True, floats=always, recordable=True)
def slice_(op: top.Slice, graph: Graph, threads: int) -> Step:
    """A view, with negative steps too."""
    index = []
    for offset, step, count in zip(op.offset, op.steps, op.shape, strict=True):
        stop = offset + count * step
        index.append(slice(offset, stop if stop >= 0 else None, step) if count else slice(0, 0))
    where = tuple(index)
    return _one(lambda x: x[where])


@handles(top.Split, only_integer=True, floats=always, recordable=True)
def split(op: top.Split, graph: Graph, threads: int) -> Step:
    """Views."""
    axis, ends = op.axis, np.cumsum(op.sizes)[:-1]
    return lambda arrays: list(np.split(arrays[0], ends, axis=axis))


@handles(top.Gather, only_integer=True)
def gather(op: top.Gather, graph: Graph, threads: int) -> Step:
    """Slices by indices."""
    axis = op.axis
    return lambda arrays: [np.take(arrays[0], arrays[1], axis=axis)]


@handles(top.Concat, only_integer=True, floats=always, recordable=True)
def concat(op: top.Concat, graph: Graph, threads: int) -> Step:
    """Joined in the memory order of the first operand."""
    axis, shape = op.axis % len(shape_of(op.y)), shape_of(op.y)

    def run(arrays: list[Array]) -> list[Array]:
        order = (0, 2, 3, 1) if len(shape) == 4 else memory_order(arrays[0])
        y = empty([shape[i] for i in order], arrays[0].dtype).transpose(np.argsort(order))
        start = 0
        for x in arrays:
            where = (slice(None),) * axis + (slice(start, start + x.shape[axis]),)
            copy(y[where].transpose(order), x.transpose(order))
            start += x.shape[axis]
        return [y]

    return run


def _code(value: float, kind: QuantType | None) -> float:
    if kind is None:
        return value
    least, most = kind.dtype.limits
    return int(min(max(np.rint(value / kind.scale) + kind.zero_point, least), most))


@handles(top.Pad, only_integer=True, floats=always, recordable=True)
def pad(op: top.Pad, graph: Graph, threads: int) -> Step:
    """A constant border holds the integer that stands for the value; negative pads crop."""
    rank = len(shape_of(op.x))
    kind = quant_of(op.x)
    widths = [(max(op.pads[i], 0), max(op.pads[i + rank], 0)) for i in range(rank)]
    crop = tuple(
        slice(max(-op.pads[i], 0), shape_of(op.x)[i] - max(-op.pads[i + rank], 0)) for i in range(rank)
    )
    mode: Any = op.mode
    border = _code(op.value, kind)
    cropped = [part.stop - part.start for part in crop]
    if mode == "constant":
        inside = tuple(
            slice(before, before + size) for (before, _), size in zip(widths, cropped, strict=True)
        )

        def bordered(x: Array) -> Array:
            order = (0, 2, 3, 1) if rank == 4 else tuple(range(rank))
            y = empty([shape_of(op.y)[i] for i in order], x.dtype).transpose(np.argsort(order))
            do(y.fill, border)
            copy(y[inside].transpose(order), x[crop].transpose(order))
            return y

        return _one(bordered)

    def mirrored(x: Array) -> Array:
        y = empty(shape_of(op.y), x.dtype)
        do(lambda: np.copyto(y, np.pad(x[crop], widths, mode=mode)))
        return y

    return _one(mirrored)


@handles(top.DepthToSpace, only_integer=True, floats=always, recordable=True)
def depth_to_space(op: top.DepthToSpace, graph: Graph, threads: int) -> Step:
    """Channels into pixels."""
    n, c, h, w = shape_of(op.x)
    b, depth = op.block, c // op.block**2
    inner, order = (
        ((n, h, w, b, b, depth), (0, 1, 3, 2, 4, 5))
        if op.mode == "DCR"
        else ((n, h, w, depth, b, b), (0, 1, 4, 2, 5, 3))
    )

    def run(x: Array) -> Array:
        y = empty((n, h * b, w * b, depth), x.dtype)
        copy(y.reshape(n, h, b, w, b, depth), contiguous(inward(x)).reshape(inner).transpose(order))
        return outward(y)

    return _one(run)


@handles(top.SpaceToDepth, only_integer=True, floats=always, recordable=True)
def space_to_depth(op: top.SpaceToDepth, graph: Graph, threads: int) -> Step:
    """Pixels into channels: the pixels of a row of a block lie side by side before and after."""
    n, c, h, w = shape_of(op.x)
    b = op.block

    def run(x: Array) -> Array:
        y = empty((n, h // b, w // b, b * b * c), x.dtype)
        rows = contiguous(inward(x)).reshape(n, h // b, b, w // b, b * c)
        copy(y.reshape(n, h // b, w // b, b, b * c), rows.transpose(0, 1, 3, 2, 4))
        return outward(y)

    return _one(run)


@handles(top.ShuffleChannel, only_integer=True, floats=always, recordable=True)
def shuffle_channel(op: top.ShuffleChannel, graph: Graph, threads: int) -> Step:
    """Channels interleaved: a transposition of groups and their members."""
    shape, group = shape_of(op.x), op.group
    members = shape[1] // group
    if len(shape) != 4:
        split = (shape[0], group, members, *shape[2:])
        return _one(lambda x: _reshaped(_reshaped(x, split).swapaxes(1, 2), shape))

    def run(x: Array) -> Array:
        y = empty((shape[0], *shape[2:], shape[1]), x.dtype)
        grouped = contiguous(inward(x)).reshape(*y.shape[:3], group, members)
        copy(y.reshape(*y.shape[:3], members, group), grouped.swapaxes(3, 4))
        return outward(y)

    return _one(run)


@handles(top.Resize, only_integer=True, floats=lambda op: op.mode == "nearest", recordable=True)
def resize(op: top.Resize, graph: Graph, threads: int) -> Step:
    """Nearest neighbours by an index map for each axis."""
    maps = op.nearest_maps()
    shape = shape_of(op.x)
    where = [(axis, index) for axis, index in enumerate(maps) if index.tolist() != list(range(shape[axis]))]
    memory = (0, 2, 3, 1) if len(shape) == 4 else tuple(range(len(shape)))
    logical = tuple(memory.index(axis) for axis in range(len(shape)))

    def run(arrays: list[Array]) -> list[Array]:
        x = arrays[0].transpose(memory)
        # The inner axes first: there is less to move before the outer ones have grown.
        for axis, index in reversed(where):
            place = memory.index(axis)
            y = empty((*x.shape[:place], index.size, *x.shape[place + 1 :]), x.dtype)
            do(_take, x, index, place, y)
            x = y
        return [x.transpose(logical)]

    return run


def _take(x: Array, index: Array, axis: int, out: Array) -> None:
    np.take(x, index, axis=axis, out=out, mode="clip")
