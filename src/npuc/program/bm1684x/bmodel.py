"""`.bmodel` files as SOPHGO's runtime reads them: one network of static shapes for one core.

A header of 64 bytes, a FlatBuffer, and a region of bytes that the FlatBuffer refers to: the commands of both engines and the
coefficients. The FlatBuffer is described by the numbers of its fields, which are those of the schema that SOPHGO publishes.

Addresses in commands are written for `COEFFICIENTS`, where the coefficients begin; the activations (inputs, outputs and what is
spilled) follow them. The runtime moves both to where it has room.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence
from dataclasses import dataclass

from npuc.errors import FileFormatError
from npuc.program.bm1684x.commands import DDR_BASE
from npuc.program.bm1684x.flatbuffer import Table, TableWriter

MAGIC = 0xFF55AAEE
HEADER = 64
PAGE = 4096
CHIP = "BM1684X"
COEFFICIENTS = DDR_BASE
"""Where the coefficients begin."""
DATA_TYPES = {"f32": 0, "f16": 1, "i8": 2, "ui8": 3, "i16": 4, "ui16": 5, "i32": 6, "ui32": 7, "bf16": 8}
_TYPE_NAMES = {code: name for name, code in DATA_TYPES.items()}
_MOST = 4096
"""Tensors of a network, or axes of one, or groups of commands, that a file may have."""


@dataclass(frozen=True)
class BmodelTensor:
    """An input or output."""

    name: str
    dtype: str
    address: int
    shape: tuple[int, ...]
    size: int
    scale: float = 1.0


@dataclass(frozen=True)
class Bmodel:
    """What a file holds."""

    name: str
    inputs: tuple[BmodelTensor, ...]
    outputs: tuple[BmodelTensor, ...]
    coefficients: bytes
    activations_at: int
    """The address behind the coefficients where inputs, outputs and spilled tensors lie."""
    activations: int
    """Bytes of them."""
    tiu: bytes
    tiu_count: int
    """Commands, the end among them."""
    gdma: bytes
    gdma_count: int
    coefficients_at: int = COEFFICIENTS
    chip: str = CHIP


def write_bmodel(model: Bmodel) -> bytes:
    """The bytes of a file; the same for the same model."""
    blobs, region = [], bytearray()
    for blob in (model.tiu, model.gdma, model.coefficients):
        region += bytes(-len(region) % PAGE)
        padded = blob + bytes(-len(blob) % 128)
        blobs.append((len(region), len(padded)))
        region += padded
    flat = _flatbuffer(model, blobs)
    flat += bytes(-(HEADER + len(flat)) % PAGE)
    return struct.pack("<IIIQ", MAGIC, HEADER, len(flat), len(region)) + bytes(44) + flat + bytes(region)


def _flatbuffer(model: Bmodel, blobs: Sequence[tuple[int, int]]) -> bytes:
    writer = TableWriter()
    code, moves, constants = blobs

    def tensors(ports: Sequence[BmodelTensor], hidden: int) -> int:
        return writer.tables(
            [
                writer.table(
                    {
                        0: writer.string(port.name),
                        1: ("u32", DATA_TYPES[port.dtype]),
                        3: ("u64", port.address),
                        4: ("u64", port.size),
                        5: writer.tables([writer.table({0: writer.numbers("u64", port.shape)})]),
                        6: ("u32", 1),
                        7: ("f32", port.scale),
                        11: ("i32", hidden),
                        12: ("i32", index),
                    }
                )
                for index, port in enumerate(ports)
            ]
        )

    def group() -> int:
        return writer.tables(
            [
                writer.table(
                    {
                        0: ("u32", model.tiu_count),
                        1: ("u32", model.gdma_count),
                        2: ("span", code),
                        3: ("span", moves),
                        4: ("u32", code[1]),
                        5: ("u32", moves[1]),
                    }
                )
            ]
        )

    inputs, outputs = tensors(model.inputs, 1), tensors(model.outputs, 2)
    part = writer.table(
        {
            0: ("i32", 0),
            1: group(),
            3: inputs,
            4: outputs,
            10: ("i32", 0),
            11: writer.numbers("i32", [-1]),
        }
    )
    parameter: dict[int, object] = {
        0: tensors(model.inputs, 1),
        1: tensors(model.outputs, 2),
        2: ("u64", model.activations_at),
        3: ("u64", model.activations),
        8: group(),
        12: writer.tables([part]),
        14: writer.numbers("u64", [model.activations]),
        16: ("u32", 1),
    }
    if model.coefficients:
        digest = writer.numbers("u8", list(hashlib.sha256(model.coefficients).digest()))
        span = constants[0], len(model.coefficients)
        parameter[4] = writer.table({0: ("u64", model.coefficients_at), 1: digest, 2: ("span", span)})
    net = writer.table({0: writer.string(model.name), 3: writer.tables([writer.table(parameter)])})
    root = writer.table(
        {
            0: writer.string("B"),
            1: writer.string("2.2"),
            2: writer.string("npuc"),
            3: writer.string(model.chip),
            4: writer.tables([net]),
            5: ("u64", model.activations),
            7: ("u32", 1),
        }
    )
    return writer.finish(root)


def read_bmodel(data: bytes, where: str = "") -> Bmodel:
    """A file of one network, one group of commands and static shapes; everything is checked before it is followed."""
    try:
        return _read(data)
    except (struct.error, IndexError, ValueError, OverflowError, UnicodeDecodeError) as error:
        raise FileFormatError(
            f"is not a whole .bmodel file: {error}",
            where=where or None,
            fix="The file is truncated or damaged; get it again",
        ) from error


def _read(data: bytes) -> Bmodel:
    if len(data) < HEADER:
        raise ValueError("it has no header")
    magic, header, flat, binary = struct.unpack_from("<IIIQ", data)
    if magic != MAGIC or header != HEADER:
        raise ValueError("its first bytes are not those of such a file")
    if HEADER + flat + binary > len(data):
        raise ValueError(f"it has {len(data):,} bytes, and its header speaks of {HEADER + flat + binary:,}")
    region = memoryview(data)[HEADER + flat : HEADER + flat + binary]

    def blob(span: tuple[int, int]) -> bytes:
        start, size = span
        if start + size > len(region):
            raise ValueError("a block of bytes lies outside of the file")
        return bytes(region[start : start + size])

    root = Table.root(data[HEADER : HEADER + flat])
    chip = root.text(3)
    if chip != CHIP:
        raise ValueError(f"it is for the chip {chip or '(none)'}, and npuc reads those for {CHIP}")
    (net,) = _one(root.tables(4, _MOST), "network")
    (parameter,) = _one(net.tables(3, _MOST), "set of shapes")
    (group,) = _one(parameter.tables(8, _MOST), "group of commands")
    coefficients = parameter.table(4)
    constants = b""
    if coefficients is not None:
        constants = blob(coefficients.span(2))
        if coefficients.bytes(1) not in (b"", hashlib.sha256(constants).digest()):
            raise ValueError("its coefficients are not those that their checksum is of")
    return Bmodel(
        net.text(0),
        tuple(_tensor(table) for table in parameter.tables(0, _MOST)),
        tuple(_tensor(table) for table in parameter.tables(1, _MOST)),
        constants,
        parameter.number("u64", 2),
        parameter.number("u64", 3),
        blob(group.span(2)),
        group.number("u32", 0),
        blob(group.span(3)),
        group.number("u32", 1),
        coefficients.number("u64", 0) if coefficients is not None else COEFFICIENTS,
        chip,
    )


def _one(tables: list[Table], what: str) -> list[Table]:
    if len(tables) != 1:
        raise ValueError(f"it has {len(tables)} of what npuc reads one of: {what}")
    return tables


def _tensor(table: Table) -> BmodelTensor:
    code = table.number("u32", 1)
    if code not in _TYPE_NAMES:
        raise ValueError(f"tensor '{table.text(0)}' is of an unknown type {code}")
    shapes = table.tables(5, _MOST)
    shape = tuple(shapes[0].numbers("u64", 0, _MOST)) if shapes else ()
    return BmodelTensor(
        table.text(0),
        _TYPE_NAMES[code],
        table.number("u64", 3),
        shape,
        table.number("u64", 4),
        table.number("f32", 7),
    )
