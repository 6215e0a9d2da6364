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

MAX_FIELDS = 1 << 19
"""Fields of one message: a limit on the time that a hostile one takes."""


def bad(reason: str) -> FileFormatError:
    """The error for a message that does not hold together."""
    return FileFormatError(f"is not a valid TensorFlow file: {reason}", fix="Export or download it again")


@dataclass(frozen=True)
class Message:
    """A part of a file that is a message, or the bytes of a string."""

    file: MappedFile
    begin: int
    end: int

    @staticmethod
    def whole(file: MappedFile) -> Message:
        """All of a file."""
        return Message(file, 0, file.size)

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
        try:
            return self.data.decode()
        except UnicodeDecodeError as error:
            raise bad("a name is not text") from error

    def fields(self) -> Iterator[tuple[int, int | Message]]:
        """Field numbers with integers (also for fixed-size fields: their bits) or parts."""
        buffer, at, end = self.file.buffer, self.begin, self.end
        count = 0
        while at < end:
            tag, at = varint(buffer, at, end)
            number, wire = tag >> 3, tag & 7
            count += 1
            if count > MAX_FIELDS:
                raise bad("a message has too many fields")
            if wire == 0:
                value, at = varint(buffer, at, end)
                yield number, value
                continue
            if wire == 2:
                size, at = varint(buffer, at, end)
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
            else:
                raise bad(f"a field has the unknown wire type {wire}")
            if size > end - at:
                raise bad(f"a part of {size} bytes is cut off")
            if wire == 2:
                yield number, Message(self.file, at, at + size)
            else:
                yield number, int.from_bytes(buffer[at : at + size], "little")
            at += size

    def parts(self, number: int) -> Iterator[Message]:
        """The length-delimited fields of a number."""
        for found, value in self.fields():
            if found == number and isinstance(value, Message):
                yield value

    def part(self, number: int) -> Message | None:
        """The last length-delimited field of a number, which is the one that counts."""
        return max(self.parts(number), key=lambda part: part.begin, default=None)

    def number(self, number: int, default: int = 0) -> int:
        """The last integer of a number, unsigned as it is stored."""
        for found, value in self.fields():
            if found == number and isinstance(value, int):
                default = value
        return default

    def packed(self) -> Iterator[int]:
        """Its bytes as varints."""
        at = self.begin
        while at < self.end:
            value, at = varint(self.file.buffer, at, self.end)
            yield value

    def varints(self, number: int) -> Iterator[int]:
        """A repeated integer, packed or not."""
        for found, value in self.fields():
            if found == number:
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
