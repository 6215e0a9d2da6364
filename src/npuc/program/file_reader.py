"""A compiled model from the sections of a `.npu` file; everything that they say is checked before it is used.

native/src/file.c does the same in C. What only Python reads, and so only Python checks, is the JSON of `.npu.meta` and
`.npu.target`, and that no two tensors have one name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from npuc.arithmetic.machine import Machine
from npuc.arrays import Array
from npuc.errors import FileFormatError
from npuc.format_versions import NPU_FILE
from npuc.program import elf, isa, layout
from npuc.program.checks import Surroundings, check_stream
from npuc.program.model import (
    Allocation,
    ChipSubgraph,
    CompiledModel,
    Conversion,
    CpuSubgraph,
    HostConversion,
    NpuSubgraph,
    Segment,
    State,
    Tensor,
)
from npuc.program.records import Record


@dataclass(frozen=True)
class _Ports:
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def _rows(name: str, record: Record, section: elf.SectionView) -> list[tuple[Any, ...]]:
    """The records of a table, of plain integers: sums and products of them cannot overflow."""
    if section.entry_size != record.size or section.data.size % record.size or section.offset % 8:
        raise ValueError(f"{name} is not a table of records of {record.size} bytes")
    view = section.data.view(record.dtype)
    return list(zip(*(view[field.name].tolist() for field in record.fields), strict=True))


class Reader:
    """Takes a file apart; every method checks what it returns, and a ValueError says what is wrong.

    Of a program with several entries each has a reader; `first` is that of the first, which the others have weights and target
    in common with.
    """

    def __init__(self, parsed: elf.Elf, where: str = "", first: Reader | None = None, entry: int = 0) -> None:
        self._elf, self._where, self._first, self._entry = parsed, where, first, entry
        plain = {self._own(name): name for name in (*layout.NEEDED, layout.STATES)}
        self._sections: dict[str, elf.SectionView] = {}
        for section in parsed.sections:
            name = plain.get(section.name)
            if name is not None:
                if name in self._sections:
                    raise ValueError(f"there are two sections {section.name}")
                self._sections[name] = section
        for name in layout.NEEDED:
            if name not in self._sections:
                raise ValueError(f"the section {self._own(name)} is missing")
        self._hosts = self._read_hosts()
        self.rows = {name: self._table(name, record) for name, record in layout.TABLES.items()}
        self._state_rows = self._table(layout.STATES, layout.STATE) if layout.STATES in self._sections else []
        self._strings = elf.StringTable(self._sections[layout.STRINGS].data)
        self._header()
        self._segments = self._read_segments()
        self._tensors = self._read_tensors()
        self._lists = self._read_lists()
        self._target = self._read_target()
        self._layers = tuple(self._string(row[0], "layer", k) for k, row in enumerate(self._layer_rows()))

    def entries(self) -> list[str]:
        """What the entries of the program are called; an empty list if there is but this one and it has no name."""
        tables = [section for section in self._elf.sections if section.name == layout.ENTRIES]
        if not tables:
            return []
        if len(tables) > 1:
            raise ValueError(f"there are two sections {layout.ENTRIES}")
        rows = _rows(layout.ENTRIES, layout.ENTRY, tables[0])
        if not 1 <= len(rows) <= layout.MOST_ENTRIES or any(reserved for _, reserved in rows):
            raise ValueError("the table of entries is damaged")
        names = [self._string(name, "entry", number) for number, (name, _) in enumerate(rows)]
        if "" in names or len(set(names)) < len(names):
            raise ValueError("two entries have one name, or one has none")
        return names

    def _own(self, name: str) -> str:
        return name if name in layout.COMMON else layout.section_of(name, self._entry)

    def _table(self, name: str, record: Record) -> list[tuple[Any, ...]]:
        return _rows(self._own(name), record, self._sections[name])

    def _string(self, place: int, what: str, number: int) -> str:
        try:
            return self._strings[place]
        except ValueError as error:
            raise ValueError(f"{what} {number}: {error}") from error

    def _header(self) -> None:
        rows = self.rows[".npu.header"]
        if len(rows) != 1:
            raise ValueError("there is not one header")
        (
            version, instruction_set, record, self._cores, self.fingerprint, self._local, self._shared,
            name, target, *self._model_ports,
        ) = rows[0]  # fmt: skip
        NPU_FILE.check(version, self._where)
        if instruction_set != isa.VERSION or record != isa.RECORD:
            raise FileFormatError(
                f"its instruction set is version {instruction_set} with records of {record} bytes, and this npuc "
                f"knows version {isa.VERSION} with {isa.RECORD}",
                where=self._where,
                fix=f"Update npuc, or {NPU_FILE.remedy}",
            )
        if not self._cores or not 0 < self._local < isa.NONE or self._shared > layout.LARGEST:
            raise ValueError("the machine in its header is not possible")
        if self._first is not None and self._machine != self._first._machine:
            raise ValueError("its entries are for different machines")
        self._name = self._string(name, "model", 0)
        self.target_name = self._string(target, "target", 0)

    @property
    def _machine(self) -> tuple[int, ...]:
        return self._cores, self.fingerprint, self._local, self._shared

    def _read_segments(self) -> tuple[Segment, ...]:
        rows, programs = self.rows[".npu.segments"], self._elf.programs
        weights = self._sections[layout.WEIGHTS]
        # Program headers are for the segments of the first entry, and for the weights of all.
        headed = len(rows) if self._first is None else 1
        if not 2 <= len(rows) < 255 or (self._first is None and len(programs) != headed):
            raise ValueError(f"it has {len(rows)} segments")
        segments = []
        for number, (name, kind, size, address, alignment) in enumerate(rows):
            if kind != min(number, 2):
                raise ValueError(f"segment {number} is not of the kind that belongs there")
            if size > layout.LARGEST or alignment != layout.ALIGNMENT:
                raise ValueError(f"segment {number} has an impossible size or alignment")
            if address % alignment or address + size > 1 << 64:
                raise ValueError(f"segment {number} has an impossible address")
            held = (weights.offset, weights.data.size) if number == 0 else (0, 0)
            expected = (elf.LOAD, 6 if number else 4, held[0], address, address, held[1], size, alignment)
            if number < headed and programs[number].tolist() != expected:
                raise ValueError(f"the program header of segment {number} contradicts the table of segments")
            title = self._string(name, "segment", number)
            segments.append(Segment(title, layout.SEGMENT_KINDS[kind], size, address))  # type: ignore[arg-type]
        if weights.data.size != segments[0].size or weights.offset % layout.PAGE:
            raise ValueError("the weights are not where the table of segments has them")
        problem = overlap(segments)
        if problem:
            raise ValueError(problem)
        return tuple(segments)

    def _read_tensors(self) -> tuple[Tensor, ...]:
        tensors = []
        for number, row in enumerate(self.rows[".npu.tensors"]):
            name, segment, offset, size, scale, zero_point, dtype, rank, shape, order = row
            if segment >= len(self._segments):
                raise ValueError(f"tensor {number} is in a segment that does not exist")
            whole = self._segments[segment].size
            if offset % layout.ALIGNMENT or offset > whole or size > whole - offset:
                raise ValueError(f"tensor {number} is not inside its segment")
            if dtype >= len(layout.TENSOR_DTYPES) or rank > layout.MOST_AXES:
                raise ValueError(f"tensor {number} has an unknown type or too many axes")
            if sorted(order[:rank]) != list(range(rank)) or any(order[rank:]) or any(shape[rank:]):
                raise ValueError(f"tensor {number} has an impossible order of axes")
            bits = layout.TENSOR_BITS[dtype]
            for length in shape[:rank]:
                bits *= length
            if not 0 < bits <= 8 * size:
                raise ValueError(f"tensor {number} has a shape that does not fit its size")
            if not 0 <= scale < float("inf"):
                raise ValueError(f"tensor {number} has an impossible scale")
            tensors.append(
                Tensor(
                    self._string(name, "tensor", number),
                    tuple(shape[:rank]),
                    tuple(order[:rank]),
                    layout.TENSOR_DTYPES[dtype],
                    scale,
                    zero_point,
                    segment,
                    offset,
                    size,
                )
            )
        names = set()
        for tensor in tensors:
            if tensor.name in names:
                raise ValueError(f"two tensors are called {tensor.name!r}")
            names.add(tensor.name)
        return tuple(tensors)

    def _read_lists(self) -> list[int]:
        section = self._sections[layout.LISTS]
        if section.entry_size != 4 or section.data.size % 4 or section.offset % 8:
            raise ValueError("the lists of tensors are damaged")
        numbers: list[int] = section.data.view("<u4").tolist()
        if numbers and max(numbers) >= len(self._tensors):
            raise ValueError("a list names a tensor that does not exist")
        return numbers

    def _layer_rows(self) -> list[tuple[Any, ...]]:
        rows = self.rows[".npu.layers"]
        if any(reserved for _, reserved in rows):
            raise ValueError("the table of layers is damaged")
        return rows

    def _ports(self, fields: Sequence[int], what: str) -> _Ports:
        first_input, inputs, first_output, outputs = fields
        whole = len(self._lists)
        if first_input + inputs > whole or first_output + outputs > whole:
            raise ValueError(f"the inputs or outputs of {what} are not in the lists")
        names = [
            tuple(self._tensors[k].name for k in self._lists[first : first + count])
            for first, count in ((first_input, inputs), (first_output, outputs))
        ]
        return _Ports(*names)

    def model(self) -> CompiledModel:
        """The whole."""
        ports = self._ports(self._model_ports, "the model")
        meta = self._object(layout.META)
        metadata, reasons = meta.get("metadata"), meta.get("reasons")
        if not isinstance(metadata, dict) or not isinstance(reasons, dict):
            raise ValueError(f"the JSON of {layout.META} has not the form that it should have")
        subgraphs = self._subgraphs(reasons)
        return CompiledModel(
            name=self._name,
            target=self._target,
            fingerprint=self.fingerprint,
            segments=self._segments,
            weights=self._sections[layout.WEIGHTS].data,
            tensors=self._tensors,
            inputs=ports.inputs,
            outputs=ports.outputs,
            layers=self._layers,
            subgraphs=subgraphs,
            metadata=metadata,
            states=self._states(ports),
            debug=next(
                (s.data.tobytes() for s in self._elf.sections if s.name == self._own(layout.DEBUG)), b""
            ),
        )

    def _states(self, ports: _Ports) -> tuple[State, ...]:
        if len(self._state_rows) > layout.MOST_STATES:
            raise ValueError(
                f"there are {len(self._state_rows)} states; a model has at most {layout.MOST_STATES}"
            )
        if len(self._state_rows) and len(ports.inputs) + len(ports.outputs) > layout.MOST_STREAM_TENSORS:
            raise ValueError(
                f"a model with states has at most {layout.MOST_STREAM_TENSORS} inputs and outputs, and this one has "
                f"{len(ports.inputs) + len(ports.outputs)}"
            )
        inputs, outputs = set(ports.inputs), set(ports.outputs)
        states: dict[str, State] = {}
        for number, (first, second) in enumerate(self._state_rows):
            if max(first, second) >= len(self._tensors):
                raise ValueError(f"state {number} names a tensor that does not exist")
            before, after = self._tensors[first], self._tensors[second]
            if before.name not in inputs or after.name not in outputs:
                raise ValueError(f"state {number} is not an input and an output of the model")
            if (before.shape, before.dtype, before.scale, before.zero_point) != (
                after.shape,
                after.dtype,
                after.scale,
                after.zero_point,
            ):
                raise ValueError(f"state {number} has different types as an input and as an output")
            if before.name in states:
                raise ValueError(f"state {number} is of an input that is another state already")
            states[before.name] = State(before.name, after.name)
        return tuple(states.values())

    def _subgraphs(
        self, reasons: dict[str, Any]
    ) -> tuple[NpuSubgraph | ChipSubgraph | CpuSubgraph | HostConversion, ...]:
        rows = self.rows[".npu.subgraphs"]
        around = Surroundings(
            len(self._layers), [segment.size for segment in self._segments], self._local, self._shared
        )
        streams: list[tuple[Array, ...]] = []
        for number, (_, kind, first, count, *_ports) in enumerate(rows):
            if kind == 0 and 1 <= count <= self._cores:
                streams.append(self._streams(number, first, count, around))
            elif kind == 1 and count == 1:
                streams.append((self._section(first, layout.model_section(number, self._entry), 0),))
            elif kind == 2:
                streams.append(())
            elif kind == 3 and count == 1:
                streams.append((self._section(first, layout.chip_section(number, self._entry), 0),))
            else:
                raise ValueError(f"subgraph {number} has an impossible kind or number of cores")
        allocations = self._allocations(rows, streams)
        subgraphs: list[NpuSubgraph | ChipSubgraph | CpuSubgraph | HostConversion] = []
        for number, (name, kind, first, count, *fields) in enumerate(rows):
            title = self._string(name, "subgraph", number)
            ports = self._ports(fields, f"subgraph {number}")
            if kind == 0:
                places = tuple(allocations[number])
                subgraphs.append(NpuSubgraph(title, streams[number], ports.inputs, ports.outputs, places))
                continue
            if kind == 3:
                program = streams[number][0].tobytes()
                subgraphs.append(ChipSubgraph(title, program, ports.inputs, ports.outputs))
                continue
            if kind == 2:
                subgraphs.append(HostConversion(title, self._conversions(number, first, count, ports)))
                continue
            why = reasons.get(str(number), {})
            if not isinstance(why, dict) or not all(isinstance(text, str) for text in why.values()):
                raise ValueError(f"the JSON of {layout.META} has no reasons for subgraph {number}")
            model = streams[number][0].tobytes()
            if not ports.outputs:
                raise ValueError(f"subgraph {number} runs on the CPU and has no outputs")
            subgraphs.append(CpuSubgraph(title, model, ports.inputs, ports.outputs, why, self._host(number)))
        return tuple(subgraphs)

    def _read_hosts(self) -> dict[int, int]:
        """The section of each subgraph's host operators. They stand one behind the other, in the order of their subgraphs."""
        sections: dict[int, int] = {}
        last_subgraph = last_section = 0
        prefix = self._own(".npu.host.")
        for number, section in enumerate(self._elf.sections):
            digits = section.name.removeprefix(prefix) if section.name.startswith(prefix) else ""
            if not re.fullmatch(r"0|[1-9][0-9]{0,9}", digits) or int(digits) >= 1 << 32:
                continue
            if sections and (number != last_section + 1 or int(digits) <= last_subgraph):
                raise ValueError(f"the sections {prefix}* are not in order")
            last_subgraph, last_section = int(digits), number
            sections[last_subgraph] = number
        return sections

    def _host(self, subgraph: int) -> bytes:
        """The host operators of a CPU subgraph, which only C looks into."""
        number = self._hosts.get(subgraph)
        return (
            self._section(number, layout.host_section(subgraph, self._entry), 0).tobytes() if number else b""
        )

    def _conversions(self, number: int, first: int, count: int, ports: _Ports) -> tuple[Conversion, ...]:
        rows = self.rows[".npu.conversions"]
        if first + count > len(rows):
            raise ValueError(f"subgraph {number} has conversions that are not there")
        conversions = []
        for source, result, rounding, reserved in rows[first : first + count]:
            if max(source, result) >= len(self._tensors) or rounding >= len(isa.ROUNDINGS) or reserved:
                raise ValueError(f"subgraph {number} has an impossible conversion")
            source_tensor, result_tensor = self._tensors[source], self._tensors[result]
            if source_tensor.shape != result_tensor.shape:
                raise ValueError(f"subgraph {number} converts between tensors of different shapes")
            conversions.append(Conversion(source_tensor.name, result_tensor.name, isa.ROUNDINGS[rounding]))
        conversion = HostConversion("", tuple(conversions))
        if (conversion.inputs, conversion.outputs) != (ports.inputs, ports.outputs):
            raise ValueError(f"the inputs or outputs of subgraph {number} are not those of its conversions")
        return conversion.conversions

    def _section(self, number: int, name: str, entry: int) -> Array:
        if not 0 < number < len(self._elf.sections) or self._elf.sections[number].name != name:
            raise ValueError(f"section {number} is not {name}")
        section = self._elf.sections[number]
        if section.entry_size != entry or section.type != elf.PROGBITS or section.offset % 8:
            raise ValueError(f"section {name} is damaged")
        if not entry and not section.data.size:
            raise ValueError(f"section {name} is empty")
        return section.data

    def _streams(self, subgraph: int, section: int, count: int, around: Surroundings) -> tuple[Array, ...]:
        streams, barriers = [], set()
        for core in range(count):
            name = layout.text_section(subgraph, core, self._entry)
            data = self._section(section + core, name, isa.RECORD)
            if data.size % isa.RECORD:
                raise ValueError(f"section {name} is not made of whole instructions")
            stream = data.reshape(-1, isa.RECORD)
            try:
                barriers.add(check_stream(stream, around))
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from error
            streams.append(stream)
        if len(barriers) > 1:
            raise ValueError(f"the cores of subgraph {subgraph} do not meet at the same barriers")
        return tuple(streams)

    def _allocations(
        self, rows: list[tuple[Any, ...]], streams: list[tuple[Array, ...]]
    ) -> list[list[Allocation]]:
        allocations: list[list[Allocation]] = [[] for _ in rows]
        lengths = [
            [len(s) for s in group] if row[1] == 0 else [] for row, group in zip(rows, streams, strict=True)
        ]
        for number, row in enumerate(self.rows[".npu.allocations"]):
            name, subgraph, core, address, size, first, last, reserved = row
            if subgraph >= len(rows) or core >= len(lengths[subgraph]) or reserved:
                raise ValueError(f"allocation {number} is of a core that has no instructions")
            if address + size > self._local or not first <= last < lengths[subgraph][core]:
                raise ValueError(f"allocation {number} is outside local memory or outside its stream")
            allocations[subgraph].append(
                Allocation(self._string(name, "allocation", number), core, address, size, first, last)
            )
        return allocations

    def _read_target(self) -> dict[str, Any]:
        data = self._object(layout.TARGET)
        try:
            machine = Machine.from_dict(data)
        except ValueError as error:
            raise ValueError(f"the JSON of {layout.TARGET}: {error}") from error
        stated = (machine.name, machine.cores, machine.local_size, machine.shared_size)
        if stated != (self.target_name, self._cores, self._local, self._shared):
            raise ValueError(f"the JSON of {layout.TARGET} is not the machine in the header")
        return data

    def _object(self, name: str) -> dict[str, Any]:
        raw = self._sections[name].data.tobytes()

        def refuse(text: str) -> Any:
            raise ValueError(f"{text} is no JSON number")

        try:
            value = json.loads(raw.decode(), parse_constant=refuse)
            # Halves of surrogate pairs can be spelled, but not printed.
            if re.search(rb"\\u[dD]", raw):
                json.dumps(value, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"the JSON of {name} cannot be read: {type(error).__name__}") from error
        if not isinstance(value, dict):
            raise ValueError(f"the JSON of {name} is not an object")
        return value


def overlap(segments: Sequence[Segment]) -> str:
    """What is wrong with the base addresses of segments: two that overlap; empty if nothing is."""
    placed = sorted((s for s in segments if s.address and s.size), key=lambda s: s.address)
    for low, high in pairwise(placed):
        if low.address + low.size > high.address:
            return (
                f"segment {high.name!r} at 0x{high.address:x} overlaps {low.name!r}, "
                f"which ends at 0x{low.address + low.size:x}"
            )
    return ""
