"""Layers of several inputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks import movement as m
from npuc.frontend.blocks.einsum import einsum
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.layout import LayoutTensor
from npuc.ir import top
from npuc.ir.definition import normal_axis

_KINDS: dict[str, Any] = {
    "Add": top.Add,
    "Subtract": top.Sub,
    "Multiply": top.Mul,
    "Maximum": top.Max,
    "Minimum": top.Min,
}


@rule(*_KINDS)
def merge(ctx: KerasContext) -> Outcome:
    """Any number of inputs; they broadcast."""
    return a.folded(ctx.c, _KINDS[ctx.kind], ctx.inputs)


@rule("Average")
def average(ctx: KerasContext) -> Outcome:
    """Any number of inputs; they broadcast."""
    return a.scaled(ctx.c, a.folded(ctx.c, top.Add, ctx.inputs), 1 / len(ctx.inputs))


@rule("Concatenate")
def concatenate(ctx: KerasContext) -> Outcome:
    """Along any axis."""
    return m.concat(ctx.c, ctx.inputs, ctx.integer("axis", -1))


@rule("Merge")
def merge_old(ctx: KerasContext) -> Outcome:
    """Keras 1: sum, mul, max, ave or concat."""
    mode = ctx.get("mode", "sum")
    if mode == "concat":
        return m.concat(ctx.c, ctx.inputs, ctx.integer("concat_axis", -1))
    if mode == "ave":
        return average(ctx)
    if mode not in ("sum", "mul", "max"):
        raise ctx.refuse(f"it merges by '{str(mode)[:40]}'")
    return a.folded(ctx.c, {"sum": top.Add, "mul": top.Mul, "max": top.Max}[mode], ctx.inputs)


@rule("Dot")
def dot(ctx: KerasContext) -> Outcome:
    """Along one axis of each input, normalized or not."""
    x, y = ctx.x(0), ctx.x(1)
    first, second = (
        normal_axis(axis, held.rank) for axis, held in zip(ctx.integers("axes", 2), (x, y), strict=True)
    )
    if ctx.flag("normalize", False):
        x = a.along(ctx.c, x, top.L2Norm, first, epsilon=1e-6)
        y = a.along(ctx.c, y, top.L2Norm, second, epsilon=1e-6)
    names = iter("cdefghijklmnop")
    left = "".join("a" if i == 0 else "b" if i == first else next(names) for i in range(x.rank))
    right = "".join("a" if i == 0 else "b" if i == second else next(names) for i in range(y.rank))
    rest = [letter for letter in left + right if letter not in "ab"]
    product = einsum(ctx.c, f"{left},{right}->a{''.join(rest)}", [x, y])
    return product if rest else m.reshape(ctx.c, product, (product.shape[0], 1))


def _heads(ctx: KerasContext, x: LayoutTensor, kernel: Any, bias: Any, title: str) -> LayoutTensor:
    """A projection to batch x heads x steps x size."""
    features, heads, size = kernel.shape
    flat = ctx.weight(kernel.reshape(features, heads * size), f"{title}/kernel")
    added = None if bias is None else ctx.weight(bias.reshape(-1), f"{title}/bias")
    projected = a.matmul(ctx.c, x, flat, added)
    batch, steps, _ = x.shape
    return m.transpose(ctx.c, m.reshape(ctx.c, projected, (batch, steps, heads, size)), (0, 2, 1, 3))


def _additive(ctx: KerasContext, mask: LayoutTensor) -> LayoutTensor:
    """Where a mask is false, a number that a softmax makes nothing of."""
    kept = a.cast(ctx.c, mask, "f32")
    return a.scaled(ctx.c, kept, 1e9, -1e9)


def _causal(ctx: KerasContext, queries: int, keys: int) -> LayoutTensor:
    allowed = np.tril(np.ones((queries, keys), bool))
    return ctx.weight(np.where(allowed, 0.0, -1e9).astype(np.float32), "causal_mask")


@rule("MultiHeadAttention")
def multi_head_attention(ctx: KerasContext) -> Outcome:
    """Sequences (rank 3), attention along the steps, with an attention mask or a causal one; scores are not returned."""
    query = ctx.x(0)
    value = ctx.keyword("value", 1)
    key = ctx.keyword("key", 2) or value
    mask = ctx.keyword("attention_mask", 6 if ctx.version >= (3,) else 3)
    if not isinstance(value, LayoutTensor) or not isinstance(key, LayoutTensor):
        raise ctx.wrong("it has no value")
    if any(x.rank != 3 for x in (query, value, key)) or ctx.get("attention_axes") not in (None, [1]):
        raise ctx.refuse("it works on more than sequences")
    if ctx.keywords.get("return_attention_scores"):
        raise ctx.refuse("it returns its scores")
    has_bias = ctx.flag("use_bias", True)
    parts = ("query_dense", "key_dense", "value_dense", "output_dense")
    listed = [ctx.weights.part(part, f"_{part}") for part in parts]
    if listed[0] is ctx.weights:  # one list of all
        every = ctx.arrays(8 if has_bias else 4)
        step = 2 if has_bias else 1
        projections = [every[i * step : (i + 1) * step] for i in range(4)]
    else:
        projections = [ctx.arrays(2 if has_bias else 1, of=part) for part in listed]
    kernels = [entry[0] for entry in projections]
    biases = [entry[1] if has_bias else None for entry in projections]
    q, k, v = (
        _heads(ctx, x, kernels[i], biases[i], parts[i].removesuffix("_dense"))
        for i, x in enumerate((query, key, value))
    )
    added = None
    if isinstance(mask, LayoutTensor):
        full = mask if mask.rank == 4 else m.reshape(ctx.c, mask, (mask.shape[0], 1, *mask.shape[1:]))
        added = _additive(ctx, full)
    if ctx.keywords.get("use_causal_mask"):
        causal = _causal(ctx, query.shape[1], key.shape[1])
        added = causal if added is None else a.binary(ctx.c, top.Add, added, causal)
    attention = ctx.c.emit(
        top.Attention,
        ctx.c.value(q),
        ctx.c.value(k),
        ctx.c.value(v),
        None if added is None else ctx.c.value(added),
        scale=float(kernels[0].shape[2]) ** -0.5,
    ).y
    batch, steps = query.shape[:2]
    heads, size = kernels[3].shape[0], kernels[3].shape[1]
    joined = m.reshape(
        ctx.c, m.transpose(ctx.c, LayoutTensor(attention), (0, 2, 1, 3)), (batch, steps, heads * size)
    )
    kernel = ctx.weight(kernels[3].reshape(heads * size, -1), "output/kernel")
    bias = None if biases[3] is None else ctx.weight(biases[3].reshape(-1), "output/bias")
    return a.matmul(ctx.c, joined, kernel, bias)


@rule("Attention", "AdditiveAttention")
def attention(ctx: KerasContext) -> Outcome:
    """Query, value and key; causal or not; scores are not returned."""
    tensors = ctx.inputs
    if len(tensors) not in (2, 3) or ctx.keywords.get("return_attention_scores"):
        raise ctx.refuse("it has masks, or returns its scores")
    query, value = tensors[:2]
    key = tensors[2] if len(tensors) == 3 else value
    use_scale = ctx.flag("use_scale", ctx.kind == "AdditiveAttention")
    concat = ctx.kind == "Attention" and ctx.get("score_mode", "dot") == "concat"
    weights = ctx.arrays(int(use_scale) + int(concat))
    if ctx.kind == "AdditiveAttention" or concat:
        batch, steps, size = query.shape
        left = m.reshape(ctx.c, query, (batch, steps, 1, size))
        right = m.reshape(ctx.c, key, (batch, 1, key.shape[1], size))
        total = a.binary(ctx.c, top.Add, left, right)
        if concat and use_scale:
            total = a.binary(ctx.c, top.Mul, total, ctx.weight(weights[0], "scale"))
        scores = a.unary(ctx.c, total, top.Tanh)
        if use_scale and not concat:
            scores = a.binary(ctx.c, top.Mul, scores, ctx.weight(weights[0], "scale"))
        scores = a.reduce(ctx.c, scores, "sum", [3])
        if concat:
            scores = a.binary(ctx.c, top.Mul, scores, ctx.weight(weights[-1], "score_weight"))
    else:
        scores = a.matmul(ctx.c, query, key, adjoint_b=True)
        if use_scale:
            scores = a.binary(ctx.c, top.Mul, scores, ctx.weight(weights[0], "scale"))
    if ctx.keywords.get("use_causal_mask") or ctx.get("causal", False):
        scores = a.binary(ctx.c, top.Add, scores, _causal(ctx, query.shape[1], key.shape[1]))
    return a.matmul(ctx.c, a.along(ctx.c, scores, top.Softmax), value)
