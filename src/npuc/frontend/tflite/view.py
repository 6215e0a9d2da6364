"""A table of the flatbuffer, read with care: every offset is checked before it is followed.

A `FlatbufferView` checks the vtable of its table when it is made; offsets to vectors, strings and other tables are unsigned, so
they only ever lead forward, and where they lead beyond the file the read fails. All that becomes one error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError
from npuc.frontend.tflite.schema import TABLES

_MAX_ENTRIES = 1 << 16
"""No vector of tables may be longer: a model with more tensors is not one."""
_OFFSET = struct.Struct("<I")
_PAIR = struct.Struct("<HH")
_NUMBERS = {letter: struct.Struct(f"<{letter}") for letter in "?bBhHiIqQfd"}


def damaged(what: str) -> FileFormatError:
    """The error for a file that does not hold together."""
    return FileFormatError(
        f"is not a whole TensorFlow Lite model: {what}", fix="The file is truncated or damaged; get it again"
    )


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Whatever reading trips over is damage."""
    try:
        yield
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, AssertionError) as error:
        raise damaged(f"{what} leads out of the file") from error


class FlatbufferView:
    """One table of a kind of the schema; `what` is how messages speak of it."""

    def __init__(self, buffer: Any, at: int, kind: str, what: str) -> None:
        self.kind = kind
        self.what = what
        self._buffer = buffer
        self._at = at
        self._fields = TABLES[kind]
        with guarded(what):
            self._places = self._checked()

    @classmethod
    def root(cls, buffer: Any) -> FlatbufferView:
        """The table that a file begins with."""
        with guarded("its root"):
            (at,) = _OFFSET.unpack_from(buffer, 0)
        return cls(buffer, at, "Model", "its root")

    def _checked(self) -> tuple[int, ...]:
        """Where the fields lie in the table; the vtable and all of them are inside the file."""
        at, buffer = self._at, self._buffer
        (back,) = _NUMBERS["i"].unpack_from(buffer, at)
        vtable = at - back
        if vtable < 0:
            raise ValueError("negative offset")
        length, inline = _PAIR.unpack_from(buffer, vtable)
        if length < 4 or length % 2 or vtable + length > len(buffer) or at + inline > len(buffer):
            raise ValueError("vtable")
        places: tuple[int, ...] = struct.unpack_from(f"<{length // 2 - 2}H", buffer, vtable + 4)
        if max(places, default=0) >= max(inline, 1):
            raise ValueError("field")
        return places

    def _place(self, slot: int) -> int:
        """Where in the file the field of a slot is; 0 if it is absent."""
        index = slot // 2 - 2
        place = self._places[index] if index < len(self._places) else 0
        return self._at + place if place else 0

    def _follow(self, at: int) -> int:
        return at + int(_OFFSET.unpack_from(self._buffer, at)[0])

    def _vector(self, slot: int) -> tuple[int, int]:
        """Where the elements of a vector begin, and how many there are; (0, 0) if it is absent."""
        place = self._place(slot)
        if not place:
            return 0, 0
        start = self._follow(place)
        return start + 4, int(_OFFSET.unpack_from(self._buffer, start)[0])

    def number(self, name: str) -> Any:
        """A number, a truth value or an enumerator."""
        slot, form, absent = self._fields[name]
        place = self._place(slot)
        if not place:
            return absent
        with guarded(self.what):
            return _NUMBERS[form].unpack_from(self._buffer, place)[0]

    def text(self, name: str) -> str:
        """A string; what is not UTF-8 in it is escaped, and zero bytes, which no name in a program may have."""
        with guarded(self.what):
            start, length = self._vector(self._fields[name][0])
            raw = bytes(self._buffer[start : start + length])
        return raw.decode(errors="backslashreplace").replace("\0", "\\x00")

    def numbers(self, name: str) -> Array:
        """A vector of numbers, a view into the file; empty if it is absent."""
        slot, form, _ = self._fields[name]
        with guarded(self.what):
            start, length = self._vector(slot)
            if not start:
                return np.zeros(0, np.int32)
            return np.frombuffer(self._buffer, np.dtype(f"<{form[1:]}"), length, start)

    def integers(self, name: str) -> tuple[int, ...]:
        """A vector of integers."""
        return tuple(self.numbers(name).tolist())

    def view(self, name: str) -> FlatbufferView | None:
        """Another table, or None if it is absent."""
        slot, form, _ = self._fields[name]
        return self._table(slot, form)

    def views(self, name: str, what: str) -> list[FlatbufferView]:
        """A vector of tables."""
        slot, form, _ = self._fields[name]
        with guarded(self.what):
            start, count = self._vector(slot)
            if count > min(_MAX_ENTRIES, len(self._buffer) // 4):
                raise ValueError("count")
            places = [self._follow(start + 4 * index) for index in range(count)]
        return [
            FlatbufferView(self._buffer, at, form[1:], f"{what} {index}") for index, at in enumerate(places)
        ]

    def union(self, name: str, kind: str) -> FlatbufferView | None:
        """The table of a union, as a table of a kind; None if it is absent."""
        return self._table(self._fields[name][0], kind)

    def _table(self, slot: int, kind: str) -> FlatbufferView | None:
        place = self._place(slot)
        if not place:
            return None
        with guarded(self.what):
            at = self._follow(place)
        return FlatbufferView(self._buffer, at, kind, self.what)

    def place(self, name: str) -> tuple[int, int]:
        """Where the bytes of a vector lie in the file: offset and length; (0, 0) if it is absent."""
        with guarded(self.what):
            start, length = self._vector(self._fields[name][0])
            if start + length > len(self._buffer):
                raise ValueError("length")
        return start, length
