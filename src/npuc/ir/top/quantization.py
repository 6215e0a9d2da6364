"""Quantize and dequantize, as a quantized model states them: real = scale * (q - zero_point)."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    integer,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import dtype_of, tensor_type


class Quantization(TopOp):
    """A scalar scale is per tensor; one of rank 1 is per channel of `axis`."""

    x = operand()
    scale = operand()
    zero_point = optional_operand()
    axis: int = integer(1)
    y = result()

    def check(self) -> None:
        """The scale fits the axis."""
        x, scale = shape_of(self.x), shape_of(self.scale)
        require(len(scale) <= 1, "scales in blocks have no form here")
        if scale and scale != (1,):
            axis = self.axis + len(x) if self.axis < 0 else self.axis
            require(
                0 <= axis < len(x) and x[axis] == scale[0],
                f"{scale[0]} scales for axis {self.axis} of {list(x)}",
            )
        if self.zero_point is not None:
            require(shape_of(self.zero_point) == scale, "scale and zero point have different shapes")


@top_op
class Quantize(Quantization):
    """saturate(round_half_even(x / scale) + zero_point) in the type `to`"""

    name = "top.quantize"
    to: str = text("ui8")

    def infer(self) -> Sequence[Attribute]:
        """The shape of x in the integer type."""
        return [tensor_type(shape_of(self.x), self.to)]


@top_op
class Dequantize(Quantization):
    """(x - zero_point) * scale"""

    name = "top.dequantize"

    def infer(self) -> Sequence[Attribute]:
        """The shape of x in the type of the scale."""
        return [tensor_type(shape_of(self.x), dtype_of(self.scale.type))]
