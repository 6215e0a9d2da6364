"""A table of the flatbuffer, read with care: every offset is checked before it is followed.

The generated accessors of the schema package follow whatever the file says. A `FlatbufferView` checks the vtable of its table
when it is made; offsets to vectors, strings and other tables are unsigned, so they only ever lead forward, and where
they lead beyond the file the read fails. All that becomes one error.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import FileFormatError

_MAX_ENTRIES = 1 << 16
"""No vector of tables may be longer: a model with more tensors is not one."""


def damaged(what: str) -> FileFormatError:
    """The error for a file that does not hold together."""
    return FileFormatError(
        f"is not a whole TensorFlow Lite model: {what}", fix="The file is truncated or damaged; get it again"
    )


@contextmanager
def guarded(what: str) -> Iterator[None]:
    """Whatever the accessors trip over is damage."""
    try:
        yield
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, AssertionError) as error:
        raise damaged(f"{what} leads out of the file") from error


class FlatbufferView:
    """One table; `what` is how messages speak of it."""

    def __init__(self, table: Any, what: str) -> None:
        self.table = table
        self.what = what
        with guarded(what):
            self._check()

    def _check(self) -> None:
        """The vtable and all fields lie inside the file."""
        at, buffer = self.table._tab.Pos, self.table._tab.Bytes
        (back,) = struct.unpack_from("<i", buffer, at)
        vtable = at - back
        if vtable < 0:
            raise ValueError("negative offset")
        length, inline = struct.unpack_from("<HH", buffer, vtable)
        if length < 4 or length % 2 or vtable + length > len(buffer) or at + inline > len(buffer):
            raise ValueError("vtable")
        fields = struct.unpack_from(f"<{length // 2 - 2}H", buffer, vtable + 4)
        if max(fields, default=0) >= max(inline, 1):
            raise ValueError("field")

    def number(self, name: str) -> Any:
        """A number, a truth value or an enumerator."""
        with guarded(self.what):
            return getattr(self.table, name)()

    def text(self, name: str) -> str:
        """A string; what is not UTF-8 in it is escaped, and zero bytes, which no name in a program may have."""
        with guarded(self.what):
            raw = getattr(self.table, name)()
        return raw.decode(errors="backslashreplace").replace("\0", "\\x00") if raw else ""

    def numbers(self, name: str) -> Array:
        """A vector of numbers, a view into the file; empty if it is absent."""
        with guarded(self.what):
            array = getattr(self.table, f"{name}AsNumpy")()
        return array if isinstance(array, np.ndarray) else np.zeros(0, np.int32)

    def integers(self, name: str) -> tuple[int, ...]:
        """A vector of integers."""
        return tuple(int(n) for n in self.numbers(name))

    def view(self, name: str) -> FlatbufferView | None:
        """Another table, or None if it is absent."""
        with guarded(self.what):
            table = getattr(self.table, name)()
        return None if table is None else FlatbufferView(table, self.what)

    def views(self, name: str, what: str) -> list[FlatbufferView]:
        """A vector of tables."""
        with guarded(self.what):
            count = getattr(self.table, f"{name}Length")()
            if not 0 <= count <= min(_MAX_ENTRIES, len(self.table._tab.Bytes) // 4):
                raise ValueError("count")
            tables = [getattr(self.table, name)(index) for index in range(count)]
        return [FlatbufferView(table, f"{what} {index}") for index, table in enumerate(tables)]

    def union(self, name: str, kind: Any) -> FlatbufferView | None:
        """The table of a union, as the generated class `kind`; None if it is absent."""
        with guarded(self.what):
            raw_table = getattr(self.table, name)()
            if raw_table is None:
                return None
            table = kind()
            table.Init(raw_table.Bytes, raw_table.Pos)
        return FlatbufferView(table, self.what)

    def place(self, slot: int) -> tuple[int, int]:
        """Where the bytes of a vector lie in the file: offset and length; (0, 0) if it is absent."""
        tab = self.table._tab
        with guarded(self.what):
            field = tab.Offset(slot)
            if not field:
                return 0, 0
            start, length = tab.Vector(field), tab.VectorLen(field)
            if start + length > len(tab.Bytes):
                raise ValueError("length")
        return int(start), int(length)
