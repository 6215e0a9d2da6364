"""TensorFlow's messages, written byte by byte: graphs, functions, SavedModels and their variables, without TensorFlow."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.frontend.tensorflow.crc32c import crc32c

TYPES = {"float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int64": 9, "bool": 10}
FLOAT, INT, STRING, RESOURCE, BOOL = 1, 3, 7, 20, 10


def varint(value: int) -> bytes:
    """A variable-length integer."""
    value &= (1 << 64) - 1
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def number(field: int, value: int) -> bytes:
    """An integer field."""
    return varint(field << 3) + varint(value)


def part(field: int, data: bytes | str) -> bytes:
    """A length-delimited field."""
    data = data.encode() if isinstance(data, str) else data
    return varint(field << 3 | 2) + varint(len(data)) + data


def shape(sizes: Sequence[int] | None) -> bytes:
    """A TensorShapeProto."""
    if sizes is None:
        return number(3, 1)
    return b"".join(part(2, number(1, size)) for size in sizes)


def tensor(array: Array | Sequence[str]) -> bytes:
    """A TensorProto."""
    if not isinstance(array, np.ndarray):
        return number(1, STRING) + part(2, shape([len(array)])) + b"".join(part(8, text) for text in array)
    content = np.ascontiguousarray(array).tobytes()
    return number(1, TYPES[str(array.dtype)]) + part(2, shape(array.shape)) + part(4, content)


class Type(int):
    """A DataType number as an attribute."""


class Function(str):
    """The name of a function as an attribute."""


class Shape(tuple[int, ...]):
    """A shape as an attribute."""


def attribute(value: Any) -> bytes:
    """An AttrValue."""
    if isinstance(value, bool):
        return number(5, int(value))
    if isinstance(value, Type):
        return number(6, value)
    if isinstance(value, Function):
        return part(10, part(1, str(value)))
    if isinstance(value, Shape):
        return part(7, shape(value))
    if isinstance(value, int):
        return number(3, value)
    if isinstance(value, float):
        return varint(4 << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, str):
        return part(2, value)
    if isinstance(value, np.ndarray):
        return part(8, tensor(value))
    if value and isinstance(value[0], Function):
        return part(1, b"".join(part(9, part(1, str(name))) for name in value))
    if value and isinstance(value[0], str):
        return part(8, tensor(value))
    return part(1, part(3, b"".join(varint(n) for n in value)))


def node(name: str, op: str, inputs: Sequence[str] = (), **attributes: Any) -> bytes:
    """A NodeDef."""
    entries = b"".join(part(5, part(1, key) + part(2, attribute(value))) for key, value in attributes.items())
    return part(1, name) + part(2, op) + b"".join(part(3, item) for item in inputs) + entries


def const(name: str, value: Any, dtype: str = "float32", inputs: Sequence[str] = ()) -> bytes:
    """A constant."""
    array = np.array(value, dtype)
    return node(name, "Const", inputs, dtype=Type(TYPES[dtype]), value=array)


def placeholder(name: str, *sizes: int, dtype: int = FLOAT) -> bytes:
    """An input."""
    return node(name, "Placeholder", dtype=Type(dtype), shape=Shape(sizes))


def function(
    name: str, arguments: Sequence[str], results: Mapping[str, str], nodes: Sequence[bytes]
) -> bytes:
    """A FunctionDef."""
    signature = part(1, name) + b"".join(part(2, part(1, arg)) for arg in arguments)
    signature += b"".join(part(3, part(1, result)) for result in results)
    returned = b"".join(part(4, part(1, key) + part(2, value)) for key, value in results.items())
    return part(1, signature) + b"".join(part(3, item) for item in nodes) + returned


def graph(nodes: Sequence[bytes], functions: Sequence[bytes] = ()) -> bytes:
    """A GraphDef."""
    library = part(2, b"".join(part(1, item) for item in functions)) if functions else b""
    return b"".join(part(1, item) for item in nodes) + library


def _masked(data: bytes) -> int:
    crc = crc32c(data)
    return (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF


def _block(entries: Sequence[tuple[bytes, bytes]]) -> bytes:
    body = b"".join(varint(0) + varint(len(k)) + varint(len(v)) + k + v for k, v in entries)
    body += struct.pack("<II", 0, 1)
    return body + b"\0" + struct.pack("<I", _masked(body + b"\0"))


def write_bundle(prefix: Path, variables: Mapping[str, Array]) -> None:
    """A tensor bundle: index and data."""
    data, entries = b"", [(b"", number(1, 1))]
    for key, array in sorted(variables.items()):
        content = np.ascontiguousarray(array).tobytes()
        value = number(1, TYPES[str(array.dtype)]) + part(2, shape(array.shape))
        value += number(4, len(data)) + number(5, len(content))
        value += varint(6 << 3 | 5) + struct.pack("<I", _masked(content))
        entries.append((key.encode(), value))
        data += content
    table = _block(entries)
    handle = varint(0) + varint(len(table) - 5)
    meta = _block([])
    index = _block([(b"~", handle)])
    at = len(table)
    footer = varint(at) + varint(len(meta) - 5) + varint(at + len(meta)) + varint(len(index) - 5)
    footer = footer.ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    prefix.parent.mkdir(parents=True, exist_ok=True)
    prefix.with_name(f"{prefix.name}.index").write_bytes(table + meta + index + footer)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)


def write_saved_model(
    folder: Path,
    body: bytes,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    variables: Mapping[str, Array],
    restore: str = "",
) -> Path:
    """A SavedModel folder with one signature."""
    ports = [
        b"".join(part(field, part(1, key) + part(2, part(1, name))) for key, name in items.items())
        for field, items in ((1, inputs), (2, outputs))
    ]
    signature = part(5, part(1, "serving_default") + part(2, ports[0] + ports[1]))
    saver = part(3, part(3, restore)) if restore else b""
    meta = part(1, part(4, "serve")) + part(2, body) + saver + signature
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "saved_model.pb").write_bytes(number(1, 1) + part(2, meta))
    write_bundle(folder / "variables" / "variables", variables)
    return folder
