"""Matrix product."""

from collections.abc import Sequence
from typing import Any

from xdsl.ir import Attribute

from npuc.ir.definition import (
    TopOp,
    boolean,
    broadcast,
    number,
    operand,
    optional_operand,
    require,
    result,
    shape_of,
    top_op,
)
from npuc.ir.dtypes import dtype_of, tensor_type


def matmul_shape(left: Any, right: Any, bias: Any, transpose_b: bool) -> tuple[int, ...]:
    """Broadcast batch axes x M x N, of values that fit together."""
    a, b = shape_of(left), shape_of(right)
    require(len(a) >= 2 and len(b) >= 2, "both operands need rank 2 or more")
    inner, columns = (b[-1], b[-2]) if transpose_b else (b[-2], b[-1])
    require(a[-1] == inner, f"inner dimensions {a[-1]} and {inner} differ")
    if bias is not None:
        require(shape_of(bias) == (columns,), f"the bias has shape {list(shape_of(bias))}, not [{columns}]")
    return (*broadcast(a[:-2], b[:-2]), a[-2], columns)


@top_op
class MatMul(TopOp):
    """a @ b + bias over the last two axes, the rest broadcast; relu is fused.

    Both operands have rank 2 or more. `transpose_b` reads b as (..., N, K). The bias is [N].
    """

    name = "top.matmul"
    a = operand()
    b = operand()
    bias = optional_operand()
    transpose_b: bool = boolean(False)
    relu: bool = boolean(False)
    relu_limit: float = number(0.0)
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """Broadcast batch axes x M x N."""
        return [tensor_type(matmul_shape(self.a, self.b, self.bias, self.transpose_b), dtype_of(self.a.type))]
