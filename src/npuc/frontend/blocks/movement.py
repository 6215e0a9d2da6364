"""Moving elements: shapes, axes, slices, borders, sizes of images."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from npuc.errors import InvalidModelError, ResourceLimitError, UnsupportedOpError
from npuc.frontend.indexing import index_spans
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor, to_last, to_second
from npuc.ir import Value, shape_of, top
from npuc.ir.definition import normal_axis

_MOST_PARTS = 1 << 13


def whole_shape(c: ChannelsLastBuilder, size: int, sizes: Sequence[int]) -> tuple[int, ...]:
    """A shape in which -1 is what is left."""
    shape = tuple(sizes)
    if shape.count(-1) > 1 or min(shape, default=0) < -1:
        raise InvalidModelError(f"'{c.first}': the shape {list(shape)} is not valid")
    if -1 in shape:
        rest = -prod(shape)
        if rest == 0 or size % rest:
            raise InvalidModelError(f"'{c.first}': {size} elements do not fit the shape {list(shape)}")
        shape = tuple(size // rest if n == -1 else n for n in shape)
    return shape


def reshape(c: ChannelsLastBuilder, x: LayoutTensor, sizes: Sequence[int]) -> LayoutTensor:
    """x under another shape; -1 is what is left."""
    shape = whole_shape(c, prod(x.shape), sizes)
    if x.array is not None and prod(shape) == x.array.size:
        return c.constant(x.array.reshape(shape), x.name)
    if x.is_turned and shape == x.shape:
        return LayoutTensor(c.value(x, True), True)
    return LayoutTensor(c.emit(top.Reshape, c.value(x), shape=shape).y)


def transpose(c: ChannelsLastBuilder, x: LayoutTensor, order: Sequence[int]) -> LayoutTensor:
    """Axes reordered; a turn between the two layouts is none at all."""
    order = tuple(order)
    if 3 <= x.rank <= 5:
        if x.is_turned and order == to_second(x.rank):
            return LayoutTensor(c.value(x, True))
        if not x.is_turned and x.array is None and order == to_last(x.rank):
            return LayoutTensor(c.value(x), True)
    return LayoutTensor(c.emit(top.Permute, c.value(x), order=order).y)


def _arranged(x: LayoutTensor, entries: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(entries[axis] for axis in to_second(x.rank)) if x.is_turned else tuple(entries)


def concat(c: ChannelsLastBuilder, tensors: Sequence[LayoutTensor], axis: int) -> LayoutTensor:
    """Tensors end to end."""
    if not tensors:
        raise InvalidModelError(f"'{c.first}' joins no tensors")
    rank = tensors[0].rank
    axis = normal_axis(axis, rank)
    second = rank >= 3 and any(x.is_turned for x in tensors)
    values = [c.value(x, second) for x in tensors]
    place = to_second(rank).index(axis) if second else axis
    return LayoutTensor(c.emit(top.Concat, values, axis=place).y, second)


def split(c: ChannelsLastBuilder, x: LayoutTensor, axis: int, sizes: Sequence[int]) -> list[LayoutTensor]:
    """x cut along an axis."""
    axis = normal_axis(axis, x.rank)
    second = x.is_turned
    place = to_second(x.rank).index(axis) if second else axis
    op = c.emit(top.Split, c.value(x, second), axis=place, sizes=tuple(sizes))
    return [LayoutTensor(value, second) for value in op.results]


def equal_parts(what: str, size: int, count: int) -> tuple[int, ...]:
    """The sizes of the parts of an axis; each is a value of its own, so that there may not be any number of them."""
    if count > _MOST_PARTS:
        raise ResourceLimitError(f"{what} takes a tensor apart into {count} of them")
    return (size // count,) * count if count else ()


def stack(c: ChannelsLastBuilder, tensors: Sequence[LayoutTensor], axis: int) -> LayoutTensor:
    """Tensors of one shape along a new axis."""
    if not tensors:
        raise InvalidModelError(f"'{c.first}' joins no tensors")
    shape = list(tensors[0].shape)
    axis = normal_axis(axis, len(shape) + 1)
    shape.insert(axis, 1)
    parts = [reshape(c, x, shape) for x in tensors]
    return parts[0] if len(parts) == 1 else concat(c, parts, axis)


def unstack(c: ChannelsLastBuilder, x: LayoutTensor, axis: int) -> list[LayoutTensor]:
    """The entries of an axis, each without it."""
    axis = normal_axis(axis, x.rank)
    rest = x.shape[:axis] + x.shape[axis + 1 :]
    parts = split(c, x, axis, equal_parts(f"'{c.first}'", x.shape[axis], x.shape[axis]))
    return [reshape(c, part, rest) for part in parts]


def cut(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    begins: Sequence[int],
    counts: Sequence[int],
    steps: Sequence[int] | None = None,
) -> LayoutTensor:
    """`counts` entries an axis from `begins` on."""
    steps = steps if steps is not None else (1,) * x.rank
    if not len(begins) == len(counts) == len(steps) == x.rank:
        raise InvalidModelError(f"'{c.first}' slices {len(begins)} axes of rank {x.rank}")
    sliced = c.emit(
        top.Slice,
        c.value(x, x.is_turned),
        offset=_arranged(x, begins),
        steps=_arranged(x, steps),
        shape=_arranged(x, counts),
    ).y
    return LayoutTensor(sliced, x.is_turned)


def indexed(c: ChannelsLastBuilder, x: LayoutTensor, entries: Sequence[Any]) -> LayoutTensor:
    """x[entries], as Python writes it: slices, integers, None and an ellipsis."""
    begins, steps, counts, result = index_spans(f"'{c.first}'", x.shape, entries)
    sliced = x if (counts == list(x.shape) and set(steps) <= {1}) else cut(c, x, begins, counts, steps)
    return sliced if result == counts else reshape(c, sliced, result)


def pad(
    c: ChannelsLastBuilder, x: LayoutTensor, pairs: Sequence[tuple[int, int]], **properties: Any
) -> LayoutTensor:
    """A border, in pairs for each axis; negative pads crop."""
    if len(pairs) != x.rank:
        raise InvalidModelError(f"'{c.first}' pads {len(pairs)} axes of rank {x.rank}")
    begins = _arranged(x, [before for before, _ in pairs])
    ends = _arranged(x, [after for _, after in pairs])
    padded = c.emit(top.Pad, c.value(x, x.is_turned), pads=(*begins, *ends), **properties).y
    return LayoutTensor(padded, x.is_turned)


def mirrored(c: ChannelsLastBuilder, x: LayoutTensor, pairs: Sequence[tuple[int, int]]) -> LayoutTensor:
    """A border that mirrors what is inside, with the edge."""
    for axis, (before, after) in enumerate(pairs):
        size = x.shape[axis]
        if max(before, after) > size or min(before, after) < 0:
            raise InvalidModelError(f"'{c.first}': a border of {max(before, after)} for an axis of {size}")
        sides = [_backwards(c, x, axis, before - 1, before), x, _backwards(c, x, axis, size - 1, after)]
        parts = [part for part in sides if part is not None]
        if len(parts) > 1:
            x = concat(c, parts, axis)
    return x


def _backwards(
    c: ChannelsLastBuilder, x: LayoutTensor, axis: int, first: int, count: int
) -> LayoutTensor | None:
    if not count:
        return None
    begins = [first if i == axis else 0 for i in range(x.rank)]
    steps = [-1 if i == axis else 1 for i in range(x.rank)]
    return cut(c, x, begins, [count if i == axis else n for i, n in enumerate(x.shape)], steps)


def reverse(c: ChannelsLastBuilder, x: LayoutTensor, axes: Sequence[int]) -> LayoutTensor:
    """Some axes backwards."""
    back = {normal_axis(axis, x.rank) for axis in axes}
    begins = [max(n - 1, 0) if axis in back else 0 for axis, n in enumerate(x.shape)]
    return cut(c, x, begins, x.shape, [-1 if axis in back else 1 for axis in range(x.rank)])


def tile(c: ChannelsLastBuilder, x: LayoutTensor, repeats: Sequence[int]) -> LayoutTensor:
    """x repeated along each axis."""
    if len(repeats) != x.rank:
        raise InvalidModelError(f"'{c.first}' repeats {len(repeats)} axes of rank {x.rank}")
    return LayoutTensor(
        c.emit(top.Tile, c.value(x, x.is_turned), repeats=_arranged(x, repeats)).y, x.is_turned
    )


def resize(
    c: ChannelsLastBuilder,
    x: LayoutTensor,
    size: Sequence[int],
    mode: str,
    coordinates: str = "half_pixel",
    rounding: str = "round_prefer_floor",
    channels_first: bool = False,
    **properties: Any,
) -> LayoutTensor:
    """An image of another height and width."""
    value = c.image(x, channels_first)
    batch, channels, *old = shape_of(value)
    if len(old) != len(size) or min(size) < 1:
        raise InvalidModelError(f"'{c.first}' resizes {len(old)} axes to {list(size)}")
    if mode == "cubic" and any(new < before for new, before in zip(size, old, strict=True)):
        # ONNX Runtime moves the turn of the axes behind a Resize, and then has no kernel for one that shrinks.
        raise UnsupportedOpError(
            f"'{c.first}' has no form in npuc: it shrinks an image by cubic interpolation",
            fix="Interpolate linearly, or cut the network there with --inputs or --outputs",
        )
    resized = c.emit(
        top.Resize,
        value,
        sizes=(batch, channels, *size),
        mode=mode,
        coordinates=coordinates,
        rounding=rounding,
        **properties,
    ).y
    return c.framed(resized, channels_first)


def repeated(c: ChannelsLastBuilder, x: LayoutTensor, axis: int, count: int) -> LayoutTensor:
    """Each entry of an axis `count` times, one after the other."""
    if count == 1:
        return x
    axis = normal_axis(axis, x.rank)
    shape = list(x.shape)
    shape.insert(axis + 1, 1)
    spread = list(shape)
    spread[axis + 1] = count
    value: Value = c.emit(top.Expand, c.value(reshape(c, x, shape)), shape=tuple(spread)).y
    final = list(x.shape)
    final[axis] *= count
    return LayoutTensor(c.emit(top.Reshape, value, shape=tuple(final)).y)


def space_to_batch(
    c: ChannelsLastBuilder, x: LayoutTensor, blocks: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> LayoutTensor:
    """Pixels of every block position become images of their own."""
    spatial = len(blocks)
    if len(pairs) != spatial or x.rank < spatial + 1 or min(blocks, default=0) < 1:
        raise InvalidModelError(f"'{c.first}': its blocks and padding do not fit rank {x.rank}")
    if any(side < 0 for pair in pairs for side in pair):
        raise InvalidModelError(f"'{c.first}' has a negative padding")
    if any(side for pair in pairs for side in pair):
        x = pad(c, x, [(0, 0), *pairs, *[(0, 0)] * (x.rank - spatial - 1)])
    shape = x.shape
    if any(n % b for n, b in zip(shape[1:], blocks, strict=False)):
        raise InvalidModelError(f"'{c.first}': {list(shape)} in blocks of {list(blocks)}")
    inner = [n for size, b in zip(shape[1:], blocks, strict=False) for n in (size // b, b)]
    tail = shape[spatial + 1 :]
    value = c.emit(top.Reshape, c.value(x), shape=(shape[0], *inner, *tail)).y
    places, cells = range(2, 2 * spatial + 1, 2), range(1, 2 * spatial, 2)
    order = (*places, 0, *cells, *range(2 * spatial + 1, 2 * spatial + 1 + len(tail)))
    value = c.emit(top.Permute, value, order=order).y
    return LayoutTensor(c.emit(top.Reshape, value, shape=(shape[0] * prod(blocks), *inner[::2], *tail)).y)


def batch_to_space(
    c: ChannelsLastBuilder, x: LayoutTensor, blocks: Sequence[int], pairs: Sequence[tuple[int, int]]
) -> LayoutTensor:
    """The reverse, with a crop."""
    spatial, shape = len(blocks), x.shape
    if len(pairs) != spatial or x.rank < spatial + 1 or min(blocks, default=0) < 1:
        raise InvalidModelError(f"'{c.first}': its blocks and crops do not fit rank {x.rank}")
    if shape[0] % prod(blocks) or any(side < 0 for pair in pairs for side in pair):
        raise InvalidModelError(f"'{c.first}': a batch of {shape[0]} in blocks of {list(blocks)}")
    batch, tail = shape[0] // prod(blocks), shape[spatial + 1 :]
    value = c.emit(top.Reshape, c.value(x), shape=(*blocks, batch, *shape[1:])).y
    between = [axis for i in range(spatial) for axis in (spatial + 1 + i, i)]
    order = (spatial, *between, *range(2 * spatial + 1, 2 * spatial + 1 + len(tail)))
    value = c.emit(top.Permute, value, order=order).y
    whole = (batch, *(n * b for n, b in zip(shape[1:], blocks, strict=False)), *tail)
    image = LayoutTensor(c.emit(top.Reshape, value, shape=whole).y)
    if not any(side for pair in pairs for side in pair):
        return image
    return pad(c, image, [(0, 0), *((-a, -b) for a, b in pairs), *[(0, 0)] * len(tail)])
