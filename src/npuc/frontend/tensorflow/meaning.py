"""What a tensor of a TensorFlow graph may mean while it is imported.

Most are tensors. The rest is what a graph of TensorFlow carries along besides, and what has to be gone in the end:
variables, lists of tensors (a loop reads and fills them), text, and what a branch that is not taken gives.
"""

from __future__ import annotations

from dataclasses import dataclass

from npuc.errors import UnsupportedOpError
from npuc.frontend.layout import LayoutTensor
from npuc.frontend.tensorflow.graph import TensorflowNode


@dataclass(frozen=True)
class Variable:
    """A variable, by the node that names it."""

    node: TensorflowNode


@dataclass(frozen=True)
class Items:
    """A list of tensors of one shape; None where nothing was put yet."""

    items: tuple[LayoutTensor | None, ...]
    shape: tuple[int, ...] | None = None
    dtype: str = "f32"


@dataclass(frozen=True)
class Text:
    """A constant of strings."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Dead:
    """The result of a branch that is not taken."""


DEAD = Dead()
Meaning = LayoutTensor | Variable | Items | Text | Dead


def tensor(node: TensorflowNode, meaning: Meaning, index: int) -> LayoutTensor:
    """A meaning that has to be a tensor."""
    if isinstance(meaning, LayoutTensor):
        return meaning
    words = {Variable: "a variable", Items: "a list of tensors", Text: "text", Dead: "nothing"}[type(meaning)]
    raise UnsupportedOpError(
        f"{node.label} has no form in npuc: its input {index} is {words}",
        fix="Cut the network before it with --outputs, or begin behind it with --inputs",
    )
