"""Dense layers, embeddings, shapes, and layers that do nothing at inference."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks import movement as m
from npuc.frontend.blocks.einsum import einsum
from npuc.frontend.keras.activations import activated
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.layout import LayoutTensor
from npuc.ir import top


@rule(
    "Dropout",
    "SpatialDropout1D",
    "SpatialDropout2D",
    "SpatialDropout3D",
    "AlphaDropout",
    "GaussianDropout",
    "GaussianNoise",
    "ActivityRegularization",
    "RandomFlip",
    "RandomRotation",
    "RandomZoom",
    "RandomContrast",
    "RandomTranslation",
    "RandomBrightness",
    "RandomHeight",
    "RandomWidth",
    "Identity",
)
def nothing(ctx: KerasContext) -> Outcome:
    """Does nothing at inference."""
    return ctx.x()


@rule("Masking")
def masking(ctx: KerasContext) -> Outcome:
    """Zeroes masked steps; refused where a later layer would skip them."""
    x = ctx.x()
    same = a.binary(ctx.c, top.Compare, x, ctx.c.number(ctx.number("mask_value", 0.0), x), mode="equal")
    other = a.unary(ctx.c, same, top.Not)
    kept = a.cast(ctx.c, a.truth(ctx.c, other, "max", [-1], True), x.dtype.name)
    return a.binary(ctx.c, top.Mul, x, kept)


@rule("Dense")
def dense(ctx: KerasContext) -> Outcome:
    """Any rank from 2 on."""
    kernel, *bias = ctx.arrays(*((2,) if ctx.flag("use_bias", True) else (1,)))
    x = ctx.x()
    if kernel.ndim != 2 or x.rank < 2:
        raise ctx.wrong(f"a kernel of {list(kernel.shape)} for an input of rank {x.rank}")
    added = ctx.weight(bias[0], "bias") if bias else None
    product = a.matmul(ctx.c, x, ctx.weight(kernel, "kernel"), added)
    return activated(ctx, product, ctx.get("activation"))


@rule("EinsumDense")
def einsum_dense(ctx: KerasContext) -> Outcome:
    """Equations in which every letter stands once a tensor."""
    kernel, *bias = ctx.arrays(*((2,) if ctx.get("bias_axes") else (1,)))
    product = einsum(ctx.c, str(ctx.get("equation", "")), [ctx.x(), ctx.weight(kernel, "kernel")])
    if bias:
        product = a.binary(ctx.c, top.Add, product, ctx.weight(bias[0], "bias"))
    return activated(ctx, product, ctx.get("activation"))


@rule("Embedding")
def embedding(ctx: KerasContext) -> Outcome:
    """Rows of a table; mask_zero only where nothing listens to the mask."""
    (table,) = ctx.arrays(1)
    indices = ctx.x()
    if indices.dtype.is_float:
        indices = a.cast(ctx.c, indices, "i32")
    return LayoutTensor(
        ctx.c.emit(top.Gather, ctx.c.value(ctx.weight(table, "embeddings")), ctx.c.value(indices), axis=0).y
    )


@rule("Activation")
def activation(ctx: KerasContext) -> Outcome:
    """Keras' own functions."""
    return activated(ctx, ctx.x(), ctx.get("activation"))


@rule("Flatten")
def flatten(ctx: KerasContext) -> Outcome:
    """Either data format."""
    x = ctx.x()
    if ctx.channels_first and x.rank > 2:
        x = m.transpose(ctx.c, x, (0, *range(2, x.rank), 1))
    return m.reshape(ctx.c, x, (x.shape[0], prod(x.shape[1:])))


@rule("Reshape")
def reshape(ctx: KerasContext) -> Outcome:
    """One size may be -1."""
    target_shape = ctx.get("target_shape", [])
    if not isinstance(target_shape, list) or len(target_shape) > 32:
        raise ctx.wrong("its target shape is no list")
    return m.reshape(ctx.c, ctx.x(), (ctx.x().shape[0], *ctx.integers("target_shape", len(target_shape), [])))


@rule("Permute")
def permute(ctx: KerasContext) -> Outcome:
    """Any order of the axes behind the batch."""
    dims = ctx.integers("dims", ctx.x().rank - 1)
    return m.transpose(ctx.c, ctx.x(), (0, *dims))


@rule("RepeatVector")
def repeat_vector(ctx: KerasContext) -> Outcome:
    """Any number of times."""
    x = ctx.x()
    batch, features = x.shape
    value = ctx.c.value(m.reshape(ctx.c, x, (batch, 1, features)))
    return LayoutTensor(ctx.c.emit(top.Expand, value, shape=(batch, ctx.integer("n"), features)).y)


@rule("Rescaling")
def rescaling(ctx: KerasContext) -> Outcome:
    """One factor and offset, or one for each channel."""
    x = ctx.x()
    if not x.dtype.is_float:
        x = a.cast(ctx.c, x, "f32")
    for setting, kind, default in (("scale", top.Mul, 1.0), ("offset", top.Add, 0.0)):
        given = ctx.get(setting, default)
        numbers = np.array(given["config"]["value"] if isinstance(given, dict) else given, np.float32)
        if numbers.ndim > 1:
            raise ctx.refuse(f"its {setting} has rank {numbers.ndim}")
        if not (numbers == default).all():
            x = a.binary(ctx.c, kind, x, ctx.weight(numbers, setting))
    return x


@rule("Normalization")
def normalization(ctx: KerasContext) -> Outcome:
    """With a mean and a variance in the file, along one axis or over all."""
    axes = ctx.get("axis", -1)
    x = ctx.x()
    if not x.dtype.is_float:
        x = a.cast(ctx.c, x, "f32")
    if ctx.get("mean") is not None:
        statistics = [np.array(_plain(ctx.get(name)), np.float32) for name in ("mean", "variance")]
    else:
        statistics = ctx.arrays(2, 3)[:2]
    numbers = [axes] if isinstance(axes, int) else list(axes) if isinstance(axes, list) else []
    kept = sorted(axis % x.rank for axis in numbers)
    shape = [x.shape[axis] if axis in kept else 1 for axis in range(x.rank)]
    mean, variance = (
        np.broadcast_to(array.reshape(-1) if array.size > 1 else array.reshape(()), (prod(shape),)).reshape(
            shape
        )
        for array in statistics
    )
    deviation = np.maximum(np.sqrt(variance), 1e-7).astype(np.float32)
    if ctx.flag("invert", False):
        grown = a.binary(ctx.c, top.Mul, x, ctx.weight(deviation, "deviation"))
        return a.binary(ctx.c, top.Add, grown, ctx.weight(mean.copy(), "mean"))
    left = a.binary(ctx.c, top.Sub, x, ctx.weight(mean.copy(), "mean"))
    return a.binary(ctx.c, top.Div, left, ctx.weight(deviation, "deviation"))


def _plain(value: object) -> object:
    """A number or list, also as Keras 3 wraps an array."""
    if isinstance(value, dict):
        inner = value.get("config")
        return inner.get("value") if isinstance(inner, dict) else None
    return value
