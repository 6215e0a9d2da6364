"""Movements of elements (permutes, reshapes) taken across the ops that do not mind them.

If m moves elements and f treats them all alike, f(m(x)) is m(f(x)). `Movement` knows how constants, axes and shapes
look on the other side of m; `translate` rebuilds an op there. `cross` grows a region of such ops behind a movement and
moves the region to the other side, **if fewer movements remain**: those at its entry go, those at its exit meet their
inverse, and new ones are needed where a value leaves the region otherwise. That count is the measure; each
application makes it smaller, so nothing moves to and fro.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation, OpResult, SSAValue

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
from npuc.transform.patterns import Array, producer, take_name

_LARGEST_CONSTANT = 1 << 20
_LARGEST_REGION = 128

_NOT_ELEMENTWISE = (Softmax, LogSoftmax, L2Norm, LRN, BatchNorm, Scale, AffineNorm)
ELEMENTWISE: tuple[type[TopOp], ...] = (
    *(
        op
        for op in TOP_OPS.values()
        if issubclass(op, Unary | Binary) and not issubclass(op, _NOT_ELEMENTWISE)
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
        """The constant that broadcasts on the source side as `array` does on the target side."""

    @abstractmethod
    def elementwise(self, shape: Sequence[int]) -> bool:
        """May an elementwise op whose result has this shape on the target side cross?"""

    @abstractmethod
    def other(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """Changed properties on the source side, and the movement of each result (None: it needs none).

        None if an op of this kind cannot cross.
        """

    @abstractmethod
    def then(self, op: Operation) -> Operation | SSAValue | None:
        """For a user `op` of the target that moves elements on: None if it does not."""


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
        if array.size == 1:
            return array if array.ndim <= len(self.order) else None
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
        found = [0] * len(self.order)
        for value, axis in zip(values, self.order, strict=True):
            found[axis] = value
        return tuple(found)

    def other(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """Axes and lists of one entry an axis are renumbered."""
        rank = len(self.order)
        match op:
            case Softmax() | LogSoftmax() | L2Norm() | Concat() | Split():
                return {"axis": self.axis(op.axis)}, [self] * len(op.results)
            case Pad():
                pads = (*self.spread(op.pads[:rank]), *self.spread(op.pads[rank:]))
                return {"pads": pads}, [self]
            case Slice():
                keys = ("offset", "steps", "shape")
                return {key: self.spread(getattr(op, key)) for key in keys}, [self]
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
        left = [self.order[axis] for axis in range(len(self.order)) if axis not in gone]
        order = tuple(sorted(left).index(axis) for axis in left)
        return None if order == tuple(range(len(order))) else Permutation(order)

    def then(self, op: Operation) -> Operation | None:
        """A permute merges into one that may be the identity."""
        return op if isinstance(op, Permute) else None


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
        """The source axis of each target axis, where both differ in axes of size 1 alone."""
        if [n for n in self.source if n != 1] != [n for n in self.target if n != 1]:
            return None
        left = [axis for axis, n in enumerate(self.source) if n != 1]
        return [None if n == 1 else left.pop(0) for n in self.target]

    def constant(self, array: Array) -> Array | None:
        """One number stays; others follow their axis where it can be told."""
        if array.size == 1:
            return array.reshape(())
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

    def other(self, op: TopOp) -> tuple[dict[str, Any], list[Movement | None]] | None:
        """Nothing else crosses a reshape."""
        return None

    def then(self, op: Operation) -> Operation | None:
        """Any reshape merges."""
        return op if isinstance(op, Reshape) else None


@dataclass
class _Region:
    """Ops that can cross together; `moved` maps values of the target side to their movement."""

    moved: dict[SSAValue, Movement]
    ops: dict[TopOp, tuple[dict[str, Any], list[Movement | None], dict[int, Array]]] = field(
        default_factory=dict
    )
    entries: dict[Operation, None] = field(default_factory=dict)


def _moving_operands(op: TopOp) -> int:
    """How many of the first operands are tensors to be moved; the others are parameters."""
    return 1 if isinstance(op, Quantize | Dequantize) else len(op.operands)


def _try_add(graph: Graph, region: _Region, op: TopOp, kind: type[Permutation] | type[Refolding]) -> bool:
    """Add an op to the region if all its operands are on the target side (or constant)."""
    movement: Movement | None = None
    entries: list[Operation] = []
    constants: list[int] = []
    for index, value in enumerate(op.operands[: _moving_operands(op)]):
        found = region.moved.get(value)
        if found is None and isinstance(value, OpResult):
            if isinstance(value.op, WeightOp):
                constants.append(index)
                continue
            found = kind.of(value.op)
            entries.append(value.op)
        if found is None or (movement is not None and found != movement):
            return False
        movement = found
    if movement is None or not all(is_static(value) for value in (*op.operands, *op.results)):
        return False
    results: list[Movement | None]
    changed: dict[str, Any]
    if isinstance(op, ELEMENTWISE):
        if not movement.elementwise(shape_of(op.results[0])):
            return False
        changed, results = {}, [movement]
    else:
        other = movement.other(op)
        if other is None:
            return False
        changed, results = other
    arrays: dict[int, Array] = {}
    for index in constants:
        array = graph.constant(op.operands[index])
        new = movement.constant(array) if array is not None and array.nbytes <= _LARGEST_CONSTANT else None
        if new is None:
            return False
        arrays[index] = new
    region.ops[op] = (changed, results, arrays)
    for entry in entries:
        region.entries[entry] = None
        region.moved[entry.results[0]] = movement
    for value, result in zip(op.results, results, strict=True):
        if result is not None:
            region.moved[value] = result
    return True


def _grow(graph: Graph, start: TopOp, movement: Movement) -> _Region:
    region = _Region({start.results[0]: movement}, entries={start: None})
    kind = type(movement)
    assert issubclass(kind, Permutation | Refolding)
    queue = deque(use.operation for use in start.results[0].uses)
    while queue and len(region.ops) < _LARGEST_REGION:
        op = queue.popleft()
        if (
            isinstance(op, TopOp)
            and op not in region.ops
            and kind.of(op) is None
            and _try_add(graph, region, op, kind)
        ):
            queue.extend(use.operation for result in op.results for use in result.uses)
    return region


def _gain(region: _Region) -> int:
    """How many movements fewer there are if the region crosses."""
    gain = 0
    for value, movement in region.moved.items():
        outside = [op for use in value.uses if (op := use.operation) not in region.ops]
        stays = False
        for op in dict.fromkeys(outside):
            following = movement.then(op)
            if following is None:
                stays = True
            elif value.owner not in region.entries:
                gain += _cancels(movement, op)
        if value.owner in region.entries:
            gain += 0 if outside else 1
        elif stays:
            gain -= 1
    return gain


def _cancels(movement: Movement, op: Operation) -> bool:
    if isinstance(movement, Permutation) and isinstance(op, Permute):
        return all(movement.order[axis] == index for index, axis in enumerate(op.order))
    return isinstance(movement, Refolding) and isinstance(op, Reshape) and op.shape == movement.source


def _named(values: Sequence[SSAValue], what: str) -> Iterator[str]:
    for value in values:
        yield f"{value_name(value)}/{what}" if value_name(value) else ""


def _apply(graph: Graph, region: _Region) -> None:
    block = graph.block
    source: dict[SSAValue, SSAValue] = {entry.results[0]: entry.operands[0] for entry in region.entries}
    for op, (changed, results, arrays) in region.ops.items():
        operands: list[SSAValue] = []
        for index, value in enumerate(op.operands):
            if index in arrays:
                array = arrays[index]
                weight = producer(value, WeightOp)
                assert weight is not None
                if array is not graph.constant(value):
                    weight = graph.add_weight(f"{weight.ref}/moved", array)
                    block.insert_op_before(weight, op)
                operands.append(weight.results[0])
            else:
                operands.append(source.get(value, value))
        # What needs no movement is the original value and keeps its name; the rest is new.
        names = [
            value_name(value) if result is None else name
            for value, result, name in zip(op.results, results, _named(op.results, "moved"), strict=True)
        ]
        new = _rebuild(op, operands, changed, location(names, layer_name(op) or None))
        block.insert_op_before(new, op)
        for old, fresh, result in zip(op.results, new.results, results, strict=True):
            if result is None:
                old.replace_uses_with_if(fresh, lambda use: use.operation not in region.ops)
            else:
                source[old] = fresh
                _leave(graph, region, old, fresh, result, op)
    for op in reversed(list(region.ops)):
        block.erase_op(op)
    for entry in region.entries:
        if entry.results[0].first_use is None:
            block.erase_op(entry)


def _rebuild(op: TopOp, operands: Sequence[SSAValue], changed: dict[str, Any], loc: Any) -> TopOp:
    properties = {**op.properties, **{key: to_attribute(value) for key, value in changed.items()}}
    new = type(op).create(operands=operands, properties=properties, location=loc)
    # The types follow from the operands.
    from xdsl.ir import SSAValues

    new.results = SSAValues(OpResult(kind, new, index) for index, kind in enumerate(new.infer()))
    return new


def _leave(
    graph: Graph, region: _Region, old: SSAValue, new: SSAValue, movement: Movement, op: TopOp
) -> None:
    """Serve the users outside the region: movements take the source side on, others get the moved value."""
    others = False
    for user in dict.fromkeys(use.operation for use in old.uses):
        if user in region.ops:
            continue
        if movement.then(user) is None:
            others = True
        elif isinstance(movement, Permutation) and isinstance(user, Permute):
            order = tuple(movement.order[axis] for axis in user.order)
            if order == tuple(range(len(order))):
                _forward(user, new)
            else:
                user.operands[0] = new
                user.properties["order"] = to_attribute(order)
        elif isinstance(movement, Refolding) and isinstance(user, Reshape):
            if user.shape == movement.source:
                _forward(user, new)
            else:
                user.operands[0] = new
    if others:
        last = movement.make(new, location(value_name(old), layer_name(op) or None))
        graph.block.insert_op_before(last, op)
        old.replace_uses_with_if(last.results[0], lambda use: use.operation not in region.ops)


def _forward(op: Operation, value: SSAValue) -> None:
    """Replace a movement that has become the identity; its value has its name in the original network."""
    if value_name(op.results[0]) and isinstance(value, OpResult) and value_name(value).endswith("/moved"):
        if len(value.op.results) == 1:
            value.op.location = op.location
    else:
        take_name(op.results[0], value)
    op.results[0].replace_all_uses_with(value)
    block = op.parent_block()
    assert block is not None
    block.erase_op(op)


def cross(graph: Graph, kind: type[Permutation] | type[Refolding]) -> bool:
    """Move what lies behind each movement of a kind to its other side, where that saves movements."""
    changed = False
    for op in list(graph.ops):
        movement = kind.of(op) if op.parent is not None and isinstance(op, TopOp) else None
        if movement is None or not isinstance(op, TopOp) or isinstance(op.operands[0].owner, WeightOp):
            continue
        region = _grow(graph, op, movement)
        if region.ops and _gain(region) > 0:
            _apply(graph, region)
            changed = True
    return changed
