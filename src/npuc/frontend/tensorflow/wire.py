"""Protobuf messages looked at in place: fields by number, every length checked against the message around it.

TensorFlow's own classes are not needed, and a message that lies about a size costs nothing: what nobody asks for is
skipped, not copied. Wire types are 0 varint, 1 eight bytes, 2 length-delimited, 5 four bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from npuc.errors import FileFormatError
from npuc.ir.weights import MappedFile

MAX_FIELDS = 1 << 21
"""Fields of a file that are looked at, each as often as it is: a limit on the time that a hostile one takes."""


def bad(reason: str) -> FileFormatError:
    """The error for a message that does not hold together."""
    return FileFormatError(f"is not a valid TensorFlow file: {reason}", fix="Export or download it again")


class Meter:
    """How many fields of a file may still be looked at."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = MAX_FIELDS

    def spend(self, count: int = 1) -> None:
        """So many fewer."""
        self.left -= count
        if self.left < 0:
            raise bad("it has too many fields")


@dataclass(slots=True)
class WireMessage:
    """A part of a file that is a message, or the bytes of a string. It is never changed, and not frozen: that is slow."""

    file: MappedFile
    begin: int
    end: int
    meter: Meter

    @staticmethod
    def whole(file: MappedFile) -> WireMessage:
        """All of a file."""
        return WireMessage(file, 0, file.size, Meter())

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self.end - self.begin

    @property
    def data(self) -> bytes:
        """Its bytes."""
        return bytes(self.file.buffer[self.begin : self.end])

    @property
    def text(self) -> str:
        """Its bytes as text."""
        if self.size > 1 << 16:
            raise bad(f"a name has {self.size} bytes")
        self.meter.spend(self.size >> 6)
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise bad("a name is not text") from error

    def fields(self) -> Iterator[tuple[int, int | WireMessage]]:
        """Field numbers with integers (also for fixed-size fields: their bits) or parts."""
        file, meter = self.file, self.meter
        buffer, at, end = file.buffer, self.begin, self.end
        while at < end:
            # Most numbers are of one byte, and most of the time is spent here.
            tag = buffer[at]
            at += 1
            if tag >= 0x80:
                tag, at = varint(buffer, at - 1, end)
            number, wire = tag >> 3, tag & 7
            meter.left -= 1
            if meter.left < 0:
                meter.spend()
            if wire == 0:
                value, at = varint(buffer, at, end)
                yield number, value
                continue
            if wire == 2:
                if at < end and buffer[at] < 0x80:
                    size = buffer[at]
                    at += 1
                else:
                    size, at = varint(buffer, at, end)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
            else:
                raise bad(f"a field has the unknown wire type {wire}")
            if size > end - at:
                raise bad(f"a part of {size} bytes is cut off")
            if wire == 2:
                yield number, WireMessage(file, at, at + size, meter)
            else:
                yield number, int.from_bytes(buffer[at : at + size], "little")
            at += size

    def parts(self, number: int) -> Iterator[WireMessage]:
        """The length-delimited fields of a number."""
        for field, value in self.fields():
            if field == number and isinstance(value, WireMessage):
                yield value

    def part(self, number: int) -> WireMessage | None:
        """The last length-delimited field of a number, which is the one that counts."""
        return max(self.parts(number), key=lambda part: part.begin, default=None)

    def number(self, number: int, default: int = 0) -> int:
        """The last integer of a number, unsigned as it is stored."""
        for field, value in self.fields():
            if field == number and isinstance(value, int):
                default = value
        return default

    def packed(self) -> Iterator[int]:
        """Its bytes as varints."""
        at = self.begin
        while at < self.end:
            value, at = varint(self.file.buffer, at, self.end)
            self.meter.spend()
            yield value

    def varints(self, number: int) -> Iterator[int]:
        """A repeated integer, packed or not."""
        for field, value in self.fields():
            if field == number:
                if isinstance(value, int):
                    yield value
                else:
                    yield from value.packed()


def varint(buffer: object, at: int, end: int) -> tuple[int, int]:
    """A variable-length integer of at most ten bytes."""
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise bad("it ends in the middle of a number")
        byte: int = buffer[at]  # type: ignore[index]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7


def signed(value: int) -> int:
    """A 64-bit integer as protobuf means it.

    >>> signed(2**64 - 1)
    -1
    """
    return value - (1 << 64) if value >= 1 << 63 else value


def as_float(bits: int) -> float:
    """The float that four bytes are."""
    return float(struct.unpack("<f", struct.pack("<I", bits & 0xFFFFFFFF))[0])
