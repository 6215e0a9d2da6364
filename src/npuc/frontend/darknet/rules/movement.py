"""Layers that join, split and move."""

from __future__ import annotations

from npuc.frontend.darknet.registry import DarknetContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, top


@rule("route")
def route(ctx: DarknetContext) -> Value:
    """Layers side by side, or of each the part `group_id` of `groups`."""
    groups, chosen = ctx.section.int("groups", 1, 1), ctx.section.int("group_id", 0, 0)
    values = []
    for index in range(ctx.count):
        channels = ctx.shape(index)[1]
        if channels % groups or chosen >= groups:
            raise ctx.invalid(f"part {chosen} of {groups} of {channels} channels")
        size = channels // groups
        value = ctx.value(index)
        values.append(value if groups == 1 else ctx.part(value, 1, chosen * size, size))
    return values[0] if len(values) == 1 else ctx.emit(top.Concat, values, axis=1)


@rule("upsample")
def upsample(ctx: DarknetContext) -> Value:
    """Every pixel `stride` times, times `scale`; not backwards."""
    stride = ctx.section.int("stride", 2, -4096, 4096)
    if stride < 1:
        raise NoForm("it goes backwards")
    n, channels, height, width = ctx.shape()
    y = ctx.emit(
        top.Resize,
        ctx.value(),
        sizes=(n, channels, height * stride, width * stride),
        mode="nearest",
        coordinates="asymmetric",
        rounding="floor",
    )
    scale = ctx.section.float("scale", 1.0)
    return y if scale == 1 else ctx.emit(top.Mul, y, ctx.number(scale))


@rule("reorg", "reorg3d")
def reorg(ctx: DarknetContext) -> Value:
    """Pixels into channels: [reorg] in Darknet's odd order, which reads the tensor under another shape; [reorg3d] plainly."""
    section = ctx.section
    stride = section.int("stride", 1, 1, 4096)
    if section.int("flatten") or section.int("extra"):
        raise NoForm("'flatten' and 'extra' are not known")
    n, channels, height, width = ctx.shape()
    area = stride * stride
    if section.int("reverse"):
        if channels % area:
            raise ctx.invalid(f"{channels} channels into blocks of {stride} x {stride}")
        return ctx.emit(top.DepthToSpace, ctx.value(), block=stride, mode="DCR")
    if height % stride or width % stride:
        raise ctx.invalid(f"{height} x {width} pixels in blocks of {stride}")
    if ctx.layer.kind == "reorg3d":
        return ctx.emit(top.SpaceToDepth, ctx.value(), block=stride)
    if channels % area:
        raise ctx.invalid(f"{channels} channels do not divide by {area}")
    reinterpreted = ctx.reshape(ctx.value(), (n, channels // area, height * stride, width * stride))
    moved = ctx.emit(top.SpaceToDepth, reinterpreted, block=stride)
    return ctx.reshape(moved, (n, channels * area, height // stride, width // stride))


@rule("crop")
def crop(ctx: DarknetContext) -> Value:
    """The middle, as pixels from -1 to 1 unless `noadjust` is set."""
    _, _, height, width = ctx.shape()
    rows = ctx.section.int("crop_height", height, 1)
    columns = ctx.section.int("crop_width", width, 1)
    y = ctx.value()
    if (rows, columns) != (height, width):
        y = ctx.part(y, 2, (height - rows) // 2, rows)
        y = ctx.part(y, 3, (width - columns) // 2, columns)
    if ctx.section.int("noadjust"):
        return y
    return ctx.emit(top.Sub, ctx.emit(top.Mul, y, ctx.number(2.0)), ctx.number(1.0))


@rule("dropout", "silence", "empty")
def dropout(ctx: DarknetContext) -> Value:
    """Nothing, in a test run."""
    return ctx.value()
