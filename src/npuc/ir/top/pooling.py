"""Pooling over windows; a global pool has a kernel as large as its input."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import TopOp, boolean, integers, operand, require, result, shape_of, top_op
from npuc.ir.dtypes import element_of, tensor_type
from npuc.ir.top.window import check_window, window_output


class Pool(TopOp):
    """Shared by the pools: x is N x C x spatial."""

    x = operand()
    kernel: tuple[int, ...] = integers()
    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    dilations: tuple[int, ...] = integers()
    ceil_mode: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """N x C x spatial."""
        x = shape_of(self.x)
        require(
            len(self.kernel) == len(x) - 2, f"a kernel of rank {len(self.kernel)} for input of rank {len(x)}"
        )
        check_window(len(x) - 2, self.strides, self.pads, self.dilations)
        require(min(self.kernel) >= 1, "the kernel must be positive")
        spatial = window_output(x[2:], self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        return [tensor_type((*x[:2], *spatial), element_of(self.x))]


@top_op
class MaxPool(Pool):
    """The maximum of each window; padding never wins."""

    name = "top.max_pool"


@top_op
class AvgPool(Pool):
    """The mean of each window, over its real positions or (`count_include_pad`) over all."""

    name = "top.avg_pool"
    count_include_pad: bool = boolean(False)
