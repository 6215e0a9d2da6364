"""Convolution and pooling: windows that slide."""

from __future__ import annotations

from typing import Any

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm, OnnxNode
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import shape_of, top
from npuc.ir.top.window import same_pads


def _explicit_pads(
    node: OnnxNode,
    size: tuple[int, ...],
    kernel: tuple[int, ...],
    strides: tuple[int, ...],
    dilations: tuple[int, ...],
) -> tuple[int, ...]:
    """Pads as numbers, whatever `auto_pad` says."""
    mode = node.string("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER"):
        return same_pads(size, kernel, strides, dilations, mode == "SAME_UPPER")
    if mode == "VALID":
        return (0,) * (2 * len(size))
    if mode not in ("NOTSET", ""):
        raise InvalidModelError(f"{node.label}: unknown auto_pad '{mode}'")
    pads: tuple[int, ...] = node.ints("pads", (0,) * (2 * len(size)))
    if len(pads) != 2 * len(size):
        raise InvalidModelError(f"{node.label}: {len(pads)} pads for {len(size)} spatial axes")
    return pads


def _spatial(ctx: NodeContext) -> tuple[int, ...]:
    shape = ctx.shape(0)
    if len(shape) < 3:
        raise InvalidModelError(f"{ctx.node.label}: its input has rank {len(shape)}, at least 3 is needed")
    return shape[2:]


def _check_sizes(node: OnnxNode, rank: int, *lists: tuple[int, ...]) -> None:
    for values in lists:
        if len(values) != rank or min(values) < 1:
            raise InvalidModelError(f"{node.label}: {list(values)} does not describe {rank} spatial axes")


def conv_parameters(ctx: NodeContext, weight_input: int = 1) -> dict[str, Any]:
    """Strides, pads, dilations and group of a convolution node."""
    node, size = ctx.node, _spatial(ctx)
    ones = (1,) * len(size)
    kernel = ctx.shape(weight_input)[2:]
    strides, dilations = node.ints("strides", ones), node.ints("dilations", ones)
    _check_sizes(node, len(size), strides, dilations)
    if len(kernel) != len(size) or tuple(node.ints("kernel_shape", kernel)) != kernel:
        raise InvalidModelError(
            f"{node.label}: the kernel does not fit the weight of shape {list(ctx.shape(weight_input))}"
        )
    return {
        "strides": strides,
        "pads": _explicit_pads(node, size, kernel, strides, dilations),
        "dilations": dilations,
        "group": node.int("group", 1),
    }


@rule("Conv")
def conv(ctx: NodeContext) -> Outcome:
    """Convolution of any rank."""
    return ctx.emit(top.Conv, ctx.operand(0), ctx.operand(1), ctx.optional(2), **conv_parameters(ctx)).y


@rule("ConvTranspose")
def conv_transpose(ctx: NodeContext) -> Outcome:
    """Transposed convolution; a wanted output shape becomes pads."""
    node, size = ctx.node, _spatial(ctx)
    rank = len(size)
    ones, zeros = (1,) * rank, (0,) * rank
    kernel = ctx.shape(1)[2:]
    strides, dilations = node.ints("strides", ones), node.ints("dilations", ones)
    extra = node.ints("output_padding", zeros)
    _check_sizes(node, rank, strides, dilations)
    if len(kernel) != rank or len(extra) != rank:
        raise InvalidModelError(f"{node.label}: its parameters do not describe {rank} spatial axes")
    mode = node.string("auto_pad", "NOTSET")
    output_shape = node.ints("output_shape", ())
    if not output_shape and mode in ("SAME_UPPER", "SAME_LOWER"):
        output_shape = tuple(n * s for n, s in zip(size, strides, strict=True))
    if output_shape:
        output_shape = output_shape[-rank:]
        begins, ends, added = [], [], []
        for i in range(rank):
            full = strides[i] * (size[i] - 1) + extra[i] + (kernel[i] - 1) * dilations[i] + 1
            total = full - output_shape[i]
            added.append(extra[i] + max(0, -total))
            total = max(0, total)
            small, large = total // 2, total - total // 2
            # ONNX puts the odd pixel at the end for SAME_UPPER and at the beginning otherwise.
            begins.append(small if mode == "SAME_UPPER" else large)
            ends.append(large if mode == "SAME_UPPER" else small)
        pads, extra = (*begins, *ends), tuple(added)
    else:
        pads = _explicit_pads(node, size, kernel, strides, dilations)
    return ctx.emit(
        top.Deconv,
        ctx.operand(0),
        ctx.operand(1),
        ctx.optional(2),
        strides=strides,
        pads=pads,
        dilations=dilations,
        group=node.int("group", 1),
        output_padding=extra,
    ).y


@rule("MaxPool", "AveragePool")
def pool(ctx: NodeContext) -> Outcome:
    """Pooling over windows."""
    node, size = ctx.node, _spatial(ctx)
    if len([name for name in node.outputs if name]) > 1:
        raise NoTopForm("its indices are used")
    ones = (1,) * len(size)
    kernel = node.ints("kernel_shape")
    strides, dilations = node.ints("strides", ones), node.ints("dilations", ones)
    _check_sizes(node, len(size), kernel, strides, dilations)
    common = {
        "kernel": kernel,
        "strides": strides,
        "dilations": dilations,
        "pads": _explicit_pads(node, size, kernel, strides, dilations),
        "ceil_mode": node.flag("ceil_mode"),
    }
    if node.op_type == "MaxPool":
        return ctx.emit(top.MaxPool, ctx.operand(0), **common).y
    return ctx.emit(top.AvgPool, ctx.operand(0), **common, count_include_pad=node.flag("count_include_pad")).y


@rule("GlobalMaxPool", "GlobalAveragePool")
def global_pool(ctx: NodeContext) -> Outcome:
    """A pool whose window is the whole image."""
    size = _spatial(ctx)
    ones = (1,) * len(size)
    kind = top.MaxPool if ctx.node.op_type == "GlobalMaxPool" else top.AvgPool
    op = ctx.emit(
        kind, ctx.operand(0), kernel=size, strides=ones, pads=(0,) * (2 * len(size)), dilations=ones
    )
    assert shape_of(op.y)[2:] == ones
    return op.y
