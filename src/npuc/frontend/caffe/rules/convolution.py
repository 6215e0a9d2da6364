"""Convolutions and inner products."""

from __future__ import annotations

from math import prod

from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.caffe.registry import CaffeContext, rule
from npuc.frontend.layered.context import NoForm
from npuc.ir import Value, top


def spatial(
    ctx: CaffeContext, given: CaffeMessage, name: str, rank: int, default: int | None
) -> tuple[int, ...]:
    """One number a spatial axis: `NAME_h` and `NAME_w`, or `NAME` once or for each."""
    short = name.removesuffix("_size")
    if given.has(f"{short}_h") or given.has(f"{short}_w"):
        if rank != 2:
            raise ctx.invalid(f"{short}_h and {short}_w for {rank} spatial axes")
        sizes: tuple[int, ...] = (
            given.int(f"{short}_h", default or 0),
            given.int(f"{short}_w", default or 0),
        )
    else:
        sizes = given.ints(name)
        if not sizes and default is not None:
            sizes = (default,)
        sizes = sizes * rank if len(sizes) == 1 else sizes
    least = 0 if name == "pad" else 1
    if len(sizes) != rank or any(n < least or n > 1 << 20 for n in sizes):
        raise ctx.invalid(f"its {name} is {list(sizes)}, for {rank} spatial axes")
    return sizes


def _convolution(ctx: CaffeContext, depthwise: bool = False) -> Value:
    given = ctx.parameters("convolution_param")
    x = ctx.shape()
    if given.int("axis", 1) != 1:
        raise NoForm("its channels are not on axis 1")
    rank = len(x) - 2
    transposed = "Deconvolution" in ctx.layer.kind
    kernel = spatial(ctx, given, "kernel_size", rank, None)
    pads = spatial(ctx, given, "pad", rank, 0)
    outputs = given.int("num_output", x[1] if depthwise else 0)
    group = given.int("group", 1)
    if depthwise and not given.has("group"):
        group = x[1]
    if group < 1 or outputs < 1 or x[1] % group or outputs % group:
        raise ctx.invalid(f"{x[1]} channels to {outputs} in {group} groups")
    shape = (x[1], outputs // group, *kernel) if transposed else (outputs, x[1] // group, *kernel)
    weight = ctx.weight(0, shape)
    bias = ctx.weight(1, (outputs,), "bias") if given.bool("bias_term", True) else None
    properties = {
        "strides": spatial(ctx, given, "stride", rank, 1),
        "pads": (*pads, *pads),
        "dilations": spatial(ctx, given, "dilation", rank, 1),
        "group": group,
    }
    if transposed:
        return ctx.emit(top.Deconv, ctx.value(), weight, bias, output_padding=(0,) * rank, **properties)
    return ctx.emit(top.Conv, ctx.value(), weight, bias, **properties)


@rule("Convolution", "Deconvolution")
def convolution(ctx: CaffeContext) -> list[Value]:
    """Any number of spatial axes, groups and dilations; channels on axis 1."""
    if ctx.count <= 1:
        return [_convolution(ctx)]
    raise NoForm("it convolves several inputs with one weight")


@rule("ConvolutionDepthwise", "DepthwiseConvolution", "DepthwiseConv")
def depthwise(ctx: CaffeContext) -> Value:
    """A convolution with a group for each channel, unless `group` says otherwise."""
    return _convolution(ctx, depthwise=True)


@rule("InnerProduct")
def inner_product(ctx: CaffeContext) -> Value:
    """With `axis`, `transpose` and `bias_term`."""
    given = ctx.parameters("inner_product_param")
    x = ctx.shape()
    axis = ctx.axis(given.int("axis", 1))
    outputs = given.int("num_output")
    inner = prod(x[axis:])
    flat = ctx.reshape(ctx.value(), (prod(x[:axis]), inner))
    turned = given.bool("transpose")
    weight = ctx.weight(0, (inner, outputs) if turned else (outputs, inner))
    bias = ctx.weight(1, (outputs,), "bias") if given.bool("bias_term", True) else None
    y = ctx.emit(top.MatMul, flat, weight, bias, transpose_b=not turned)
    return ctx.reshape(y, (*x[:axis], outputs))


@rule("Embed")
def embed(ctx: CaffeContext) -> Value:
    """Rows of a table; the indices are floats, as all of Caffe's tensors."""
    given = ctx.parameters("embed_param")
    outputs = given.int("num_output")
    indices = ctx.emit(top.Cast, ctx.value(), to="i64")
    y = ctx.emit(top.Gather, ctx.weight(0, (given.int("input_dim"), outputs)), indices, axis=0)
    if given.bool("bias_term", True):
        y = ctx.emit(top.Add, y, ctx.weight(1, (outputs,), "bias"))
    return y
