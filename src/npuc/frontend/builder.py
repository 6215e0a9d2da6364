"""How all importers build Top IR: constants, ops, the names of results, and the escape to `top.onnx`.

Two objects share the work. A `Builder` belongs to a graph: it gives names, stores constants, and takes back what a rule appended
before it gave up. A `LayerBuilder` belongs to one layer (node, operator) of the foreign model: its rule emits ops, and when it
returns, `finish` names them all. Importers derive what their rules see from it and add what is special about their format.

    layer = LayerBuilder(Builder(graph), "conv1")              # "conv1" is the tensor that the layer makes
    x = layer.emit(top.Conv, x, weight, ...).y
    y = layer.emit(top.Relu, x).y
    layer.finish({y: "conv1"})                                 # the conv is 'conv1/conv', the relu 'conv1'

An emitted op has no name before that: only the rule's results tell which of its ops makes the tensor that users know, and the
first asker gets a name as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from npuc.arrays import Array
from npuc.frontend.onnx_op import onnx_op
from npuc.frontend.support import Names
from npuc.ir import Graph, Value, Weight, location
from npuc.ir.definition import TopOp
from npuc.ir.top import WeightOp

_OpT = TypeVar("_OpT", bound=TopOp)

ONNX_VERSIONS = {
    "Cast": 13,
    "Concat": 13,
    "Gather": 13,
    "GatherND": 13,
    "MaxRoiPool": 1,
    "Min": 13,
    "Mul": 14,
    "NonMaxSuppression": 11,
    "NonZero": 13,
    "ReduceMin": 18,
    "Reshape": 14,
    "ReverseSequence": 10,
    "Shape": 13,
    "Slice": 13,
    "Sub": 14,
    "TopK": 11,
    "Transpose": 13,
    "Unsqueeze": 13,
}
"""The versions in which operators of ONNX are emitted, unless the importer says another."""


class Builder:
    """A graph under construction; one `parent`'s constants and names are shared, and `prefix` begins all names given here."""

    def __init__(self, graph: Graph, parent: Builder | None = None, prefix: str = "") -> None:
        self.graph = graph
        self.prefix = prefix
        self.names: Names = parent.names if parent else Names()
        # The owner is kept, so that its identity stays its own.
        self._stored: dict[tuple[int, Any], tuple[object, Value]] = parent._stored if parent else {}
        self._shared: dict[Any, Value] = parent._shared if parent else {}

    def unique(self, name: str) -> str:
        """A name that no value has yet; the first asker gets it as it is."""
        return self.names.unique(self.prefix + name)

    # Constants

    def store(self, data: Array | Weight, name: str) -> Value:
        """A constant, as a `top.weight` op of its own."""
        op = self.graph.add_weight(self.unique(name), data)
        self.graph.block.add_op(op)
        return op.output

    def stored(self, owner: object, key: Any = None) -> Value | None:
        """What `store_for` stored for an object under a key."""
        entry = self._stored.get((id(owner), key))
        return None if entry is None else entry[1]

    def store_for(self, owner: object, data: Array | Weight, name: str, key: Any = None) -> Value:
        """A constant that stands for an object, stored once for it and each `key`: tied weights stay one."""
        value = self.stored(owner, key)
        if value is None:
            value = self.store(data, name)
            self._stored[id(owner), key] = owner, value
        return value

    def shared(self, array: Array, name: str) -> Value:
        """A constant, stored once for all that have the same elements."""
        key = array.dtype, array.shape, array.tobytes()
        if key not in self._shared:
            self._shared[key] = self.store(array, name)
        return self._shared[key]

    # Ops

    def append(self, op: _OpT, name: str) -> _OpT:
        """Append an op of one result under a name."""
        op.location = location(self.unique(name))
        self.graph.block.add_op(op)
        return op

    def mark(self) -> tuple[Any, int]:
        """A point to `rewind` to: what is appended after it can be taken back."""
        return self.graph.block.last_op, self.names.mark()

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
        self.names.rewind(names, kept)


class LayerBuilder:
    """The ops of one layer of the foreign model; `scope` is the builder of the graph that they go to."""

    onnx_version: int | None = None
    """The version in which operators of ONNX are emitted, if it is one for all."""

    def __init__(self, scope: Builder, first: str, layer: str | None = None) -> None:
        self.scope = scope
        self.first = first
        """The first tensor that the layer makes; names of what lies between begin with it."""
        self.layer_name = layer
        """What the foreign model calls the layer, if that is not the name of its tensor."""
        self.emitted: list[TopOp] = []

    def emit(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> _OpT:
        """Append an op; its results get names when the layer is finished."""
        return self.add(op_class.make(*operands, **properties))

    def add(self, op: _OpT) -> _OpT:
        """Append an op that is made already; its results get names when the layer is finished."""
        self.scope.graph.block.add_op(op)
        self.emitted.append(op)
        return op

    def literal(self, array: Array, what: str) -> Value:
        """A constant that the rule made itself, as a value."""
        return self.scope.store(array, f"{self.first}/{what}")

    def onnx(
        self,
        op_type: str,
        operands: Sequence[Value],
        types: Sequence[Any],
        reason: str,
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        version: int | None = None,
        captures: Mapping[str, Value] | None = None,
        order: Sequence[int] | None = None,
    ) -> list[Value]:
        """An op of ONNX, or of a domain that nobody but the user knows; it runs on the CPU, and `reason` says why.

        Its results have the types given, which may leave dimensions open. `captures` and `order` are those of `onnx_op`.
        """
        op = onnx_op(
            op_type,
            operands,
            types,
            version=version or (1 if domain else self.onnx_version or ONNX_VERSIONS[op_type]),
            domain=domain,
            reason=reason,
            attributes=attributes,
            captures=captures,
            order=order,
        )
        return list(self.add(op).results)

    def give_up(self, mark: tuple[Any, int]) -> None:
        """Take back what a rule appended since a mark of the builder, before it found that there is no form."""
        self.scope.rewind(mark)
        self.emitted = []

    def finish(self, names: Mapping[Value, str]) -> None:
        """Name what was emitted: values as told, and what lies between after the first tensor and the kind of op."""
        for op in self.emitted:
            kind = op.name.removeprefix("top.")
            unique = [self.scope.unique(names.get(value) or f"{self.first}/{kind}") for value in op.results]
            op.location = location(unique, self._layer_of(unique))
        self.emitted = []

    def _layer_of(self, names: Sequence[str]) -> str | None:
        """The layer that an op with results of these names is said to come from."""
        return self.layer_name
