"""Where an importer rule stands: what the names mean here, and where new ops go.

A name means a constant (known bytes, no op yet) or a value (a result in the IR). A constant becomes a `top.weight` op
when an op first needs it as an operand. Scopes nest: the body of an inlined `If` or unrolled `Loop` sees the outer
names.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import Node, NoTopForm
from npuc.frontend.onnx.reader import Source
from npuc.ir import DType, Graph, Value, Weight, dtype_of, is_static, location, shape_of
from npuc.ir.definition import TopOp
from npuc.ir.top import WeightOp

Meaning = Value | Weight
_OpT = TypeVar("_OpT", bound=TopOp)


class Scope:
    """Names and what they mean; `graph` is where ops are appended."""

    def __init__(
        self,
        graph: Graph,
        source: Source,
        opsets: dict[str, int],
        parent: Scope | None = None,
        prefix: str = "",
    ) -> None:
        self.graph = graph
        self.source = source
        self.opsets = opsets
        self.parent = parent
        self.prefix = prefix
        self.meanings: dict[str, Meaning] = {}
        self.taken: dict[str, None] = parent.taken if parent else {}
        self.materialized: dict[int, Value] = parent.materialized if parent else {}
        self._kept: list[Weight] = parent._kept if parent else []

    def child(self, prefix: str) -> Scope:
        """A scope for a subgraph; its result names start with `prefix`."""
        return Scope(self.graph, self.source, self.opsets, self, self.prefix + prefix)

    def lookup(self, name: str) -> Meaning | None:
        """What a name means here, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.meanings.get(name)
            if found is not None:
                return found
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

    def unique(self, name: str) -> str:
        """A name that no value has yet; the first asker gets it as it is."""
        base = name = self.prefix + name
        number = 1
        while name in self.taken:
            name = f"{base}.{number}"
            number += 1
        self.taken[name] = None
        return name

    def mark(self) -> tuple[Any, int]:
        """A point to `rewind` to: what is appended after it can be taken back."""
        return self.graph.block.last_op, len(self.taken)

    def rewind(self, mark: tuple[Any, int]) -> None:
        """Erase the ops appended since `mark` (constants stay: they are shared) and free their names."""
        last, names = mark
        op = self.graph.block.last_op
        kept: list[str] = []
        while op is not None and op is not last:
            previous = op.prev_op
            if isinstance(op, WeightOp):
                kept.append(op.ref)
            else:
                self.graph.block.erase_op(op, safe_erase=False)
            op = previous
        while len(self.taken) > names:
            self.taken.popitem()
        self.taken.update(dict.fromkeys(kept))

    def value(self, meaning: Meaning, name: str = "constant") -> Value:
        """The IR value of a meaning; a constant becomes a `top.weight`."""
        if not isinstance(meaning, Weight):
            return meaning
        # Keyed by identity: the weight is kept alive in `_kept`, so that its id stays its own.
        key = id(meaning)
        if key not in self.materialized:
            op = self.graph.add_weight(self.unique(name), meaning)
            self.graph.block.add_op(op)
            self.materialized[key] = op.output
            self._kept.append(meaning)
        return self.materialized[key]


class NodeContext:
    """What a rule sees: its node, its operands, and how to emit ops."""

    def __init__(self, node: Node, scope: Scope) -> None:
        self.node = node
        self.scope = scope
        self.emitted: list[TopOp] = []

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

    def emit(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> _OpT:
        """Append an op; its results get names when the rule returns."""
        op = op_class.make(*operands, **properties)
        self.scope.graph.block.add_op(op)
        self.emitted.append(op)
        return op

    def literal(self, array: np.ndarray[Any, Any], what: str) -> Value:
        """A constant that the rule made itself, as a value."""
        out = next((name for name in self.node.outputs if name), self.node.op_type)
        op = self.scope.graph.add_weight(self.scope.unique(f"{out}/{what}"), array)
        self.scope.graph.block.add_op(op)
        return op.output

    def name_results(self, results: list[Meaning]) -> None:
        """Give every emitted op the names of the outputs that its results are."""
        wanted = {id(value): name for value, name in zip(results, self.node.outputs, strict=False) if name}
        layer = self.node.proto.name or None
        first = next((name for name in self.node.outputs if name), self.node.op_type)
        for op in self.emitted:
            names = []
            for value in op.results:
                name = wanted.pop(id(value), None)
                kind = op.name.removeprefix("top.")
                names.append(self.scope.unique(name if name is not None else f"{first}/{kind}"))
            op.location = location(names, self.scope.prefix + layer if layer else None)  # type: ignore[assignment]


__all__ = ["Meaning", "NodeContext", "Scope"]
