"""Nodes that steer the walk over a graph, by op: `@structure("While")` above a function registers one.

Such a function gets the importer, the body that the node is in, the node, and what its inputs mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from npuc.frontend.layout import ChannelsLastBuilder
from npuc.frontend.tensorflow.body import Body
from npuc.frontend.tensorflow.graph import GraphFunction, TensorflowNode
from npuc.frontend.tensorflow.meaning import Meaning
from npuc.ir import Weight
from npuc.registries import Lenient, Registry


class Walker(Protocol):
    """What the importer offers to these nodes."""

    builder: ChannelsLastBuilder

    def placeholder(self, body: Body, node: TensorflowNode) -> Meaning:
        """An input, or the constant that a user gives it."""
        ...

    def variable(self, node: TensorflowNode) -> Weight:
        """The value of a variable."""
        ...

    def called(self, name: str, node: TensorflowNode) -> GraphFunction:
        """A function."""
        ...


Structure = Callable[[Walker, Body, TensorflowNode, Sequence[Meaning]], Sequence[Meaning]]
STRUCTURES: Registry[str, Structure] = Registry(
    "a form of the node",
    provider=("npuc.frontend.tensorflow.structure", "npuc.frontend.tensorflow.lists"),
    lenient=Lenient.ALL,
)
"""By op."""
structure = STRUCTURES.register
