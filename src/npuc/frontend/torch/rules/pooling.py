"""Pooling over windows, and to given sizes."""

from __future__ import annotations

from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value, shape_of, top


def _window(ctx: TorchContext, spatial: int) -> dict[str, object]:
    kernel = ctx.ints("kernel_size", spatial)
    strides = ctx.ints("stride", spatial) or kernel
    dilations = ctx.ints("dilation", spatial) if ctx.has("dilation") else (1,) * spatial
    return {
        "kernel": kernel,
        "strides": strides,
        "pads": ctx.ints("padding", spatial) * 2,
        "dilations": dilations,
        "ceil_mode": ctx.flag("ceil_mode"),
    }


def _batched(ctx: TorchContext, spatial: int) -> Value:
    x = ctx.value("self")
    return x if len(shape_of(x)) == spatial + 2 else ctx.reshape(x, (1, *shape_of(x)))


def _spatial(op: str) -> int:
    return int(op.removesuffix("_with_indices")[-2])


@rule(
    "aten.max_pool1d", "aten.max_pool2d", "aten.max_pool3d",
    "aten.max_pool2d_with_indices", "aten.max_pool3d_with_indices",
    limits="the indices of the maxima must not be used",
)  # fmt: skip
def max_pool(ctx: TorchContext) -> Outcome:
    """The largest of a window."""
    several = isinstance(ctx.result, tuple | list)
    if several and any(user.args[1] == 1 for user in ctx.node.users if len(user.users)):
        raise NoTopForm("the places of the maxima are used")
    spatial = _spatial(ctx.op)
    y = ctx.emit(top.MaxPool, _batched(ctx, spatial), **_window(ctx, spatial)).y
    y = ctx.reshape(y, ctx.result_shape)
    return [y, None] if several else y


@rule("aten.avg_pool1d", "aten.avg_pool2d", "aten.avg_pool3d", limits="no divisor of its own")
def avg_pool(ctx: TorchContext) -> Outcome:
    """The mean of a window."""
    if ctx.has("divisor_override"):
        raise NoTopForm("it divides by a number of its own")
    spatial = _spatial(ctx.op)
    include = ctx.flag("count_include_pad")
    window = _window(ctx, spatial)
    y = ctx.emit(top.AvgPool, _batched(ctx, spatial), count_include_pad=include, **window).y
    return ctx.reshape(y, ctx.result_shape)


@rule(
    "aten.adaptive_avg_pool1d", "aten.adaptive_avg_pool2d", "aten.adaptive_avg_pool3d", "aten._adaptive_avg_pool2d",
    "aten._adaptive_avg_pool3d", "aten.adaptive_max_pool1d", "aten.adaptive_max_pool2d", "aten.adaptive_max_pool3d",
    limits="sizes that do not divide the input are pooled piece by piece",
)  # fmt: skip
def adaptive_pool(ctx: TorchContext) -> Outcome:
    """To a given size: equal windows where sizes divide, otherwise an axis at a time in pieces."""
    spatial = _spatial(ctx.op)
    most = "max" in ctx.op
    several = isinstance(ctx.result, tuple | list)
    if several and any(user.args[1] == 1 for user in ctx.node.users if len(user.users)):
        raise NoTopForm("the places of the maxima are used")
    x = _batched(ctx, spatial)
    sizes = ctx.result_shape[-spatial:]
    for axis in range(spatial):
        if shape_of(x)[2 + axis] % sizes[axis]:
            x = _in_pieces(ctx, x, 2 + axis, sizes[axis], most)
    kernel = tuple(n // size for n, size in zip(shape_of(x)[2:], sizes, strict=True))
    plain = {"pads": (0,) * 2 * spatial, "dilations": (1,) * spatial}
    if any(k > 1 for k in kernel):
        x = ctx.emit(top.MaxPool if most else top.AvgPool, x, kernel=kernel, strides=kernel, **plain).y
    y = ctx.reshape(x, ctx.result_shape)
    return [y, None] if several else y


def _in_pieces(ctx: TorchContext, x: Value, axis: int, count: int, most: bool) -> Value:
    """Windows from floor(i n / count) to ceil((i + 1) n / count), each reduced by itself."""
    shape = shape_of(x)
    size = shape[axis]
    parts = []
    for index in range(count):
        begin, end = index * size // count, -(-(index + 1) * size // count)
        offset, part = [0] * len(shape), list(shape)
        offset[axis], part[axis] = begin, end - begin
        piece = ctx.emit(top.Slice, x, offset=offset, steps=(1,) * len(shape), shape=part).y
        parts.append(ctx.emit(top.Reduce, piece, kind="max" if most else "mean", axes=(axis,)).y)
    return parts[0] if count == 1 else ctx.emit(top.Concat, parts, axis=axis).y
