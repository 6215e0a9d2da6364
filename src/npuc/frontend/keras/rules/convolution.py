"""Convolution, pooling, borders, and sizes of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks import movement as m
from npuc.frontend.blocks.windows import convolution, depthwise, pool, transposed
from npuc.frontend.keras.activations import activated
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.layout import LayoutTensor
from npuc.ir import top


def _axes(ctx: KerasContext) -> int:
    """The number of spatial axes, which the class names."""
    digit = next((char for char in ctx.kind if char in "123"), "2")
    if ctx.x().rank != int(digit) + 2:
        raise ctx.wrong(f"its input has rank {ctx.x().rank}, not {int(digit) + 2}")
    return int(digit)


def _window(ctx: KerasContext) -> dict[str, Any]:
    count = _axes(ctx)
    return {
        "strides": ctx.integers("strides", count, 1),
        "padding": str(ctx.get("padding", "valid")),
        "dilations": ctx.integers("dilation_rate", count, 1),
        "channels_first": ctx.channels_first,
    }


def _weights(ctx: KerasContext, *titles: str) -> tuple[list[LayoutTensor], LayoutTensor | None]:
    has_bias = ctx.flag("use_bias", True)
    arrays = ctx.arrays(len(titles) + has_bias)
    held = [ctx.weight(array, title) for array, title in zip(arrays, titles, strict=False)]
    return held, ctx.weight(arrays[-1], "bias") if has_bias else None


@rule("Conv1D", "Conv2D", "Conv3D")
def conv(ctx: KerasContext) -> Outcome:
    """Either data format, valid, same or (Conv1D) causal padding, groups, dilations."""
    (kernel,), bias = _weights(ctx, "kernel")
    return activated(ctx, convolution(ctx.c, ctx.x(), kernel, bias, **_window(ctx)), ctx.get("activation"))


@rule("DepthwiseConv1D", "DepthwiseConv2D")
def depthwise_conv(ctx: KerasContext) -> Outcome:
    """Either data format, valid or same padding, dilations."""
    (kernel,), bias = _weights(ctx, "depthwise_kernel")
    return activated(ctx, depthwise(ctx.c, ctx.x(), kernel, bias, **_window(ctx)), ctx.get("activation"))


@rule("SeparableConv1D", "SeparableConv2D")
def separable_conv(ctx: KerasContext) -> Outcome:
    """A depthwise convolution, then one of 1 x 1."""
    (first, second), bias = _weights(ctx, "depthwise_kernel", "pointwise_kernel")
    window = _window(ctx)
    spread = depthwise(ctx.c, ctx.x(), first, None, **window)
    ones = (1,) * _axes(ctx)
    y = convolution(
        ctx.c,
        spread,
        second,
        bias,
        strides=ones,
        dilations=ones,
        padding="valid",
        channels_first=ctx.channels_first,
    )
    return activated(ctx, y, ctx.get("activation"))


@rule("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose")
def conv_transpose(ctx: KerasContext) -> Outcome:
    """Either data format, valid or same padding, output padding, dilations."""
    (kernel,), bias = _weights(ctx, "kernel")
    count, window = _axes(ctx), _window(ctx)
    shape = ctx.x().shape
    given = shape[2:] if ctx.channels_first else shape[1:-1]
    more = None if ctx.get("output_padding") is None else ctx.integers("output_padding", count)
    same = window["padding"] == "same"
    size = []
    for axis in range(count):
        stride = window["strides"][axis]
        span = (kernel.shape[axis] - 1) * window["dilations"][axis] + 1
        if more is None:
            size.append(given[axis] * stride + (0 if same else max(span - stride, 0)))
        else:
            pad = span // 2 if same else 0
            size.append((given[axis] - 1) * stride + span - 2 * pad + more[axis])
    y = transposed(ctx.c, ctx.x(), kernel, bias, size=size, **window)
    return activated(ctx, y, ctx.get("activation"))


@rule(
    "MaxPooling1D",
    "MaxPooling2D",
    "MaxPooling3D",
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
)
def pooled(ctx: KerasContext) -> Outcome:
    """Either data format, valid or same padding; a mean is over real positions."""
    count = _axes(ctx)
    window = ctx.integers("pool_size" if ctx.get("pool_size") is not None else "pool_length", count, 2)
    strides = window if ctx.get("strides") is None else ctx.integers("strides", count)
    kind = top.MaxPool if ctx.kind.startswith("Max") else top.AvgPool
    padding = str(ctx.get("padding", "valid"))
    return pool(
        ctx.c,
        ctx.x(),
        kind,
        window=window,
        strides=strides,
        padding=padding,
        channels_first=ctx.channels_first,
    )


@rule(*(f"Global{kind}Pooling{n}D" for kind in ("Average", "Max") for n in (1, 2, 3)))
def global_pool(ctx: KerasContext) -> Outcome:
    """Either data format."""
    count = _axes(ctx)
    first = 2 if ctx.channels_first else 1
    kind = "mean" if "Average" in ctx.kind else "max"
    return a.reduce(ctx.c, ctx.x(), kind, range(first, first + count), ctx.flag("keepdims", False))


def _pairs(ctx: KerasContext, name: str, count: int) -> list[tuple[int, int]]:
    """A setting of one number, one an axis, or a pair an axis."""
    setting = ctx.get(name, 1)
    if isinstance(setting, int) and not isinstance(setting, bool):
        return [(setting, setting)] * count
    if count == 1 and isinstance(setting, list) and len(setting) == 2:
        setting = [setting]
    if not isinstance(setting, list) or len(setting) != count:
        raise ctx.wrong(f"its '{name}' is {str(setting)[:60]}")
    pairs = [[entry, entry] if isinstance(entry, int) else entry for entry in setting]
    if any(
        not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(n, int) and n >= 0 for n in pair)
        for pair in pairs
    ):
        raise ctx.wrong(f"its '{name}' is {str(setting)[:60]}")
    return [(pair[0], pair[1]) for pair in pairs]


def _bordered(ctx: KerasContext, pairs: Sequence[tuple[int, int]]) -> LayoutTensor:
    none = (0, 0)
    every = [none, none, *pairs] if ctx.channels_first else [none, *pairs, none]
    return m.pad(ctx.c, ctx.x(), every)


@rule("ZeroPadding1D", "ZeroPadding2D", "ZeroPadding3D")
def zero_padding(ctx: KerasContext) -> Outcome:
    """Either data format."""
    return _bordered(ctx, _pairs(ctx, "padding", _axes(ctx)))


@rule("Cropping1D", "Cropping2D", "Cropping3D")
def cropping(ctx: KerasContext) -> Outcome:
    """Either data format."""
    x, first = ctx.x(), 2 if ctx.channels_first else 1
    begins, counts = [0] * x.rank, list(x.shape)
    for axis, (before, after) in enumerate(_pairs(ctx, "cropping", _axes(ctx)), first):
        begins[axis], counts[axis] = before, counts[axis] - before - after
    return m.cut(ctx.c, x, begins, counts)


@rule("UpSampling1D", "UpSampling3D")
def repeat_pixels(ctx: KerasContext) -> Outcome:
    """Whole factors."""
    count, x = _axes(ctx), ctx.x()
    first = 2 if ctx.channels_first else 1
    for axis, factor in enumerate(ctx.integers("size", count, 2), first):
        x = m.repeated(ctx.c, x, axis, factor)
    return x


@rule("UpSampling2D")
def up_sampling(ctx: KerasContext) -> Outcome:
    """Whole factors; nearest or bilinear."""
    shape = ctx.x().shape
    old = shape[2:] if ctx.channels_first else shape[1:-1]
    size = [n * factor for n, factor in zip(old, ctx.integers("size", 2, 2), strict=True)]
    return _resized(ctx, size, str(ctx.get("interpolation", "nearest")))


def _resized(ctx: KerasContext, size: Sequence[int], how: str) -> LayoutTensor:
    if how == "bilinear":
        return m.resize(ctx.c, ctx.x(), size, "linear", channels_first=ctx.channels_first)
    if how == "nearest":
        return m.resize(
            ctx.c,
            ctx.x(),
            size,
            "nearest",
            rounding="round_prefer_ceil",
            channels_first=ctx.channels_first,
        )
    if how == "bicubic":
        return m.resize(
            ctx.c,
            ctx.x(),
            size,
            "cubic",
            channels_first=ctx.channels_first,
            cubic_coefficient=-0.5,
            exclude_outside=True,
        )
    raise ctx.refuse(f"it interpolates by '{how[:40]}'")


@rule("Resizing")
def resizing(ctx: KerasContext) -> Outcome:
    """Nearest, bilinear or (enlarging) bicubic, without keeping the aspect ratio."""
    if ctx.flag("crop_to_aspect_ratio", False) or ctx.flag("pad_to_aspect_ratio", False):
        raise ctx.refuse("it crops or pads to keep the aspect ratio")
    if ctx.flag("antialias", False):
        raise ctx.refuse("it smooths what it shrinks (antialias)")
    if not ctx.x().dtype.is_float:
        ctx.arguments = [a.cast(ctx.c, ctx.x(), "f32")]
    return _resized(
        ctx, (ctx.integer("height"), ctx.integer("width")), str(ctx.get("interpolation", "bilinear"))
    )


@rule("CenterCrop")
def center_crop(ctx: KerasContext) -> Outcome:
    """Not larger than the image."""
    x, first = ctx.x(), 2 if ctx.channels_first else 1
    begins, counts = [0] * x.rank, list(x.shape)
    for axis, size in enumerate((ctx.integer("height"), ctx.integer("width")), first):
        if size > x.shape[axis]:
            raise ctx.refuse("it is larger than the image, and resizes")
        begins[axis], counts[axis] = (x.shape[axis] - size) // 2, size
    return m.cut(ctx.c, x, begins, counts)
