"""Import rules by op: `@rule("Conv2D")` above a function is all it takes to add one.

A rule gets a `TensorflowContext` and returns the op's outputs in order: tensors, or arrays where an output is constant. Its
docstring says what it takes, and is what `supported()` tells users of its limits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from npuc.arrays import Array
from npuc.errors import InvalidModelError, UnsupportedOpError
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.frontend.rules import limits
from npuc.frontend.tensorflow.graph import TensorflowNode
from npuc.frontend.tensorflow.walker import STRUCTURES
from npuc.registries import Lenient, Registry, renamed

Outcome = LayoutTensor | Array | Sequence[LayoutTensor | Array]


class TensorflowContext:
    """What a rule sees: its node, its operands, and the builder."""

    def __init__(
        self, node: TensorflowNode, inputs: Sequence[LayoutTensor], builder: ChannelsLastBuilder
    ) -> None:
        self.node = node
        self.inputs = inputs
        self.c = builder

    @property
    def channels_first(self) -> bool:
        """True if the node says that its channels are second."""
        return self.node.text("data_format").startswith("NC")

    def refuse(self, why: str) -> UnsupportedOpError:
        """The error for a form of the op that has no `top` form."""
        return UnsupportedOpError(
            f"{self.node.label} has no form in npuc: {why}",
            fix="Cut the network before it with --outputs, or begin behind it with --inputs",
        )

    def wrong(self, why: str) -> InvalidModelError:
        """The error for a node that no valid model has."""
        return InvalidModelError(f"{self.node.label}: {why}")

    def has(self, index: int) -> bool:
        """True if input `index` is given."""
        return index < len(self.inputs)

    def x(self, index: int = 0) -> LayoutTensor:
        """Input `index`."""
        if index >= len(self.inputs):
            raise self.wrong(f"input {index} is missing")
        return self.inputs[index]

    def known(self, index: int, what: str) -> Array:
        """The values of input `index`, which must be constant."""
        array = self.x(index).array
        if array is None:
            raise self.refuse(f"its {what} is computed at run time")
        return array

    def integers(self, index: int, what: str) -> tuple[int, ...]:
        """A constant input as integers."""
        array = self.known(index, what)
        if array.dtype.kind not in "iu" or array.size > 1 << 16:
            raise self.wrong(f"its {what} is not a list of integers")
        return tuple(int(n) for n in array.reshape(-1))

    def integer(self, index: int, what: str) -> int:
        """A constant input as one integer."""
        numbers = self.integers(index, what)
        if len(numbers) != 1:
            raise self.wrong(f"its {what} is {len(numbers)} numbers")
        return numbers[0]

    def pairs(self, index: int, what: str) -> list[tuple[int, int]]:
        """A constant input as pairs of integers."""
        array = self.known(index, what)
        if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iu" or array.shape[0] > 32:
            raise self.wrong(f"its {what} is not pairs of integers")
        return [(int(a), int(b)) for a, b in array]


Rule = Callable[[TensorflowContext], Outcome]
RULES: Registry[str, Rule] = Registry(
    "an import rule for", provider="npuc.frontend.tensorflow.rules", lenient=Lenient.OWN
)
"""By op."""
rule = RULES.register
find_rule = RULES.get


def supported() -> dict[str, str]:
    """All ops that are imported, with their limits in words."""
    structures = {name: " ".join((function.__doc__ or "").split()) for name, function in STRUCTURES.items()}
    return dict(sorted({**limits(RULES), **structures}.items()))


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Context": TensorflowContext})
