"""Elements moved, left out or repeated."""

from __future__ import annotations

from itertools import pairwise
from math import prod

from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.ir import Value, top


def _axis(ctx: CaffeContext, given: CaffeMessage, old: str) -> int:
    return ctx.axis(given.int("axis", given.int(old, 1)))


@rule("Concat")
def concat(ctx: CaffeContext) -> Value:
    """Along `axis` (or `concat_dim`)."""
    values = ctx.values()
    axis = _axis(ctx, ctx.parameters("concat_param"), "concat_dim")
    return values[0] if len(values) == 1 else ctx.emit(top.Concat, values, axis=axis)


@rule("Slice")
def slice_(ctx: CaffeContext) -> list[Value]:
    """Along `axis` (or `slice_dim`), in equal parts or at `slice_point`."""
    given = ctx.parameters("slice_param")
    axis = _axis(ctx, given, "slice_dim")
    size, count = ctx.shape()[axis], len(ctx.layer.outputs)
    points = given.ints("slice_point")
    if points:
        ends = [0, *points, size]
        if len(ends) != count + 1 or any(b <= a for a, b in pairwise(ends)):
            raise ctx.invalid(f"slice points {list(points)} for {count} parts of {size}")
    elif size % count:
        raise ctx.invalid(f"{size} entries do not divide into {count} parts")
    else:
        ends = list(range(0, size + 1, size // count))
    if count == 1:
        return [ctx.value()]
    sizes = [b - a for a, b in pairwise(ends)]
    return list(ctx.emit_op(top.Split, ctx.value(), axis=axis, sizes=sizes).results)


@rule("Split")
def split(ctx: CaffeContext) -> list[Value]:
    """The same tensor under several names."""
    return [ctx.value()] * len(ctx.layer.outputs)


@rule("Dropout")
def dropout(ctx: CaffeContext) -> Value:
    """Nothing, in a test run."""
    return ctx.value()


@rule("Flatten")
def flatten(ctx: CaffeContext) -> Value:
    """From `axis` to `end_axis`."""
    given = ctx.parameters("flatten_param")
    x = ctx.shape()
    begin, end = ctx.axis(given.int("axis", 1)), ctx.axis(given.int("end_axis", -1)) + 1
    if end <= begin:
        raise ctx.invalid(f"axes {begin} to {end - 1}")
    return ctx.reshape(ctx.value(), (*x[:begin], prod(x[begin:end]), *x[end:]))


@rule("Reshape")
def reshape(ctx: CaffeContext) -> Value:
    """With 0 for an axis that stays, -1 for the rest, and `axis` and `num_axes`."""
    given = ctx.parameters("reshape_param")
    x = ctx.shape()
    begin = given.int("axis")
    begin = begin if begin >= 0 else len(x) + 1 + begin
    count = given.int("num_axes", -1)
    end = len(x) if count == -1 else begin + count
    if not 0 <= begin <= end <= len(x):
        raise ctx.invalid(f"axes {begin} to {end} of {len(x)}")
    dims = list(given.message("shape").ints("dim"))
    for i, dim in enumerate(dims):
        if dim == 0:
            if begin + i >= len(x):
                raise ctx.invalid(f"a dimension 0 at {i}, where the input has none")
            dims[i] = x[begin + i]
    if dims.count(-1) > 1 or any(dim < -1 for dim in dims):
        raise ctx.invalid(f"the shape {dims}")
    shape = [*x[:begin], *dims, *x[end:]]
    if -1 in shape:
        rest = prod(dim for dim in shape if dim != -1)
        if rest == 0 or prod(x) % rest:
            raise ctx.invalid(f"{list(x)} does not go into {shape}")
        shape[shape.index(-1)] = prod(x) // rest
    return ctx.reshape(ctx.value(), shape)


@rule("Permute")
def permute(ctx: CaffeContext) -> Value:
    """By `order`; axes that it leaves out keep their order behind it."""
    order = ctx.parameters("permute_param").ints("order")
    rest = [axis for axis in range(len(ctx.shape())) if axis not in order]
    return ctx.emit(top.Permute, ctx.value(), order=(*order, *rest))


@rule("Crop")
def crop(ctx: CaffeContext) -> Value:
    """To the size of the second bottom from `axis` on."""
    given = ctx.parameters("crop_param")
    x, like = ctx.shape(0), ctx.shape(1)
    axis = ctx.axis(given.int("axis", 2))
    offsets = given.ints("offset") or (0,)
    count = len(x) - axis
    offsets = offsets * count if len(offsets) == 1 else offsets
    if len(offsets) != count or len(like) != len(x):
        raise ctx.invalid(f"{len(offsets)} offsets for {count} axes")
    begin = [*(0 for _ in range(axis)), *offsets]
    shape = [*x[:axis], *like[axis:]]
    if any(b < 0 or b + n > size for b, n, size in zip(begin, shape, x, strict=True)):
        raise ctx.invalid(f"{shape} at {begin} is not within {list(x)}")
    return ctx.emit(top.Slice, ctx.value(), offset=begin, steps=[1] * len(x), shape=shape)


@rule("Tile")
def tile(ctx: CaffeContext) -> Value:
    """`tiles` times along `axis`."""
    given = ctx.parameters("tile_param")
    repeats = [1] * len(ctx.shape())
    repeats[ctx.axis(given.int("axis", 1))] = given.int("tiles")
    return ctx.emit(top.Tile, ctx.value(), repeats=repeats)


@rule("ShuffleChannel")
def shuffle_channel(ctx: CaffeContext) -> Value:
    """Between `group` groups."""
    group = ctx.parameters("shuffle_channel_param").int("group", 1)
    return ctx.emit(top.ShuffleChannel, ctx.value(), group=group)


@rule("Padding")
def padding(ctx: CaffeContext) -> Value:
    """The first generation's layer before a convolution."""
    pad = ctx.parameters("padding_param").int("pad")
    spatial = (pad,) * (len(ctx.shape()) - 2)
    return ctx.emit(top.Pad, ctx.value(), pads=(0, 0, *spatial, 0, 0, *spatial))


@rule("Reverse")
def reverse(ctx: CaffeContext) -> Value:
    """The order along `axis` turned round."""
    x = list(ctx.shape())
    axis = ctx.axis(ctx.parameters("reverse_param").int("axis", 0))
    steps, offset = [1] * len(x), [0] * len(x)
    steps[axis], offset[axis] = -1, x[axis] - 1
    return ctx.emit(top.Slice, ctx.value(), offset=offset, steps=steps, shape=x)
