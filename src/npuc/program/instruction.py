"""What all typed instructions have in common: operands as addresses, fields as numbers, numbers as bytes.

`instructions.py`, which is generated from the table in `isa.py`, has a frozen record for every instruction: `Conv`, `Load`,
`Softmax` and so on. Scheduling rules make them, so a field that does not exist is an error of the type checker and not of
the machine. Until memory is planned, an address is a `Place`: a byte of an operand, whose own address comes later.

    >>> from npuc.program.instructions import Fill
    >>> fill = Fill(y=Place("out0", 64), bytes=1, count=256, value=0)
    >>> fill.name, fill.queue, fill.numbers()
    ('fill', 'vector', [Place(slot='out0', offset=64), 1, 256, 0])
    >>> Fill.of([4096, *fill.numbers()[1:]])
    Fill(y=4096, bytes=1, count=256, value=0)

A record is cheap, as a search makes tens of thousands of them. `numbers` and `of` are straight-line code that the generator
writes. That nobody assigns to a field is what the type checker holds: a dataclass that is frozen at run time takes three
times as long to make.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np

from npuc.program.isa import BY_NAME, HEAD, QUEUES, RECORD


@dataclass(frozen=True, slots=True)
class Place:
    """Where a field of an instruction points: a byte of an operand, the result, the constants or the scratch memory."""

    slot: str
    """`in0`, `in1`, ..., `out0`, ..., `const` or `scratch`."""
    offset: int = 0
    """Bytes from the first byte that the tile has of the object."""


_T = TypeVar("_T")
Address = int | Place
"""A byte of local memory, or of an operand whose place in local memory is not known yet."""


@dataclass_transform(frozen_default=True)
def record(cls: type[_T]) -> type[_T]:
    """A dataclass with slots, frozen for the type checker."""
    return dataclass(slots=True, unsafe_hash=True)(cls)


@record
class TypedInstruction:
    """An instruction without its head: its fields, by name. The records of `instructions.py` are its subclasses."""

    name: ClassVar[str]
    """As the table of the instruction set calls it."""
    opcode: ClassVar[int]
    queue: ClassVar[str]
    """The queue that runs it, or `any`."""
    addresses: ClassVar[tuple[int, ...]]
    """Which of its numbers are addresses in local memory."""
    far_addresses: ClassVar[tuple[tuple[int, int], ...]] = ()
    """Which are bytes of segments, and where the number of the segment is."""

    def numbers(self) -> list[Any]:
        """Its fields behind the head in the order of the table, those of several numbers spread out."""
        raise NotImplementedError

    def fields(self) -> dict[str, Any]:
        """Its fields by the names of the table, for what prints or compares them; several numbers are a tuple."""
        numbers, values, at = self.numbers(), {}, 0
        for part in BY_NAME[self.name].fields:
            values[part.name] = tuple(numbers[at : at + part.count]) if part.count > 1 else numbers[at]
            at += part.count
        return values

    @classmethod
    def of(cls, n: Sequence[Any]) -> Self:
        """The instruction of such numbers."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Head:
    """What every instruction begins with, beside its opcode: who runs it, for which layer, and what it waits for."""

    queue: str
    layer: int
    """An index of the layer table."""
    wait: tuple[int, ...] = (0,) * len(QUEUES)
    """What the semaphores of the queues have to have reached: so many instructions finished."""
    flags: int = 0


@cache
def packer(name: str) -> struct.Struct:
    """How the numbers of an instruction, behind those of its head, become a record: a struct with the holes of the record
    type."""
    dtype = BY_NAME[name].dtype
    codes = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i2": "h", "i4": "i", "i8": "q"}
    text, at = "<", 0
    for part in (*HEAD, *BY_NAME[name].fields):
        offset = int(dtype.fields[part.name][1])  # type: ignore[index]
        text += f"{offset - at}x{part.count}{codes[part.type]}"
        at = offset + np.dtype(part.type).itemsize * part.count
    return struct.Struct(text + f"{RECORD - at}x")


def encode(instruction: TypedInstruction, head: Head) -> bytes:
    """The record of an instruction whose addresses are numbers; one that does not fit its field is a `struct.error`."""
    numbers = instruction.numbers()
    queue = QUEUES.index(head.queue)
    return packer(instruction.name).pack(
        instruction.opcode, queue, head.flags, head.layer, *head.wait, *numbers
    )


def decode(record: bytes) -> tuple[Head, TypedInstruction]:
    """The instruction of a record; the opcode and the queue have to be valid."""
    from npuc.program.instructions import BY_OPCODE

    kind = BY_OPCODE[record[0]]
    _, queue, flags, layer, *rest = packer(kind.name).unpack(record)
    waits, numbers = rest[: len(QUEUES)], rest[len(QUEUES) :]
    return Head(QUEUES[queue], layer, tuple(waits), flags), kind.of(numbers)
