"""Host operators one after the other, the tensors between them, and addresses for these.

Reshapes cost nothing: several tensors may be views of one storage. The first axis of a tensor may have a length that is known
only at run time (`rows`); its shape is then the largest that it can have.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.program.host_ops import HOST_KINDS, HOST_OPERATORS, NONE, PLACES, HostSection
from npuc.program.layout import ALIGNMENT, MOST_AXES, TENSOR_BITS, TENSOR_DTYPES
from npuc.program.model import Tensor
from npuc.schedule.layers import aligned
from npuc.schedule.memory import Buffer, plan

_CODES = {operator.name: code for code, operator in enumerate(HOST_OPERATORS)}
_NUMPY = {
    "i8": np.int8, "ui8": np.uint8, "i16": np.int16, "ui16": np.uint16, "i32": np.int32, "ui32": np.uint32,
    "i64": np.int64, "ui64": np.uint64, "f32": np.float32, "f64": np.float64, "i1": np.bool_,
}  # fmt: skip
DTYPES = {np.dtype(kind): name for name, kind in _NUMPY.items()}
"""Names of the element types that host operators know, by NumPy's."""
_PLAN_STEPS = 200_000


def numpy_type(dtype: str) -> np.dtype[np.generic]:
    """NumPy's type of elements."""
    return np.dtype(_NUMPY[dtype])


@dataclass(eq=False)
class Storage:
    """A place that tensors are views of."""

    size: int
    place: str = "arena"
    number: int = 0
    """Of the input or output; for constants the first byte."""
    first: int = -1
    """The first node that uses it; -1 if none does."""
    last: int = -1


@dataclass(frozen=True, eq=False)
class HostTensor:
    """A tensor of a subgraph."""

    dtype: str
    shape: tuple[int, ...]
    storage: Storage | None = None
    """None for a constant that no operator has used yet."""
    array: Array | None = None
    """The value of a constant."""
    rows: HostTensor | None = None
    """Where the length of the first axis is at run time; None if it is that of the shape."""
    least_rows: int = 0
    """With `rows`: the first axis is never shorter."""

    @property
    def size(self) -> int:
        """Bytes."""
        return prod(self.shape) * TENSOR_BITS[TENSOR_DTYPES.index(self.dtype)] // 8

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements from one to the next along each axis."""
        return tuple(prod(self.shape[axis + 1 :]) for axis in range(len(self.shape)))


def kind(operator: str, name: str) -> int:
    """The code of a kind of an operator."""
    return HOST_KINDS[operator].index(name)


def real(value: float) -> int:
    """A real number as the integer of the same bits."""
    return int(struct.unpack("<q", struct.pack("<d", value))[0])


@dataclass
class _Node:
    operator: str
    inputs: tuple[HostTensor | None, ...]
    outputs: tuple[HostTensor | None, ...]
    numbers: tuple[int, ...]
    name: str


@dataclass
class Builder:
    """Collects operators; `section` gives them addresses."""

    layer: str = ""
    """What the operators that are added next are for."""
    _nodes: list[_Node] = field(default_factory=list)
    _constants: dict[tuple[str, tuple[int, ...], bytes], HostTensor] = field(default_factory=dict)

    def tensor(
        self, dtype: str, shape: Sequence[int], rows: HostTensor | None = None, least_rows: int = 0
    ) -> HostTensor:
        """A new tensor in between."""
        tensor = HostTensor(dtype, tuple(shape), None, None, rows, least_rows)
        return replace(tensor, storage=Storage(tensor.size))

    def like(self, x: HostTensor, dtype: str = "") -> HostTensor:
        """A new tensor of the shape of another."""
        return self.tensor(dtype or x.dtype, x.shape, x.rows, x.least_rows)

    def constant(self, array: Array) -> HostTensor:
        """A tensor of a known value."""
        array = np.ascontiguousarray(array)
        return HostTensor(DTYPES[array.dtype], array.shape, array=array)

    def view(self, x: HostTensor, shape: Sequence[int]) -> HostTensor:
        """The same elements in another shape."""
        shape = tuple(shape)
        return replace(x, shape=shape, array=None if x.array is None else x.array.reshape(shape))

    def add(
        self,
        operator: str,
        inputs: Sequence[HostTensor | None],
        outputs: Sequence[HostTensor | None],
        *numbers: int,
    ) -> None:
        """An operator at work."""
        self._nodes.append(
            _Node(
                operator,
                tuple(self._stored(x) for x in inputs),
                tuple(outputs),
                tuple(map(int, numbers)),
                self.layer,
            )
        )

    def copy(
        self,
        x: HostTensor,
        y: HostTensor,
        sizes: Sequence[int],
        x_strides: Sequence[int],
        y_strides: Sequence[int],
        x_first: int = 0,
        y_first: int = 0,
    ) -> None:
        """Elements between strided places; axes that are one in memory are joined."""
        axes: list[tuple[int, int, int]] = []
        for size, source, result in zip(sizes, x_strides, y_strides, strict=True):
            if size == 1:
                continue
            if axes and axes[-1][1:] == (source * size, result * size):
                axes[-1] = (axes[-1][0] * size, source, result)
            else:
                axes.append((size, source, result))
        axes = axes or [(1, 1, 1)]
        if len(axes) > MOST_AXES:
            raise ValueError(f"a copy over {len(axes)} axes")
        columns = zip(*axes, strict=True)
        self.add(
            "copy",
            [x],
            [y],
            len(axes),
            x_first,
            y_first,
            *(number for column in columns for number in column),
        )

    def _stored(self, x: HostTensor | None) -> HostTensor | None:
        """A constant that an operator reads gets a place."""
        if x is None or x.storage is not None or x.array is None:
            return x
        key = x.dtype, x.shape, x.array.tobytes()
        if key not in self._constants:
            self._constants[key] = replace(x, storage=Storage(x.size, "constant"))
        return self._constants[key]

    def output(self, value: HostTensor, number: int, tensor: Tensor) -> None:
        """A value becomes output `number` of the subgraph: in its place from the start, or by a copy."""
        direct = tensor.order == tuple(range(len(tensor.order))) and value.storage is not None
        storage = value.storage
        if direct and storage is not None and storage.place == "arena" and storage.size == value.size:
            storage.place, storage.number = "output", number
            return
        self.layer = tensor.name
        memory = tuple(tensor.shape[axis] for axis in tensor.order)
        y = HostTensor(value.dtype, memory, Storage(value.size, "output", number))
        strides = self.view(value, tensor.shape).strides
        self.copy(value, y, memory, [strides[axis] for axis in tensor.order], y.strides)

    def input(self, number: int, tensor: Tensor) -> HostTensor:
        """Input `number` of the subgraph in the order of its axes."""
        memory = tuple(tensor.shape[axis] for axis in tensor.order)
        x = HostTensor(tensor.dtype, memory)
        x = replace(x, storage=Storage(x.size, "input", number))
        if memory == tensor.shape and tensor.order == tuple(range(len(tensor.order))):
            return x
        self.layer = tensor.name
        y = self.tensor(tensor.dtype, tensor.shape)
        self.copy(x, y, memory, x.strides, [y.strides[axis] for axis in tensor.order])
        return y

    def section(self) -> HostSection:
        """Everything, with addresses."""
        tensors: list[HostTensor] = []
        numbers_of: dict[int, int] = {}

        def number_of(x: HostTensor | None) -> int:
            if x is None:
                return NONE
            if id(x) not in numbers_of:
                if x.rows is not None:
                    number_of(self._stored(x.rows))
                numbers_of[id(x)] = len(tensors)
                tensors.append(x)
            return numbers_of[id(x)]

        strings, places = bytearray(b"\0"), {"": 0}
        operands: list[int] = []
        numbers: list[int] = []
        nodes = []
        for at, node in enumerate(self._nodes):
            for x in (*node.inputs, *node.outputs):
                for used in (x, x.rows if x is not None else None):
                    if used is not None and used.storage is not None:
                        used.storage.first = at if used.storage.first < 0 else used.storage.first
                        used.storage.last = at
            if node.name not in places:
                places[node.name] = len(strings)
                strings += node.name.encode() + b"\0"
            nodes.append(
                (_CODES[node.operator], len(node.inputs), len(node.outputs), len(operands), len(numbers),
                 len(node.numbers), places[node.name])
            )  # fmt: skip
            operands += [number_of(x) for x in (*node.inputs, *node.outputs)]
            numbers += node.numbers
        storages = list(dict.fromkeys(x.storage for x in tensors if x.storage is not None))
        constants = bytearray()
        for x in tensors:
            if x.storage is not None and x.storage.place == "constant" and x.array is not None:
                x.storage.number = len(constants)
                constants += x.array.tobytes() + bytes(-x.size % ALIGNMENT)
        arena = self._place([storage for storage in storages if storage.place == "arena"])
        rows = []
        for x in tensors:
            assert x.storage is not None
            code, place = TENSOR_DTYPES.index(x.dtype), PLACES.index(x.storage.place)
            count = NONE if x.rows is None else number_of(self._stored(x.rows))
            rows.append((code, len(x.shape), place, x.storage.number, x.size, x.shape, count))
        return HostSection(
            tuple(rows),
            tuple(nodes),
            tuple(operands),
            tuple(numbers),
            bytes(strings),
            bytes(constants),
            arena,
        )

    @staticmethod
    def _place(storages: list[Storage]) -> int:
        """Offsets for what is in between, by the planner of all memories; the bytes that it takes together."""
        if not storages:
            return 0
        buffers = [
            Buffer(str(k), aligned(storage.size), storage.first, storage.last + 1, ALIGNMENT)
            for k, storage in enumerate(storages)
        ]
        planned = plan(buffers, steps=_PLAN_STEPS)
        for k, storage in enumerate(storages):
            storage.number = planned.addresses[str(k)]
        return planned.size


def refused(words: str) -> HostSection:
    """A section that says why C cannot run the subgraph."""
    return HostSection(strings=b"\0" + words.encode() + b"\0", refusal=1)
