"""Operators that move elements. They move the integers of quantized tensors as they are, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.indexing import index_spans
from npuc.frontend.layout import LayoutTensor, arranged, axis_in, to_last, to_second
from npuc.frontend.tflite.activation import activated
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.schema import MirrorPadMode
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import broadcast, normal_axis


def reshaped(ctx: TfliteContext, index: int, shape: Sequence[int]) -> Value:
    """Input `index` under another shape."""
    return ctx.emit(top.Reshape, ctx.value(index), shape=tuple(shape)).y


@rule("RESHAPE")
def reshape(ctx: TfliteContext) -> Outcome:
    """The shape is an input or an option; -1 is what is left."""
    options = ctx.options("ReshapeOptions")
    array = ctx.array(1) if ctx.has(1) else None
    if array is not None and array.ndim == 1 and array.dtype.kind == "i":
        shape = ctx.integers(1, "shape")
    elif options is not None and (options.integers("NewShape") or not ctx.has(1)):
        shape = options.integers("NewShape")
    else:
        shape = ctx.integers(1, "shape")
    size = prod(ctx.shape(0))
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise InvalidModelError(f"{ctx.label}: the shape {list(shape)} is not valid")
    if -1 in shape:
        rest = -prod(shape)
        if rest == 0 or size % rest:
            raise InvalidModelError(f"{ctx.label}: {size} elements do not fit the shape {list(shape)}")
        shape = tuple(size // rest if n == -1 else n for n in shape)
    return reshaped(ctx, 0, shape)


@rule("SQUEEZE")
def squeeze(ctx: TfliteContext) -> Outcome:
    """Axes of size 1 removed: those given, or all."""
    options = ctx.options("SqueezeOptions")
    shape = ctx.shape(0)
    axes = options.integers("SqueezeDims") if options is not None else ()
    gone = {normal_axis(axis, len(shape)) for axis in axes} or {i for i, n in enumerate(shape) if n == 1}
    if any(shape[axis] != 1 for axis in gone):
        raise InvalidModelError(f"{ctx.label}: an axis of {sorted(gone)} of shape {list(shape)} is not 1")
    return reshaped(ctx, 0, [n for axis, n in enumerate(shape) if axis not in gone])


@rule("EXPAND_DIMS")
def expand_dims(ctx: TfliteContext) -> Outcome:
    """An axis of size 1 added."""
    shape = list(ctx.shape(0))
    (axis,) = ctx.integers(1, "axis")
    shape.insert(normal_axis(axis, len(shape) + 1), 1)
    return reshaped(ctx, 0, shape)


@rule("TRANSPOSE")
def transpose(ctx: TfliteContext) -> Outcome:
    """Axes reordered; a turn between the two layouts is none at all."""
    order = ctx.integers(1, "order")
    if ctx.turned(0) and order == to_second(4):
        return LayoutTensor(ctx.value(0, nchw=True))
    if not ctx.turned(0) and order == to_last(4) and ctx.rank(0) == 4:
        return LayoutTensor(ctx.value(0), True)
    return ctx.emit(top.Permute, ctx.value(0), order=order).y


@rule("CONCATENATION")
def concatenation(ctx: TfliteContext) -> Outcome:
    """Tensors end to end; where their scales differ from the result's, as reals."""
    options = ctx.needed("ConcatenationOptions")
    rank = ctx.rank(0)
    axis = normal_axis(int(options.number("Axis")), rank)
    nchw = ctx.turned() and rank == 4
    count = range(len(ctx.op.inputs))
    types = [ctx.tensor(i) for i in count] + [ctx.output()]
    # Constants among quantized operands are better known as reals: their integers are kept behind those.
    mixed = ctx.is_integer and any(ctx.weight(i) is not None for i in count)
    same = not mixed and len({_parameters(tensor) for tensor in types}) == 1
    values = [ctx.value(i, nchw) if same else ctx.real(i, nchw) for i in count]
    y = ctx.emit(top.Concat, values, axis=axis_in(axis, nchw)).y
    return LayoutTensor(activated(ctx, y, options), nchw)


def _parameters(tensor: Any) -> tuple[Any, ...]:
    given = tensor.quantization if tensor.is_quantized else None
    if given is None:
        return (tensor.type_name,)
    return (tensor.type_name, given.scale.tobytes(), given.zero_point.tobytes())


@rule("SPLIT")
def split(ctx: TfliteContext) -> list[Outcome]:
    """axis, x: equal parts."""
    count = int(ctx.needed("SplitOptions").number("NumSplits"))
    shape = ctx.shape(1)
    axis = normal_axis(ctx.integers(0, "axis")[0], len(shape))
    if count < 1 or count != len(ctx.op.outputs) or shape[axis] % count:
        raise InvalidModelError(f"{ctx.label}: {count} equal parts of axis {axis} of {list(shape)}")
    return _parts(ctx, 1, axis, (shape[axis] // count,) * count)


@rule("SPLIT_V")
def split_v(ctx: TfliteContext) -> list[Outcome]:
    """x, sizes, axis; a size of -1 is what is left."""
    shape = ctx.shape(0)
    axis = normal_axis(ctx.integers(2, "axis")[0], len(shape))
    sizes = ctx.integers(1, "sizes")
    if sizes.count(-1) == 1:
        sizes = tuple(shape[axis] - sum(sizes) - 1 if n == -1 else n for n in sizes)
    if min(sizes, default=-1) < 0:
        raise InvalidModelError(f"{ctx.label}: parts of {list(sizes)}")
    return _parts(ctx, 0, axis, sizes)


def _parts(ctx: TfliteContext, index: int, axis: int, sizes: tuple[int, ...]) -> list[Outcome]:
    nchw = ctx.turned(index)
    op = ctx.emit(top.Split, ctx.value(index, nchw), axis=axis_in(axis, nchw), sizes=sizes)
    return [LayoutTensor(value, nchw) for value in op.results]


@rule("PACK")
def pack(ctx: TfliteContext) -> Outcome:
    """Tensors of one shape stacked along a new axis."""
    shape = list(ctx.shape(0))
    axis = normal_axis(int(ctx.needed("PackOptions").number("Axis")), len(shape) + 1)
    shape.insert(axis, 1)
    values = [reshaped(ctx, index, shape) for index in range(len(ctx.op.inputs))]
    return ctx.emit(top.Concat, values, axis=axis).y


@rule("UNPACK")
def unpack(ctx: TfliteContext) -> list[Outcome]:
    """The entries of an axis, each without it."""
    shape = ctx.shape(0)
    axis = normal_axis(int(ctx.needed("UnpackOptions").number("Axis")), len(shape))
    if shape[axis] != len(ctx.op.outputs):
        raise InvalidModelError(f"{ctx.label}: {len(ctx.op.outputs)} results of an axis of {shape[axis]}")
    parts = ctx.emit(top.Split, ctx.value(0), axis=axis, sizes=(1,) * shape[axis]).results
    rest = shape[:axis] + shape[axis + 1 :]
    return [ctx.emit(top.Reshape, part, shape=rest).y for part in parts]


@rule("SLICE")
def slice_(ctx: TfliteContext) -> Outcome:
    """x, begins, sizes; a size of -1 is all that follows."""
    shape = ctx.shape(0)
    begins, sizes = ctx.integers(1, "begin"), ctx.integers(2, "size")
    if not len(begins) == len(sizes) == len(shape):
        raise InvalidModelError(
            f"{ctx.label}: {len(begins)} begins and {len(sizes)} sizes for rank {len(shape)}"
        )
    counts = [n - b if s == -1 else s for n, b, s in zip(shape, begins, sizes, strict=True)]
    return _sliced(ctx, begins, (1,) * len(shape), counts)


def _sliced(
    ctx: TfliteContext, begins: Sequence[int], steps: Sequence[int], counts: Sequence[int]
) -> LayoutTensor:
    nchw = ctx.turned(0)
    y = ctx.emit(
        top.Slice,
        ctx.value(0, nchw),
        offset=arranged(begins, nchw),
        steps=arranged(steps, nchw),
        shape=arranged(counts, nchw),
    ).y
    return LayoutTensor(y, nchw)


_MASKS = ("BeginMask", "EndMask", "EllipsisMask", "NewAxisMask", "ShrinkAxisMask")


@rule("STRIDED_SLICE")
def strided_slice(ctx: TfliteContext) -> Outcome:
    """x, begins, ends, steps, with the masks of Python's slices."""
    options = ctx.needed("StridedSliceOptions")
    shape = ctx.shape(0)
    given = [ctx.integers(i, what) for i, what in ((1, "begin"), (2, "end"), (3, "strides"))]
    mask = {name: int(options.number(name)) for name in _MASKS}
    if len({len(entries) for entries in given}) != 1:
        raise InvalidModelError(f"{ctx.label}: begins, ends and strides differ in number")
    entries: list[Any] = []
    for position, (begin, end, step) in enumerate(zip(*given, strict=True)):
        bit = 1 << position
        if mask["EllipsisMask"] & bit:
            entries.append(Ellipsis)
        elif mask["NewAxisMask"] & bit:
            entries.append(None)
        elif mask["ShrinkAxisMask"] & bit:
            entries.append(begin)
        else:
            offset = options.number("Offset")
            stop = begin + end if offset else end
            entries.append(
                slice(
                    None if mask["BeginMask"] & bit else begin, None if mask["EndMask"] & bit else stop, step
                )
            )
    begins, steps, counts, result = index_spans(ctx.label, shape, entries)
    sliced = _sliced(ctx, begins, steps, counts)
    if result == counts:
        return sliced
    ((nchw, value),) = sliced.values.items()
    if nchw:
        value = ctx.emit(top.Permute, value, order=to_last(4)).y
    return ctx.emit(top.Reshape, value, shape=tuple(result)).y


@rule("TILE")
def tile(ctx: TfliteContext) -> Outcome:
    """Repeats an axis."""
    nchw = ctx.turned(0)
    repeats = ctx.integers(1, "multiples")
    if len(repeats) != ctx.rank(0):
        raise InvalidModelError(f"{ctx.label}: {len(repeats)} multiples for rank {ctx.rank(0)}")
    return LayoutTensor(ctx.emit(top.Tile, ctx.value(0, nchw), repeats=arranged(repeats, nchw)).y, nchw)


@rule("BROADCAST_TO")
def broadcast_to(ctx: TfliteContext) -> Outcome:
    """x under a larger shape."""
    shape = ctx.integers(1, "shape")
    if broadcast(ctx.shape(0), shape) != tuple(shape):
        raise InvalidModelError(f"{ctx.label}: {list(ctx.shape(0))} does not broadcast to {list(shape)}")
    return ctx.emit(top.Expand, ctx.value(0), shape=shape).y


@rule("REVERSE_V2")
def reverse(ctx: TfliteContext) -> Outcome:
    """Some axes backwards."""
    shape = ctx.shape(0)
    axes = {normal_axis(axis, len(shape)) for axis in ctx.integers(1, "axes")}
    begins = [max(n - 1, 0) if axis in axes else 0 for axis, n in enumerate(shape)]
    return _sliced(ctx, begins, [-1 if axis in axes else 1 for axis in range(len(shape))], shape)


def _pads(ctx: TfliteContext) -> tuple[list[int], list[int]]:
    rank = ctx.rank(0)
    table = ctx.known(1, "padding")
    if table.shape != (rank, 2) or table.dtype.kind != "i" or (table.size and table.min() < 0):
        raise InvalidModelError(f"{ctx.label}: its padding is not {rank} pairs")
    return [int(n) for n in table[:, 0]], [int(n) for n in table[:, 1]]


def padded(ctx: TfliteContext, begins: Sequence[int], ends: Sequence[int], **properties: Any) -> LayoutTensor:
    """Input 0 with a border, quantized as it was."""
    nchw = ctx.turned(0)
    pads = (*arranged(begins, nchw), *arranged(ends, nchw))
    return LayoutTensor(ctx.as_input(ctx.emit(top.Pad, ctx.real(0, nchw), pads=pads, **properties).y), nchw)


@rule("PAD")
def pad(ctx: TfliteContext) -> Outcome:
    """A border of zeros."""
    return padded(ctx, *_pads(ctx))


@rule("PADV2")
def pad_v2(ctx: TfliteContext) -> Outcome:
    """A border of a given value."""
    if ctx.known(2, "pad value").size != 1:
        raise InvalidModelError(f"{ctx.label}: its pad value is not one number")
    real = ctx.real_array(2)
    assert real is not None
    return padded(ctx, *_pads(ctx), value=float(real.reshape(())))


@rule("MIRROR_PAD")
def mirror_pad(ctx: TfliteContext) -> Outcome:
    """A border that mirrors what is inside, without (reflect) or with (symmetric) the edge."""
    begins, ends = _pads(ctx)
    if ctx.needed("MirrorPadOptions").number("Mode") == MirrorPadMode.REFLECT:
        return padded(ctx, begins, ends, mode="reflect")
    value = ctx.value(0)
    for axis, (before, after) in enumerate(zip(begins, ends, strict=True)):
        size = ctx.shape(0)[axis]
        if max(before, after) > size:
            raise InvalidModelError(f"{ctx.label}: a border of {max(before, after)} for an axis of {size}")
        sides = [
            _mirrored(ctx, value, axis, before - 1, before),
            value,
            _mirrored(ctx, value, axis, size - 1, after),
        ]
        parts = [part for part in sides if part is not None]
        if len(parts) > 1:
            value = ctx.emit(top.Concat, parts, axis=axis).y
    return value


def _mirrored(ctx: TfliteContext, value: Value, axis: int, first: int, count: int) -> Value | None:
    """`count` entries of an axis, from `first` backwards."""
    if not count:
        return None
    shape = shape_of(value)
    offset = [first if i == axis else 0 for i in range(len(shape))]
    steps = [-1 if i == axis else 1 for i in range(len(shape))]
    counts = [count if i == axis else n for i, n in enumerate(shape)]
    return ctx.emit(top.Slice, value, offset=offset, steps=steps, shape=counts).y


@rule("SPACE_TO_DEPTH")
def space_to_depth(ctx: TfliteContext) -> Outcome:
    """Blocks of pixels into channels."""
    block = int(ctx.needed("SpaceToDepthOptions").number("BlockSize"))
    return LayoutTensor(ctx.emit(top.SpaceToDepth, ctx.value(0, nchw=True), block=block).y, True)


@rule("DEPTH_TO_SPACE")
def depth_to_space(ctx: TfliteContext) -> Outcome:
    """Channels into blocks of pixels."""
    block = int(ctx.needed("DepthToSpaceOptions").number("BlockSize"))
    return LayoutTensor(ctx.emit(top.DepthToSpace, ctx.value(0, nchw=True), block=block, mode="DCR").y, True)


@rule("SPACE_TO_BATCH_ND")
def space_to_batch(ctx: TfliteContext) -> Outcome:
    """Pixels of every block position become images of their own."""
    blocks = ctx.integers(1, "blocks")
    table = ctx.known(2, "padding")
    rank = ctx.rank(0)
    spatial = len(blocks)
    if table.shape != (spatial, 2) or rank < spatial + 1 or min(blocks, default=0) < 1 or table.min() < 0:
        raise InvalidModelError(f"{ctx.label}: its blocks and padding do not fit rank {rank}")
    rest = [0] * (rank - spatial - 1)
    value = ctx.value(0)
    if table.any():
        pads = (0, *table[:, 0].tolist(), *rest, 0, *table[:, 1].tolist(), *rest)
        value = ctx.as_input(ctx.emit(top.Pad, ctx.real(0), pads=pads).y)
    shape = shape_of(value)
    if any(n % b for n, b in zip(shape[1:], blocks, strict=False)):
        raise InvalidModelError(f"{ctx.label}: {list(shape)} in blocks of {list(blocks)}")
    inner = [n for size, b in zip(shape[1:], blocks, strict=False) for n in (size // b, b)]
    tail = shape[spatial + 1 :]
    value = ctx.emit(top.Reshape, value, shape=(shape[0], *inner, *tail)).y
    places, cells = range(2, 2 * spatial + 1, 2), range(1, 2 * spatial, 2)
    order = (*places, 0, *cells, *range(2 * spatial + 1, 2 * spatial + 1 + len(tail)))
    value = ctx.emit(top.Permute, value, order=order).y
    return ctx.emit(top.Reshape, value, shape=(shape[0] * prod(blocks), *inner[::2], *tail)).y


@rule("BATCH_TO_SPACE_ND")
def batch_to_space(ctx: TfliteContext) -> Outcome:
    """The reverse, with a crop."""
    blocks = ctx.integers(1, "blocks")
    table = ctx.known(2, "crops")
    shape = ctx.shape(0)
    spatial = len(blocks)
    if table.shape != (spatial, 2) or len(shape) < spatial + 1 or min(blocks, default=0) < 1:
        raise InvalidModelError(f"{ctx.label}: its blocks and crops do not fit rank {len(shape)}")
    if shape[0] % prod(blocks) or table.min() < 0:
        raise InvalidModelError(f"{ctx.label}: a batch of {shape[0]} in blocks of {list(blocks)}")
    batch, tail = shape[0] // prod(blocks), shape[spatial + 1 :]
    value = reshaped(ctx, 0, (*blocks, batch, *shape[1:]))
    pairs = [axis for i in range(spatial) for axis in (spatial + 1 + i, i)]
    order = (spatial, *pairs, *range(2 * spatial + 1, 2 * spatial + 1 + len(tail)))
    value = ctx.emit(top.Permute, value, order=order).y
    whole = (batch, *(n * b for n, b in zip(shape[1:], blocks, strict=False)), *tail)
    value = ctx.emit(top.Reshape, value, shape=whole).y
    if not table.any():
        return value
    offset = (0, *table[:, 0].tolist(), *(0,) * len(tail))
    counts = (batch, *(n - int(c.sum()) for n, c in zip(whole[1:], table, strict=False)), *tail)
    return ctx.emit(top.Slice, value, offset=offset, steps=(1,) * len(whole), shape=counts).y


@rule("GATHER")
def gather(ctx: TfliteContext) -> Outcome:
    """Slices of x along an axis, chosen by indices."""
    options = ctx.options("GatherOptions")
    axis = normal_axis(int(options.number("Axis")) if options else 0, ctx.rank(0))
    if options is not None and options.number("BatchDims"):
        raise ctx.refuse("it has batch dimensions")
    return ctx.as_input(ctx.emit(top.Gather, ctx.real(0), ctx.value(1), axis=axis).y)


@rule("EMBEDDING_LOOKUP")
def embedding_lookup(ctx: TfliteContext) -> Outcome:
    """ids, table: rows of the table."""
    return ctx.as_input(ctx.emit(top.Gather, ctx.real(1), ctx.value(0), axis=0).y, 1)


@rule("GATHER_ND")
def gather_nd(ctx: TfliteContext) -> Outcome:
    """Slices of x chosen by index tuples."""
    return ctx.as_input(ctx.emit(top.GatherND, ctx.real(0), _wide(ctx, 1)).y)


@rule("SCATTER_ND")
def scatter_nd(ctx: TfliteContext) -> Outcome:
    """indices, updates, shape: zeros with the updates added at their places."""
    shape = ctx.integers(2, "shape")
    updates = ctx.real(1)
    if min(shape, default=0) < 0 or prod(shape) > 1 << 24:
        raise ctx.refuse(f"its result has the shape {list(shape)}")
    zeros = ctx.literal(np.zeros(shape, dtype_of(updates.type).numpy), "zeros")
    return ctx.emit(top.ScatterND, zeros, _wide(ctx, 0), updates, reduction="add").y


def _wide(ctx: TfliteContext, index: int) -> Value:
    value = ctx.value(index)
    return value if dtype_of(value.type).name == "i64" else ctx.emit(top.Cast, value, to="i64").y
