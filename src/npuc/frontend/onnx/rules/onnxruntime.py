"""Operators of ONNX Runtime's own domain, `com.microsoft`, which its optimizer writes: fused activations, sums and norms.

What has no rule here stays ONNX and runs on the CPU, in ONNX Runtime, which knows it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from npuc.frontend.onnx.node import NoTopForm, OnnxNode
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.rules.convolution import conv_parameters
from npuc.frontend.onnx.rules.linear import gemm, scaled
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import Value, shape_of, top

_OWN = "com.microsoft"


def _activated(ctx: NodeContext, value: Value) -> Value:
    """A value behind the activation that a fused node names."""
    name = ctx.node.string("activation", "")
    parameters = _parameters(ctx.node)
    if name == "":
        return value
    if name in _PLAIN and not parameters:
        return _PLAIN[name](ctx, value)
    if name == "LeakyRelu":
        return ctx.emit(top.LeakyRelu, value, alpha=parameters[0] if parameters else 0.01).y
    if name == "Clip" and len(parameters) == 2:
        return ctx.emit(top.Clip, value, min=parameters[0], max=parameters[1]).y
    raise NoTopForm(f"it is fused with {name[:40]}")


_PLAIN: dict[str, Callable[[NodeContext, Value], Value]] = {
    "Relu": lambda ctx, x: ctx.emit(top.Relu, x).y,
    "Sigmoid": lambda ctx, x: ctx.emit(top.Sigmoid, x).y,
    "Tanh": lambda ctx, x: ctx.emit(top.Tanh, x).y,
}


def _parameters(node: OnnxNode) -> tuple[float, ...]:
    given: tuple[float, ...] = node.floats("activation_params", ())
    if given or not node.has("activation_alpha"):
        return given
    return (node.float("activation_alpha"),)


@rule("FusedConv", domain=_OWN)
def fused_conv(ctx: NodeContext) -> Outcome:
    """Convolution with bias, a sum and an activation."""
    out = ctx.emit(top.Conv, ctx.operand(0), ctx.operand(1), ctx.optional(2), **conv_parameters(ctx)).y
    if ctx.has(3):
        out = ctx.emit(top.Add, out, ctx.operand(3)).y
    return _activated(ctx, out)


@rule("FusedGemm", domain=_OWN)
def fused_gemm(ctx: NodeContext) -> Outcome:
    """Gemm with an activation."""
    out = gemm(ctx)
    assert isinstance(out, Value)
    return _activated(ctx, out)


@rule("FusedMatMul", "TransposeMatMul", domain=_OWN)
def fused_matmul(ctx: NodeContext) -> Outcome:
    """alpha * A @ B, with the last two axes of either swapped."""
    node = ctx.node
    if node.flag("transBatchA") or node.flag("transBatchB"):
        raise NoTopForm("it moves its batch axes")
    a, b = ctx.operand(0), ctx.operand(1)
    if min(len(shape_of(a)), len(shape_of(b))) < 2:
        raise NoTopForm("an operand is a vector")
    if node.flag("transA"):
        a = _swapped(ctx, a)
    if node.flag("transB"):
        b = _swapped(ctx, b)
    return ctx.emit(top.MatMul, scaled(ctx, a, node.float("alpha", 1.0), "alpha"), b, None).y


def _swapped(ctx: NodeContext, value: Value) -> Value:
    rank = len(shape_of(value))
    return ctx.emit(top.Permute, value, order=(*range(rank - 2), rank - 1, rank - 2)).y


@rule("Gelu", "BiasGelu", "FastGelu", domain=_OWN)
def own_gelu(ctx: NodeContext) -> Outcome:
    """Of x, or of x + bias; FastGelu by tanh."""
    x = ctx.operand(0)
    if ctx.has(1):
        x = ctx.emit(top.Add, x, ctx.operand(1)).y
    return ctx.emit(top.Gelu, x, tanh=ctx.node.op_type == "FastGelu").y


@rule("QuickGelu", domain=_OWN)
def quick_gelu(ctx: NodeContext) -> Outcome:
    """x * sigmoid(alpha * x)."""
    x, alpha = ctx.operand(0), ctx.node.float("alpha", 1.702)
    if alpha == 1.0:
        return ctx.emit(top.SiLU, x).y
    return ctx.emit(top.Mul, x, ctx.emit(top.Sigmoid, scaled(ctx, x, alpha, "alpha")).y).y


@rule("SkipLayerNormalization", "SkipSimplifiedLayerNormalization", domain=_OWN)
def skip_layer_norm(ctx: NodeContext) -> Sequence[Outcome]:
    """The norm of x + skip, or of x + skip + bias, over the last axis; that sum may be its last output."""
    node = ctx.node
    simple = node.op_type.startswith("SkipSimplified")
    if any(node.outputs[1:3]):
        raise NoTopForm("its mean or variance is an output")
    x, skip = ctx.operand(0), ctx.operand(1)
    total = ctx.emit(top.Add, x, skip).y
    extra = ctx.optional(3 if simple else 4)
    if extra is not None:
        total = ctx.emit(top.Add, total, extra).y
    epsilon = float(node.float("epsilon", 1e-12))
    if simple:
        out = ctx.emit(top.RMSNorm, total, ctx.operand(2), None, axis=-1, epsilon=epsilon).y
    else:
        out = ctx.emit(top.LayerNorm, total, ctx.operand(2), ctx.optional(3), axis=-1, epsilon=epsilon).y
    return [out, out, out, total][: len(node.outputs)]
