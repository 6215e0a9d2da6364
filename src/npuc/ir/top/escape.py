"""The escape hatch: an op with no `top` form keeps its ONNX meaning and runs on the CPU."""

from collections.abc import Sequence

from xdsl.ir import Attribute
from xdsl.irdl import var_operand_def, var_result_def

from npuc.ir.definition import TopOp, dictionary, integer, integers, text, texts, top_op

POSTPROCESSING = "it is post-processing, which stays float"
"""The `reason` of nodes that were appended to a network to make answers of its outputs."""


@top_op
class Onnx(TopOp):
    """One ONNX node. Its results may have dynamic shapes.

    `onnx_attributes` maps names to values; a tensor or graph attribute is a dictionary with one key, `tensor` or
    `graph`, that holds the serialized protobuf in base64. `arguments` has an entry an ONNX input: the index of an
    operand, or -1 for an input that is left out. Operands beyond those are outer values that a graph attribute uses,
    under the names `captures`.
    `outputs_used` tells which ONNX outputs are results of the op. `reason` says why the node has no `top` form.
    """

    name = "top.onnx"
    inputs = var_operand_def()
    op_type: str = text()
    domain: str = text("")
    version: int = integer()
    onnx_attributes: dict[str, object] = dictionary({})
    arguments: tuple[int, ...] = integers()
    captures: tuple[str, ...] = texts(())
    outputs_used: tuple[int, ...] = integers()
    reason: str = text("")
    outputs = var_result_def()

    def infer(self) -> Sequence[Attribute]:
        """Stated in the text: ONNX's own shape inference gave them at import."""
        return [value.type for value in self.results]

    def verify_(self) -> None:
        """Nothing beyond the structure."""
