"""Ops on block floating point, mx6 and mx9, packed in bytes: docs/arithmetic-float.md.

A row of numbers is a row of blocks of 16, so that the axis of the row counts bytes in a packed tensor, whose elements are ui8.
Products are of packed operands; their sums and results are floats.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from npuc.arithmetic.blocks import BLOCK_FORMATS, block_bytes
from npuc.ir.definition import (
    boolean,
    integer,
    integers,
    number,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
    text,
)
from npuc.ir.dtypes import dtype_of, is_machine_float, tensor_type
from npuc.ir.npu.definition import NpuOp, npu_op
from npuc.ir.top.window import window_output


def _known(format_: str) -> None:
    require(format_ in BLOCK_FORMATS, f"format '{format_}' is not {' or '.join(BLOCK_FORMATS)}")


@npu_op
class BlockPack(NpuOp):
    """Floats as packed blocks along the channels of images (`axis` 1 of rank 4) or along the last axis."""

    name = "npu.block_pack"
    x = operand()
    axis: int = integer()
    format: str = text()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The axis counts bytes."""
        _known(self.format)
        shape = list(shape_of(self.x))
        inner = 1 if len(shape) == 4 else len(shape) - 1
        require(self.axis in (inner, len(shape) - 1), f"blocks do not lie along axis {self.axis}")
        shape[self.axis] = block_bytes(self.format, shape[self.axis])
        return [tensor_type(shape, "ui8")]

    def check(self) -> None:
        """Of floats."""
        require(is_machine_float(self.x.type.element_type), "floats are packed")  # type: ignore[attr-defined]


class BlockLinear(NpuOp):
    """A product with constant weights: both operands packed, the bias f32, the result bf16, f16 or f32; relu is fused."""

    x = operand()
    weight = operand()
    bias = optional_operand()
    format: str = text()
    inputs: int = integer()
    """Input channels: numbers of a row, which `x` has packed."""
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)
    y = result()

    def check(self) -> None:
        """Packed operands of the format, and a float result."""
        _known(self.format)
        require(is_machine_float(self.to), f"the result must be bf16, f16 or f32, not {self.to}")
        for value in (self.x, self.weight):
            require(dtype_of(value.type).name == "ui8", f"packed blocks are ui8, not {value.type}")
        packed = block_bytes(self.format, self.inputs)
        rows = self.packed_axis()
        require(shape_of(self.x)[rows] == packed, f"rows of {self.inputs} numbers are {packed} bytes long")
        require(
            shape_of(self.weight)[-1] == packed, f"weights of {self.inputs} inputs are {packed} bytes long"
        )
        require(self.bias is None or dtype_of(self.bias.type).name == "f32", "the bias must be f32")

    def packed_axis(self) -> int:
        """The axis of `x` that counts bytes."""
        raise NotImplementedError


@npu_op
class BlockConv(BlockLinear):
    """`top.conv` of one group; `weight` is (output channels, kernel height, kernel width, bytes of the input channels)."""

    name = "npu.block_conv"
    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    dilations: tuple[int, ...] = integers()

    def packed_axis(self) -> int:
        """Channels."""
        return 1

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        x, weight = shape_of(self.x), shape_of(self.weight)
        require(len(x) == 4 and len(weight) == 4, "needs images and weights of rank 4")
        spatial = window_output(x[2:], weight[1:3], self.strides, self.pads, self.dilations, False)
        return [tensor_type((x[0], weight[0], *spatial), self.to)]


@npu_op
class BlockMatMul(BlockLinear):
    """A product over the last axis with a constant matrix; `weight` is (columns, bytes of the shared axis)."""

    name = "npu.block_matmul"

    def packed_axis(self) -> int:
        """The last one."""
        return -1

    def infer(self) -> Sequence[Attribute]:
        """The last axis becomes the columns."""
        return [tensor_type((*shape_of(self.x)[:-1], shape_of(self.weight)[0]), self.to)]


def is_block_op(op: Any) -> bool:
    """Whether an op computes with packed blocks, or makes them."""
    return isinstance(op, BlockPack | BlockLinear)
