"""Ops that move elements, on reals and on integers."""

from __future__ import annotations

from typing import Any

import numpy as np
import tflite

from npuc.arithmetic.requantization import round_away
from npuc.export.tflite.emitter import TFLiteEmitter, quantization
from npuc.export.tflite.layout import (
    CHANNELS_LAST,
    arranged,
    channels_last,
    natural,
    through_permute,
    through_reshape,
)
from npuc.export.tflite.model import TFLiteTensor
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import normal_axis
from npuc.ir.dtypes import quant_of


@exports(top.Reshape)
def reshape(op: top.Reshape, emit: TFLiteEmitter) -> None:
    """Without moving elements where the order allows it; not at all before somebody reads it."""
    emit.later(op.y, lambda: _reshaped(op, emit))


def _reshaped(op: top.Reshape, emit: TFLiteEmitter) -> None:
    source, target = shape_of(op.x), shape_of(op.y)
    for order in emit.orders(op.x) if emit.array(op.x) is None else ():
        through = through_reshape(source, target, order)
        if through is not None:
            emit.reshape(emit.tensor(op.x, order), emit.result(op.y, through))
            return
    emit.reshape(emit.tensor(op.x), emit.result(op.y))


@exports(top.Permute)
def permute(op: top.Permute, emit: TFLiteEmitter) -> None:
    """Another view of the same tensor."""
    if emit.array(op.x) is not None:
        emit.hold(op.y, emit.tensor(op.x), through_permute(natural(len(op.order)), op.order))
        return
    for order in emit.orders(op.x):
        emit.hold(op.y, emit.tensor(op.x, order), through_permute(order, op.order))


@exports(top.Concat)
def concat(op: top.Concat, emit: TFLiteEmitter) -> None:
    """In the order that most operands have."""
    rank = len(shape_of(op.y))
    order = emit.common_order(*op.inputs)
    if len(order) != rank:
        order = natural(rank)
    axis = order.index(normal_axis(op.axis, rank))
    if any(quant_of(value) != quant_of(op.y) for value in op.inputs):
        raise NoTFLiteForm("its operands have different scales")
    emit.operator(
        "CONCATENATION",
        [emit.tensor(value, order) for value in op.inputs],
        [emit.result(op.y, order)],
        "ConcatenationOptions",
        Axis=axis,
        FusedActivationFunction=0,
    )


@exports(top.Split)
def split(op: top.Split, emit: TFLiteEmitter) -> None:
    """Parts of any sizes."""
    order = emit.common_order(op.x)
    axis = order.index(normal_axis(op.axis, len(order)))
    emit.operator(
        "SPLIT_V",
        [emit.tensor(op.x, order), emit.integers(op.sizes), emit.constant(np.array(axis, np.int32))],
        [emit.result(part, order) for part in op.parts],
        "SplitVOptions",
        NumSplits=len(op.sizes),
    )


@exports(top.Slice)
def slice_(op: top.Slice, emit: TFLiteEmitter) -> None:
    """STRIDED_SLICE; a negative step whose end lies before the first element is masked."""
    order = emit.common_order(op.x)
    offset, steps, count = (arranged(values, order) for values in (op.offset, op.steps, op.shape))
    source, out = emit.tensor(op.x, order), emit.result(op.y, order)
    if 0 in count:
        raise NoTFLiteForm("its result is empty")
    if set(steps) <= {1}:
        emit.operator("SLICE", [source, emit.integers(offset), emit.integers(count)], [out], "SliceOptions")
        return
    ends = [
        begin + (n - 1) * step + (1 if step > 0 else -1)
        for begin, n, step in zip(offset, count, steps, strict=True)
    ]
    emit.operator(
        "STRIDED_SLICE",
        [source, emit.integers(offset), emit.integers([max(end, 0) for end in ends]), emit.integers(steps)],
        [out],
        "StridedSliceOptions",
        BeginMask=0,
        EndMask=sum(1 << i for i, end in enumerate(ends) if end < 0),
    )


@exports(top.Pad)
def pad(op: top.Pad, emit: TFLiteEmitter) -> None:
    """Zero, a value, or a mirror image; negative pads are cut before."""
    rank = len(shape_of(op.x))
    if rank > 5:
        raise NoTFLiteForm(f"TFLite pads up to 5 axes, not {rank}")
    order = emit.common_order(op.x)
    pairs = [(op.pads[axis], op.pads[axis + rank]) for axis in order]
    source = _cropped(op, emit, emit.tensor(op.x, order), pairs)
    borders = emit.integers([[max(a, 0), max(b, 0)] for a, b in pairs])
    out = emit.result(op.y, order)
    if op.mode == "reflect":
        mode = tflite.MirrorPadMode.REFLECT
        emit.operator("MIRROR_PAD", [source, borders], [out], "MirrorPadOptions", Mode=mode)
    elif op.mode != "constant":
        raise NoTFLiteForm(f"TFLite has no '{op.mode}' padding")
    elif op.value == 0:
        emit.operator("PAD", [source, borders], [out], "PadOptions")
    else:
        emit.operator("PADV2", [source, borders, _border(op, emit)], [out], "PadV2Options")


def _cropped(
    op: top.Pad, emit: TFLiteEmitter, source: TFLiteTensor, pairs: list[tuple[int, int]]
) -> TFLiteTensor:
    if all(min(pair) >= 0 for pair in pairs):
        return source
    offset = [max(-before, 0) for before, _ in pairs]
    count = [
        size - first - max(-after, 0)
        for size, first, (_, after) in zip(source.shape, offset, pairs, strict=True)
    ]
    cropped = emit.like(op.x, count, "cropped")
    emit.operator("SLICE", [source, emit.integers(offset), emit.integers(count)], [cropped], "SliceOptions")
    return cropped


def _border(op: top.Pad, emit: TFLiteEmitter) -> TFLiteTensor:
    kind = quant_of(op.x)
    dtype = dtype_of(op.x.type).numpy
    if kind is None:
        return emit.constant(np.array([op.value], dtype), what="border")
    least, most = kind.dtype.limits
    code = int(np.clip(np.rint(op.value / kind.scale) + kind.zero_point, least, most))
    return emit.constant(np.array([code], dtype), quantization(kind), "border")


@exports(top.Expand)
def expand(op: top.Expand, emit: TFLiteEmitter) -> None:
    """BROADCAST_TO."""
    order = emit.common_order(op.x) if len(shape_of(op.x)) == len(op.shape) else natural(len(op.shape))
    out = emit.result(op.y, order)
    emit.operator(
        "BROADCAST_TO",
        [emit.broadcast(op.x, order), emit.integers(out.shape)],
        [out],
        "BroadcastToOptions",
    )


@exports(top.Tile)
def tile(op: top.Tile, emit: TFLiteEmitter) -> None:
    """TILE."""
    order = emit.common_order(op.x)
    repeats = emit.integers(arranged(op.repeats, order))
    emit.operator("TILE", [emit.tensor(op.x, order), repeats], [emit.result(op.y, order)], "TileOptions")


def take(emit: TFLiteEmitter, source: TFLiteTensor, indices: Any, out: TFLiteTensor, axis: int) -> None:
    """Slices along an axis."""
    emit.operator("GATHER", [source, emit.integers(indices)], [out], "GatherOptions", Axis=axis, BatchDims=0)


@exports(top.DepthToSpace)
def depth_to_space(op: top.DepthToSpace, emit: TFLiteEmitter) -> None:
    """TFLite has the block outermost among the channels; another order is made so first."""
    source = emit.tensor(op.x, CHANNELS_LAST)
    if op.mode == "CRD":
        channels = shape_of(op.x)[1]
        depth = channels // op.block**2
        places = np.arange(channels).reshape(depth, op.block**2).T.reshape(-1)
        reordered = emit.like(op.x, source.shape, "reordered")
        take(emit, source, places, reordered, 3)
        source = reordered
    out = emit.result(op.y, CHANNELS_LAST)
    if out.dtype == "i16":
        n, h, w, c = source.shape
        _swapped(emit, op.x, source, (n * h, w, op.block, c // op.block), out)
    else:
        emit.operator("DEPTH_TO_SPACE", [source], [out], "DepthToSpaceOptions", BlockSize=op.block)


@exports(top.SpaceToDepth)
def space_to_depth(op: top.SpaceToDepth, emit: TFLiteEmitter) -> None:
    """The same layout of channels in both."""
    out = emit.result(op.y, CHANNELS_LAST)
    source = emit.tensor(op.x, CHANNELS_LAST)
    if out.dtype == "i16":
        n, h, w, c = source.shape
        _swapped(emit, op.x, source, (n * h // op.block, op.block, w // op.block, op.block * c), out)
    else:
        emit.operator("SPACE_TO_DEPTH", [source], [out], "SpaceToDepthOptions", BlockSize=op.block)


def _swapped(
    emit: TFLiteEmitter, value: Value, source: TFLiteTensor, parts: tuple[int, ...], out: TFLiteTensor
) -> None:
    """The two middle axes of four change places: what a block is, where an operator does not know the type."""
    first = emit.reshape(source, emit.like(value, parts, "parts"))
    second = emit.like(value, (parts[0], parts[2], parts[1], parts[3]), "swapped")
    emit.operator("TRANSPOSE", [first, emit.integers((0, 2, 1, 3))], [second], "TransposeOptions")
    emit.reshape(second, out)


@exports(top.ShuffleChannel)
def shuffle_channel(op: top.ShuffleChannel, emit: TFLiteEmitter) -> None:
    """Groups and their members change places: a transposition of a matrix a pixel."""
    shape = shape_of(op.x)
    order = channels_last(len(shape)) if len(shape) > 2 else natural(len(shape))
    source = emit.tensor(op.x, order)
    members = shape[1] // op.group
    pixels = int(np.prod(source.shape[:-1]))
    grouped = emit.reshape(source, emit.like(op.x, (pixels, op.group, members), "grouped"))
    swapped = emit.like(op.x, (pixels, members, op.group), "swapped")
    emit.operator("TRANSPOSE", [grouped, emit.integers((0, 2, 1))], [swapped], "TransposeOptions")
    emit.reshape(swapped, emit.result(op.y, order))


def nearest_step(size: int, out: int, align: bool, half: bool) -> list[int]:
    """Which element LiteRT's nearest-neighbour resize takes for each place along an axis, computed in float32."""
    scale = (
        np.float32(size - 1) / np.float32(out - 1)
        if align and out > 1
        else np.float32(size) / np.float32(out)
    )
    offset = np.float32(0.5 if half else 0.0)
    places = (np.arange(out, dtype=np.float32) + offset) * scale
    indices = np.asarray(round_away(places) if align else np.floor(places)).astype(np.int64)
    return [int(i) for i in np.clip(np.minimum(indices, size - 1), 0 if half else None, None)]
