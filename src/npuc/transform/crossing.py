"""Movements of elements (permutes, reshapes) taken across the ops that do not mind them.

If m moves elements and f treats them all alike, f(m(x)) is m(f(x)). A `Movement` knows how constants, axes and shapes
look on the other side of it. `cross` grows a region of such ops behind a movement and rebuilds the region on the other
side, **if fewer movements remain**: those at its entry go, those at its exit meet their inverse, and new ones are
needed where a value leaves the region otherwise. That count is the measure; every application makes it smaller, so
nothing moves to and fro.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, OpResult, SSAValue, SSAValues

from npuc.arrays import Array
from npuc.ir.attributes import to_attribute
from npuc.ir.definition import TOP_OPS, TopOp, normal_axis
from npuc.ir.dtypes import is_static, shape_of
from npuc.ir.graph import Graph
from npuc.ir.names import layer_name, location, value_name
from npuc.ir.top import (
    LRN,
    BatchNorm,
    Binary,
    Cast,
    Concat,
    Dequantize,
    L2Norm,
    LogSoftmax,
    Pad,
    Permute,
    PRelu,
    Quantize,
    Reduce,
    Reshape,
    Scale,
    Slice,
    Softmax,
    Split,
    Tile,
    Unary,
    WeightOp,
    Where,
)
from npuc.ir.top.normalization import AffineNorm
from npuc.transform.eliminate_dead_code import drop_unused_weights
from npuc.transform.patterns import producer, take_name

_LARGEST_CONSTANT = 1 << 20
_LARGEST_REGION = 128
_MOVED = "/moved"

_NOT_ELEMENTWISE = {Softmax, LogSoftmax, L2Norm, LRN, BatchNorm, Scale, AffineNorm}
ELEMENTWISE: tuple[type[TopOp], ...] = (
    *(
        op
        for op in TOP_OPS.values()
        if not {Unary, Binary}.isdisjoint(op.__mro__) and _NOT_ELEMENTWISE.isdisjoint(op.__mro__)
    ),
    Cast,
    Where,
    PRelu,
)
"""Ops whose results depend, element by element, on operands of the same shape (or broadcast to it)."""


class Movement(ABC):
    """How a value y is made from x by moving elements; the two sides are called target (y) and source (x)."""

    @abstractmethod
    def make(self, x: SSAValue, loc: Any) -> TopOp:
        """The op that moves x."""

    @abstractmethod
    def constant(self, array: Array) -> Array | None:
        """The constant that broadcasts on the source side as `array` does on the target side; None if there is none."""

    @abstractmethod
    def elementwise(self, shape: Sequence[int]) -> bool:
        """May an elementwise op whose result has this shape on the target side cross?"""

    @abstractmethod
    def renumbered(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """What changes in the properties of `op`, and the movement of each result (None: it needs none).

        None if an op of this kind cannot cross.
        """

    @abstractmethod
    def merges_with(self, op: Operation) -> bool:
        """True if `op` moves elements on in the same way, so that the two are one."""

    @abstractmethod
    def merged(self, op: Operation) -> dict[str, Any] | None:
        """The properties of `op` when it takes the source; None if it is the identity then."""

    def undoes(self, op: Operation) -> bool:
        """True if `op`, behind this movement, leads back to the source."""
        return self.merged(op) is None


@dataclass(frozen=True)
class Permutation(Movement):
    """permute with an order."""

    order: tuple[int, ...]

    @staticmethod
    def of(op: Operation) -> Permutation | None:
        """The movement that an op is."""
        return Permutation(op.order) if isinstance(op, Permute) else None

    def make(self, x: SSAValue, loc: Any) -> TopOp:
        """A permute."""
        return Permute.make(x, order=self.order, loc=loc)

    def constant(self, array: Array) -> Array | None:
        """Transposed the other way."""
        if array.ndim > len(self.order):
            return None
        if array.size == 1:
            return array
        full = array.reshape((1,) * (len(self.order) - array.ndim) + array.shape)
        return full.transpose([self.order.index(axis) for axis in range(len(self.order))])

    def elementwise(self, shape: Sequence[int]) -> bool:
        """Always, at the same rank."""
        return len(shape) == len(self.order)

    def axis(self, axis: int) -> int:
        """The source axis of a target axis."""
        return self.order[normal_axis(axis, len(self.order))]

    def spread(self, values: Sequence[int]) -> tuple[int, ...]:
        """Values per target axis as values per source axis."""
        by_source = [0] * len(self.order)
        for value, axis in zip(values, self.order, strict=True):
            by_source[axis] = value
        return tuple(by_source)

    def renumbered(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """Axes and lists of one entry an axis."""
        rank = len(self.order)
        match op:
            case Softmax() | LogSoftmax() | L2Norm() | Concat() | Split():
                return {"axis": self.axis(op.axis)}, [self] * len(op.results)
            case Pad():
                return {"pads": (*self.spread(op.pads[:rank]), *self.spread(op.pads[rank:]))}, [self]
            case Slice():
                return {key: self.spread(getattr(op, key)) for key in ("offset", "steps", "shape")}, [self]
            case Tile():
                return {"repeats": self.spread(op.repeats)}, [self]
            case Quantize() | Dequantize():
                return ({"axis": self.axis(op.axis)} if shape_of(op.scale) else {}), [self]
            case Reduce():
                return {"axes": sorted({self.axis(axis) for axis in op.axes})}, [self._reduced(op)]
        return None

    def _reduced(self, op: Reduce) -> Movement | None:
        if op.keepdims:
            return self
        gone = {normal_axis(axis, len(self.order)) for axis in op.axes}
        left = [axis for index, axis in enumerate(self.order) if index not in gone]
        order = tuple(sorted(left).index(axis) for axis in left)
        return None if order == tuple(range(len(order))) else Permutation(order)

    def merges_with(self, op: Operation) -> bool:
        """Any permute."""
        return isinstance(op, Permute)

    def merged(self, op: Operation) -> dict[str, Any] | None:
        """Orders compose."""
        assert isinstance(op, Permute)
        order = tuple(self.order[axis] for axis in op.order)
        return None if order == tuple(range(len(order))) else {"order": order}


@dataclass(frozen=True)
class Refolding(Movement):
    """reshape from one shape to another."""

    source: tuple[int, ...]
    target: tuple[int, ...]

    @staticmethod
    def of(op: Operation) -> Refolding | None:
        """The movement that an op is."""
        return Refolding(shape_of(op.x), op.shape) if isinstance(op, Reshape) else None

    def make(self, x: SSAValue, loc: Any) -> TopOp:
        """A reshape."""
        return Reshape.make(x, shape=self.target, loc=loc)

    def axes(self) -> list[int | None] | None:
        """The source axis of each target axis, where the shapes differ in axes of size 1 alone."""
        if [n for n in self.source if n != 1] != [n for n in self.target if n != 1]:
            return None
        left = iter([axis for axis, n in enumerate(self.source) if n != 1])
        return [None if n == 1 else next(left) for n in self.target]

    def constant(self, array: Array) -> Array | None:
        """One number stays one; others follow their axes where those can be told."""
        if array.size == 1:
            return array if array.ndim == 0 else array.reshape(())
        if array.shape == self.target:
            return array.reshape(self.source)
        axes = self.axes()
        if axes is None or array.ndim > len(self.target):
            return None
        full = (1,) * (len(self.target) - array.ndim) + array.shape
        shape = [1] * len(self.source)
        for n, axis in zip(full, axes, strict=True):
            if axis is not None:
                shape[axis] = n
        return array.reshape(shape)

    def elementwise(self, shape: Sequence[int]) -> bool:
        """Without broadcasting."""
        return tuple(shape) == self.target

    def renumbered(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """Nothing else crosses a reshape."""
        return None

    def merges_with(self, op: Operation) -> bool:
        """Any reshape."""
        return isinstance(op, Reshape)

    def merged(self, op: Operation) -> dict[str, Any] | None:
        """The last shape counts."""
        assert isinstance(op, Reshape)
        return None if op.shape == self.source else {"shape": op.shape}


Kind = type[Permutation] | type[Refolding]


@dataclass(frozen=True)
class _Crossing:
    """How one op crosses: changed properties, the movements of its results, its constants on the other side."""

    changed: dict[str, Any]
    results: list[Movement | None]
    constants: dict[int, Array]


@dataclass
class _Region:
    """Ops that cross together, in an order that respects their uses."""

    moved: dict[SSAValue, Movement]
    """Values of the target side."""
    entries: dict[Operation, None]
    """The movements in front of the region."""
    ops: dict[TopOp, _Crossing] = field(default_factory=dict)
    partners: dict[SSAValue, Operation] = field(default_factory=dict)
    """Values from elsewhere, and an op that takes each to the source side already."""

    def add(self, graph: Graph, op: TopOp, kind: Kind) -> bool:
        """Take an op in, if all its operands are constant or moved alike."""
        movement: Movement | None = None
        entries: list[Operation] = []
        constants: list[int] = []
        foreign: list[SSAValue] = []
        # The scale and zero point of a quantization are parameters, not tensors that move.
        count = 1 if isinstance(op, Quantize | Dequantize) else len(op.operands)
        for index, value in enumerate(op.operands[:count]):
            move = self.moved.get(value)
            if move is None and isinstance(value, OpResult):
                if isinstance(value.op, WeightOp):
                    constants.append(index)
                    continue
                move = kind.of(value.op)
                if move is not None:
                    entries.append(value.op)
            if move is None:
                foreign.append(value)
            elif movement is not None and move != movement:
                return False
            else:
                movement = move
        if movement is None or not all(is_static(value) for value in (*op.operands, *op.results)):
            return False
        partners = {value: _partner(value, movement) for value in foreign}
        crossing = self._crossing(graph, op, movement, constants)
        if (
            crossing is None
            or None in partners.values()
            or any(value in self.partners for value in op.results)
        ):
            return False
        self.ops[op] = crossing
        self.partners.update({value: partner for value, partner in partners.items() if partner is not None})
        for entry in entries:
            self.entries[entry] = None
            self.moved[entry.results[0]] = movement
        for value, result in zip(op.results, crossing.results, strict=True):
            if result is not None:
                self.moved[value] = result
        return True

    def _crossing(
        self, graph: Graph, op: TopOp, movement: Movement, constants: Sequence[int]
    ) -> _Crossing | None:
        changed: dict[str, Any] = {}
        results: list[Movement | None] = [movement]
        if isinstance(op, ELEMENTWISE):
            if not movement.elementwise(shape_of(op.results[0])):
                return None
        else:
            renumbered = movement.renumbered(op)
            if renumbered is None:
                return None
            changed, results = renumbered
        arrays: dict[int, Array] = {}
        for index in constants:
            array = graph.constant(op.operands[index])
            new = (
                movement.constant(array) if array is not None and array.nbytes <= _LARGEST_CONSTANT else None
            )
            if new is None:
                return None
            arrays[index] = new
        return _Crossing(changed, results, arrays)

    def gain(self) -> int:
        """How many movements fewer there are if the region crosses."""
        gain = 0
        for value, movement in self.moved.items():
            outside = [op for op in dict.fromkeys(use.operation for use in value.uses) if op not in self.ops]
            if value.owner in self.entries:
                gain += not outside
                continue
            gain += sum(movement.merges_with(op) and movement.undoes(op) for op in outside)
            gain -= any(not movement.merges_with(op) for op in outside)
        return gain


def _partner(value: SSAValue, movement: Movement) -> Operation | None:
    """An op that undoes the movement for a value that is not part of the region."""
    for use in value.uses:
        op: Operation = use.operation
        if movement.merges_with(op) and movement.undoes(op):
            return op
    return None


def _grow(graph: Graph, start: TopOp, movement: Movement, kind: Kind) -> _Region:
    region = _Region({start.results[0]: movement}, {start: None})
    queue = deque(use.operation for use in start.results[0].uses)
    while queue and len(region.ops) < _LARGEST_REGION:
        op = queue.popleft()
        if (
            isinstance(op, TopOp)
            and op not in region.ops
            and kind.of(op) is None
            and region.add(graph, op, kind)
        ):
            queue.extend(use.operation for result in op.results for use in result.uses)
    return region


def _apply(graph: Graph, region: _Region) -> None:
    block = graph.block
    source: dict[SSAValue, SSAValue] = {entry.results[0]: entry.operands[0] for entry in region.entries}
    for value, partner in region.partners.items():
        # It has to stand before all ops of the region; directly behind its operand is the earliest place.
        _hoist(graph, partner, value)
        source[value] = partner.results[0]
    for op, crossing in region.ops.items():
        operands = [source.get(value, value) for value in op.operands]
        for index, array in crossing.constants.items():
            weight = producer(op.operands[index], WeightOp)
            assert weight is not None
            if array is not graph.constant(weight.results[0]):
                weight = graph.add_weight(f"{weight.ref}{_MOVED}", array)
                block.insert_op_before(weight, op)
            operands[index] = weight.results[0]
        # What needs no movement is the original value and keeps its name; the rest is new.
        names = [
            value_name(value) + (_MOVED if result is not None else "")
            for value, result in zip(op.results, crossing.results, strict=True)
        ]
        new = _rebuilt(op, operands, crossing.changed, location(names, layer_name(op) or None))
        block.insert_op_before(new, op)
        for old, fresh, result in zip(op.results, new.results, crossing.results, strict=True):
            if result is None:
                old.replace_all_uses_with(fresh)
            else:
                source[old] = fresh
                _serve(graph, region, old, fresh, result)
    for op in reversed(region.ops):
        block.erase_op(op)
    for entry in region.entries:
        if entry.results[0].first_use is None:
            block.erase_op(entry)


def _hoist(graph: Graph, op: Operation, value: SSAValue) -> None:
    block = graph.block
    block.detach_op(op)
    if isinstance(value, OpResult):
        block.insert_op_after(op, value.op)
    else:
        first = block.first_op
        assert first is not None
        block.insert_op_before(op, first)


def _rebuilt(op: TopOp, operands: Sequence[SSAValue], changed: dict[str, Any], loc: Any) -> TopOp:
    """The op on other operands; its result types follow from them."""
    properties = {**op.properties, **{key: to_attribute(value) for key, value in changed.items()}}
    new = type(op).create(operands=operands, properties=properties, location=loc)
    new.results = SSAValues(OpResult(kind, new, index) for index, kind in enumerate(new.infer()))
    return new


def _serve(graph: Graph, region: _Region, old: SSAValue, new: SSAValue, movement: Movement) -> None:
    """Give the users outside the region what they need: movements merge, others get the moved value."""
    others = False
    for user in dict.fromkeys(use.operation for use in old.uses):
        if user in region.ops:
            continue
        if not movement.merges_with(user):
            others = True
            continue
        properties = movement.merged(user)
        if properties is None:
            _stand_for(graph, user, new)
        else:
            user.operands[0] = new
            user.properties.update({key: to_attribute(value) for key, value in properties.items()})
    if others:
        owner = old.owner
        assert isinstance(owner, Operation)
        last = movement.make(new, location(value_name(old), layer_name(owner) or None))
        graph.block.insert_op_before(last, owner)
        old.replace_uses_with_if(last.results[0], lambda use: use.operation not in region.ops)


def _stand_for(graph: Graph, op: Operation, value: SSAValue) -> None:
    """Replace a movement that has become the identity; a new value takes the name that its result had."""
    single = isinstance(value, OpResult) and len(value.op.results) == 1
    if single and isinstance(value, OpResult) and value_name(value).endswith(_MOVED):
        value.op.location = op.location
    else:
        take_name(op.results[0], value)
    op.results[0].replace_all_uses_with(value)
    graph.block.erase_op(op)


def cross(graph: Graph, kind: Kind) -> bool:
    """Take what lies behind each movement of a kind to its other side, where that saves movements."""
    changed = False
    for op in list(graph.ops):
        movement = kind.of(op) if op.parent is not None else None
        if movement is None or not isinstance(op, TopOp) or isinstance(op.operands[0].owner, WeightOp):
            continue
        region = _grow(graph, op, movement, kind)
        if region.ops and region.gain() > 0:
            _apply(graph, region)
            changed = True
    if changed:
        drop_unused_weights(graph)
    return changed
