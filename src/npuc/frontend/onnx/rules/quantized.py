"""Operators on quantized tensors, as dequantize, the float op, and quantize.

An integer network in ONNX's older "QOperator" form becomes the same form as one with explicit quantize and dequantize
nodes, its parameters kept. The float op between them computes what the integer one does, up to the rounding of a
float sum.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.rules.convolution import conv_parameters
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import Value, dtype_of, shape_of, top

_INTEGERS = ("i8", "ui8", "i16", "ui16")


def _parameter(ctx: NodeContext, index: int, what: str) -> Value:
    """A scale or zero point as an operand: a scalar, or one entry a channel."""
    array = ctx.known(index, what)
    if array.size == 1:
        return ctx.literal(array.reshape(()), what)
    if array.ndim != 1:
        raise NoTopForm(f"its {what} is neither per tensor nor per channel")
    return ctx.operand(index)


def _real(ctx: NodeContext, index: int, axis: int = 1) -> Value:
    """Operand `index`, whose scale and zero point follow it, dequantized."""
    if ctx.dtype(index).name not in _INTEGERS or ctx.dtype(index + 1).name != "f32":
        raise NoTopForm(f"it works on {ctx.dtype(index).name}")
    scale, zero = _parameter(ctx, index + 1, "scale"), _parameter(ctx, index + 2, "zero_point")
    if shape_of(zero) != shape_of(scale):
        raise NoTopForm("scale and zero point have different shapes")
    return ctx.emit(top.Dequantize, ctx.operand(index), scale, zero, axis=axis).y


def _quantized(ctx: NodeContext, value: Value, index: int) -> Outcome:
    """The result, quantized with the scale at `index` and the zero point after it."""
    scale, zero = _parameter(ctx, index, "scale"), _parameter(ctx, index + 1, "zero_point")
    if dtype_of(zero.type).name not in _INTEGERS or shape_of(scale) or shape_of(zero):
        raise NoTopForm("its result is not quantized per tensor to 8 or 16 bits")
    return ctx.emit(top.Quantize, value, scale, zero, to=dtype_of(zero.type).name).y


@rule("QLinearConv")
def qlinear_conv(ctx: NodeContext) -> Outcome:
    """x, its scale and zero point; w likewise; the output's; and an int32 bias of scale x_scale * w_scale."""
    x, weight, bias = _real(ctx, 0), _real(ctx, 3, axis=0), None
    if ctx.has(8):
        channels = ctx.shape(3)[0]
        scale = (ctx.known(1, "scale").reshape(-1) * ctx.known(4, "scale").reshape(-1)).astype(np.float32)
        values = ctx.literal(np.broadcast_to(scale, (channels,)), "bias_scale")
        zero = ctx.literal(np.zeros(channels, np.int32), "bias_zero_point")
        bias = ctx.emit(top.Dequantize, ctx.operand(8), values, zero, axis=0).y
    out = ctx.emit(top.Conv, x, weight, bias, **conv_parameters(ctx, weight_input=3)).y
    return _quantized(ctx, out, 6)


@rule("QLinearMatMul")
def qlinear_matmul(ctx: NodeContext) -> Outcome:
    """a, its scale and zero point; b likewise; the output's."""
    if min(len(ctx.shape(0)), len(ctx.shape(3))) < 2:
        raise NoTopForm("an operand is a vector")
    a = _real(ctx, 0, axis=max(0, len(ctx.shape(0)) - 2))
    b = _real(ctx, 3, axis=len(ctx.shape(3)) - 1)
    return _quantized(ctx, ctx.emit(top.MatMul, a, b, None).y, 6)


@rule("QGemm", domain="com.microsoft")
def qgemm(ctx: NodeContext) -> Outcome:
    """ONNX Runtime's fully connected layer; the bias is int32 of scale a_scale * b_scale."""
    node = ctx.node
    if node.float("alpha", 1.0) != 1.0 or node.flag("transA"):
        raise NoTopForm("it scales or transposes its first operand")
    axis = 0 if node.flag("transB") else 1
    a, b, bias = _real(ctx, 0), _real(ctx, 3, axis=axis), None
    if ctx.has(6):
        columns = ctx.shape(3)[axis]
        if ctx.shape(6) not in ((columns,), (1, columns)):
            raise NoTopForm("its bias needs broadcasting")
        scale = (ctx.known(1, "scale").reshape(-1) * ctx.known(4, "scale").reshape(-1)).astype(np.float32)
        values = ctx.literal(np.broadcast_to(scale, (columns,)), "bias_scale")
        zero = ctx.literal(np.zeros(columns, np.int32), "bias_zero_point")
        integers = ctx.operand(6)
        if ctx.shape(6) != (columns,):
            integers = ctx.emit(top.Reshape, integers, shape=(columns,)).y
        bias = ctx.emit(top.Dequantize, integers, values, zero, axis=0).y
    out = ctx.emit(top.MatMul, a, b, bias, transpose_b=node.flag("transB")).y
    return _quantized(ctx, out, 7) if ctx.has(7) else out


@rule("QLinearAdd", "QLinearMul", domain="com.microsoft")
def qlinear_binary(ctx: NodeContext) -> Outcome:
    """ONNX Runtime's own elementwise operators on quantized tensors."""
    kind = top.Add if ctx.node.op_type == "QLinearAdd" else top.Mul
    return _quantized(ctx, ctx.emit(kind, _real(ctx, 0), _real(ctx, 3)).y, 6)


def _unary(function: Callable[[NodeContext, Value], Value]) -> Callable[[NodeContext], Outcome]:
    def translate(ctx: NodeContext) -> Outcome:
        return _quantized(ctx, function(ctx, _real(ctx, 0)), 3)

    return translate


rule("QLinearSigmoid", domain="com.microsoft")(_unary(lambda ctx, x: ctx.emit(top.Sigmoid, x).y))
rule("QLinearLeakyRelu", domain="com.microsoft")(
    _unary(lambda ctx, x: ctx.emit(top.LeakyRelu, x, alpha=ctx.node.float("alpha", 0.01)).y)
)


@rule("QLinearGlobalAveragePool", domain="com.microsoft")
def qlinear_global_average_pool(ctx: NodeContext) -> Outcome:
    """The mean of every channel."""
    size = ctx.shape(0)[2:]
    if ctx.node.flag("channels_last") or not size:
        raise NoTopForm("its channels come last")
    ones = (1,) * len(size)
    pads = (0,) * (2 * len(size))
    mean = ctx.emit(top.AvgPool, _real(ctx, 0), kernel=size, strides=ones, pads=pads, dilations=ones).y
    return _quantized(ctx, mean, 3)
