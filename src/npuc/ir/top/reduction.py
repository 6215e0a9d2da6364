"""Reduction over axes."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    boolean,
    integers,
    normal_axis,
    operand,
    require,
    result,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import element_of, quant_of, tensor_type

KINDS = ("mean", "sum", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum", "log_sum_exp")


def reduced_shape(shape: Sequence[int], axes: Sequence[int], keepdims: bool) -> list[int]:
    """A shape without some axes, or with 1 in their place."""
    named = {normal_axis(axis, len(shape)) for axis in axes}
    return [1 if axis in named else size for axis, size in enumerate(shape) if keepdims or axis not in named]


@top_op
class Reduce(TopOp):
    """`kind` of the values over `axes`: mean, sum, max, min, prod, l1, l2, sum_square, log_sum or log_sum_exp."""

    name = "top.reduce"
    x = operand()
    kind: str = text()
    axes: tuple[int, ...] = integers()
    keepdims: bool = boolean(True)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape without the axes, or with 1 in their place."""
        shape = reduced_shape(shape_of(self.x), self.axes, self.keepdims)
        return [tensor_type(shape, element_of(self.x))]

    def check(self) -> None:
        """A known kind; on quantized tensors one that compares."""
        require(self.kind in KINDS, f"kind '{self.kind}' is not one of {', '.join(KINDS)}")
        compares = quant_of(self.x) is None or self.kind in ("max", "min")
        require(compares, f"a reduction by {self.kind} is not defined on quantized tensors")
