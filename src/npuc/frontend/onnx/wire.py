"""A look at an ONNX file's protobuf without reading its weights.

`strip(buffer)` copies a serialized `ModelProto`, leaving out every large `raw_data` and putting in its place an
external-data entry that says where in the file those bytes are. What is left is small: the weights of a 2 GB model stay
in the file and are mapped when somebody looks. Every length is checked against the message around it.

Wire format: a message is a sequence of (tag, value); tag = field << 3 | wire type; wire types are 0 varint, 1 eight
bytes, 2 length-delimited, 5 four bytes.
"""

from __future__ import annotations

import mmap

from npuc.errors import FileFormatError

THRESHOLD = 4096
"""Tensors up to this many bytes stay in the message."""
SELF = "*"
"""The external-data location that stands for the model file itself (a real one is a relative path)."""
_MAX_DEPTH = 40

# Which fields of a message are messages worth descending into: field number -> message.
_MODEL, _GRAPH, _NODE, _ATTRIBUTE, _TENSOR, _FUNCTION = (
    "model",
    "graph",
    "node",
    "attribute",
    "tensor",
    "function",
)
_CHILDREN: dict[str, dict[int, str]] = {
    _MODEL: {7: _GRAPH, 25: _FUNCTION},
    _GRAPH: {1: _NODE, 5: _TENSOR},
    _FUNCTION: {7: _NODE},
    _NODE: {5: _ATTRIBUTE},
    _ATTRIBUTE: {5: _TENSOR, 6: _GRAPH, 10: _TENSOR, 11: _GRAPH},
    _TENSOR: {},
}
_RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 9, 13, 14

Buffer = mmap.mmap | bytes


def _bad(reason: str) -> FileFormatError:
    return FileFormatError(f"is not a valid ONNX file: {reason}", fix="Export or download it again")


def _varint(buffer: Buffer, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= end or shift > 63:
            raise _bad("it ends in the middle of a number")
        byte = buffer[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _encode(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _field(number: int, payload: bytes) -> bytes:
    return _encode(number << 3 | 2) + _encode(len(payload)) + payload


def _entry(key: str, value: str) -> bytes:
    return _field(_EXTERNAL_DATA, _field(1, key.encode()) + _field(2, value.encode()))


def _strip(buffer: Buffer, at: int, end: int, kind: str, depth: int) -> bytes:
    if depth > _MAX_DEPTH:
        raise _bad(f"its graphs are nested more than {_MAX_DEPTH} deep")
    children = _CHILDREN[kind]
    out: list[bytes] = []
    while at < end:
        start = at
        tag, at = _varint(buffer, at, end)
        number, wire = tag >> 3, tag & 7
        if wire == 0:
            _, at = _varint(buffer, at, end)
        elif wire == 1:
            at += 8
        elif wire == 5:
            at += 4
        elif wire == 2:
            length, at = _varint(buffer, at, end)
            begin, at = at, at + length
            if at > end:
                raise _bad(f"a part of {length} bytes is cut off")
            if length > THRESHOLD:
                if number in children:
                    out.append(_field(number, _strip(buffer, begin, at, children[number], depth + 1)))
                    continue
                if kind == _TENSOR and number == _RAW_DATA:
                    out += [
                        _entry("location", SELF),
                        _entry("offset", str(begin)),
                        _entry("length", str(length)),
                    ]
                    out.append(_encode(_DATA_LOCATION << 3) + b"\x01")
                    continue
        else:
            raise _bad(f"it has a field of the unknown wire type {wire}")
        if at > end:
            raise _bad("it ends in the middle of a field")
        out.append(buffer[start:at])
    return b"".join(out)


def strip(buffer: Buffer) -> bytes:
    """The serialized model without its large tensors."""
    return _strip(buffer, 0, len(buffer), _MODEL, 0)
