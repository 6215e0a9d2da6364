"""A schedule as text: printed, read back, compared.

One line a thing; what is indented belongs to the line above. Numbers of tensors, layers and buffers are those of the lines
that declare them. An operand of an instruction is a name of its step, and the byte of local memory that it means there:

    compute layer=0 tile=2 rows=16:24 channels=0:4 inputs=15:25 output=16:24 in0=5 out0=6 const=0  # group 0: stem
      conv x=in0@0x1600 x_dtype=0:i8 n=1 h=10 w=8 c=3 ... weight=const@0x0 ... y=out0@0x1900  wait load>=4

Row 16 to 24 of the result of layer 0, named `stem`, are made of the rows 15 to 25 in buffer 5, and lie in buffer 6. The
instruction starts when the load queue has finished four instructions. Numbers that are 0 and operands that are absent are
left out. What stands behind `#`, and the name behind the code of a type, is for the reader.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from difflib import unified_diff
from pathlib import Path
from typing import Any, TypeVar

from npuc.arithmetic.dtypes import TYPE_NAMES
from npuc.errors import ScheduleError
from npuc.files import read_short, write_atomically
from npuc.format_versions import SCHEDULE_LISTING
from npuc.program.instruction import Place, TypedInstruction
from npuc.program.instructions import BY_NAME
from npuc.program.isa import BY_NAME as TABLE
from npuc.program.isa import KERNEL_NAME, KINDS, NONE, QUEUES, ROUNDINGS
from npuc.schedule.artifact import (
    BUFFER,
    BarrierStep,
    ComputeStep,
    ConstantBlock,
    CoreSchedule,
    Issued,
    LoadStep,
    LocalBuffer,
    Schedule,
    ScheduledLayer,
    ScheduledTensor,
    Step,
    StoreStep,
)
from npuc.schedule.decisions import Decisions, Group, PrefetchPolicy, ScheduleDecisions
from npuc.schedule.layers import Rows, Tile
from npuc.schedule.moves import Block
from npuc.schedule.tiler import Choices

_T = TypeVar("_T")
_FIRST = "npuc schedule listing"
_MAX_BYTES = 1 << 30
_NAMES: dict[str, Mapping[int, str]] = {
    name: dict(enumerate(names)) for name, names in (("kind", KINDS), ("rounding", ROUNDINGS))
}
"""Fields whose numbers have names; so have those that end in `_dtype`."""
_FLAGS = ("moved", "by_channels", "alone", "by_inputs", "keeps_seams")
_TOKEN = re.compile(r'\s*(?:(#.*)|((?:[^\s"#]*=)?"(?:[^"\\]|\\.)*")|([^\s"]+))')


def listing(schedule: Schedule) -> str:
    """A schedule as text."""
    return "\n".join(_lines(schedule)) + "\n"


def save_listing(schedule: Schedule, path: Path | str) -> None:
    """Write a schedule as text: the whole file or none."""
    with write_atomically(Path(path)) as out:
        out.write(listing(schedule).encode())


def load_listing(path: Path | str) -> Schedule:
    """A schedule of a file that `save_listing` wrote. It has no ops, and no search behind it."""
    try:
        text = read_short(path, _MAX_BYTES, "a listing of a schedule", ScheduleError).decode()
    except UnicodeDecodeError as error:
        raise ScheduleError(f"it is not text: {error}", where=str(path)) from error
    return parse_listing(text, str(path))


def diff(before: Schedule, after: Schedule, context: int = 2) -> list[str]:
    """The lines of two listings that differ, with some that surround them; no line if the schedules are equal."""
    was, now = list(_lines(before)), list(_lines(after))
    return list(unified_diff(was, now, "before", "after", n=context, lineterm=""))


# Printing


def _lines(schedule: Schedule) -> Iterator[str]:
    chosen = schedule.schedule_decisions
    decisions = chosen.decisions
    yield f"{_FIRST} {SCHEDULE_LISTING.version}"
    yield (
        f"schedule {_text(schedule.name)} target={_text(schedule.target)} fingerprint={schedule.fingerprint} "
        f"first_layer={schedule.first_layer} workspace={schedule.workspace}"
    )
    choices = " ".join(f"{choice.name}={getattr(chosen.choices, choice.name)}" for choice in fields(Choices))
    yield (
        f"decisions memory={chosen.memory} cores={chosen.cores} local_memory={chosen.local_memory} "
        f"far={decisions.spill_distance} {choices}"
    )
    if chosen.prefetch is not None:
        policy = chosen.prefetch
        yield f"prefetch memory={policy.memory} margin={policy.margin!r} placing={policy.placing}"
    for number, tensor in enumerate(schedule.tensors):
        yield _tensor_line(number, tensor)
    for number, layer in enumerate(schedule.layers):
        ends = f"in={_numbers(layer.inputs)} out={_numbers(layer.outputs)}"
        yield f"layer {number} {_text(layer.name)} {layer.kind} {ends}"
    for number, block in enumerate(schedule.constants):
        stored = f" stored={block.stored}" if block.stored else ""
        yield (
            f"constants {number} layer={block.layer} channels={_rows(block.channels)} offset={block.offset:#x} "
            f"size={block.size}{stored}"
        )
    for number, group in enumerate(decisions.groups):
        flags = [name for name in _FLAGS if getattr(group, name)]
        flags += ["resident_weights"] if group.resident_weights else []
        stays = number < len(decisions.resident) and decisions.resident[number]
        flags += ["resident_results"] if stays else []
        axes = ("column_tiles", "channel_tiles")
        counts = "".join(f" {axis}={getattr(group, axis)}" for axis in axes if getattr(group, axis) > 1)
        words = counts + "".join(f" {flag}" for flag in flags)
        yield f"group {number} layers={group.first}:{group.last} tiles={group.tiles}{words}"
    for number, core in enumerate(schedule.cores):
        yield f"core {number}"
        for index, buffer in enumerate(core.buffers):
            rows = f" rows={_rows(buffer.rows)}" if any(buffer.rows) else ""
            yield (
                f"  buffer {index} {_text(buffer.name)} at={buffer.address:#x} size={buffer.size}{rows} "
                f"live={buffer.first}:{buffer.last}"
            )
        for step in core.steps:
            yield f"  {_step(step)}  # {_comment(schedule, step)}"
            for issued in step.instructions:
                yield f"    {_issued(core, step, issued)}"


def _comment(schedule: Schedule, step: Step) -> str:
    if isinstance(step, BarrierStep):
        return "all cores"
    group = schedule.schedule_decisions.decisions.group_of[step.layer]
    return f"group {group}: {_text(schedule.layers[step.layer].name)[1:-1]}"


def _tensor_line(number: int, tensor: ScheduledTensor) -> str:
    shape = "x".join(map(str, tensor.shape)) or "scalar"
    line = f"tensor {number} {_text(tensor.name)} {shape} {tensor.dtype} order={_numbers(tensor.order)}"
    line += f" scale={tensor.scale!r} zero_point={tensor.zero_point}"
    if tensor.view_of >= 0:
        line += f" view_of={tensor.view_of}"
    if tensor.segment >= 0:
        line += f" segment={tensor.segment} offset={tensor.offset:#x}"
    return line


def _step(step: Step) -> str:
    match step:
        case BarrierStep():
            return f"barrier number={step.number}"
        case ComputeStep():
            operands = "".join(f" {slot}={buffer}" for slot, buffer in step.operands.items())
            return f"compute layer={step.layer} tile={step.tile_number}{_tile(step.tile)}{operands}"
        case LoadStep():
            kind, number = ("tensor", step.tensor) if step.tensor >= 0 else ("constants", step.constants)
            more = " multicast" if step.multicast else ""
            far = f"{kind}={number} from={step.source:#x}"
        case StoreStep():
            more, far = "", f"tensor={step.tensor} to={step.target:#x}"
    name = "load" if isinstance(step, LoadStep) else "store"
    near = f"buffer={step.buffer} offset={step.offset:#x} size={step.size}"
    return f"{name} layer={step.layer} tile={step.tile_number} {far} {near}{_block(step.block)}{more}"


def _tile(tile: Tile | None) -> str:
    if tile is None:
        return ""
    inputs = ",".join(map(_rows, tile.inputs))
    columns = "" if tile.columns is None else f" columns={_rows(tile.columns)}"
    return f" rows={_rows(tile.rows)}{columns} channels={_rows(tile.channels)} inputs={inputs} output={_rows(tile.output)}"


def _block(block: Block | None) -> str:
    if block is None:
        return ""
    return f" block={_numbers(block.size)} far={_numbers(block.far)} near={_numbers(block.near)}"


def _issued(core: CoreSchedule, step: Step, issued: Issued) -> str:
    instruction = issued.instruction
    words = [instruction.name]
    kinds = {part.name: part for part in TABLE[instruction.name].fields}
    for name, value in instruction.fields().items():
        if kinds[name].address:
            if isinstance(value, Place):
                words.append(f"{name}={value.slot}@{core.address(step, value):#x}")
            elif value != NONE:
                words.append(f"{name}={value:#x}")
        elif name == "kernel" and kinds[name].count == KERNEL_NAME:
            words.append(f"{name}={_text(bytes(value).rstrip(bytes(1)).decode('latin-1'))}")
        elif (names := _names_of(name)) is not None and value in names:
            words.append(f"{name}={value}:{names[value]}")
        elif isinstance(value, tuple):
            if any(value):
                words.append(f"{name}={_numbers(value)}")
        elif value:
            words.append(f"{name}={value}")
    if issued.flags:
        words.append(f"flags={issued.flags}")
    if instruction.queue == "any" and issued.among != "load":
        words.append(f"queue={issued.among}")
    waits = [f"{queue}>={count}" for queue, count in zip(QUEUES, issued.wait, strict=True) if count]
    return " ".join(words) + ("  wait " + " ".join(waits) if waits else "")


def _names_of(name: str) -> Mapping[int, str] | None:
    return TYPE_NAMES if name.endswith("_dtype") else _NAMES.get(name)


def _text(name: str) -> str:
    return json.dumps(name)


def _numbers(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "none"


def _rows(rows: Rows) -> str:
    return f"{rows[0]}:{rows[1]}"


# Reading


def parse_listing(text: str, where: str = "") -> Schedule:
    """A schedule of the text that `listing` made; a line that is not understood is an error with its number."""
    reader = _Reader()
    lines = text.split("\n")
    version = lines[0].removeprefix(_FIRST).strip()
    if not lines[0].startswith(_FIRST) or not version.isdecimal():
        raise ScheduleError(f"it does not begin with '{_FIRST}' and a version", where=where or None)
    SCHEDULE_LISTING.check(int(version[:9]), where or None, ScheduleError)
    read = 1
    try:
        for line in lines[1:]:
            read += 1
            reader.line(line)
        return reader.finished()
    except (ValueError, KeyError, IndexError, TypeError) as error:
        words = f"line {read} of the listing of a schedule is not understood: {error or type(error).__name__}"
        raise ScheduleError(words, where=where or None) from error


@dataclass
class _Words:
    """A line: words by place, words by name, and what is waited for."""

    plain: list[str]
    named: dict[str, str]

    def take(self, name: str, kind: Callable[[str], _T], default: _T | None = None) -> _T:
        """A named word as a value."""
        if name not in self.named and default is not None:
            return default
        return kind(self.named.pop(name))

    def flag(self, name: str) -> bool:
        """Whether a word stands there."""
        if name in self.plain:
            self.plain.remove(name)
            return True
        return False

    def done(self) -> None:
        """Nothing is left over."""
        if self.named or self.plain:
            raise ValueError(f"'{' '.join([*self.plain, *self.named])}' has no meaning here")


def _words(line: str) -> _Words:
    plain: list[str] = []
    named: dict[str, str] = {}
    at, line = 0, line.rstrip()
    while at < len(line):
        match = _TOKEN.match(line, at)
        if match is None:
            raise ValueError(f"'{line[at : at + 20]}'")
        at = match.end()
        word = match[2] or match[3]
        if match[1] is not None:
            break
        name, sign, value = word.partition("=")
        if sign and not name.endswith(">") and not name.startswith('"'):
            if name in named:
                raise ValueError(f"'{name}' is there twice")
            named[name] = value
        else:
            plain.append(word)
    return _Words(plain, named)


def _int(text: str) -> int:
    return int(text, 0)


def _ints(text: str) -> tuple[int, ...]:
    return () if text == "none" else tuple(map(_int, text.split(",")))


def _range(text: str) -> Rows:
    first, last = text.split(":")
    return int(first), int(last)


def _string(text: str) -> str:
    value = json.loads(text)
    if not isinstance(value, str):
        raise ValueError(text)
    return value


@dataclass
class _Reader:
    """What the lines so far say."""

    head: dict[str, Any] = field(default_factory=dict)
    schedule_decisions: dict[str, Any] = field(default_factory=dict)
    choices: dict[str, int] = field(default_factory=dict)
    spill_distance: int = 0
    tensors: list[ScheduledTensor] = field(default_factory=list)
    layers: list[ScheduledLayer] = field(default_factory=list)
    constants: list[ConstantBlock] = field(default_factory=list)
    groups: list[Group] = field(default_factory=list)
    resident: list[bool] = field(default_factory=list)
    cores: list[tuple[list[LocalBuffer], list[Step]]] = field(default_factory=list)
    issued: list[Issued] = field(default_factory=list)
    step: Callable[[tuple[Issued, ...]], Step] | None = None
    """The step at hand, all but its instructions."""
    operands: Mapping[str, int] = field(default_factory=dict)

    def line(self, line: str) -> None:
        """One more."""
        words = _words(line)
        if not words.plain:
            words.done()
            return
        name = words.plain.pop(0)
        if line.startswith("    "):
            self._instruction(name, words)
        else:
            self._end_of_step()
            reader = getattr(self, f"_{name}", None) if name in _READERS else None
            if reader is None:
                raise ValueError(f"'{name}'")
            reader(words)
            words.done()

    def finished(self) -> Schedule:
        """All of it, with every number that stands for something checked."""
        self._end_of_step()
        resident = tuple(self.resident[:-1])
        decisions = Decisions(tuple(self.groups), resident, self.spill_distance)
        cores = tuple(CoreSchedule(tuple(buffers), tuple(steps)) for buffers, steps in self.cores)
        schedule_decisions = ScheduleDecisions(decisions, Choices(**self.choices), **self.schedule_decisions)
        schedule = Schedule(
            **self.head,
            tensors=tuple(self.tensors),
            layers=tuple(self.layers),
            constants=tuple(self.constants),
            schedule_decisions=schedule_decisions,
            cores=cores,
        )
        for layer in schedule.layers:
            _check((*layer.inputs, *layer.outputs), schedule.tensors, "tensor")
        _check([block.layer for block in schedule.constants], schedule.layers, "layer")
        _check(
            [tensor.view_of for tensor in schedule.tensors if tensor.view_of != -1],
            schedule.tensors,
            "tensor",
        )
        for group in schedule.groups:
            _check((group.first, group.last - 1), schedule.layers, "layer")
        for core in schedule.cores:
            for step in core.steps:
                _check([step.layer], schedule.layers, "layer")
                if isinstance(step, LoadStep) and step.tensor < 0:
                    _check([step.constants], schedule.constants, "block of constants")
                elif isinstance(step, LoadStep | StoreStep):
                    _check([step.tensor], schedule.tensors, "tensor")
        return schedule

    def _end_of_step(self) -> None:
        if self.step is not None:
            self.cores[-1][1].append(self.step(tuple(self.issued)))
        self.step, self.issued = None, []

    def _schedule(self, words: _Words) -> None:
        self.head = {
            "name": _string(words.plain.pop(0)),
            "target": words.take("target", _string),
            "fingerprint": words.take("fingerprint", str),
            "first_layer": words.take("first_layer", _int),
            "workspace": words.take("workspace", _int),
        }

    def _decisions(self, words: _Words) -> None:
        self.spill_distance = words.take("far", _int)
        self.schedule_decisions |= {
            name: words.take(name, _int) for name in ("memory", "cores", "local_memory")
        }
        self.choices = {
            choice.name: words.take(choice.name, _int, choice.default) for choice in fields(Choices)
        }

    def _prefetch(self, words: _Words) -> None:
        placing: Any = words.take("placing", str)
        self.schedule_decisions["prefetch"] = PrefetchPolicy(
            words.take("memory", _int), words.take("margin", float), placing
        )

    def _tensor(self, words: _Words) -> None:
        number, name, shape, dtype = (words.plain.pop(0) for _ in range(4))
        _expect(number, self.tensors)
        self.tensors.append(
            ScheduledTensor(
                _string(name),
                () if shape == "scalar" else tuple(map(int, shape.split("x"))),
                words.take("order", _ints),
                dtype,
                words.take("scale", float),
                words.take("zero_point", _int),
                words.take("view_of", _int, -1),
                words.take("segment", _int, -1),
                words.take("offset", _int, 0),
            )
        )

    def _layer(self, words: _Words) -> None:
        number, name, kind = (words.plain.pop(0) for _ in range(3))
        _expect(number, self.layers)
        ends = words.take("in", _ints), words.take("out", _ints)
        self.layers.append(ScheduledLayer(_string(name), kind, *ends))

    def _constants(self, words: _Words) -> None:
        _expect(words.plain.pop(0), self.constants)
        self.constants.append(
            ConstantBlock(
                words.take("layer", _int),
                words.take("channels", _range),
                words.take("offset", _int),
                words.take("size", _int),
                words.take("stored", _int, 0),
            )
        )

    def _group(self, words: _Words) -> None:
        _expect(words.plain.pop(0), self.groups)
        first, last = words.take("layers", _range)
        flags = {name: words.flag(name) for name in (*_FLAGS, "resident_weights")}
        axes: dict[str, Any] = {name: words.take(name, _int, 1) for name in ("column_tiles", "channel_tiles")}
        self.groups.append(Group(first, last, words.take("tiles", _int), **flags, **axes))
        self.resident.append(words.flag("resident_results"))

    def _core(self, words: _Words) -> None:
        _expect(words.plain.pop(0), self.cores)
        self.cores.append(([], []))

    def _buffer(self, words: _Words) -> None:
        buffers = self.cores[-1][0]
        number, name = words.plain.pop(0), words.plain.pop(0)
        _expect(number, buffers)
        at, size, rows = words.take("at", _int), words.take("size", _int), words.take("rows", _range, (0, 0))
        buffers.append(LocalBuffer(_string(name), at, size, rows, *words.take("live", _range)))

    def _barrier(self, words: _Words) -> None:
        number = words.take("number", _int)
        self.operands = {}
        self.step = lambda issued: BarrierStep(number, issued)

    def _load(self, words: _Words) -> None:
        tensor, constants = words.take("tensor", _int, -1), words.take("constants", _int, -1)
        layer, number, source = (words.take(name, _int) for name in ("layer", "tile", "from"))
        near, block, multicast = self._near(words), _taken_block(words), words.flag("multicast")
        self.step = lambda issued: LoadStep(
            layer, number, tensor, constants, source, *near, block, multicast, issued
        )

    def _store(self, words: _Words) -> None:
        layer, number, tensor, target = (words.take(name, _int) for name in ("layer", "tile", "tensor", "to"))
        near, block = self._near(words), _taken_block(words)
        self.step = lambda issued: StoreStep(layer, number, tensor, target, *near, block, issued)

    def _near(self, words: _Words) -> tuple[int, int, int]:
        buffer, offset, size = (words.take(name, _int) for name in ("buffer", "offset", "size"))
        _check([buffer], self.cores[-1][0], "buffer")
        self.operands = {BUFFER: buffer}
        return buffer, offset, size

    def _compute(self, words: _Words) -> None:
        layer, number = words.take("layer", _int), words.take("tile", _int)
        tile = None
        if "rows" in words.named:
            rows, channels, output = (words.take(name, _range) for name in ("rows", "channels", "output"))
            inputs = words.take("inputs", str)
            ranges = tuple(map(_range, inputs.split(","))) if inputs else ()
            columns = words.take("columns", _range) if "columns" in words.named else None
            tile = Tile(rows, channels, ranges, output, columns)
        operands = {slot: _int(words.named.pop(slot)) for slot in list(words.named)}
        _check(operands.values(), self.cores[-1][0], "buffer")
        self.operands = operands
        self.step = lambda issued: ComputeStep(layer, number, tile, operands, issued)

    def _instruction(self, name: str, words: _Words) -> None:
        if self.step is None:
            raise ValueError("there is no step for the instruction")
        counts = dict.fromkeys(QUEUES, 0)
        if words.flag("wait"):
            for word in words.plain:
                queue, _, count = word.partition(">=")
                if queue not in counts:
                    raise ValueError(f"there is no queue '{queue}'")
                counts[queue] = int(count)
        elif words.plain:
            words.done()
        flags, among = words.take("flags", _int, 0), words.take("queue", str, "load")
        if among not in counts:
            raise ValueError(f"there is no queue '{among}'")
        numbers: list[Any] = []
        for operand in TABLE[name].fields:
            text = words.named.pop(operand.name, None)
            if operand.address:
                numbers.append(NONE if text is None else self._address(text))
            elif operand.name == "kernel" and operand.count == KERNEL_NAME:
                kernel = _string(text or '""').encode("latin-1")
                numbers += kernel.ljust(KERNEL_NAME, b"\0")
                if len(kernel) > KERNEL_NAME:
                    raise ValueError("the name of a kernel is too long")
            elif operand.count > 1:
                values = (0,) * operand.count if text is None else _ints(text)
                if len(values) != operand.count:
                    raise ValueError(f"'{operand.name}' has {operand.count} numbers")
                numbers += values
            elif text is not None and _names_of(operand.name) is not None:
                numbers.append(_int(text.partition(":")[0]))
            else:
                numbers.append(0 if text is None else _int(text))
        words.plain.clear()
        words.done()
        kind: type[TypedInstruction] = BY_NAME[name]
        self.issued.append(Issued(kind.of(numbers), tuple(counts.values()), flags, among))

    def _address(self, text: str) -> Place | int:
        slot, sign, at = text.partition("@")
        if not sign:
            return _int(text)
        buffer = self.cores[-1][0][self.operands[slot]]
        return Place(slot, _int(at) - buffer.address)


_READERS = (
    "schedule", "decisions", "prefetch", "tensor", "layer", "constants", "group", "core", "buffer", "barrier", "load",
    "store", "compute",
)  # fmt: skip


def _taken_block(words: _Words) -> Block | None:
    if "block" not in words.named:
        return None
    size, far, near = (words.take(name, _ints) for name in ("block", "far", "near"))
    if (len(size), len(far), len(near)) != (4, 3, 3):
        raise ValueError("a block has four sizes and three strides on each side")
    return Block(size, far, near)  # type: ignore[arg-type]


def _expect(number: str, before: Sequence[object]) -> None:
    if number != str(len(before)):
        raise ValueError(f"number {number} where {len(before)} is next")


def _check(numbers: Any, known: Sequence[object], what: str) -> None:
    for number in numbers:
        if not 0 <= number < len(known):
            raise ValueError(f"there is no {what} {number}")
