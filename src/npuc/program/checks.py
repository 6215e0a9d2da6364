"""What every instruction of a stream has to fulfil before anything looks at it a second time.

Opcodes, queues, layers, types and other choices are ones that exist, local addresses are inside local memory, the blocks of
DMA are inside their segment and inside local memory, and so are operands of kernels that are in segments; nothing is stored
among the weights, and no instruction waits for a later one. Whether the operands of an engine fit local memory is for whoever
executes it: that is its meaning. native/src/file.c checks the same, by `rules`, with the same words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from npuc.arithmetic.sparsity import BLOCK_SIZES
from npuc.arrays import Array
from npuc.program.isa import (
    BY_NAME,
    COMPRESSED,
    DTYPES,
    INSTRUCTIONS,
    KINDS,
    MULTICAST,
    NONE,
    QUEUES,
    ROUNDINGS,
    SPARSE,
    WEIGHT_TYPES,
)
from npuc.program.layout import LARGEST
from npuc.program.model import SHARED

_INTEGERS = [code for code, name in enumerate(DTYPES) if name in ("i8", "ui8", "i16")]
CHOICES = {
    **dict.fromkeys(("x_dtype", "b_dtype", "y_dtype", "s_dtype"), len(DTYPES)),
    "w_dtype": WEIGHT_TYPES,
    "kind": len(KINDS),
    "rounding": len(ROUNDINGS),
    **dict.fromkeys(
        ("wide", "transposed", "transposed_b", "subtract", "larger", "include_pad", "last", "center"), 2
    ),
    **dict.fromkeys(("reverse", "linear_before_reset", "coupled", "peephole", "places", "largest"), 2),
    **dict.fromkeys(("norm", "projected"), 2),
    "mode": 6,
    "form": 4,
    "gates": 5,
    "cell_bits": 16,
    "integer_bits": 7,
    "segments": 16,
    "sparse_n": max(BLOCK_SIZES),
    "sparse_m": max(BLOCK_SIZES) + 1,
}
"""Fields of one byte, and how many values they have."""
WIDTHS = (1, 2, 4, 8)
"""What the field `bytes` may be."""
ANY_QUEUE = len(QUEUES)


@dataclass(frozen=True)
class Rule:
    """A condition on a field."""

    opcode: int
    what: str
    """choice: the byte is below `limit`; width: it is in `WIDTHS`; address: none, or inside local memory."""
    name: str
    offset: int
    limit: int = 0


@cache
def rules() -> tuple[Rule, ...]:
    """All conditions on single fields, by opcode."""
    conditions: list[Rule] = []
    for instruction in INSTRUCTIONS:
        places: Mapping[str, Any] = instruction.dtype.fields or {}
        for field in instruction.fields:
            place = int(places[field.name][1])
            if field.address:
                conditions.append(Rule(instruction.opcode, "address", field.name, place))
            elif field.name in CHOICES and field.type == "u1":
                conditions.append(Rule(instruction.opcode, "choice", field.name, place, CHOICES[field.name]))
            elif field.name == "bytes" and field.type == "u1":
                conditions.append(Rule(instruction.opcode, "width", field.name, place))
    return tuple(conditions)


@dataclass(frozen=True)
class Surroundings:
    """What instructions may refer to."""

    layers: int
    segments: Sequence[int]
    """Sizes."""
    local_bytes: int
    shared_bytes: int


_QUEUE_OF = np.full(256, 255, np.uint8)
for _instruction in INSTRUCTIONS:
    _QUEUE_OF[_instruction.opcode] = (
        ANY_QUEUE if _instruction.queue == "any" else QUEUES.index(_instruction.queue)
    )


@dataclass(frozen=True)
class _Rules:
    """The rules of an opcode, as columns."""

    addresses: list[int]
    """In words of four bytes."""
    choices: list[int]
    limits: Array
    widths: list[int]
    address_names: list[str]
    choice_names: list[str]
    width_names: list[str]

    @classmethod
    def of(cls, opcode: int) -> _Rules:
        by_kind = {
            what: [rule for rule in rules() if rule.opcode == opcode and rule.what == what]
            for what in ("address", "choice", "width")
        }
        return cls(
            [rule.offset // 4 for rule in by_kind["address"]],
            [rule.offset for rule in by_kind["choice"]],
            np.array([rule.limit for rule in by_kind["choice"]], np.uint8),
            [rule.offset for rule in by_kind["width"]],
            *([rule.name for rule in by_kind[what]] for what in ("address", "choice", "width")),
        )


_rules_of = cache(_Rules.of)
_DTYPES = {instruction.opcode: instruction.dtype for instruction in INSTRUCTIONS}


def check_stream(stream: Array, around: Surroundings) -> tuple[int, ...]:
    """Check the instructions of a core; returns the number of barriers in each queue. A ValueError says what is wrong."""
    if not len(stream):
        return (0,) * len(QUEUES)
    opcode, queue = stream[:, 0], stream[:, 1]
    home = _QUEUE_OF[opcode]
    _refuse(home == 255, "has an opcode that does not exist")
    _refuse((queue >= len(QUEUES)) | ((home != ANY_QUEUE) & (queue != home)), "is in the wrong queue")
    known = np.where(opcode == BY_NAME["load"].opcode, MULTICAST | COMPRESSED, 0)
    known = np.where(opcode == BY_NAME["conv"].opcode, SPARSE, known)
    _refuse((_column(stream, 2, "<u2") & ~known) != 0, "has flags that do not exist")
    _refuse(_column(stream, 4, "<u4") >= around.layers, "names a layer that does not exist")
    inside = queue[:, None] == np.arange(len(QUEUES), dtype=np.uint8)
    before = np.cumsum(inside, axis=0, dtype=np.int64) - inside
    wait = np.ascontiguousarray(stream[:, 8:24]).view("<u4")
    _refuse((wait > before).any(axis=1), "waits for a later instruction")
    for instruction in INSTRUCTIONS:
        chosen = np.flatnonzero(opcode == instruction.opcode)
        if not len(chosen):
            continue
        part = stream[chosen]
        _check_fields(part, _rules_of(instruction.opcode), around.local_bytes, chosen)
        if instruction.name in ("load", "store"):
            records = part.view(_DTYPES[instruction.opcode])[:, 0]
            _check_transfers(records, instruction.name == "store", around, chosen)
        if instruction.name == "conv":
            _check_sparse(part.view(_DTYPES[instruction.opcode])[:, 0], chosen)
        if any(field.far for field in instruction.fields):
            _check_far_operands(part.view(_DTYPES[instruction.opcode])[:, 0], around, chosen)
    return _barriers(stream, inside)


def _refuse(bad: Any, why: str, places: Array | None = None) -> None:
    if bad.any():
        first = int(np.argmax(bad))
        raise ValueError(f"instruction {first if places is None else int(places[first])} {why}")


def _column(rows: Array, offset: int, kind: str) -> Array:
    width = np.dtype(kind).itemsize
    return np.ascontiguousarray(rows[:, offset : offset + width]).view(kind)[:, 0]


def _check_fields(rows: Array, field_rules: _Rules, local_bytes: int, places: Array) -> None:
    value = rows.view("<u4")[:, field_rules.addresses]
    for names, bad in (
        (field_rules.address_names, (value != NONE) & (value >= local_bytes)),
        (field_rules.choice_names, rows[:, field_rules.choices] >= field_rules.limits),
        (
            field_rules.width_names,
            ~np.isin(rows[:, field_rules.widths], WIDTHS) if field_rules.widths else None,
        ),
    ):
        if bad is not None and bad.any():
            name = names[int(np.argmax(bad.any(axis=0)))]
            _refuse(bad.any(axis=1), f"has a bad field '{name}'", places)


def _sizes_of_segments(segment: Array, around: Surroundings, places: Array) -> Array:
    """Bytes of the segments that instructions name."""
    sizes = np.zeros(256, np.int64)
    sizes[: len(around.segments)] = around.segments
    sizes[SHARED] = around.shared_bytes
    exists = segment < len(around.segments)
    if around.shared_bytes:
        exists |= segment == SHARED
    _refuse(~exists, "names a segment that does not exist", places)
    whole: Array = sizes[segment]
    return whole


def _check_far_operands(records: Array, around: Surroundings, places: Array) -> None:
    """Operands in segments; a size of 0 means that one is not there, which x and y always are."""
    _refuse((records["x_bytes"] == 0) | (records["y_bytes"] == 0), "has an operand without bytes", places)
    for name, write in (("x", False), ("b", False), ("y", True), ("workspace", True)):
        there = np.flatnonzero(records[f"{name}_bytes"])
        at, size, segment = (records[field][there] for field in (name, f"{name}_bytes", f"{name}_segment"))
        whole = _sizes_of_segments(segment, around, places[there]).astype(np.uint64)
        if write:
            _refuse(segment == 0, "stores among the weights", places[there])
        _refuse((at > whole) | (size > whole - np.minimum(at, whole)), "leaves its segment", places[there])


def _check_transfers(records: Array, store: bool, around: Surroundings, places: Array) -> None:
    segment = records["segment"]
    whole = _sizes_of_segments(segment, around, places)
    if store:
        _refuse(segment == 0, "stores among the weights", places)
    size = records["size"].astype(np.int64)
    _refuse((size == 0).any(axis=1), "moves nothing", places)
    offset = records["offset"]
    if not store:
        _check_compressed(records, places)
        far = size.copy()
        far[:, 3] = np.where(records["stored"] != 0, records["stored"], size[:, 3])
    else:
        far = size
    outside = (offset > whole.astype(np.uint64)) | _outside(
        np.minimum(offset, LARGEST).astype(np.int64), far, records["far_stride"], whole
    )
    _refuse(outside, "leaves its segment", places)
    local = records["local"].astype(np.int64)
    near = np.full(len(records), around.local_bytes, np.int64)
    stride = records["near_stride"].astype(np.int64)
    _refuse((local > near) | _outside(local, size, stride, near), "leaves local memory", places)


def _check_compressed(records: Array, places: Array) -> None:
    compressed, stored = (records["flags"] & COMPRESSED) != 0, records["stored"]
    _refuse(compressed != (stored != 0), "has a bad field 'stored'", places)
    size = records["size"]
    spread = (size[:, :3] != 1).any(axis=1) | (records["segment"] != 0) | (stored >= size[:, 3])
    _refuse(compressed & spread, "decodes what is no compressed constant", places)


def _check_sparse(records: Array, places: Array) -> None:
    """Blocks are whole, and a weight of zero is stored as 0."""
    sparse, kept, block = (records["flags"] & SPARSE) != 0, records["sparse_n"], records["sparse_m"]
    _refuse(sparse != (block != 0), "has a bad field 'sparse_m'", places)
    _refuse((kept != 0) != sparse, "has a bad field 'sparse_n'", places)
    _refuse(
        sparse & (~np.isin(block, BLOCK_SIZES) | (kept >= block)),
        "has no sparsity pattern that exists",
        places,
    )
    inputs = records["c"] // np.maximum(records["groups"], 1)
    _refuse(
        sparse & (inputs % np.maximum(block, 1) != 0), "has sparse weights that are no whole blocks", places
    )
    floats = ~np.isin(records["x_dtype"], _INTEGERS)
    _refuse(
        sparse & ((records["w_zero_point"] != 0) | floats),
        "has sparse weights that are no symmetric integers",
        places,
    )


def _outside(start: Array, size: Array, stride: Array, whole: Array) -> Array:
    """Whether a block goes beyond [0, whole); start, sizes and whole are at most `LARGEST`, strides anything."""
    steps = size[:, :3] - 1
    # Division first: a step beyond the whole is refused before it is multiplied.
    longest = whole[:, None] // np.maximum(steps, 1)
    wild = (steps > 0) & ((stride > longest) | (stride < -longest))
    reach = np.where(wild | (steps == 0), 0, stride) * steps
    low = start + np.minimum(reach, 0).sum(axis=1)
    high = start + np.maximum(reach, 0).sum(axis=1) + size[:, 3]
    bad: Array = wild.any(axis=1) | (low < 0) | (high > whole)
    return bad


def _barriers(stream: Array, inside: Array) -> tuple[int, ...]:
    opcode = BY_NAME["barrier"].opcode
    counts = []
    for queue in range(len(QUEUES)):
        places = np.flatnonzero(inside[:, queue] & (stream[:, 0] == opcode))
        numbers = stream[places].view(_DTYPES[opcode])["number"].reshape(-1)
        _refuse(numbers != np.arange(1, len(places) + 1), "is a barrier out of turn", places)
        counts.append(len(places))
    return tuple(counts)
