"""Convolution and its transpose, in one to three spatial dimensions."""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    boolean,
    integer,
    integers,
    number,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
    top_op,
)
from npuc.ir.dtypes import dtype_of, tensor_type
from npuc.ir.top.window import check_window, window_output


class Convolution(TopOp):
    """Shared by `conv` and `deconv`: x is N x C x spatial; relu is fused, `relu_limit` > 0 is its upper limit."""

    x = operand()
    weight = operand()
    bias = optional_operand()
    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    dilations: tuple[int, ...] = integers()
    group: int = integer(1)
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)
    y = result()


def _check_bias(bias: Any, channels: int) -> None:
    if bias is not None:
        require(shape_of(bias) == (channels,), f"the bias has shape {list(shape_of(bias))}, not [{channels}]")


def conv_shape(op: Any) -> tuple[int, ...]:
    """N x output channels x spatial, of an op with the fields of `Convolution`."""
    x, w = shape_of(op.x), shape_of(op.weight)
    require(len(w) == len(x), f"input of rank {len(x)} and weight of rank {len(w)}")
    check_window(len(x) - 2, op.strides, op.pads, op.dilations)
    require(
        op.group >= 1 and x[1] == w[1] * op.group,
        f"{x[1]} channels, but the weight is for {w[1]} x {op.group}",
    )
    require(w[0] % op.group == 0, f"{w[0]} output channels do not divide into {op.group} groups")
    _check_bias(op.bias, w[0])
    return (x[0], w[0], *window_output(x[2:], w[2:], op.strides, op.pads, op.dilations))


def deconv_shape(op: Any) -> tuple[int, ...]:
    """N x output channels x spatial, of an op with the fields of `Convolution` and `output_padding`."""
    x, w = shape_of(op.x), shape_of(op.weight)
    rank = len(x) - 2
    require(len(w) == len(x), f"input of rank {len(x)} and weight of rank {len(w)}")
    check_window(rank, op.strides, op.pads, op.dilations)
    require(
        len(op.output_padding) == rank, f"{len(op.output_padding)} output paddings for {rank} spatial axes"
    )
    require(op.group >= 1 and x[1] == w[0], f"{x[1]} channels, but the weight is for {w[0]}")
    require(x[1] % op.group == 0, f"{x[1]} channels do not divide into {op.group} groups")
    channels = w[1] * op.group
    _check_bias(op.bias, channels)
    spatial = tuple(
        (x[i + 2] - 1) * op.strides[i]
        + (w[i + 2] - 1) * op.dilations[i]
        + 1
        + op.output_padding[i]
        - op.pads[i]
        - op.pads[i + rank]
        for i in range(rank)
    )
    require(min(spatial) >= 0, "the output would have a negative size")
    return (x[0], channels, *spatial)


@top_op
class Conv(Convolution):
    """Cross-correlation; the weight is output channels x (input channels / group) x kernel."""

    name = "top.conv"

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(conv_shape(self), dtype_of(self.x.type))]


@top_op
class Deconv(Convolution):
    """Transposed convolution; the weight is input channels x (output channels / group) x kernel."""

    name = "top.deconv"
    output_padding: tuple[int, ...] = integers()

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(deconv_shape(self), dtype_of(self.x.type))]
