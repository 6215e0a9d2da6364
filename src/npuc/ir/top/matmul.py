"""Matrix product."""

from collections.abc import Sequence

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
        a, b = shape_of(self.a), shape_of(self.b)
        require(len(a) >= 2 and len(b) >= 2, "both operands need rank 2 or more")
        inner, columns = (b[-1], b[-2]) if self.transpose_b else (b[-2], b[-1])
        require(a[-1] == inner, f"inner dimensions {a[-1]} and {inner} differ")
        if self.bias is not None:
            require(
                shape_of(self.bias) == (columns,),
                f"the bias has shape {list(shape_of(self.bias))}, not [{columns}]",
            )
        return [tensor_type((*broadcast(a[:-2], b[:-2]), a[-2], columns), dtype_of(self.a.type))]
