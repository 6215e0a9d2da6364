"""Convolution and its transpose, in one to three spatial dimensions."""

from collections.abc import Sequence

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

    def _check_bias(self, channels: int) -> None:
        if self.bias is not None:
            require(
                shape_of(self.bias) == (channels,),
                f"the bias has shape {list(shape_of(self.bias))}, not [{channels}]",
            )


@top_op
class Conv(Convolution):
    """Cross-correlation; the weight is output channels x (input channels / group) x kernel."""

    name = "top.conv"

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        x, w = shape_of(self.x), shape_of(self.weight)
        require(len(w) == len(x), f"input of rank {len(x)} and weight of rank {len(w)}")
        check_window(len(x) - 2, self.strides, self.pads, self.dilations)
        require(
            self.group >= 1 and x[1] == w[1] * self.group,
            f"{x[1]} channels, but the weight is for {w[1]} x {self.group}",
        )
        require(w[0] % self.group == 0, f"{w[0]} output channels do not divide into {self.group} groups")
        self._check_bias(w[0])
        spatial = window_output(x[2:], w[2:], self.strides, self.pads, self.dilations)
        return [tensor_type((x[0], w[0], *spatial), dtype_of(self.x.type))]


@top_op
class Deconv(Convolution):
    """Transposed convolution; the weight is input channels x (output channels / group) x kernel."""

    name = "top.deconv"
    output_padding: tuple[int, ...] = integers()

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        x, w = shape_of(self.x), shape_of(self.weight)
        rank = len(x) - 2
        require(len(w) == len(x), f"input of rank {len(x)} and weight of rank {len(w)}")
        check_window(rank, self.strides, self.pads, self.dilations)
        require(
            len(self.output_padding) == rank,
            f"{len(self.output_padding)} output paddings for {rank} spatial axes",
        )
        require(self.group >= 1 and x[1] == w[0], f"{x[1]} channels, but the weight is for {w[0]}")
        require(x[1] % self.group == 0, f"{x[1]} channels do not divide into {self.group} groups")
        channels = w[1] * self.group
        self._check_bias(channels)
        spatial = tuple(
            (x[i + 2] - 1) * self.strides[i]
            + (w[i + 2] - 1) * self.dilations[i]
            + 1
            + self.output_padding[i]
            - self.pads[i]
            - self.pads[i + rank]
            for i in range(rank)
        )
        require(min(spatial) >= 0, "the output would have a negative size")
        return [tensor_type((x[0], channels, *spatial), dtype_of(self.x.type))]
