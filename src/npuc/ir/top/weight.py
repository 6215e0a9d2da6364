"""Constant tensors."""

from collections.abc import Sequence

from xdsl.dialects.builtin import SymbolRefAttr
from xdsl.ir import Attribute

from npuc.ir.definition import TopOp, result, symbol, top_op
from npuc.ir.names import location


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
            properties={"ref": SymbolRefAttr(ref)},
            result_types=[type],
            location=location(ref),  # type: ignore[arg-type]
        )

    def infer(self) -> Sequence[Attribute]:
        """Its type stands in the text; the verifier of the program compares it with the weight store."""
        return [self.output.type]
