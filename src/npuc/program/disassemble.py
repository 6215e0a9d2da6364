"""A compiled model in words: its memory, its tensors, and its instructions, one line each.

A line reads like an assignment: where the result goes, the instruction, its operands by the names of the ISA table, and what
it waits for. Fields that are zero and addresses that are absent are left out. Streams are formatted column by column, so
that a hundred thousand instructions take seconds.

    12 matrix conv1/relu  %0x8000:i8 = conv x=%0x1200:i8 n=1 h=56 ...  wait load>=4
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import TYPE_NAMES
from npuc.arrays import Array
from npuc.errors import UnknownTensorError, UsageError
from npuc.origins import texts
from npuc.program.custom_kernels import shown as kernel_name
from npuc.program.isa import (
    BY_OPCODE,
    CUSTOM,
    INSTRUCTIONS,
    KINDS,
    NONE,
    QUEUES,
    ROUNDINGS,
    Field,
    Instruction,
)
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph

_NAMES: dict[str, Sequence[str]] = {"kind": KINDS, "rounding": ROUNDINGS}
_TYPE_OF = {"x": "x_dtype", "b": "b_dtype", "weight": "w_dtype", "y": "y_dtype"}
"""Addresses, and the field that has the type of what is there."""
_CHUNK = 4096


@dataclass(frozen=True)
class Selection:
    """Which instructions are wanted; an empty text or None is all of them."""

    subgraph: str = ""
    """A name, or a number."""
    core: int | None = None
    layer: str = ""
    queue: str = ""


EVERYTHING = Selection()


@dataclass(frozen=True)
class Stream:
    """The instructions of a core that were selected."""

    subgraph: int
    name: str
    core: int
    records: Array
    places: Array
    """Their numbers in the stream."""

    def counts(self) -> dict[str, dict[str, int]]:
        """How many there are, by queue and by opcode."""
        by_queue = np.bincount(self.records[:, 1], minlength=len(QUEUES))
        by_opcode = np.bincount(self.records[:, 0], minlength=256)
        return {
            "queues": {queue: int(by_queue[k]) for k, queue in enumerate(QUEUES) if by_queue[k]},
            "opcodes": {i.name: int(by_opcode[i.opcode]) for i in INSTRUCTIONS if by_opcode[i.opcode]},
        }


def printable(name: str) -> str:
    """A name from a file, with what a terminal would obey spelled out.

    >>> printable("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return name if name.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in name)


def layer_called(model: CompiledModel, name: str) -> str:
    """The layer that a name stands for: its own, or that of a node or tensor of the original network that is in it."""
    if name in model.layers:
        return name
    return texts(model.metadata.get("names")).get(name, name)


def select(model: CompiledModel, selection: Selection = EVERYTHING) -> list[Stream]:
    """The streams of a model, cut down to what is wanted; a name that is not there is an error."""
    if selection.queue and selection.queue not in QUEUES:
        raise UsageError(f"there is no queue '{selection.queue}'", fix=f"Queues are {', '.join(QUEUES)}")
    layer_name = layer_called(model, selection.layer)
    layers = [number for number, name in enumerate(model.layers) if name == layer_name]
    if selection.layer and not layers:
        raise UnknownTensorError(
            f"there is no layer '{selection.layer}' in the program", fix=_near(selection.layer, model.layers)
        )
    subgraphs = [
        (number, subgraph)
        for number, subgraph in enumerate(model.subgraphs)
        if selection.subgraph in ("", subgraph.name, str(number))
    ]
    if not subgraphs:
        names = ", ".join(printable(subgraph.name) for subgraph in model.subgraphs)
        raise UsageError(f"there is no subgraph '{selection.subgraph}'", fix=f"There are: {names}")
    streams = []
    for number, subgraph in subgraphs:
        if not isinstance(subgraph, NpuSubgraph):
            continue
        for core, stream in enumerate(subgraph.streams):
            if selection.core not in (None, core):
                continue
            keep = np.ones(len(stream), bool)
            if selection.queue:
                keep &= stream[:, 1] == QUEUES.index(selection.queue)
            if selection.layer:
                layer = np.ascontiguousarray(stream[:, 4:8]).view("<u4")[:, 0]
                keep &= np.isin(layer, layers)
            places = np.flatnonzero(keep)
            records = stream if len(places) == len(stream) else stream[places]
            streams.append(Stream(number, subgraph.name, core, records, places))
    return streams


def lines(model: CompiledModel, stream: Stream) -> Iterator[str]:
    """The instructions of a stream as text."""
    layers = [printable(name) for name in model.layers]
    width = min(40, max(map(len, layers), default=0))
    segments = [printable(segment.name) for segment in model.segments]
    for start in range(0, len(stream.records), _CHUNK):
        records = stream.records[start : start + _CHUNK]
        places = stream.places[start : start + _CHUNK].tolist()
        texts = _chunk(records, segments)
        waits = np.ascontiguousarray(records[:, 8:24]).view("<u4").tolist()
        numbers = np.ascontiguousarray(records[:, 4:8]).view("<u4")[:, 0].tolist()
        queues = records[:, 1].tolist()
        for place, queue, layer, text, wait in zip(places, queues, numbers, texts, waits, strict=True):
            yield f"{place:6} {QUEUES[queue]:6} {layers[layer]:{width}}  {text}{_wait(wait)}"


def instruction_texts(model: CompiledModel, stream: Stream) -> list[str]:
    """The instructions of a stream without number, queue, layer and waits."""
    return _chunk(stream.records, [printable(segment.name) for segment in model.segments])


def values(model: CompiledModel, stream: Stream) -> Iterator[dict[str, Any]]:
    """The instructions of a stream as plain data: every field by its name."""
    for start in range(0, len(stream.records), _CHUNK):
        records = stream.records[start : start + _CHUNK]
        places = stream.places[start : start + _CHUNK]
        decoded: dict[int, dict[str, Any]] = {}
        for opcode in np.unique(records[:, 0]).tolist():
            instruction, chosen = BY_OPCODE[opcode], np.flatnonzero(records[:, 0] == opcode)
            part = records[chosen].view(_DTYPES[opcode])[:, 0]
            names = [field.name for field in instruction.fields]
            columns = [part[name].tolist() for name in ("queue", "layer", "wait", *names)]
            for row, (queue, layer, wait, *rest) in zip(
                chosen.tolist(), zip(*columns, strict=True), strict=True
            ):
                decoded[row] = {
                    "index": int(places[row]),
                    "op": instruction.name,
                    "queue": QUEUES[queue],
                    "layer": model.layers[layer],
                    "wait": wait,
                    "fields": dict(zip(names, rest, strict=True)),
                }
        for row in range(len(records)):
            yield decoded[row]


_DTYPES = {instruction.opcode: instruction.dtype for instruction in INSTRUCTIONS}


def _wait(counts: list[int]) -> str:
    if not any(counts):
        return ""
    return "  wait " + " ".join(
        f"{queue}>={count}" for queue, count in zip(QUEUES, counts, strict=True) if count
    )


def _chunk(records: Array, segments: list[str]) -> list[str]:
    texts = [""] * len(records)
    opcodes = records[:, 0]
    for opcode in np.unique(opcodes).tolist():
        places = np.flatnonzero(opcodes == opcode)
        part = records[places].view(_DTYPES[opcode])[:, 0]
        for place, text in zip(places.tolist(), _format(BY_OPCODE[opcode], part, segments), strict=True):
            texts[place] = text
    return texts


_BLOCKS = {"x": "x_bytes", "b": "b_bytes", "constants": "constant_bytes", "workspace": "workspace_bytes"} | {
    "local_workspace": "local_workspace_bytes"
}
"""The blocks of custom instructions, with the fields of their sizes."""


def _customs(instruction: Instruction, part: Array, segments: list[str]) -> list[str]:
    """Custom instructions: the kernel, its blocks with their sizes, and its numbers up to the last that is not 0."""
    fields = {field.name: field for field in instruction.fields}

    def block(record: Any, name: str, size: str) -> str:
        if not fields[name].far:
            return f"%{record[name]:#x}[{record[size]}]"
        return f"{_far(int(record[f'{name}_segment']), int(record[name]), segments)}[{record[size]}]"

    lines = []
    for record in part:
        blocks = [
            f" {name}={block(record, name, size)}"
            for name, size in _BLOCKS.items()
            if name in fields and record[size]
        ]
        told = ""
        if "parameters" in fields:
            numbers = " ".join(map(str, np.trim_zeros(record["parameters"], "b").tolist()))
            told = f" parameters={numbers}" if numbers else ""
        traffic = f" traffic={record['traffic']}" if "traffic" in fields else ""
        name = printable(kernel_name(record["kernel"]))
        lines.append(
            f"{block(record, 'y', 'y_bytes')} = {instruction.name} '{name}'{''.join(blocks)}{told} "
            f"work={record['work']}{traffic}"
        )
    return lines


def _format(instruction: Instruction, part: Array, segments: list[str]) -> list[str]:
    if instruction.name in ("load", "store"):
        return _transfers(instruction.name, part, segments)
    if instruction.name in CUSTOM:
        return _customs(instruction, part, segments)
    types = {field.name for field in instruction.fields} & set(_TYPE_OF.values())
    shown = {_TYPE_OF[f.name] for f in instruction.fields if f.address and _TYPE_OF.get(f.name) in types}
    columns = [
        _column(field, part) for field in instruction.fields if field.name not in shown and field.name != "y"
    ]
    results = [""] * len(part)
    if any(field.name == "y" for field in instruction.fields):
        results = [f"{text} = " for text in _addresses("y", part)]
    rows = zip(*columns, strict=True) if columns else iter([()] * len(part))
    return [
        f"{result}{instruction.name} {' '.join(filter(None, row))}".rstrip()
        for result, row in zip(results, rows, strict=True)
    ]


def _addresses(name: str, part: Array) -> list[str]:
    kind = _TYPE_OF.get(name)
    plain = ["none" if at == NONE else f"%0x{at:x}" for at in part[name].tolist()]
    if kind not in (part.dtype.names or ()):
        return plain
    return [f"{at}:{TYPE_NAMES.get(code, code)}" for at, code in zip(plain, part[kind].tolist(), strict=True)]


def _column(field: Field, part: Array) -> list[str]:
    """The texts of a field, empty where it says nothing."""
    name, numbers = field.name, part[field.name].tolist()
    if field.address:
        texts = _addresses(name, part)
        return ["" if at == NONE else f"{name}={text}" for at, text in zip(numbers, texts, strict=True)]
    if name.endswith("_dtype"):
        return [f"{name}={TYPE_NAMES.get(code, code)}" for code in numbers]
    if name in _NAMES:
        return [f"{name}={_NAMES[name][code]}" for code in numbers]
    if field.count > 1:
        return [f"{name}=[{','.join(map(str, row))}]" if any(row) else "" for row in numbers]
    return [f"{name}={number}" if number else "" for number in numbers]


def _far(segment: int, offset: int, segments: list[str]) -> str:
    """A byte of DRAM or of the shared memory."""
    return f"{'shared' if segment == SHARED else segments[segment]}+0x{offset:x}"


def _transfers(name: str, part: Array, segments: list[str]) -> list[str]:
    columns: list[list[Any]] = [
        part[field].tolist() for field in ("segment", "offset", "local", "size", "far_stride", "near_stride")
    ]
    columns.append(part["stored"].tolist() if name == "load" else [0] * len(part))
    texts = []
    for segment, offset, local, size, far, near, stored in zip(*columns, strict=True):
        # Axes of one element have no stride to speak of.
        first = next((axis for axis in range(3) if size[axis] > 1), 3)
        block = ",".join(map(str, size[first:]))
        strides = ""
        if first < 3:
            strides = f" far=[{','.join(map(str, far[first:]))}] near=[{','.join(map(str, near[first:]))}]"
        there, here = _far(segment, offset, segments), f"%0x{local:x}"
        left, right = (here, there) if name == "load" else (there, here)
        coded = f" stored={stored}" if stored else ""
        texts.append(f"{left} = {name} {right} size=[{block}]{strides}{coded}")
    return texts


def _near(name: str, known: Sequence[str]) -> str:
    import difflib

    near = difflib.get_close_matches(name, list(dict.fromkeys(known))[:20000], 5, 0.3)
    return (
        f"The nearest names are: {', '.join(map(printable, near))}"
        if near
        else "objdump without --layer shows all"
    )


def memory_rows(model: CompiledModel) -> list[list[str]]:
    """The segments as cells of a table: number, name, kind, address, size."""
    return [
        [
            str(number),
            printable(segment.name),
            segment.kind,
            f"0x{segment.address:x}" if segment.address else "loader's choice",
            str(segment.size),
        ]
        for number, segment in enumerate(model.segments)
    ]


def tensor_rows(model: CompiledModel) -> list[list[str]]:
    """The tensors as cells of a table."""
    roles = dict.fromkeys(model.outputs, "output") | dict.fromkeys(model.inputs, "input")
    roles |= {
        state.input: f"input, from '{printable(state.output)}' of the run before" for state in model.states
    }
    return [
        [
            printable(tensor.name),
            f"{'×'.join(map(str, tensor.shape)) or 'scalar'} {tensor.dtype}",
            "".join(map(str, tensor.order)),
            f"{tensor.scale:.6g}·(q{-tensor.zero_point:+d})" if tensor.scale else "",
            f"{printable(model.segments[tensor.segment].name)}+0x{tensor.offset:x}",
            str(tensor.size),
            roles.get(tensor.name, ""),
        ]
        for tensor in model.tensors
    ]
