"""Ops on bf16, f16 and f32, which need no scales: docs/arithmetic-float.md.

Operands are widened to f32, products are exact, sums are f32 in the order kernel row, kernel column, input channel, and
the result is rounded to nearest even. Ops that only move elements are those of the `top` dialect, and so are comparisons of
bf16 and f16. Of f32 these stand for the CPU's, and those of the NPU, which compare in IEEE's total order, have ops here.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

from xdsl.ir import Attribute

from npuc.arithmetic import piecewise
from npuc.ir.definition import (
    boolean,
    broadcast,
    dictionary,
    integer,
    integers,
    normal_axis,
    number,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
    text,
)
from npuc.ir.dtypes import dtype_of, is_machine_float, is_narrow_float, mlir_type, tensor_type
from npuc.ir.npu.definition import NpuOp, npu_op
from npuc.ir.npu.rows import NORMS
from npuc.ir.top import convolution, matmul
from npuc.ir.top.reduction import reduced_shape
from npuc.ir.top.window import window_output


class FloatOp(NpuOp):
    """An op on bf16, f16 or f32."""

    def check(self) -> None:
        """The result and all operands but a bias have one type."""
        require(is_machine_float(self.to), f"the result must be bf16, f16 or f32, not {self.to}")
        for value in self.narrow_operands():
            require(
                value.type.element_type == self.to,
                f"an operand of type {value.type} for a result of {self.to}",
            )

    def narrow_operands(self) -> Sequence[Any]:
        """The operands that have the type of the result."""
        return self.operands


class FloatLinear(FloatOp):
    """Shared by convolution and matrix product; the bias is f32, the sum starts with it; relu is fused."""

    x = operand()
    weight = operand()
    bias = optional_operand()
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)
    y = result()

    def narrow_operands(self) -> Sequence[Any]:
        """All but the bias."""
        return self.operands[:2]

    def check(self) -> None:
        """The bias is f32."""
        super().check()
        require(self.bias is None or dtype_of(self.bias.type).name == "f32", "the bias must be f32")


class FloatConvolution(FloatLinear):
    """Shared by `float_conv` and `float_deconv`."""

    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    dilations: tuple[int, ...] = integers()
    group: int = integer(1)


@npu_op
class FloatConv(FloatConvolution):
    """`top.conv` on bf16, f16 or f32."""

    name = "npu.float_conv"

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(convolution.conv_shape(self), self.to)]


@npu_op
class FloatDeconv(FloatConvolution):
    """`top.deconv` on bf16, f16 or f32."""

    name = "npu.float_deconv"
    output_padding: tuple[int, ...] = integers()

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(convolution.deconv_shape(self), self.to)]


@npu_op
class FloatMatMul(FloatLinear):
    """`top.matmul` on bf16, f16 or f32: `weight` is a constant or an activation."""

    name = "npu.float_matmul"
    transpose_b: bool = boolean(False)

    def infer(self) -> Sequence[Attribute]:
        """Batch axes x M x N."""
        return [tensor_type(matmul.matmul_shape(self.x, self.weight, self.bias, self.transpose_b), self.to)]


class FloatBinary(FloatOp):
    """Two operands, broadcast: computed in f32, then a fused relu, then rounded."""

    a = operand()
    b = operand()
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The broadcast shape."""
        return [tensor_type(broadcast(shape_of(self.a), shape_of(self.b)), self.to)]


@npu_op
class FloatAdd(FloatBinary):
    """a + b"""

    name = "npu.float_add"


@npu_op
class FloatSub(FloatBinary):
    """a - b"""

    name = "npu.float_sub"


@npu_op
class FloatMul(FloatBinary):
    """a * b"""

    name = "npu.float_mul"


class FloatChoice(FloatOp):
    """One of two operands, broadcast, in IEEE's total order: -0 is below +0, a positive NaN above all."""

    a = operand()
    b = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The broadcast shape."""
        return [tensor_type(broadcast(shape_of(self.a), shape_of(self.b)), self.to)]


@npu_op
class FloatMax(FloatChoice):
    """The larger of a and b."""

    name = "npu.float_max"


@npu_op
class FloatMin(FloatChoice):
    """The smaller of a and b."""

    name = "npu.float_min"


class FloatPool(FloatOp):
    """Shared by `float_avg_pool` and `float_max_pool`."""

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
        require(len(self.kernel) == 2 and len(x) == 4, "needs rank 4 and a kernel of two axes")
        spatial = window_output(x[2:], self.kernel, self.strides, self.pads, self.dilations, self.ceil_mode)
        return [tensor_type((*x[:2], *spatial), self.to)]


@npu_op
class FloatAvgPool(FloatPool):
    """The f32 sum of each window, rows first, divided by its count of real positions, or of all."""

    name = "npu.float_avg_pool"
    count_include_pad: bool = boolean(False)


@npu_op
class FloatMaxPool(FloatPool):
    """The largest of each window in IEEE's total order."""

    name = "npu.float_max_pool"


@npu_op
class FloatTable(FloatOp):
    """y = table[x]: an entry for each of the 65536 values of x, in the order of its bits; for f32 the bytes of a piecewise
    polynomial (`npuc.arithmetic.piecewise`)."""

    name = "npu.float_table"
    x = operand()
    table = operand()
    function: str = text("")
    parameters: dict[str, Any] = dictionary({})
    """Those of the function that are not the usual ones."""
    y = result()

    def narrow_operands(self) -> Sequence[Any]:
        """A table of f32 is bytes, one of a narrow type has entries of that type."""
        return self.operands if is_narrow_float(self.to) else self.operands[:1]

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        shape = shape_of(self.table)
        if is_narrow_float(self.to):
            require(shape == (1 << 16,), "a table of 65536 entries is needed")
        else:
            pieces, rest = divmod(prod(shape) - piecewise.DIRECTORY, piecewise.SEGMENT_BYTES)
            bytes_ = dtype_of(self.table.type).name == "ui8" and len(shape) == 1
            require(
                bytes_ and pieces >= 1 and not rest, "a table of f32 is the bytes of a piecewise polynomial"
            )
        return [tensor_type(shape_of(self.x), self.to)]


@npu_op
class FloatSoftmax(FloatOp):
    """e^(x - the largest) over the sum of all, along `axis`."""

    name = "npu.float_softmax"
    x = operand()
    axis: int = integer(-1)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        normal_axis(self.axis, len(shape_of(self.x)))
        return [tensor_type(shape_of(self.x), self.to)]


@npu_op
class FloatNorm(FloatOp):
    """A normalization of `mode` layer, rms, instance, group or l2; `gain` and `bias` are f32.

    They have one entry, one for each element of a row (layer, rms) or one for each channel (instance, group).
    """

    name = "npu.float_norm"
    x = operand()
    gain = operand()
    bias = operand()
    mode: str = text()
    axis: int = integer(-1)
    groups: int = integer(1)
    epsilon: float = number(0.0)
    y = result()

    def narrow_operands(self) -> Sequence[Any]:
        """All but gain and bias."""
        return self.operands[:1]

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        return [tensor_type(shape_of(self.x), self.to)]

    def check(self) -> None:
        """A known mode; gain and bias are f32."""
        super().check()
        require(self.mode in NORMS, f"mode '{self.mode}' is not one of {', '.join(NORMS)}")
        for value in (self.gain, self.bias):
            require(dtype_of(value.type).name == "f32", "gain and bias must be f32")


@npu_op
class FloatReduce(FloatOp):
    """The sum or the mean over `axes`: f32, in the order of the elements; or the largest or the smallest, in IEEE's total order.

    `kind` is sum, mean, max or min.
    """

    name = "npu.float_reduce"
    x = operand()
    kind: str = text()
    axes: tuple[int, ...] = integers()
    keepdims: bool = boolean(True)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape without the axes, or with 1 in their place."""
        return [tensor_type(reduced_shape(shape_of(self.x), self.axes, self.keepdims), self.to)]

    def check(self) -> None:
        """A known kind."""
        super().check()
        require(
            self.kind in ("sum", "mean", "max", "min"), f"kind '{self.kind}' is not sum, mean, max or min"
        )


@npu_op
class Cast(NpuOp):
    """x as f32, bf16 or f16: exact, or rounded to nearest even."""

    name = "npu.cast"
    x = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        return [tensor_type(shape_of(self.x), self.to)]

    def check(self) -> None:
        """Between two of the three types."""
        for kind in (self.to, self.x.type.element_type):  # type: ignore[attr-defined]
            require(
                is_narrow_float(kind) or kind == mlir_type("f32"),
                f"a cast is of f32, bf16, f16, not {kind}",
            )
        require(self.x.type.element_type != self.to, "a cast changes the type")  # type: ignore[attr-defined]
