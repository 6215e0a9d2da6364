"""Ops that move elements."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, shape_of, top


def sliced(ctx: TorchContext, x: Value, axis: int, begin: int, count: int, step: int = 1) -> Value:
    """Some entries along an axis."""
    shape = list(shape_of(x))
    if begin == 0 and count == shape[axis] and step == 1:
        return x
    offset, steps = [0] * len(shape), [1] * len(shape)
    offset[axis], steps[axis], shape[axis] = begin if count else 0, step, count
    return ctx.emit(top.Slice, x, offset=offset, steps=steps, shape=shape).y


@rule(
    "aten.view", "aten.reshape", "aten._unsafe_view", "aten.unsqueeze", "aten.squeeze", "aten.flatten", "aten.unflatten",
    "aten.view_as", "aten.reshape_as", "aten.view_copy", "aten.unsqueeze_copy", "aten.squeeze_copy",
)  # fmt: skip
def reshape(ctx: TorchContext) -> Outcome:
    """Another shape."""
    if ctx.result_dtype != ctx.dtype("self"):
        raise NoTopForm("it reads the bytes as another type")
    return ctx.reshape(ctx.value("self"), ctx.result_shape)


@rule("aten.permute", "aten.permute_copy")
def permute(ctx: TorchContext) -> Outcome:
    """Axes reordered."""
    rank = ctx.rank("self")
    return ctx.permute(ctx.value("self"), [axis % rank for axis in ctx.ints("dims")])


def _swapped(ctx: TorchContext, a: int, b: int) -> Value:
    order = list(range(ctx.rank("self")))
    if order:
        order[a], order[b] = order[b], order[a]
    return ctx.permute(ctx.value("self"), order)


@rule("aten.transpose", "aten.swapaxes", "aten.transpose_copy")
def transpose(ctx: TorchContext) -> Outcome:
    """Two axes swapped."""
    names = ("dim0", "dim1") if "dim0" in ctx.args else ("axis0", "axis1")
    return _swapped(ctx, ctx.integer(names[0]), ctx.integer(names[1]))


@rule("aten.t", "aten.mT", "aten.numpy_T", "aten.t_copy")
def transposed(ctx: TorchContext) -> Outcome:
    """The last two axes swapped."""
    return _swapped(ctx, -1, -2) if ctx.rank("self") >= 2 else ctx.value("self")


@rule("aten.movedim")
def movedim(ctx: TorchContext) -> Outcome:
    """Axes moved to other places."""
    rank = ctx.rank("self")
    source = [axis % rank for axis in ctx.ints("source")]
    target = [axis % rank for axis in ctx.ints("destination")]
    rest = iter(axis for axis in range(rank) if axis not in source)
    placed = dict(zip(target, source, strict=True))
    return ctx.permute(ctx.value("self"), [placed[i] if i in placed else next(rest) for i in range(rank)])


@rule("aten.expand", "aten.expand_as", "aten.broadcast_to", "aten.expand_copy")
def expand(ctx: TorchContext) -> Outcome:
    """Broadcast."""
    x, shape = ctx.value("self"), ctx.result_shape
    return x if shape_of(x) == shape else ctx.emit(top.Expand, x, shape=shape).y


@rule("aten.repeat", "aten.tile")
def repeat(ctx: TorchContext) -> Outcome:
    """The whole tensor again and again."""
    x = ctx.value("self")
    times = ctx.ints("repeats" if "repeats" in ctx.args else "dims")
    rank = max(len(times), len(shape_of(x)))
    times = (*(1,) * (rank - len(times)), *times)
    x = ctx.reshape(x, (*(1,) * (rank - len(shape_of(x))), *shape_of(x)))
    return ctx.emit(top.Tile, x, repeats=times).y


@rule("aten.repeat_interleave", limits="a fixed number of repeats")
def repeat_interleave(ctx: TorchContext) -> Outcome:
    """Every entry again and again."""
    if not isinstance(ctx.args.get("repeats"), int) or not ctx.has("dim"):
        raise NoTopForm("its repeats are a tensor")
    x, count = ctx.value("self"), ctx.integer("repeats")
    shape = shape_of(x)
    axis = ctx.axis("dim", len(shape)) + 1
    wide = ctx.reshape(x, (*shape[:axis], 1, *shape[axis:]))
    wide = ctx.emit(top.Expand, wide, shape=(*shape[:axis], count, *shape[axis:])).y
    return ctx.reshape(wide, ctx.result_shape)


@rule("aten.cat", "aten.concat", "aten.concatenate")
def cat(ctx: TorchContext) -> Outcome:
    """End to end; empty tensors of rank 1 do not count."""
    given = [item for item in ctx.args["tensors"] if 0 not in ctx.shape(item)]
    if not given:
        raise NoTopForm("all of its operands are empty")
    parts = [ctx.value(item, ctx.result_dtype) for item in given]
    axis = ctx.axis("dim", len(shape_of(parts[0])))
    return parts[0] if len(parts) == 1 else ctx.emit(top.Concat, parts, axis=axis).y


@rule("aten.stack")
def stack(ctx: TorchContext) -> Outcome:
    """Along a new axis."""
    parts = ctx.values("tensors", ctx.result_dtype)
    shape = shape_of(parts[0])
    axis = ctx.axis("dim", len(shape) + 1)
    wide = [ctx.reshape(part, (*shape[:axis], 1, *shape[axis:])) for part in parts]
    return wide[0] if len(wide) == 1 else ctx.emit(top.Concat, wide, axis=axis).y


@rule(
    "aten.split", "aten.split_with_sizes", "aten.chunk", "aten.tensor_split", "aten.split_copy",
    "aten.split_with_sizes_copy", "aten.unsafe_split", "aten.unsafe_chunk",
)  # fmt: skip
def split(ctx: TorchContext) -> Sequence[Outcome]:
    """Pieces along an axis."""
    x = ctx.value("self")
    axis = ctx.axis("dim", len(shape_of(x)))
    sizes = [int(part.shape[axis]) for part in ctx.result]
    if len(sizes) == 1:
        return [x]
    return list(ctx.emit(top.Split, x, axis=axis, sizes=sizes).parts)


@rule("aten.unbind", "aten.unbind_copy")
def unbind(ctx: TorchContext) -> Sequence[Outcome]:
    """One piece an entry, without the axis."""
    x = ctx.value("self")
    shape = shape_of(x)
    axis = ctx.axis("dim", len(shape))
    rest = (*shape[:axis], *shape[axis + 1 :])
    if shape[axis] == 1:
        return [ctx.reshape(x, rest)]
    parts = ctx.emit(top.Split, x, axis=axis, sizes=(1,) * shape[axis]).parts
    return [ctx.reshape(part, rest) for part in parts]


@rule("aten.slice", "aten.narrow", "aten.slice_copy")
def slice_(ctx: TorchContext) -> Outcome:
    """From here to there, by steps."""
    x = ctx.value("self")
    shape = shape_of(x)
    axis = ctx.axis("dim", len(shape))
    size = shape[axis]
    if ctx.op == "aten.narrow":
        return sliced(ctx, x, axis, ctx.integer("start") % max(size, 1), ctx.integer("length"))
    begin = ctx.integer("start") if ctx.has("start") else 0
    begin = min(max(begin + size if begin < 0 else begin, 0), size)
    return sliced(ctx, x, axis, begin, ctx.result_shape[axis], ctx.integer("step"))


@rule("aten.select", "aten.select_copy")
def select(ctx: TorchContext) -> Outcome:
    """One entry, without the axis."""
    x = ctx.value("self")
    shape = shape_of(x)
    axis = ctx.axis("dim", len(shape))
    index = ctx.integer("index")
    return ctx.reshape(sliced(ctx, x, axis, index % shape[axis], 1), ctx.result_shape)


@rule("aten.flip")
def flip(ctx: TorchContext) -> Outcome:
    """Backwards along axes."""
    x = ctx.value("self")
    shape = shape_of(x)
    axes = {axis % len(shape) for axis in ctx.ints("dims")}
    offset = [n - 1 if i in axes else 0 for i, n in enumerate(shape)]
    steps = [-1 if i in axes else 1 for i in range(len(shape))]
    return ctx.emit(top.Slice, x, offset=offset, steps=steps, shape=shape).y


@rule("aten.roll")
def roll(ctx: TorchContext) -> Outcome:
    """Shifted in a circle: the end comes to the front."""
    x = ctx.value("self")
    shape = shape_of(x)
    axes = ctx.ints("dims")
    if not axes:
        x = ctx.reshape(x, (int(np.prod(shape)),))
        axes = (0,)
    for shift, axis in zip(ctx.ints("shifts"), axes, strict=True):
        size = shape_of(x)[axis]
        shift %= max(size, 1)
        if shift:
            rank = len(shape_of(x))
            front, back = ctx.emit(top.Split, x, axis=axis % rank, sizes=(size - shift, shift)).parts
            x = ctx.emit(top.Concat, [back, front], axis=axis % rank).y
    return ctx.reshape(x, shape)


@rule("aten.unfold", limits="windows that overlap are cut one by one, up to 256")
def unfold(ctx: TorchContext) -> Outcome:
    """Windows along an axis, as a new last axis."""
    x = ctx.value("self")
    shape = shape_of(x)
    axis = ctx.axis("dimension", len(shape))
    size, step = ctx.integer("size"), ctx.integer("step")
    count = (shape[axis] - size) // step + 1
    if size == step:
        x = sliced(ctx, x, axis, 0, count * size)
        x = ctx.reshape(x, (*shape[:axis], count, size, *shape[axis + 1 :]))
    elif count <= 256:
        parts = [sliced(ctx, x, axis, i * step, size) for i in range(count)]
        wide = [ctx.reshape(part, (*shape[:axis], 1, size, *shape[axis + 1 :])) for part in parts]
        x = wide[0] if count == 1 else ctx.emit(top.Concat, wide, axis=axis).y
    else:
        raise NoTopForm(f"it cuts {count} windows")
    rank = len(shape) + 1
    return ctx.permute(x, [*(i for i in range(rank) if i != axis + 1), axis + 1])


_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pads(given: Sequence[int], rank: int) -> list[int]:
    """torch counts from the last axis: begin, end, begin, end."""
    begins, ends = [0] * rank, [0] * rank
    for index in range(len(given) // 2):
        begins[rank - 1 - index], ends[rank - 1 - index] = given[2 * index], given[2 * index + 1]
    return [*begins, *ends]


@rule("aten.constant_pad_nd", "aten.pad")
def pad(ctx: TorchContext) -> Outcome:
    """A border; negative pads crop."""
    mode = _MODES[ctx.text("mode")] if "mode" in ctx.args else "constant"
    value = ctx.number("value") if ctx.has("value") else 0.0
    return _padded(ctx, mode, value)


def _padded(ctx: TorchContext, mode: str, value: float = 0.0) -> Value:
    x = ctx.value("self")
    pads = _pads(ctx.ints("pad" if "pad" in ctx.args else "padding"), len(shape_of(x)))
    return ctx.emit(top.Pad, x, pads=pads, mode=mode, value=value).y if any(pads) else x


@rule(*(f"aten.reflection_pad{n}d" for n in (1, 2, 3)))
def reflection_pad(ctx: TorchContext) -> Outcome:
    """Mirrored at the edge."""
    return _padded(ctx, "reflect")


@rule(*(f"aten.replication_pad{n}d" for n in (1, 2, 3)))
def replication_pad(ctx: TorchContext) -> Outcome:
    """The edge goes on."""
    return _padded(ctx, "edge")


@rule("aten.pixel_shuffle", limits="one image axis order, N x C x H x W")
def pixel_shuffle(ctx: TorchContext) -> Outcome:
    """Channels into pixels."""
    x = ctx.value("self")
    shape = shape_of(x)
    if len(shape) != 4:
        raise NoTopForm("its input is not N x C x H x W")
    return ctx.emit(top.DepthToSpace, x, block=ctx.integer("upscale_factor"), mode="CRD").y


@rule("aten.pixel_unshuffle")
def pixel_unshuffle(ctx: TorchContext) -> Outcome:
    """Pixels into channels: channel first, then the place in the block."""
    x, block = ctx.value("self"), ctx.integer("downscale_factor")
    shape = shape_of(x)
    if len(shape) != 4:
        raise NoTopForm("its input is not N x C x H x W")
    batch, channels, height, width = shape
    x = ctx.reshape(x, (batch, channels, height // block, block, width // block, block))
    return ctx.reshape(ctx.permute(x, (0, 1, 3, 5, 2, 4)), ctx.result_shape)


@rule("aten.channel_shuffle", "aten.native_channel_shuffle")
def channel_shuffle(ctx: TorchContext) -> Outcome:
    """Channels interleaved between groups."""
    return ctx.emit(top.ShuffleChannel, ctx.value("self"), group=ctx.integer("groups")).y


@rule("aten.tril", "aten.triu", limits="of tensors that are not constant: by a mask")
def triangle(ctx: TorchContext) -> Outcome:
    """Zero above or below a diagonal."""
    x = ctx.value("self")
    rows, columns = shape_of(x)[-2:]
    keep = np.tril if ctx.op == "aten.tril" else np.triu
    mask = keep(np.ones((rows, columns)), ctx.integer("diagonal")).astype(ctx.result_dtype.numpy)
    return ctx.emit(top.Mul, x, ctx.literal(mask, "mask")).y


@rule("aten.meshgrid", "aten.broadcast_tensors")
def meshgrid(ctx: TorchContext) -> Sequence[Outcome]:
    """Tensors spread to one shape."""
    values = ctx.values("tensors")
    shape = ctx.result_shape
    if ctx.op == "aten.meshgrid":
        order = list(range(len(values)))
        if ctx.args.get("indexing") == "xy" and len(values) >= 2:
            order[0], order[1] = 1, 0
        values = [
            ctx.reshape(value, [n if i == order[at] else 1 for i, n in enumerate(shape)])
            for at, value in enumerate(values)
        ]
    return [
        ctx.emit(top.Expand, value, shape=shape).y if shape_of(value) != shape else value for value in values
    ]


@rule("aten.diagonal", "aten.diagonal_copy")
def diagonal(ctx: TorchContext) -> Outcome:
    """The elements of a diagonal, as the last axis."""
    rank = ctx.rank("self")
    first, second, offset = ctx.axis("dim1", rank), ctx.axis("dim2", rank), ctx.integer("offset")
    rest = [axis for axis in range(rank) if axis not in (first, second)]
    x = ctx.permute(ctx.value("self"), [*rest, first, second])
    *outer, rows, columns = shape_of(x)
    row = np.arange(max(0, -offset), max(0, -offset) + ctx.result_shape[-1], dtype=np.int64)
    places = ctx.literal(row * columns + row + offset, "places")
    return ctx.emit(top.Gather, ctx.reshape(x, (*outer, rows * columns)), places, axis=len(outer)).y
