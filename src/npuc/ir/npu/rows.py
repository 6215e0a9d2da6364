"""Ops along axes: softmax, normalization, sums, and bilinear resize.

Their integers are constants and `parameters`, in the order that docs/arithmetic.md gives; tables are operands.
"""

from collections.abc import Callable, Sequence
from typing import Any

from xdsl.ir import Attribute, SSAValue

from npuc.arithmetic.kinds import Kind
from npuc.ir.definition import (
    AttrSizedOperandSegments,
    boolean,
    integer,
    integers,
    normal_axis,
    numbers,
    operand,
    optional_operand,
    requantization,
    require,
    result,
    shape_of,
    text,
)
from npuc.ir.dtypes import tensor_type
from npuc.ir.npu.arithmetic import Parametric, check_pairs
from npuc.ir.npu.definition import NpuOp, check_kind, npu_op, quantized
from npuc.ir.npu.ranges import INT32, require_between, require_multipliers, require_shifts
from npuc.ir.top.reduction import reduced_shape

NORMS = ("layer", "rms", "instance", "group", "l2")


@npu_op
class Softmax(Parametric):
    """Softmax along `axis`; parameters: multiplier, shift, left, diff_min; tables of exponentials, coarse and fine."""

    name = "npu.softmax"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    x = operand()
    coarse = optional_operand()
    fine = optional_operand()
    axis: int = integer(-1)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        quantized(self.x)
        normal_axis(self.axis, len(shape_of(self.x)))
        return [tensor_type(shape_of(self.x), self.to)]

    def check(self) -> None:
        """Its four parameters; without TFLite's fixed point, two tables of 256 exponentials."""
        super().check()
        require(len(self.parameters) == 4, f"a softmax has 4 parameters, not {len(self.parameters)}")
        require_between("parameter", self.parameters, *INT32)
        if self.kind is not Kind.DOUBLE_ROUNDING:
            require_multipliers(self.parameters[:1])
            require_shifts(Kind.SINGLE_ROUNDING, self.parameters[1:2])
            for table in (self.coarse, self.fine):
                require(table is not None and shape_of(table) == (256,), "tables have 256 entries")

    def check_constants(self, constant: Callable[[SSAValue | None], Any]) -> None:
        """A table of exponentials begins at one, 2^30, and goes down from there."""
        for table in (self.coarse, self.fine) if self.kind is not Kind.DOUBLE_ROUNDING else ():
            entries = constant(table)
            if entries is not None:
                require(int(entries[0]) == 1 << 30, "a table of exponentials does not begin at one")
                require_between("table entry", entries.tolist(), 0, 1 << 30)


@npu_op
class Norm(Parametric):
    """A normalization of `mode` layer, rms, instance, group or l2.

    `gain` and `bias` have one entry, one an element of a row (layer, rms) or one a channel (instance, group).
    Parameters: shift, epsilon, width.
    """

    name = "npu.norm"
    x = operand()
    gain = operand()
    bias = operand()
    mode: str = text()
    axis: int = integer(-1)
    groups: int = integer(1)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of x."""
        quantized(self.x)
        return [tensor_type(shape_of(self.x), self.to)]

    def check(self) -> None:
        """A known mode, and its three parameters."""
        super().check()
        require(self.mode in NORMS, f"mode '{self.mode}' is not one of {', '.join(NORMS)}")
        require(len(self.parameters) == 3, "a norm has the parameters shift, epsilon and width")


@npu_op
class ReduceSum(Parametric):
    """The sum over `axes` through the output stage: a sum, or a mean by its multiplier."""

    name = "npu.reduce_sum"
    x = operand()
    axes: tuple[int, ...] = integers()
    keepdims: bool = boolean(True)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape without the axes, or with 1 in their place."""
        quantized(self.x)
        return [tensor_type(reduced_shape(shape_of(self.x), self.axes, self.keepdims), self.to)]

    def check(self) -> None:
        """The numbers of the output stage."""
        super().check()
        check_pairs(self)


@npu_op
class ResizeBilinear(NpuOp):
    """Height and width resized by fixed-point blending; the type stays. `kind` chooses the weights and the rounding."""

    name = "npu.resize_bilinear"
    x = operand()
    kind: Kind = requantization()
    sizes: tuple[int, ...] = integers()
    scales: tuple[float, ...] = numbers(())
    coordinates: str = text("half_pixel")
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The sizes given."""
        check_kind(self.kind)
        require(quantized(self.x) == self.to, "a resize keeps the type")
        require(len(self.sizes) == len(shape_of(self.x)) == 4, "needs rank 4")
        return [tensor_type(self.sizes, self.to)]
