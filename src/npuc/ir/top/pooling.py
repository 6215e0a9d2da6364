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

    @property
    def extents(self) -> tuple[list[int], list[int]]:
        """Where the padded input ends and where the last window ends on each axis, counted from the begin of the padding."""
        rank, sizes = len(self.kernel), shape_of(self.x)[2:]
        padded = [size + self.pads[i] + self.pads[i + rank] for i, size in enumerate(sizes)]
        reached = [
            (count - 1) * self.strides[i] + (self.kernel[i] - 1) * self.dilations[i] + 1
            for i, count in enumerate(shape_of(self.y)[2:])
        ]
        return padded, reached


@top_op
class MaxPool(Pool):
    """The maximum of each window; padding never wins."""

    name = "top.max_pool"


@top_op
class AvgPool(Pool):
    """The mean of each window, over its real positions or (`count_include_pad`) over those in the padded input."""

    name = "top.avg_pool"
    count_include_pad: bool = boolean(False)

    @property
    def counts_vary(self) -> bool:
        """Whether padding counts and a last window of ceil mode reaches beyond it, where nothing counts."""
        padded, reached = self.extents
        return self.count_include_pad and any(b > a for a, b in zip(padded, reached, strict=True))
