"""Scaled dot-product attention."""

from __future__ import annotations

import numpy as np

from npuc.frontend.torch.masks import HIDDEN, limited
from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import DType, Value, dtype_of, shape_of, top
from npuc.ir.definition import broadcast


@rule(
    "aten.scaled_dot_product_attention",
    limits="inference only (no dropout); boolean and causal masks become sums with -10000",
)
def attention(ctx: TorchContext) -> Outcome:
    """batch x heads x length x width; fewer axes are filled up in front, keys of grouped queries repeated."""
    dtype = ctx.result_dtype
    rank = ctx.rank("query")
    if rank > 4:
        raise NoTopForm(f"its operands have {rank} axes")
    if ctx.number("dropout_p") > 0:
        raise NoTopForm("it drops scores at random")
    q, k, v = (_four(ctx, ctx.value(name, dtype)) for name in ("query", "key", "value"))
    repeat = shape_of(q)[1] // shape_of(k)[1]
    if ctx.flag("enable_gqa") and repeat != 1:
        k, v = _repeated(ctx, k, repeat), _repeated(ctx, v, repeat)
    # One head of keys and values may serve all queries (multi-query), and one sample the whole batch.
    leading = broadcast(*(shape_of(x)[:2] for x in (q, k, v)))
    q, k, v = (_widened(ctx, x, leading) for x in (q, k, v))
    scale = ctx.number("scale") if ctx.has("scale") else float(shape_of(q)[-1] ** -0.5)
    mask = _mask(ctx, shape_of(q)[2], shape_of(k)[2], dtype)
    y = ctx.emit(top.Attention, q, k, v, mask, scale=scale).y
    return ctx.reshape(y, ctx.result_shape)


def _four(ctx: TorchContext, x: Value) -> Value:
    shape = shape_of(x)
    return ctx.reshape(x, (*(1,) * (4 - len(shape)), *shape))


def _widened(ctx: TorchContext, x: Value, leading: tuple[int, ...]) -> Value:
    shape = shape_of(x)
    return x if shape[:2] == leading else ctx.emit(top.Expand, x, shape=(*leading, *shape[2:])).y


def _repeated(ctx: TorchContext, x: Value, repeat: int) -> Value:
    batch, heads, length, width = shape_of(x)
    wide = ctx.reshape(x, (batch, heads, 1, length, width))
    wide = ctx.emit(top.Expand, wide, shape=(batch, heads, repeat, length, width)).y
    return ctx.reshape(wide, (batch, heads * repeat, length, width))


def _mask(ctx: TorchContext, rows: int, columns: int, dtype: DType) -> Value | None:
    if ctx.flag("is_causal"):
        allowed = np.tril(np.ones((rows, columns), bool))
        return ctx.literal(np.where(allowed, 0.0, HIDDEN).astype(np.float32), "causal_mask")
    if not ctx.has("attn_mask"):
        return None
    if ctx.is_constant("attn_mask"):
        known = ctx.known("attn_mask")
        return ctx.literal(limited(np.where(known, 0.0, HIDDEN) if known.dtype == bool else known), "mask")
    if ctx.dtype("attn_mask").name != "i1":
        return ctx.value("attn_mask", dtype)
    f32 = dtype_of("f32")
    return ctx.emit(top.Where, ctx.value("attn_mask"), ctx.value(0.0, f32), ctx.value(HIDDEN, f32)).y
