"""Ops that select elements by index."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    boolean,
    integer,
    normal_axis,
    operand,
    require,
    result,
    results,
    shape_of,
    text,
    top_op,
)
from npuc.ir.dtypes import dtype_of, element_of, tensor_type


@top_op
class Gather(TopOp):
    """Slices of x along `axis`, chosen by an index tensor; negative indices count from the end."""

    name = "top.gather"
    x = operand()
    indices = operand()
    axis: int = integer(0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The axis replaced by the shape of the indices."""
        x = shape_of(self.x)
        axis = normal_axis(self.axis, len(x))
        require(len(x) >= 1, "a scalar has nothing to gather from")
        return [tensor_type((*x[:axis], *shape_of(self.indices), *x[axis + 1 :]), element_of(self.x))]


@top_op
class GatherElements(TopOp):
    """y[i][j] = x[indices[i][j]][j] (for axis 0)"""

    name = "top.gather_elements"
    x = operand()
    indices = operand()
    axis: int = integer(0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The shape of the indices."""
        require(len(shape_of(self.x)) == len(shape_of(self.indices)), "x and indices have different ranks")
        return [tensor_type(shape_of(self.indices), dtype_of(self.x.type))]


@top_op
class GatherND(TopOp):
    """Slices of x chosen by index tuples in the last axis of `indices`."""

    name = "top.gather_nd"
    x = operand()
    indices = operand()
    batch_dims: int = integer(0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """Index shape without its last axis, then what is left of x."""
        x, indices = shape_of(self.x), shape_of(self.indices)
        require(
            len(indices) >= 1 and indices[-1] + self.batch_dims <= len(x),
            "index tuples are longer than x has axes",
        )
        return [tensor_type((*indices[:-1], *x[self.batch_dims + indices[-1] :]), dtype_of(self.x.type))]


class Scatter(TopOp):
    """x with some elements replaced, or combined (`reduction`: none, add, mul, max, min)."""

    x = operand()
    indices = operand()
    updates = operand()
    reduction: str = text("none")
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The type of x."""
        return [self.x.type]

    def check(self) -> None:
        """A known reduction."""
        require(
            self.reduction in ("none", "add", "mul", "max", "min"), f"unknown reduction '{self.reduction}'"
        )


@top_op
class ScatterElements(Scatter):
    """y[indices[i][j]][j] = updates[i][j] (for axis 0)"""

    name = "top.scatter_elements"
    axis: int = integer(0)


@top_op
class ScatterND(Scatter):
    """Slices of x replaced at the index tuples in the last axis of `indices`."""

    name = "top.scatter_nd"


@top_op
class ArgReduce(TopOp):
    """The index of the largest (`max`) or smallest value along `axis`; of equal ones the first, or the last."""

    name = "top.arg"
    x = operand()
    max: bool = boolean(True)
    axis: int = integer(0)
    keepdims: bool = boolean(True)
    select_last: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """64-bit indices."""
        x = shape_of(self.x)
        axis = normal_axis(self.axis, len(x))
        kept = (1,) if self.keepdims else ()
        return [tensor_type((*x[:axis], *kept, *x[axis + 1 :]), "i64")]


@top_op
class TopK(TopOp):
    """The `k` largest (or smallest) values along `axis`, in order, and their indices."""

    name = "top.topk"
    x = operand()
    k: int = integer()
    axis: int = integer(-1)
    largest: bool = boolean(True)
    sorted: bool = boolean(True)
    parts = results()

    def infer(self) -> Sequence[Attribute]:
        """Values and indices."""
        x = shape_of(self.x)
        axis = normal_axis(self.axis, len(x))
        require(
            len(x) >= 1 and 0 <= self.k <= x[axis], f"k = {self.k} of the {x[axis]} values along axis {axis}"
        )
        shape = (*x[:axis], self.k, *x[axis + 1 :])
        return [tensor_type(shape, element_of(self.x)), tensor_type(shape, "i64")]


@top_op
class CumSum(TopOp):
    """Running sums along `axis`, from the front or (`reverse`) the back, with or without (`exclusive`) the element."""

    name = "top.cumsum"
    x = operand()
    axis: int = integer()
    exclusive: bool = boolean(False)
    reverse: bool = boolean(False)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The type of x."""
        normal_axis(self.axis, len(shape_of(self.x)))
        return [self.x.type]


@top_op
class OneHot(TopOp):
    """A new axis of size `depth` that holds values[1] at the index and values[0] elsewhere."""

    name = "top.one_hot"
    indices = operand()
    values = operand()
    depth: int = integer()
    axis: int = integer(-1)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """The index shape with one axis more."""
        shape = list(shape_of(self.indices))
        shape.insert(normal_axis(self.axis, len(shape) + 1), self.depth)
        require(self.depth >= 0, "the depth must not be negative")
        return [tensor_type(shape, dtype_of(self.values.type))]
