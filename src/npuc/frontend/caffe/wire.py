"""Caffe's protobuf, read without generated code: every length is checked, and the numbers of blobs stay in the file.

Wire format: a message is a sequence of (tag, value); tag = field << 3 | wire type; wire types are 0 varint, 1 eight
bytes, 2 length-delimited, 5 four bytes. `encode_model` writes weights the same way, for judges that read files.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.errors import FileFormatError, ResourceLimitError
from npuc.frontend.caffe.message import CaffeMessage, Name
from npuc.frontend.caffe.schema import ENUMS, MESSAGES, Field

_MAX_FIELDS = 1 << 17
_MAX_DEPTH = 16


def _bad(reason: str) -> FileFormatError:
    return FileFormatError(f"is not a valid Caffe model: {reason}", fix="Download or save it again")


class _WireReader:
    def __init__(self, buffer: memoryview) -> None:
        self.buffer = buffer
        self.fields = 0

    def varint(self, at: int, end: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            if at >= end or shift > 63:
                raise _bad("it ends in the middle of a number")
            byte = self.buffer[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
            shift += 7

    def message(self, at: int, end: int, kind: str, depth: int) -> CaffeMessage:
        if depth > _MAX_DEPTH:
            raise _bad(f"its messages are nested more than {_MAX_DEPTH} deep")
        known = MESSAGES[kind]
        fields: dict[str, list[Any]] = {}
        while at < end:
            self.fields += 1
            if self.fields > _MAX_FIELDS:
                raise ResourceLimitError(f"the model has more than {_MAX_FIELDS} fields")
            tag, at = self.varint(at, end)
            number, wire = tag >> 3, tag & 7
            if wire == 0:
                value, after = self.varint(at, end)
            elif wire in (1, 5):
                value, after = 0, at + (8 if wire == 1 else 4)
            elif wire == 2:
                length, at = self.varint(at, end)
                value, after = 0, at + length
            else:
                raise _bad(f"it has a field of the unknown wire type {wire}")
            if number == 0 or after > end:
                raise _bad("it ends in the middle of a field")
            field = known.get(number)
            if field is not None:
                fields.setdefault(field.name, []).extend(self.values(field, wire, value, at, after, depth))
            at = after
        return CaffeMessage(fields)

    def values(self, field: Field, wire: int, value: int, at: int, after: int, depth: int) -> list[Any]:
        kind = field.kind
        if kind == "p":
            if wire == 0:
                raise _bad(f"the field '{field.name}' is not made of floats")
            return [self.buffer[at:after]]
        if kind in MESSAGES or kind in "sx":
            if wire != 2:
                raise _bad(f"the field '{field.name}' has the wrong type")
            if kind == "x":
                return [self.buffer[at:after]]
            if kind == "s":
                return [bytes(self.buffer[at:after]).decode(errors="replace")]
            return [self.message(at, after, kind, depth + 1)]
        if wire == 2:
            return self.packed(field, at, after)
        if kind == "f":
            if wire != 5:
                raise _bad(f"the field '{field.name}' is not a float")
            return [struct.unpack("<f", self.buffer[at:after])[0]]
        if wire != 0:
            raise _bad(f"the field '{field.name}' is not an integer")
        return [_number(kind, value)]

    def packed(self, field: Field, at: int, end: int) -> list[Any]:
        if field.kind == "f":
            if (end - at) % 4 or end - at > 4 * _MAX_FIELDS:
                raise _bad(f"the field '{field.name}' is not a list of floats")
            return [float(x) for x in np.frombuffer(self.buffer[at:end], "<f4")]
        if end - at > _MAX_FIELDS:
            raise ResourceLimitError(f"the field '{field.name}' has {end - at} bytes")
        values: list[Any] = []
        while at < end:
            value, at = self.varint(at, end)
            values.append(_number(field.kind, value))
        return values


def _number(kind: str, value: int) -> Any:
    if kind == "b":
        return bool(value)
    if kind.startswith("e:"):
        name = ENUMS[kind[2:]].get(value)
        return value if name is None else Name(name)
    return value - 2**64 if value >= 2**63 else value


def decode(buffer: memoryview) -> CaffeMessage:
    """A serialized `NetParameter`."""
    return _WireReader(buffer).message(0, len(buffer), "Net", 0)


def encode_model(blobs: Mapping[str, Sequence[np.ndarray[Any, Any]]]) -> bytes:
    """A `NetParameter` with the blobs of layers by name, and nothing else."""
    return b"".join(
        _field(100, _field(1, name.encode()) + b"".join(_field(7, _blob(blob)) for blob in arrays))
        for name, arrays in blobs.items()
    )


def _blob(array: np.ndarray[Any, Any]) -> bytes:
    shape = b"".join(_encode(1 << 3) + _encode(size) for size in array.shape)
    return _field(7, shape) + _field(5, np.ascontiguousarray(array, "<f4").tobytes())


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _encode(number << 3 | 2) + _encode(len(payload)) + payload
