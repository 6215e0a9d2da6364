"""From real numbers to integers and back, and from plain integers to those that stand for reals."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import operand, require, result, shape_of, text
from npuc.ir.dtypes import QuantType, dtype_of, quant_of, tensor_type
from npuc.ir.npu.definition import NpuOp, npu_op, quantized


@npu_op
class Quantize(NpuOp):
    """sat(round(x / scale) + zero_point); `rounding` of ties is half_away or half_even. Plain integers are taken as float32."""

    name = "npu.quantize"
    x = operand()
    rounding: str = text("half_away")
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x in the quantized type."""
        require(isinstance(self.to, QuantType), "the result must be quantized")
        return [tensor_type(shape_of(self.x), self.to)]


@npu_op
class Dequantize(NpuOp):
    """scale * (q - zero_point) as float32"""

    name = "npu.dequantize"
    x = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x as real numbers."""
        quantized(self.x)
        require(dtype_of(self.to).is_float, "the result must be real numbers")
        return [tensor_type(shape_of(self.x), self.to)]


@npu_op
class Reinterpret(NpuOp):
    """The same integers under another type: plain ones read as quantized, or quantized ones as plain."""

    name = "npu.reinterpret"
    x = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x in the type `to`, which has the same storage."""
        plain = isinstance(self.to, QuantType) != (quant_of(self.x) is not None)
        require(plain, "one side must be quantized and the other plain")
        require(dtype_of(self.to) == dtype_of(self.x.type), "both sides must have the same integers")
        return [tensor_type(shape_of(self.x), self.to)]
