"""Every buffer of a compiled model and where it is: a table for those who lay out memory by hand, or look at it on a board.

DRAM has the segments, the tensors of the tensor table, and for each layer the weights that it loads and the other bytes of DRAM
or shared memory that it touches (spilled results, partial sums); local memory has the allocations of each core. Addresses
of DRAM are those of `npuc relocate` where a segment has one, and bytes of the segment where the loader decides.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.program.isa import BY_NAME
from npuc.program.layout import ALIGNMENT
from npuc.program.model import SHARED, CompiledModel, NpuSubgraph
from npuc.program.transfers import reach


@dataclass(frozen=True)
class BufferPlace:
    """A buffer and where it is."""

    memory: str
    """The name of a segment of DRAM, `shared`, or `local`."""
    kind: str
    """segment, input, output, tensor, weights, spill, allocation."""
    name: str
    """Of the segment, the tensor, the layer, or the object in local memory."""
    subgraph: str
    core: int | None
    offset: int
    """The first byte in its memory."""
    address: int | None
    """The first byte on the machine's bus; None where the loader decides."""
    size: int
    first: int | None = None
    """The first instruction of the stream that touches it."""
    last: int | None = None


COLUMNS = tuple(BufferPlace.__dataclass_fields__)


def buffers(model: CompiledModel) -> list[BufferPlace]:
    """All of them: DRAM by segments, then each subgraph's, in the order in which they run."""
    return [*_segments(model), *_tensors(model), *_streams(model)]


def _segments(model: CompiledModel) -> Iterator[BufferPlace]:
    for segment in model.segments:
        yield BufferPlace(
            segment.name, "segment", segment.name, "", None, 0, segment.address or None, segment.size
        )


def _tensors(model: CompiledModel) -> Iterator[BufferPlace]:
    roles = dict.fromkeys(model.outputs, "output") | dict.fromkeys(model.inputs, "input")
    for tensor in model.tensors:
        segment = model.segments[tensor.segment]
        kind = roles.get(tensor.name, "tensor")
        address = segment.address + tensor.offset if segment.address else None
        yield BufferPlace(segment.name, kind, tensor.name, "", None, tensor.offset, address, tensor.size)


def _streams(model: CompiledModel) -> Iterator[BufferPlace]:
    ends = [(tensor.segment, tensor.offset, tensor.offset + tensor.size) for tensor in model.tensors]
    for part in model.subgraphs:
        if not isinstance(part, NpuSubgraph):
            continue
        for core, stream in enumerate(part.streams):
            yield from _transfers(model, part.name, core, stream, ends)
        for place in part.allocations:
            yield BufferPlace(
                "local", "allocation", place.name, part.name, place.core, place.address, place.address, place.size,
                place.first, place.last,
            )  # fmt: skip


def _transfers(
    model: CompiledModel, subgraph: str, core: int, stream: Array, ends: list[tuple[int, int, int]]
) -> Iterator[BufferPlace]:
    """What a core touches in DRAM and in shared memory beside tensors, by layer and memory, as runs of bytes."""
    touched: dict[tuple[int, int], list[tuple[int, int, int]]] = {}
    for row in (*_of_transfers(stream), *_of_kernels(stream)):
        layer, segment, first, end, number = map(int, row)
        if not any(segment == s and a <= first and end <= b for s, a, b in ends):
            touched.setdefault((layer, segment), []).append((first, end, number))
    for (layer, segment), pieces in sorted(touched.items()):
        for start, end, first, last in _joined(pieces):
            place = model.segments[segment] if segment != SHARED else None
            yield BufferPlace(
                place.name if place is not None else "shared",
                "weights" if segment == 0 else "spill",
                model.layers[layer],
                subgraph,
                core,
                start,
                place.address + start if place is not None and place.address else None,
                end - start,
                first,
                last,
            )


def _of_transfers(stream: Array) -> Iterator[tuple[Any, ...]]:
    """Of each load and store: layer, segment, first byte, end, instruction."""
    for name in ("load", "store"):
        kind = BY_NAME[name]
        numbers = np.flatnonzero(stream[:, 0] == kind.opcode)
        records = stream[numbers].view(kind.dtype)[:, 0]
        yield from zip(records["layer"], records["segment"], *reach(records), numbers, strict=True)


def _of_kernels(stream: Array) -> Iterator[tuple[Any, ...]]:
    """The same of the operands and workspaces of kernels that work in global memory."""
    kind = BY_NAME["custom_global"]
    numbers = np.flatnonzero(stream[:, 0] == kind.opcode)
    for number, record in zip(numbers, stream[numbers].view(kind.dtype)[:, 0], strict=True):
        for name in (field.name for field in kind.fields if field.far):
            start, size = int(record[name]), int(record[f"{name}_bytes"])
            if size:
                yield record["layer"], record[f"{name}_segment"], start, start + size, number


def _joined(pieces: list[tuple[int, int, int]]) -> list[tuple[int, int, int, int]]:
    """Pieces (first byte, end, instruction) as runs without holes but those of alignment, with the instructions that use them."""
    runs: list[list[int]] = []
    for start, end, number in sorted(pieces):
        if runs and start - runs[-1][1] < ALIGNMENT:
            run = runs[-1]
            run[1:] = [max(run[1], end), min(run[2], number), max(run[3], number)]
        else:
            runs.append([start, end, number, number])
    return [(start, end, first, last) for start, end, first, last in runs]
