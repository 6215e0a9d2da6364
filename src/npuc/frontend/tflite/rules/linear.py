"""Fully connected layers and matrix products."""

from __future__ import annotations

from math import prod

from npuc.errors import InvalidModelError
from npuc.frontend.tflite.activation import activated, fused_relu
from npuc.frontend.tflite.registry import Outcome, rule
from npuc.frontend.tflite.rules.convolution import bias
from npuc.frontend.tflite.schema import FullyConnectedOptionsWeightsFormat as Format
from npuc.frontend.tflite.scope import TfliteContext
from npuc.ir import top


@rule("FULLY_CONNECTED")
def fully_connected(ctx: TfliteContext) -> Outcome:
    """Weights are outputs x inputs; x is flattened to rows of inputs, unless it keeps its axes."""
    options = ctx.options("FullyConnectedOptions")
    if options is not None and options.number("WeightsFormat") != Format.DEFAULT:
        raise ctx.refuse("its weights are shuffled for one kind of processor")
    if ctx.rank(1) != 2:
        raise InvalidModelError(f"{ctx.label}: its weights have rank {ctx.rank(1)}, not 2")
    outputs, inputs = ctx.shape(1)
    shape = ctx.shape(0)
    keeps = options is not None and bool(options.number("KeepNumDims"))
    rows = shape if keeps and len(shape) >= 2 else (-1, inputs)
    if inputs < 1 or prod(shape) % inputs or (rows == shape and shape[-1] != inputs):
        raise InvalidModelError(f"{ctx.label}: an input of shape {list(shape)} for weights of {inputs}")
    if rows != shape:
        rows = (prod(shape) // inputs, inputs)
    x = ctx.real(0)
    if rows != shape:
        x = ctx.reals(ctx.emit(top.Reshape, ctx.value(0), shape=rows).y, 0)
    weight = ctx.real(1) if ctx.weight(1) is None else ctx.constant(1, lambda array: array, 0)
    y = ctx.emit(
        top.MatMul, x, weight, bias(ctx, 2, 0, 1, outputs), transpose_b=True, **fused_relu(options)
    ).y
    return activated(ctx, y, options, fuses=True)


@rule("BATCH_MATMUL")
def batch_matmul(ctx: TfliteContext) -> Outcome:
    """Either operand may be transposed."""
    options = ctx.options("BatchMatMulOptions")
    a, b = ctx.real(0), ctx.real(1)
    if options is not None and options.number("AdjX"):
        rank = ctx.rank(0)
        a = ctx.reals(ctx.emit(top.Permute, ctx.value(0), order=(*range(rank - 2), rank - 1, rank - 2)).y, 0)
    adjoint = options is not None and bool(options.number("AdjY"))
    return ctx.emit(top.MatMul, a, b, None, transpose_b=adjoint).y
