"""Where the channels are: TensorFlow, Keras and TFLite have them last, the IR has them second.

A `LayoutTensor` is a tensor of the foreign model while it is imported. It remembers in which of the two orders there is a value
of it; `LayoutBuilder.value_of` gives it in the order that an op wants, and turns it only if nobody has done so before. So a
chain of convolutions is turned at its ends and nowhere between:

    foreign model, N H W C              what is appended                    where there is a value of it
    x      1x8x8x3    (input)                                               last
    y      1x6x6x16   = Conv2D(x)       x2 = permute x (0, 3, 1, 2)         x: last, second
                                        y2 = conv x2                        y: second
    z      1x4x4x16   = Conv2D(y)       z2 = conv y2                        z: second      (nothing to turn)
    w      1x256      = Reshape(z)      z1 = permute z2 (0, 2, 3, 1)        z: second, last
                                        w1 = reshape z1                     w: last

Shapes are always told in the order of the foreign model. Constants are stored in the order in which they are first needed, turned
already. The passes of the canonical form remove what turns are left over at the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.errors import ResourceLimitError, UnsupportedOpError, UsageError
from npuc.frontend.builder import Builder, LayerBuilder
from npuc.frontend.support import MAX_ELEMENTS
from npuc.ir import DType, Graph, Value, Weight, dtype_of, is_static, shape_of, top
from npuc.ir.definition import TopOp

_OpT = TypeVar("_OpT", bound=TopOp)
_T = TypeVar("_T")


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


def axis_in(axis: int, second: bool, rank: int = 4) -> int:
    """Where an axis of the foreign order is, if channels are second.

    >>> [axis_in(axis, True) for axis in range(4)]
    [0, 2, 3, 1]
    """
    return to_last(rank)[axis] if second else axis


def arranged(entries: Sequence[_T], second: bool) -> tuple[_T, ...]:
    """One entry an axis of the foreign order, in the order with channels second if that is asked for.

    >>> arranged("nhwc", True)
    ('n', 'c', 'h', 'w')
    """
    return tuple(entries[axis] for axis in to_second(len(entries))) if second else tuple(entries)


class LayoutTensor:
    """A tensor of the foreign model: a constant, or values of it by layout (the key says whether channels are second)."""

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
        """True if there is a value of it with its channels second."""
        return True in self.values

    @property
    def is_static(self) -> bool:
        """True if its shape is known."""
        return self.weight is not None or is_static(next(iter(self.values.values())))

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the foreign order."""
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


class Absent(LayoutTensor):
    """An input that the user cut off. It may be handed on, to where the cut is; whoever looks at it still needs it."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)

    def needed(self) -> UsageError:
        """The error for whoever looks at it."""
        return UsageError(
            f"the outputs still need the input '{self.name}'",
            fix=f"Add it to --inputs, give it a value with --constant {self.name}=VALUE, or cut after it",
        )

    @property
    def is_static(self) -> bool:
        """Nobody knows."""
        raise self.needed()

    @property
    def shape(self) -> tuple[int, ...]:
        """Nobody knows."""
        raise self.needed()

    @property
    def dtype(self) -> DType:
        """Nobody knows."""
        raise self.needed()

    @property
    def array(self) -> Array | None:
        """Nobody knows."""
        raise self.needed()


class LayoutBuilder(Builder):
    """A graph under construction, of a model that has its channels last."""

    LAYOUTS = ("channels_last", "channels_second")
    """What the name of a tensor that was turned ends with."""

    def value_of(self, tensor: LayoutTensor, second: bool = False, name: str = "") -> Value:
        """A tensor in a layout; `name` is for one that has none."""
        if isinstance(tensor, Absent):
            raise tensor.needed()
        if tensor.weight is not None:
            stored = self.stored(tensor, second)
            if stored is not None:
                return stored
            data: Weight | Array = tensor.weight
            if second:
                array = tensor.weight.array()
                data = np.ascontiguousarray(array.transpose(to_second(array.ndim)))
            return self.store_for(tensor, data, tensor.name or "constant", second)
        if second not in tensor.values:
            value = tensor.values[not second]
            rank = len(shape_of(value))
            turn = top.Permute.make(value, order=to_second(rank) if second else to_last(rank))
            tensor.values[second] = self.append(turn, f"{tensor.name or name}/{self.LAYOUTS[second]}").y
        return tensor.values[second]

    def is_turned(self, tensor: LayoutTensor) -> bool:
        """True if there is a value of a tensor with its channels second, a stored one if it is constant."""
        return tensor.is_turned or self.stored(tensor, True) is not None


class ChannelsLastBuilder(LayerBuilder):
    """The layers of a model of Keras or TensorFlow, one after the other; `first` is the name of the one that is being built."""

    scope: LayoutBuilder
    onnx_version = 21

    def __init__(self, graph: Graph) -> None:
        super().__init__(LayoutBuilder(graph), "")

    # Tensors

    def constant(self, array: Array | Weight, name: str = "") -> LayoutTensor:
        """A constant; it becomes an op when an op needs it."""
        weight = array if isinstance(array, Weight) else Weight.of(np.asarray(array))
        return LayoutTensor(weight=weight, name=name or f"{self.first}/constant")

    def number(self, value: float, like: LayoutTensor) -> LayoutTensor:
        """A scalar of the type of another tensor."""
        return self.constant(np.array(value, like.dtype.numpy))

    def value(self, tensor: LayoutTensor, second: bool = False) -> Value:
        """A tensor as a value in a layout."""
        return self.scope.value_of(tensor, second, self.first)

    # Images: `channels_first` is the framework's own data format

    def image(self, tensor: LayoutTensor, channels_first: bool = False) -> Value:
        """A tensor with its channels second, whatever the framework calls it."""
        return self.value(tensor, second=not channels_first)

    def framed(self, value: Value, channels_first: bool = False) -> LayoutTensor:
        """A value with its channels second, as the framework means it."""
        return LayoutTensor(value, not channels_first)

    # Ops

    def add(self, op: _OpT) -> _OpT:
        """Append an op, unless no tensor could be as large as a result of it."""
        for value in op.results:
            if is_static(value) and prod(shape_of(value)) > MAX_ELEMENTS:
                raise ResourceLimitError(
                    f"'{self.first}' makes a tensor of the shape {list(shape_of(value))}"
                )
        return super().add(op)

    def finish_layer(
        self, results: Sequence[LayoutTensor], names: Sequence[str], layer: str | None = None
    ) -> None:
        """Name what was emitted since the last call: the results as told, and what lies between after the first."""
        named: dict[Value, str] = {}
        for tensor, name in zip(results, names, strict=False):
            tensor.name = tensor.name or name
            for value in tensor.values.values():
                named.setdefault(value, name)
        self.layer_name = layer
        self.finish(named)
