"""Constant tensors."""

from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, StringAttr, SymbolRefAttr, TensorType
from xdsl.ir import Attribute

from npuc.ir.definition import TopOp, result, symbol, top_op
from npuc.ir.names import location

_NOTHING = ArrayAttr[StringAttr]([])


@top_op
class WeightOp(TopOp):
    """A constant tensor; its bytes are in the weight store under `ref`."""

    name = "top.weight"

    ref: str = symbol()
    output = result()

    @staticmethod
    def of(ref: str, type: Attribute) -> "WeightOp":
        """The op that refers to the stored weight `ref` of a type."""
        return WeightOp.create(
            properties={"ref": SymbolRefAttr(ref, _NOTHING)},
            result_types=[type],
            location=location(ref),
        )

    def verify(self, verify_nested_ops: bool = True) -> None:
        """Most ops of a network are weights, and there is little that can be wrong with one."""
        block = self.parent
        sound = (
            block is not None
            and block.last_op is not self
            and not (self._operands or self._successors or self.regions)
            and self.properties.keys() == {"ref"}
            and type(self.properties["ref"]) is SymbolRefAttr
            and len(self.results) == 1
            and type(self.results[0].type) is TensorType
        )
        if not sound:
            super().verify(verify_nested_ops)  # says what

    def infer(self) -> Sequence[Attribute]:
        """Its type stands in the text; the verifier of the program compares it with the weight store."""
        return [self.output.type]
