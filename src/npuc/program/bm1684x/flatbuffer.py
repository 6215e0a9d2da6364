"""FlatBuffers by the numbers of their fields, without a schema: as much of the format as `.bmodel` files use.

The writer takes tables from the leaves up; the reader follows nothing that it has not checked.

    >>> writer = TableWriter()
    >>> data = writer.finish(writer.table({0: writer.string("x"), 2: ("u32", 7)}))
    >>> table = Table.root(data)
    >>> table.text(0), table.number("u32", 1), table.number("u32", 2)
    ('x', 0, 7)
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_FORMATS = {"u8": "B", "u32": "I", "i32": "i", "u64": "Q", "f32": "f", "span": "QQ"}
_ALIGNMENTS = {"u8": 1, "u32": 4, "i32": 4, "u64": 8, "f32": 4, "span": 8}


@dataclass(frozen=True)
class _Object:
    """A string, a vector, or a table with its vtable before it."""

    raw: bytes
    origin: int
    """The byte of it that offsets lead to."""
    aligned: int
    """The byte of it that has to be at a multiple of 8."""
    places: tuple[tuple[int, int], ...] = ()
    """Bytes where offsets belong, and the numbers of the objects that they lead to."""


class TableWriter:
    """Collects objects, each behind those that it refers to; the file has them the other way round, as offsets lead forward."""

    def __init__(self) -> None:
        self._objects: list[_Object] = []

    def string(self, text: str) -> int:
        """A string; its number stands for it in tables."""
        raw = text.encode()
        return self._add(_Object(struct.pack("<I", len(raw)) + raw + b"\0", 0, 0))

    def numbers(self, kind: str, values: Sequence[int]) -> int:
        """A vector of numbers."""
        packed = struct.pack(f"<{len(values)}{_FORMATS[kind]}", *values)
        return self._add(_Object(struct.pack("<I", len(values)) + packed, 0, 4))

    def tables(self, entries: Sequence[int]) -> int:
        """A vector of tables."""
        places = tuple((4 + 4 * index, entry) for index, entry in enumerate(entries))
        return self._add(_Object(struct.pack("<I", len(entries)) + bytes(4 * len(entries)), 0, 0, places))

    def table(self, fields: Mapping[int, Any]) -> int:
        """A table: field numbers to (kind, value), or to the number of a string, vector or table."""
        slots = max(fields, default=-1) + 1
        vtable, head = [0] * slots, 4 + 2 * slots
        body, places = bytearray(4), []
        # The large ones first: fields are aligned, and so no bytes are lost between.
        for slot, field in sorted(fields.items(), key=lambda item: (-_alignment(item[1]), item[0])):
            body += bytes(-len(body) % _alignment(field))
            vtable[slot] = len(body)
            if isinstance(field, int):
                places.append((head + len(body), field))
                body += bytes(4)
            else:
                kind, value = field
                numbers = value if kind == "span" else (value,)
                body += struct.pack(f"<{_FORMATS[kind]}", *numbers)
        body[:4] = struct.pack("<i", head)  # how far back the vtable is
        raw = struct.pack(f"<HH{slots}H", head, len(body), *vtable) + bytes(body)
        return self._add(_Object(raw, head, head, tuple(places)))

    def finish(self, root: int) -> bytes:
        """All of it."""
        starts: dict[int, int] = {}
        at = 4
        for number in reversed(range(len(self._objects))):
            entry = self._objects[number]
            at += -(at + entry.aligned) % 8
            starts[number] = at
            at += len(entry.raw)
        data = bytearray(at)
        struct.pack_into("<I", data, 0, starts[root] + self._objects[root].origin)
        for number, start in starts.items():
            entry = self._objects[number]
            data[start : start + len(entry.raw)] = entry.raw
            for place, target in entry.places:
                offset = starts[target] + self._objects[target].origin - start - place
                struct.pack_into("<I", data, start + place, offset)
        return bytes(data)

    def _add(self, entry: _Object) -> int:
        self._objects.append(entry)
        return len(self._objects) - 1


def _alignment(field: Any) -> int:
    return 4 if isinstance(field, int) else _ALIGNMENTS[field[0]]


class Table:
    """A table of a FlatBuffer that somebody else wrote; a ValueError or struct.error says what is wrong with it."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data, self._at = data, at
        (back,) = struct.unpack_from("<i", data, at)
        vtable = at - back
        if vtable < 0:
            raise ValueError("a table leads out of the file")
        length, self._size = struct.unpack_from("<HH", data, vtable)
        if length < 4 or length % 2 or vtable + length > len(data) or at + self._size > len(data):
            raise ValueError("a table leads out of the file")
        self._fields = struct.unpack_from(f"<{length // 2 - 2}H", data, vtable + 4)

    @classmethod
    def root(cls, data: bytes) -> Table:
        """The first table."""
        return cls(data, struct.unpack_from("<I", data)[0])

    def number(self, kind: str, slot: int) -> Any:
        """A number; 0 if it is not there."""
        place = self._place(slot, struct.calcsize("<" + _FORMATS[kind]))
        return struct.unpack_from("<" + _FORMATS[kind], self._data, place)[0] if place else 0

    def span(self, slot: int) -> tuple[int, int]:
        """A start and a size; zeros if it is not there."""
        place = self._place(slot, 16)
        start, size = struct.unpack_from("<QQ", self._data, place) if place else (0, 0)
        return start, size

    def text(self, slot: int) -> str:
        """A string; empty if it is not there."""
        return self.bytes(slot).decode()

    def bytes(self, slot: int) -> bytes:
        """A string or a vector of bytes; empty if it is not there."""
        place, count = self._vector(slot, 1)
        return self._data[place : place + count]

    def numbers(self, kind: str, slot: int, most: int) -> tuple[int, ...]:
        """A vector of numbers; empty if it is not there."""
        place, count = self._vector(slot, struct.calcsize("<" + _FORMATS[kind]), most)
        return struct.unpack_from(f"<{count}{_FORMATS[kind]}", self._data, place)

    def table(self, slot: int) -> Table | None:
        """Another table, or None."""
        place = self._place(slot, 4)
        return Table(self._data, place + struct.unpack_from("<I", self._data, place)[0]) if place else None

    def tables(self, slot: int, most: int) -> list[Table]:
        """A vector of tables, of so many at most."""
        place, count = self._vector(slot, 4, most)
        spots = [place + 4 * index for index in range(count)]
        return [Table(self._data, spot + struct.unpack_from("<I", self._data, spot)[0]) for spot in spots]

    def _place(self, slot: int, size: int) -> int:
        offset = self._fields[slot] if slot < len(self._fields) else 0
        if not offset:
            return 0
        if offset + size > self._size:
            raise ValueError("a field lies outside of its table")
        return self._at + offset

    def _vector(self, slot: int, size: int, most: int = 1 << 20) -> tuple[int, int]:
        place = self._place(slot, 4)
        if not place:
            return 0, 0
        place += struct.unpack_from("<I", self._data, place)[0]
        (count,) = struct.unpack_from("<I", self._data, place)
        if count > most or place + 4 + count * size > len(self._data):
            raise ValueError("a list is longer than the file")
        return place + 4, count
