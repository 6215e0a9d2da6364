"""The sections of a `.npu` file, made of a compiled model or of several: the same bytes for the same models, always."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.program import elf, isa, layout
from npuc.program.model import (
    ChipSubgraph,
    CompiledModel,
    CpuSubgraph,
    HostConversion,
    NpuSubgraph,
    Segment,
    Tensor,
)

Row = Sequence[Any]


def make_sections(
    program: CompiledModel | Mapping[str, CompiledModel],
) -> tuple[list[elf.Section], list[elf.Load]]:
    """Everything that a file holds; a ValueError, KeyError or OverflowError says what has no form in it.

    The entries of a program, by name, have been combined (`npuc.program.combine`): they have weights and target in common.
    """
    entries = {program.name: program} if isinstance(program, CompiledModel) else dict(program)
    model, *others = entries.values()
    sections = _Maker(model, titles=tuple(entries) if others else ()).sections()
    weights = sections.pop()
    for entry, other in enumerate(others, 1):
        sections += _Maker(other, entry, before=len(sections)).sections()
    sections.append(weights)
    loads = [
        elf.Load(
            segment.size,
            segment.address,
            layout.ALIGNMENT,
            writable=number > 0,
            section=layout.WEIGHTS if number == 0 else "",
        )
        for number, segment in enumerate(model.segments)
    ]
    return sections, loads


class _Maker:
    """Collects strings, lists, code sections and symbols while tables are made."""

    def __init__(
        self, model: CompiledModel, entry: int = 0, before: int = 0, titles: tuple[str, ...] = ()
    ) -> None:
        self._model, self._entry, self._before, self._titles = model, entry, before, titles
        self._strings = elf.Strings()
        self._lists: list[int] = []
        self._numbers = {tensor.name: number for number, tensor in enumerate(model.tensors)}
        self._code: list[elf.Section] = []
        self._symbols: list[Row] = [(0,) * len(elf.SYMBOL.fields)]
        self._conversions: list[Row] = []

    def sections(self) -> list[elf.Section]:
        """All sections but those that ELF itself needs; of an entry that is not the first, those of its own."""
        model, strings = self._model, self._strings
        subgraphs = [self._subgraph(number) for number in range(len(model.subgraphs))]
        rows: dict[str, Sequence[Row]] = {
            ".npu.header": [self._header()],
            ".npu.segments": [_segment_row(segment, strings) for segment in model.segments],
            ".npu.tensors": [_tensor_row(tensor, strings) for tensor in model.tensors],
            ".npu.subgraphs": subgraphs,
            ".npu.conversions": self._conversions,
            ".npu.layers": [(strings.add(name), 0) for name in model.layers],
            ".npu.allocations": [
                (strings.add(a.name), number, a.core, a.address, a.size, a.first, a.last, 0)
                for number, subgraph in enumerate(model.subgraphs)
                if isinstance(subgraph, NpuSubgraph)
                for a in subgraph.allocations
            ],
        }
        reasons = {
            str(number): subgraph.reasons
            for number, subgraph in enumerate(model.subgraphs)
            if isinstance(subgraph, CpuSubgraph)
        }
        tables = [
            elf.Section(self._own(name), record.make(rows[name]), entry_size=record.size)
            for name, record in layout.TABLES.items()
        ]
        if self._titles:
            titles = layout.ENTRY.make([(strings.add(title), 0) for title in self._titles])
            tables.append(elf.Section(layout.ENTRIES, titles, entry_size=layout.ENTRY.size))
        symbols = elf.SYMBOL.make(self._symbols)
        address = model.segments[0].address
        states = [(self._numbers[state.input], self._numbers[state.output]) for state in model.states]
        if states:
            table = layout.STATE.make(states)
            tables.append(elf.Section(self._own(layout.STATES), table, entry_size=layout.STATE.size))
        tables += [
            elf.Section(
                layout.host_section(number, self._entry),
                np.frombuffer(subgraph.host, np.uint8),
                alignment=layout.ALIGNMENT,
            )
            for number, subgraph in enumerate(model.subgraphs)
            if isinstance(subgraph, CpuSubgraph) and subgraph.host
        ]
        notes = _json({"metadata": model.metadata, "reasons": reasons})
        sections = [
            *self._code,
            *tables,
            elf.Section(self._own(layout.LISTS), np.array(self._lists, "<u4"), entry_size=4),
            elf.Section(
                ".symtab", symbols, elf.SYMTAB, entry_size=elf.SYMBOL.size, link=layout.STRINGS, info=1
            ),
            elf.Section(self._own(layout.STRINGS), strings.array(), elf.STRTAB, alignment=1),
            elf.Section(layout.TARGET, _json(model.target), alignment=1),
            elf.Section(self._own(layout.META), notes, alignment=1),
            *(
                [elf.Section(self._own(layout.DEBUG), np.frombuffer(model.debug, np.uint8), alignment=1)]
                * bool(model.debug)
            ),
            elf.Section(
                layout.WEIGHTS, model.weights, flags=elf.ALLOC, alignment=layout.PAGE, address=address
            ),
        ]
        shared = (".symtab", *layout.COMMON) if self._entry else ()
        return [section for section in sections if section.name not in shared]

    def _own(self, name: str) -> str:
        return layout.section_of(name, self._entry)

    def _listed(self, names: Sequence[str]) -> tuple[int, int]:
        first = len(self._lists)
        self._lists.extend(self._numbers[name] for name in names)
        return first, len(names)

    def _header(self) -> Row:
        model, machine = self._model, self._model.machine
        return (
            layout.VERSION,
            isa.VERSION,
            isa.RECORD,
            machine.cores,
            model.fingerprint,
            machine.local_size,
            machine.shared_size,
            self._strings.add(model.name),
            self._strings.add(machine.name),
            *self._listed(model.inputs),
            *self._listed(model.outputs),
        )

    def _subgraph(self, number: int) -> Row:
        subgraph = self._model.subgraphs[number]
        name = self._strings.add(subgraph.name)
        ports = (*self._listed(subgraph.inputs), *self._listed(subgraph.outputs))
        # Sections are counted from 1; those of code come first among an entry's.
        here = self._before + len(self._code) + 1
        if isinstance(subgraph, CpuSubgraph):
            onnx = np.frombuffer(subgraph.model, np.uint8)
            self._code.append(elf.Section(layout.model_section(number, self._entry), onnx))
            return (name, 1, here, 1, *ports)
        if isinstance(subgraph, ChipSubgraph):
            program = np.frombuffer(subgraph.program, np.uint8)
            self._code.append(elf.Section(layout.chip_section(number, self._entry), program))
            return (name, 3, here, 1, *ports)
        if isinstance(subgraph, HostConversion):
            first = len(self._conversions)
            for conversion in subgraph.conversions:
                rounding = isa.ROUNDINGS.index(conversion.rounding)
                self._conversions.append(
                    (self._numbers[conversion.source], self._numbers[conversion.result], rounding, 0)
                )
            return (name, 2, first, len(subgraph.conversions), *ports)
        for core, stream in enumerate(subgraph.streams):
            section = layout.text_section(number, core, self._entry)
            self._code.append(
                elf.Section(section, stream, flags=elf.EXECUTE, alignment=64, entry_size=isa.RECORD)
            )
            title = subgraph.name if len(subgraph.streams) == 1 else f"{subgraph.name}.core{core}"
            # A global function that is the whole of its section.
            self._symbols.append((self._strings.add(title), 16 + 2, 0, here + core, 0, stream.nbytes))
        return (name, 0, here, len(subgraph.streams), *ports)


def _segment_row(segment: Segment, strings: elf.Strings) -> Row:
    kind = layout.SEGMENT_KINDS.index(segment.kind)
    return strings.add(segment.name), kind, segment.size, segment.address, layout.ALIGNMENT


def _tensor_row(tensor: Tensor, strings: elf.Strings) -> Row:
    rank = len(tensor.shape)
    if rank > layout.MOST_AXES:
        raise ValueError(f"tensor '{tensor.name}' has {rank} axes; {layout.MOST_AXES} are possible")
    if tensor.dtype not in layout.TENSOR_DTYPES:
        raise ValueError(f"tensor '{tensor.name}' is of type {tensor.dtype}, which a file has no code for")
    rest = [0] * (layout.MOST_AXES - rank)
    return (
        strings.add(tensor.name),
        tensor.segment,
        tensor.offset,
        tensor.size,
        tensor.scale,
        tensor.zero_point,
        layout.TENSOR_DTYPES.index(tensor.dtype),
        rank,
        [*tensor.shape, *rest],
        [*tensor.order, *rest],
    )


def _json(value: Any) -> Array:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return np.frombuffer(text.encode(), np.uint8)
