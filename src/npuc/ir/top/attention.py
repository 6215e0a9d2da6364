"""Attention."""

from collections.abc import Sequence

from xdsl.ir import Attribute

from npuc.ir.definition import (
    AttrSizedOperandSegments,
    TopOp,
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
class Attention(TopOp):
    """softmax(scale * query @ key^T + mask) @ value, for each batch and head.

    query is batch x heads x L x E, key batch x heads x S x E, value batch x heads x S x V; the mask broadcasts to
    batch x heads x L x S and is added.
    """

    name = "top.attention"
    irdl_options = (AttrSizedOperandSegments(as_property=True),)
    query = operand()
    key = operand()
    value = operand()
    mask = optional_operand()
    scale: float = number()
    y = result()

    def infer(self) -> Sequence[Attribute]:
        """batch x heads x L x V."""
        q, k, v = shape_of(self.query), shape_of(self.key), shape_of(self.value)
        require(len(q) == len(k) == len(v) == 4, "query, key and value need rank 4")
        require(q[:2] == k[:2] == v[:2], "batch and heads differ")
        require(q[3] == k[3] and k[2] == v[2], "query, key and value do not fit")
        return [tensor_type((*q[:3], v[3]), dtype_of(self.query.type))]
