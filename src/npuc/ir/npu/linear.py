"""Convolution and matrix product on integers.

acc = bias[c] + sum (q_x - z_x) * (q_w - z_w), then the output stage. `multiplier` and `shift` (or, for kind `float_scale`,
`factor`) are constants with one entry, or one an output channel. `weight_scale` tells the real value of the weights;
the arithmetic does not need it.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from npuc.ir.definition import (
    AttrSizedOperandSegments,
    boolean,
    integer,
    integers,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
)
from npuc.ir.dtypes import tensor_type
from npuc.ir.npu.definition import OutputStage, npu_op, quantized
from npuc.ir.npu.ranges import require_factors, require_multipliers, require_shifts
from npuc.ir.top import convolution, matmul


class Linear(OutputStage):
    """Shared by convolution and matrix product."""

    irdl_options = (AttrSizedOperandSegments(as_property=True),)

    x = operand()
    weight = operand()
    bias = optional_operand()
    multiplier = optional_operand()
    shift = optional_operand()
    factor = optional_operand()
    weight_scale = optional_operand()
    weight_zero_point: int = integer(0)
    y = result()

    def check_parameters(self, channels: int) -> None:
        """Each constant that the kind needs is there, with one entry or one a channel."""
        super().check()
        quantized(self.x)
        constants = {"multiplier": self.multiplier, "shift": self.shift, "scale": self.factor}
        require(
            all(constants[name] is not None for name in self.kind.parameters),
            f"kind '{self.kind}' lacks its constants",
        )
        for value in (self.multiplier, self.shift, self.factor, self.weight_scale):
            fits = value is None or shape_of(value) in ((1,), (channels,))
            require(fits, f"constants need 1 or {channels} entries")

    def check_constants(self, constant: Callable[[SSAValue | None], Any]) -> None:
        """The values of the constants are in their ranges; a bias and weights may be any."""
        given = [constant(value) for value in (self.multiplier, self.shift, self.factor)]
        multipliers, shifts, factors = ([] if array is None else array.tolist() for array in given)
        require_multipliers(multipliers if self.kind.has_multiplier else ())
        require_shifts(self.kind, shifts if self.kind.has_shift else ())
        require_factors(factors)


class Convolution(Linear):
    """Shared by `conv` and `deconv`."""

    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    dilations: tuple[int, ...] = integers()
    group: int = integer(1)


@npu_op
class Conv(Convolution):
    """`top.conv` on integers; a padded position holds z_x."""

    name = "npu.conv"

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(convolution.conv_shape(self), self.to)]

    def check(self) -> None:
        """Parameters per tensor or per output channel."""
        self.check_parameters(shape_of(self.weight)[0])


@npu_op
class Deconv(Convolution):
    """`top.deconv` on integers."""

    name = "npu.deconv"
    output_padding: tuple[int, ...] = integers()

    def infer(self) -> Sequence[Attribute]:
        """N x output channels x spatial."""
        return [tensor_type(convolution.deconv_shape(self), self.to)]

    def check(self) -> None:
        """Parameters per tensor or per output channel."""
        self.check_parameters(shape_of(self.weight)[1] * self.group)


@npu_op
class MatMul(Linear):
    """`top.matmul` on integers: `weight` is a constant, or an activation (then quantized, with its own zero point)."""

    name = "npu.matmul"
    transpose_b: bool = boolean(False)

    def infer(self) -> Sequence[Attribute]:
        """Batch axes x M x N."""
        shape = matmul.matmul_shape(self.x, self.weight, self.bias, self.transpose_b)
        return [tensor_type(shape, self.to)]

    def check(self) -> None:
        """Parameters per tensor or per column."""
        self.check_parameters(shape_of(self.weight)[-2 if self.transpose_b else -1])
