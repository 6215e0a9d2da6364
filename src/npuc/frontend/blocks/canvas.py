"""Where ops are drawn: tensors in the framework's order of axes (channels last), turned only when somebody asks.

A `Held` is a constant or a value. A value of rank 3 to 5 may be held with its channels second as the IR wants pictures,
so that a chain of convolutions is turned at its ends and nowhere between. Shapes are always told in the framework's order.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.errors import ResourceLimitError, UnsupportedOpError, UsageError
from npuc.frontend.support import MAX_ELEMENTS, Names
from npuc.ir import DType, Graph, Value, Weight, dtype_of, is_static, location, shape_of, top
from npuc.ir.definition import TopOp

_OpT = TypeVar("_OpT", bound=TopOp)


def to_second(rank: int) -> tuple[int, ...]:
    """The order that puts the last axis second.

    >>> to_second(4)
    (0, 3, 1, 2)
    """
    return (0, rank - 1, *range(1, rank - 1))


def to_last(rank: int) -> tuple[int, ...]:
    """The order that puts the second axis last.

    >>> to_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


class Held:
    """A tensor under way: a constant, or a value by layout (the key says whether channels are second)."""

    def __init__(
        self,
        value: Value | None = None,
        second: bool = False,
        *,
        weight: Weight | None = None,
        name: str = "",
    ) -> None:
        self.values: dict[bool, Value] = {} if value is None else {second: value}
        self.weight = weight
        self.name = name

    @property
    def is_turned(self) -> bool:
        """True if somebody holds it with its channels second."""
        return True in self.values

    @property
    def is_static(self) -> bool:
        """True if its shape is known."""
        return self.weight is not None or is_static(next(iter(self.values.values())))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the framework's order."""
        if self.weight is not None:
            return self.weight.shape
        if not self.is_static:
            raise UnsupportedOpError(
                f"the shape of '{self.name}' depends on data, and what follows it needs to know it",
                fix="Cut the network before it with --outputs",
            )
        if False in self.values:
            return shape_of(self.values[False])
        shape = shape_of(self.values[True])
        return tuple(shape[axis] for axis in to_last(len(shape)))

    @property
    def rank(self) -> int:
        """The number of its axes."""
        return len(self.shape)

    @property
    def dtype(self) -> DType:
        """Its element type."""
        if self.weight is not None:
            return self.weight.dtype
        return dtype_of(next(iter(self.values.values())).type)

    @property
    def array(self) -> Array | None:
        """Its values, if it is constant."""
        return None if self.weight is None else self.weight.array()


class Absent(Held):
    """An input that the user cut off. It may be handed on, to where the cut is; whoever looks at it still needs it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)

    def _needed(self) -> UsageError:
        return UsageError(
            f"the outputs still need the input '{self.name}'",
            fix=f"Add it to --inputs, give it a value with --constant {self.name}=VALUE, or cut after it",
        )

    @property
    def is_static(self) -> bool:
        """Nobody knows."""
        raise self._needed()

    @property
    def shape(self) -> tuple[int, ...]:
        """Nobody knows."""
        raise self._needed()

    @property
    def dtype(self) -> DType:
        """Nobody knows."""
        raise self._needed()

    @property
    def array(self) -> Array | None:
        """Nobody knows."""
        raise self._needed()


class Canvas:
    """A graph that ops are appended to, with a name for each result when a layer is done."""

    def __init__(self, graph: Graph, names: Names | None = None) -> None:
        self.graph = graph
        self.names = names if names is not None else Names()
        self.emitted: list[TopOp] = []
        self.first = ""
        """The name of the layer that is being drawn."""
        self._drawn: dict[tuple[int, bool], tuple[Held, Value]] = {}

    # Tensors

    def constant(self, array: Array | Weight, name: str = "") -> Held:
        """A constant; it becomes an op when an op needs it."""
        weight = array if isinstance(array, Weight) else Weight.of(np.asarray(array))
        return Held(weight=weight, name=name or f"{self.first}/constant")

    def number(self, value: float, like: Held) -> Held:
        """A scalar of the type of another tensor."""
        return self.constant(np.array(value, like.dtype.numpy))

    def value(self, held: Held, second: bool = False) -> Value:
        """A tensor as a value in a layout."""
        if isinstance(held, Absent):
            raise held._needed()
        if held.weight is not None:
            key = (id(held), second)
            if key not in self._drawn:
                data: Any = held.weight
                if second:
                    array = held.weight.array()
                    data = np.ascontiguousarray(array.transpose(to_second(array.ndim)))
                op = self.graph.add_weight(self.names.unique(held.name or "constant"), data)
                self.graph.block.add_op(op)
                self._drawn[key] = (held, op.output)
            return self._drawn[key][1]
        if second not in held.values:
            value = held.values[not second]
            rank = len(shape_of(value))
            turn = top.Permute.make(value, order=to_second(rank) if second else to_last(rank))
            name = f"{held.name or self.first}/{'channels_second' if second else 'channels_last'}"
            turn.location = location(self.names.unique(name))  # type: ignore[assignment]
            self.graph.block.add_op(turn)
            held.values[second] = turn.y
        return held.values[second]

    # Pictures: `channels_first` is the framework's own data format

    def picture(self, held: Held, channels_first: bool = False) -> Value:
        """A tensor with its channels second, whatever the framework calls it."""
        return self.value(held, second=not channels_first)

    def framed(self, value: Value, channels_first: bool = False) -> Held:
        """A value with its channels second, as the framework means it."""
        return Held(value, not channels_first)

    # Ops

    def emit(self, op_class: type[_OpT], /, *operands: Any, **properties: Any) -> _OpT:
        """Append an op of values; its results get names when the layer is done."""
        op = op_class.make(*operands, **properties)
        for value in op.results:
            if is_static(value) and prod(shape_of(value)) > MAX_ELEMENTS:
                raise ResourceLimitError(
                    f"'{self.first}' makes a tensor of the shape {list(shape_of(value))}"
                )
        self.graph.block.add_op(op)
        self.emitted.append(op)
        return op

    def finish(self, results: Sequence[Held], names: Sequence[str], layer: str | None = None) -> None:
        """Name what was emitted since the last call: the results as told, and what lies between after the first."""
        wanted: dict[int, str] = {}
        for held, name in zip(results, names, strict=False):
            held.name = held.name or name
            for value in held.values.values():
                wanted.setdefault(id(value), name)
        for op in self.emitted:
            kind = op.name.removeprefix("top.")
            found = [wanted.pop(id(value), f"{self.first}/{kind}") for value in op.results]
            op.location = location([self.names.unique(name) for name in found], layer)  # type: ignore[assignment]
        self.emitted = []
