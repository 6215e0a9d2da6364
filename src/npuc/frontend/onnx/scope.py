"""Where an importer rule stands: what the names mean here, and where new ops go.

A name means a constant (known bytes, no op yet) or a value (a result in the IR). A constant becomes a `top.weight` op
when an op first needs it as an operand. Scopes nest: the body of an inlined `If` or unrolled `Loop` sees the outer
names.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.builder import Builder, LayerBuilder
from npuc.frontend.onnx.node import NoTopForm, OnnxNode
from npuc.frontend.onnx.reader import OnnxSource
from npuc.ir import DType, Graph, Value, Weight, dtype_of, is_static, shape_of

Meaning = Value | Weight


class OnnxScope(Builder):
    """Names and what they mean; `graph` is where ops are appended."""

    def __init__(
        self,
        graph: Graph,
        source: OnnxSource,
        opsets: dict[str, int],
        parent: OnnxScope | None = None,
        prefix: str = "",
    ) -> None:
        super().__init__(graph, parent, prefix)
        self.source = source
        self.opsets = opsets
        self.parent = parent
        self.meanings: dict[str, Meaning] = {}
        self.short: set[str] = set()
        """Constants of 8 bits that the file clips to 4: weights that are stored as such."""

    def child(self, prefix: str) -> OnnxScope:
        """A scope for a subgraph; its result names start with `prefix`."""
        return OnnxScope(self.graph, self.source, self.opsets, self, self.prefix + prefix)

    def lookup(self, name: str) -> Meaning | None:
        """What a name means here, or None."""
        scope: OnnxScope | None = self
        while scope is not None:
            meaning = scope.meanings.get(name)
            if meaning is not None:
                return meaning
            scope = scope.parent
        return None

    def dtype(self, name: str) -> DType | None:
        """The element type of what a name means here; None if it means nothing (yet)."""
        meaning = self.lookup(name) if name else None
        if meaning is None:
            return None
        return meaning.dtype if isinstance(meaning, Weight) else dtype_of(meaning.type)

    def define(self, name: str, meaning: Meaning) -> None:
        """Give a name its meaning."""
        self.meanings[name] = meaning

    def value(self, meaning: Meaning, name: str = "constant") -> Value:
        """The IR value of a meaning; a constant becomes a `top.weight`."""
        return self.store_for(meaning, meaning, name) if isinstance(meaning, Weight) else meaning


class NodeContext(LayerBuilder):
    """What a rule sees: its node, its operands, and how to emit ops."""

    scope: OnnxScope

    def __init__(self, node: OnnxNode, scope: OnnxScope) -> None:
        first = next((name for name in node.outputs if name), node.op_type)
        super().__init__(scope, first, scope.prefix + node.proto.name if node.proto.name else None)
        self.node = node

    @property
    def opset(self) -> int:
        """The operator-set version of the node's domain."""
        return self.node.opset

    def has(self, index: int) -> bool:
        """True if input `index` is given."""
        return index < len(self.node.inputs) and self.node.inputs[index] != ""

    def _meaning(self, index: int) -> Meaning:
        if not self.has(index):
            raise InvalidModelError(f"{self.node.label}: input {index} is missing")
        name = self.node.inputs[index]
        meaning = self.scope.lookup(name)
        if meaning is None:
            raise InvalidModelError(
                f"{self.node.label}: its input '{name}' is not defined anywhere before it"
            )
        return meaning

    def operand(self, index: int) -> Value:
        """Input `index` as a static value; an escape to `top.onnx` if its shape is not known."""
        value = self.scope.value(self._meaning(index), self.node.inputs[index])
        if not is_static(value):
            raise NoTopForm(f"the shape of its input '{self.node.inputs[index]}' depends on data")
        return value

    def optional(self, index: int) -> Value | None:
        """Input `index`, or None if it is left out."""
        return self.operand(index) if self.has(index) else None

    def operands(self) -> list[Value]:
        """All inputs."""
        return [self.operand(index) for index in range(len(self.node.inputs))]

    def shape(self, index: int) -> tuple[int, ...]:
        """The shape of input `index`, without making a constant into an op."""
        meaning = self._meaning(index)
        if isinstance(meaning, Weight):
            return meaning.shape
        if not is_static(meaning):
            raise NoTopForm(f"the shape of its input '{self.node.inputs[index]}' depends on data")
        return shape_of(meaning)

    def dtype(self, index: int) -> DType:
        """The element type of input `index`."""
        meaning = self._meaning(index)
        return meaning.dtype if isinstance(meaning, Weight) else dtype_of(meaning.type)

    def constant(self, index: int) -> np.ndarray[Any, Any] | None:
        """Input `index` if it is constant, else None."""
        if not self.has(index):
            return None
        meaning = self._meaning(index)
        return meaning.array() if isinstance(meaning, Weight) else None

    def known(self, index: int, what: str) -> np.ndarray[Any, Any]:
        """Input `index`, which must be constant for a `top` form to exist."""
        array = self.constant(index)
        if array is None:
            if not self.has(index):
                raise InvalidModelError(f"{self.node.label}: input {index} ({what}) is missing")
            raise NoTopForm(f"its {what} is computed at run time")
        return array

    def known_ints(self, index: int, what: str) -> tuple[int, ...]:
        """A constant input as integers."""
        array = self.known(index, what)
        if array.dtype.kind not in "iu" or array.ndim > 1:
            raise InvalidModelError(f"{self.node.label}: its {what} is not a list of integers")
        return tuple(int(x) for x in array.reshape(-1))

    def name_results(self, results: list[Meaning]) -> None:
        """Give every emitted op the names of the outputs that its results are."""
        pairs = zip(results, self.node.outputs, strict=False)
        self.finish({value: name for value, name in pairs if name and not isinstance(value, Weight)})


__all__ = ["Meaning", "NodeContext", "OnnxScope"]
