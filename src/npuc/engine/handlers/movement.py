"""Ops that move integers: NumPy moves bytes as well as anyone."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.engine.handlers import Array, Step, handles
from npuc.ir import Graph, shape_of, top
from npuc.ir.dtypes import QuantType, quant_of


def _one(function: Any) -> Step:
    return lambda arrays: [function(arrays[0])]


@handles(top.Reshape, only_integer=True)
def reshape(op: top.Reshape, graph: Graph, threads: int) -> Step:
    """The same elements in logical order."""
    shape = op.shape
    return _one(lambda x: np.reshape(x, shape))


@handles(top.Permute, only_integer=True)
def permute(op: top.Permute, graph: Graph, threads: int) -> Step:
    """A view."""
    order = op.order
    return _one(lambda x: np.transpose(x, order))


@handles(top.Expand, only_integer=True)
def expand(op: top.Expand, graph: Graph, threads: int) -> Step:
    """A view."""
    shape = op.shape
    return _one(lambda x: np.broadcast_to(x, shape))


@handles(top.Tile, only_integer=True)
def tile(op: top.Tile, graph: Graph, threads: int) -> Step:
    """Repeated."""
    repeats = op.repeats
    return _one(lambda x: np.tile(x, repeats))


@handles(top.Slice, only_integer=True)
def slice_(op: top.Slice, graph: Graph, threads: int) -> Step:
    """A view, with negative steps too."""
    index = []
    for offset, step, count in zip(op.offset, op.steps, op.shape, strict=True):
        stop = offset + count * step
        index.append(slice(offset, stop if stop >= 0 else None, step) if count else slice(0, 0))
    where = tuple(index)
    return _one(lambda x: x[where])


@handles(top.Split, only_integer=True)
def split(op: top.Split, graph: Graph, threads: int) -> Step:
    """Views."""
    axis, ends = op.axis, np.cumsum(op.sizes)[:-1]
    return lambda arrays: list(np.split(arrays[0], ends, axis=axis))


@handles(top.Concat, only_integer=True)
def concat(op: top.Concat, graph: Graph, threads: int) -> Step:
    """Joined in memory order: channels innermost for rank 4."""
    axis, rank = op.axis % len(shape_of(op.y)), len(shape_of(op.y))
    if rank != 4:
        return lambda arrays: [np.concatenate(arrays, axis=axis)]
    inner = (0, 2, 3, 1).index(axis)

    def run(arrays: list[Array]) -> list[Array]:
        joined = np.concatenate([x.transpose(0, 2, 3, 1) for x in arrays], axis=inner)
        return [joined.transpose(0, 3, 1, 2)]

    return run


def _code(value: float, kind: QuantType) -> int:
    least, most = kind.dtype.limits
    return int(min(max(np.rint(value / kind.scale) + kind.zero_point, least), most))


@handles(top.Pad, only_integer=True)
def pad(op: top.Pad, graph: Graph, threads: int) -> Step:
    """A constant border holds the integer that stands for the value; negative pads crop."""
    rank = len(shape_of(op.x))
    kind = quant_of(op.x)
    assert kind is not None
    widths = [(max(op.pads[i], 0), max(op.pads[i + rank], 0)) for i in range(rank)]
    crop = tuple(
        slice(max(-op.pads[i], 0), shape_of(op.x)[i] - max(-op.pads[i + rank], 0)) for i in range(rank)
    )
    mode: Any = op.mode
    extra = {"constant_values": _code(op.value, kind)} if mode == "constant" else {}
    return _one(lambda x: np.pad(x[crop], widths, mode=mode, **extra))


@handles(top.DepthToSpace, only_integer=True)
def depth_to_space(op: top.DepthToSpace, graph: Graph, threads: int) -> Step:
    """Channels into pixels."""
    n, c, h, w = shape_of(op.x)
    b, out = op.block, shape_of(op.y)
    if op.mode == "DCR":
        inner, order = (n, b, b, c // b**2, h, w), (0, 3, 4, 1, 5, 2)
    else:
        inner, order = (n, c // b**2, b, b, h, w), (0, 1, 4, 2, 5, 3)
    return _one(lambda x: x.reshape(inner).transpose(order).reshape(out))


@handles(top.SpaceToDepth, only_integer=True)
def space_to_depth(op: top.SpaceToDepth, graph: Graph, threads: int) -> Step:
    """Pixels into channels."""
    n, c, h, w = shape_of(op.x)
    b, out = op.block, shape_of(op.y)
    inner = (n, c, h // b, b, w // b, b)
    return _one(lambda x: x.reshape(inner).transpose(0, 3, 5, 1, 2, 4).reshape(out))


@handles(top.ShuffleChannel, only_integer=True)
def shuffle_channel(op: top.ShuffleChannel, graph: Graph, threads: int) -> Step:
    """Channels interleaved, in memory order for rank 4."""
    channels, group = shape_of(op.x)[1], op.group
    order = np.arange(channels).reshape(group, channels // group).T.reshape(-1)
    if len(shape_of(op.x)) != 4:
        return _one(lambda x: x[:, order])
    return _one(lambda x: x.transpose(0, 2, 3, 1)[..., order].transpose(0, 3, 1, 2))


@handles(top.Resize, only_integer=True)
def resize(op: top.Resize, graph: Graph, threads: int) -> Step:
    """Nearest neighbours by an index map for each axis."""
    maps = nearest_maps(op)
    shape = shape_of(op.x)
    where = [(axis, index) for axis, index in enumerate(maps) if index.tolist() != list(range(shape[axis]))]
    memory = (0, 2, 3, 1) if len(shape) == 4 else tuple(range(len(shape)))
    logical = tuple(memory.index(axis) for axis in range(len(shape)))

    def run(arrays: list[Array]) -> list[Array]:
        x = arrays[0].transpose(memory)
        for axis, index in where:
            x = np.take(x, index, axis=memory.index(axis))
        return [x.transpose(logical)]

    return run


def nearest_maps(op: top.Resize) -> list[Array]:
    """For each axis, the index in x of each element of the result, as ONNX defines it."""
    maps = []
    for axis, (size, out) in enumerate(zip(shape_of(op.x), op.sizes, strict=True)):
        scale = np.float64(op.scales[axis]) if op.scales else np.float64(out) / size
        y = np.arange(out, dtype=np.float64)
        match op.coordinates:
            case "asymmetric":
                x = y / scale
            case "align_corners":
                x = y * (size - 1) / (out - 1) if out > 1 else np.zeros(out)
            case "pytorch_half_pixel":
                x = (y + 0.5) / scale - 0.5 if out > 1 else np.zeros(out)
            case "tf_half_pixel_for_nn":
                x = (y + 0.5) / scale
            case "half_pixel_symmetric":
                adjust = out / (scale * size)
                x = size / 2 * (1 - adjust) + (y + 0.5) / scale - 0.5
            case _:
                x = (y + 0.5) / scale - 0.5
        match op.rounding:
            case "floor":
                index = np.floor(x)
            case "ceil":
                index = np.ceil(x)
            case "round_prefer_ceil":
                index = np.floor(x + 0.5)
            case _:
                index = np.ceil(x - 0.5)
        maps.append(np.clip(index, 0, size - 1).astype(np.int64))
    return maps
