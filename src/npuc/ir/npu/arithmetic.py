"""Elementwise integer arithmetic, averages and tables.

The parameters of an op are integers in `parameters` (floats in `factors` for kind `float_scale`), in the order that
docs/arithmetic.md gives for the op and the kind.
"""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from npuc.arithmetic.kinds import Kind
from npuc.ir.definition import (
    boolean,
    broadcast,
    integers,
    number,
    numbers,
    operand,
    require,
    result,
    shape_of,
    text,
)
from npuc.ir.dtypes import QuantType, tensor_type
from npuc.ir.npu.definition import NpuOp, OutputStage, npu_op, quantized
from npuc.ir.npu.ranges import (
    INT32,
    require_between,
    require_factors,
    require_multipliers,
    require_shifts,
)
from npuc.ir.top.window import window_output

_INT64 = (-(1 << 63), (1 << 63) - 1)


class Parametric(OutputStage):
    """An op whose arithmetic is described by a few numbers."""

    parameters: tuple[int, ...] = integers(())
    factors: tuple[float, ...] = numbers(())

    def check(self) -> None:
        """Numbers that fit the kernels' integers."""
        super().check()
        require_between("parameter", self.parameters, *_INT64)
        require_factors(self.factors)


def check_pairs(op: Parametric) -> None:
    """An op whose numbers are those of its output stage has as many as its kind needs, each in its range."""
    numbers = op.parameters
    if op.kind.has_scale:
        require(len(op.factors) > 0, f"kind '{op.kind}' lacks its factors")
    elif not op.kind.has_multiplier:
        require(len(numbers) > 0, f"kind '{op.kind}' lacks its shifts")
        require_shifts(op.kind, numbers)
    else:
        require(len(numbers) % 2 == 0, f"{len(numbers)} parameters are no pairs of multiplier and shift")
        require(len(numbers) > 0 or op.kind is Kind.DOUBLE_ROUNDING, f"kind '{op.kind}' lacks its parameters")
        require_multipliers(numbers[0::2])
        require_shifts(op.kind, numbers[1::2])


@npu_op
class Requant(Parametric):
    """The same real values under another scale, zero point or type; parameters: multiplier, shift."""

    name = "npu.requant"
    x = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        quantized(self.x)
        return [tensor_type(shape_of(self.x), self.to)]

    def check(self) -> None:
        """The numbers of the output stage."""
        super().check()
        check_pairs(self)


class Binary(Parametric):
    """Two operands, broadcast."""

    a = operand()
    b = operand()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The broadcast shape."""
        quantized(self.a)
        quantized(self.b)
        return [tensor_type(broadcast(shape_of(self.a), shape_of(self.b)), self.to)]


class Sum(Binary):
    """Shared by `add` and `sub`."""

    def check(self) -> None:
        """Seven integers of 32 bits, and two factors where there are any."""
        super().check()
        require(len(self.parameters) == 7, f"{self.name} has 7 parameters, not {len(self.parameters)}")
        require_between("parameter", self.parameters, *INT32)
        require(len(self.factors) in (0, 2), f"{self.name} has 2 factors, not {len(self.factors)}")


def rounds_operands(op: Any) -> bool:
    """Whether an op is a sum that rounds each operand to the scale of the result and adds those integers as they are.

    Its form is that of `double_rounding` without a shift to the left, and with a factor of 1 for the sum.
    """
    if not isinstance(op, Sum) or op.kind is not Kind.DOUBLE_ROUNDING:
        return False
    left, *_, multiplier, shift = op.parameters
    return left == 0 and multiplier == 1 << shift


@npu_op
class Add(Sum):
    """a + b, by the parameters that docs/arithmetic.md gives for each kind."""

    name = "npu.add"


@npu_op
class Sub(Sum):
    """a - b, with the parameters of `npu.add`."""

    name = "npu.sub"


@npu_op
class Mul(Binary):
    """a * b; parameters: multiplier, shift."""

    name = "npu.mul"

    def check(self) -> None:
        """The numbers of the output stage."""
        super().check()
        check_pairs(self)


@npu_op
class AvgPool(Parametric):
    """The mean of each window over its real positions or all; kind `double_rounding` has equal scales and no parameters.

    Otherwise parameters are pairs (multiplier, shift), one for each count of positions from 1 up.
    """

    name = "npu.avg_pool"
    x = operand()
    kernel: tuple[int, ...] = integers()
    strides: tuple[int, ...] = integers()
    pads: tuple[int, ...] = integers()
    ceil_mode: bool = boolean(False)
    count_include_pad: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """N x C x spatial."""
        x = shape_of(self.x)
        quantized(self.x)
        require(
            len(self.kernel) == len(x) - 2, f"a kernel of rank {len(self.kernel)} for input of rank {len(x)}"
        )
        ones = (1,) * len(self.kernel)
        spatial = window_output(x[2:], self.kernel, self.strides, self.pads, ones, self.ceil_mode)
        return [tensor_type((*x[:2], *spatial), self.to)]

    def check(self) -> None:
        """The numbers of the output stage."""
        super().check()
        check_pairs(self)


@npu_op
class Table(NpuOp):
    """y = table[q]: 256 entries for 8-bit operands, or 2^k + 1 that are interpolated between (for 16 bits 513 as a rule).

    `function` and its `constants` tell what the table stands for; the arithmetic does not need them.
    """

    name = "npu.table"
    x = operand()
    table = operand()
    function: str = text("")
    constants: tuple[float, ...] = numbers(())
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        width, shape = 8 * quantized(self.x).dtype.itemsize, shape_of(self.table)
        sizes = [(1 << k) + 1 for k in range(1, width)] + ([256] if width == 8 else [])
        require(isinstance(self.to, QuantType), "the result must be quantized")
        require(
            len(shape) == 1 and shape[0] in sizes,
            f"a table has 256 entries for 8 bits, or 2^k + 1, not {list(shape)}",
        )
        return [tensor_type(shape_of(self.x), self.to)]


@npu_op
class ChannelTable(NpuOp):
    """y = table[c][q] for 8-bit operands: a table of 256 entries for each channel (axis 1).

    `slopes` (one integer a channel, of the scale `slope_scale`) tell the slopes of a PReLU; the arithmetic does not
    need them.
    """

    name = "npu.channel_table"
    x = operand()
    table = operand()
    slopes: tuple[int, ...] = integers(())
    slope_scale: float = number(0.0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        require(quantized(self.x).dtype.itemsize == 1, "only 8-bit operands have tables by channel")
        require(isinstance(self.to, QuantType), "the result must be quantized")
        require(
            shape_of(self.table) == (shape_of(self.x)[1], 256), "a table of 256 entries a channel is needed"
        )
        return [tensor_type(shape_of(self.x), self.to)]
