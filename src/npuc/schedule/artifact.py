"""A schedule: what runs when on which core, and where in memory everything lies. The last artifact before bytes.

It is plain data. Tensors, layers, blocks of constants and buffers have numbers, and refer to each other by them; a core has
a row of steps in the order in which they are issued. Each step says twice what it does:

- without any instruction set: a load brings bytes of tensor 0 to buffer 3; a computation makes rows 0 to 16 of layer 2, tile 1
  of group 0, of the buffers 3 and 1. That is enough for a code generator of another machine;
- as instructions of npuc's own machine, typed, with what each waits for. `npuc.codegen.encode` makes bytes of them and
  knows nothing else.

`npuc.schedule.listing` prints a schedule, reads it back and compares two.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from npuc.program.instruction import Place, TypedInstruction, packer
from npuc.program.instructions import BY_OPCODE, Barrier
from npuc.program.isa import HEAD, QUEUES
from npuc.program.model import Allocation
from npuc.schedule.decisions import Group, ScheduleDecisions
from npuc.schedule.layers import LayerOp, Rows, Tensor, Tile
from npuc.schedule.moves import Block
from npuc.schedule.network import Network
from npuc.schedule.scheduled import Scheduled
from npuc.schedule.steps import Buffer, Compute, ConstantSlice, Fence, Load, Store
from npuc.target import Target

BUFFER = "buffer"
"""What the instruction of a transfer calls its side in local memory."""


@dataclass(frozen=True)
class ScheduledTensor:
    """A tensor of the network."""

    name: str
    shape: tuple[int, ...]
    order: tuple[int, ...]
    """Its axes from the outermost in memory to the innermost."""
    dtype: str
    scale: float = 0.0
    zero_point: int = 0
    view_of: int = -1
    """The tensor whose bytes it shows under another shape; -1: it has bytes of its own."""
    segment: int = -1
    """Where it is in DRAM, or in shared memory: a segment of the program, and a byte of it. -1: in local memory only."""
    offset: int = 0


@dataclass(frozen=True)
class ScheduledLayer:
    """A layer of the network."""

    name: str
    kind: str
    inputs: tuple[int, ...]
    """Tensors."""
    outputs: tuple[int, ...]
    op: LayerOp | None = field(default=None, compare=False, repr=False)
    """What it computes, with all of its arithmetic and constants; None in a schedule that was read from a file."""


@dataclass(frozen=True)
class ConstantBlock:
    """The constants of a layer for some channels, as they are streamed from DRAM."""

    layer: int
    channels: Rows
    offset: int
    """Byte of segment 0."""
    size: int
    """Bytes in local memory."""
    stored: int = 0
    """Bytes in DRAM if it is compressed there; 0: as many as in local memory."""


@dataclass(frozen=True)
class LocalBuffer:
    """An object in the local memory of a core."""

    name: str
    address: int
    size: int
    rows: Rows
    """The rows of a tensor that it holds; (0, 0) if it is no part of one."""
    first: int
    """The first instruction of its core that touches it."""
    last: int


@dataclass(frozen=True, slots=True)
class Issued:
    """An instruction in the place where it is issued. Its addresses name operands of its step."""

    instruction: TypedInstruction
    wait: tuple[int, ...]
    """What the semaphores of the queues have to have reached before it starts."""
    flags: int = 0
    among: str = "load"
    """The queue of an instruction that any queue can have: a barrier."""

    @property
    def queue(self) -> str:
        """The queue that it is issued to."""
        return self.among if self.instruction.queue == "any" else self.instruction.queue


@dataclass(frozen=True)
class LoadStep:
    """Bytes of a tensor or of constants come to a buffer."""

    layer: int
    tile_number: int
    tensor: int
    """-1: it is a block of constants."""
    constants: int
    """-1: it is a tensor."""
    source: int
    """The first byte of it."""
    buffer: int
    offset: int
    """The first byte of the buffer."""
    size: int
    """Bytes of the buffer from the first to the last, also where a block leaves some of them out."""
    block: Block | None
    """Sizes and strides if it is not dense."""
    multicast: bool
    instructions: tuple[Issued, ...]


@dataclass(frozen=True)
class StoreStep:
    """Bytes of a buffer go to a tensor."""

    layer: int
    tile_number: int
    tensor: int
    target: int
    """The first byte of the tensor."""
    buffer: int
    offset: int
    size: int
    block: Block | None
    instructions: tuple[Issued, ...]


@dataclass(frozen=True)
class ComputeStep:
    """Some rows and channels of a layer's result are made."""

    layer: int
    tile_number: int
    """Which of the tiles of its group."""
    tile: Tile | None
    """The rows and channels; None: rows at the seam of two tiles are copied aside, or a block of a tensor that goes from DRAM to
    DRAM is turned on its way."""
    operands: Mapping[str, int]
    """Buffers by the names that instructions have for them: `in0`, `out0`, `const`, `scratch` and so on."""
    instructions: tuple[Issued, ...]


@dataclass(frozen=True)
class BarrierStep:
    """Cores wait for each other: all have stored what they made before."""

    number: int
    instructions: tuple[Issued, ...]
    layer: int = 0
    """It is charged to the first layer."""


Step = LoadStep | StoreStep | ComputeStep | BarrierStep


@dataclass(frozen=True)
class CoreSchedule:
    """What one core does."""

    buffers: tuple[LocalBuffer, ...]
    steps: tuple[Step, ...]
    """In the order in which they are issued."""

    def instructions(self) -> Iterator[tuple[Step, Issued]]:
        """Every instruction in order, with its step."""
        for step in self.steps:
            for issued in step.instructions:
                yield step, issued

    def address(self, step: Step, place: Place) -> int:
        """The byte of local memory that an operand of a step means."""
        number = step.operands[place.slot] if isinstance(step, ComputeStep) else _buffer_of(step)
        return self.buffers[number].address + place.offset


@dataclass(frozen=True)
class Schedule:
    """How a network runs on a machine."""

    name: str
    """Of the subgraph."""
    target: str
    fingerprint: str
    """Of the target."""
    first_layer: int
    """The number of its layer 0 in the layer table of the program."""
    workspace: int
    """Bytes of segment 1 that it needs."""
    tensors: tuple[ScheduledTensor, ...]
    layers: tuple[ScheduledLayer, ...]
    constants: tuple[ConstantBlock, ...]
    """In the order in which they are streamed."""
    schedule_decisions: ScheduleDecisions
    """The decisions: groups, tiles and the like."""
    cores: tuple[CoreSchedule, ...]
    search: Scheduled | None = field(default=None, compare=False, repr=False)
    """What the search knows beside; None in a schedule that was read from a file."""
    cached: bool = field(default=False, compare=False)
    """Whether its decisions came from the cache."""

    @property
    def groups(self) -> tuple[Group, ...]:
        """Groups of layers in order."""
        return self.schedule_decisions.decisions.groups

    @cached_property
    def memory(self) -> int:
        """Bytes of local memory that a core needs: up to the highest in use."""
        ends = (buffer.address + buffer.size for core in self.cores for buffer in core.buffers)
        return max(ends, default=0)

    @property
    def allocations(self) -> tuple[Allocation, ...]:
        """What lies where in local memory, from the first instruction that touches it to the last."""
        return tuple(
            Allocation(buffer.name, number, buffer.address, buffer.size, buffer.first, buffer.last)
            for number, core in enumerate(self.cores)
            for buffer in core.buffers
        )


def _buffer_of(step: Step) -> int:
    assert isinstance(step, LoadStep | StoreStep)
    return step.buffer


def schedule_of(name: str, network: Network, target: Target, scheduled: Scheduled, cached: bool) -> Schedule:
    """The schedule that a search settled on, as plain data."""
    dram = scheduled.unplaced.dram
    tensors: dict[Tensor, int] = {}
    for tensor in _tensors(network, scheduled):
        tensors.setdefault(tensor, len(tensors))
    blocks = {key: number for number, key in enumerate(dram.constants)}
    return Schedule(
        name=name,
        target=target.name,
        fingerprint=target.fingerprint_text,
        first_layer=scheduled.unplaced.first_layer,
        workspace=scheduled.workspace,
        tensors=tuple(_tensor(tensor, tensors, dram.tensors) for tensor in tensors),
        layers=tuple(
            ScheduledLayer(
                layer.name,
                layer.kind,
                tuple(tensors[tensor] for tensor in layer.inputs),
                tuple(tensors[tensor] for tensor in layer.outputs),
                layer.op,
            )
            for layer in network.layers
        ),
        constants=tuple(
            ConstantBlock(
                layer,
                channels,
                offset,
                network.layers[layer].constant_size(channels),
                dram.stored.get((layer, channels), 0),
            )
            for (layer, channels), offset in dram.constants.items()
        ),
        schedule_decisions=scheduled.schedule_decisions,
        cores=tuple(_core(scheduled, core, tensors, blocks) for core in range(len(scheduled.works))),
        search=scheduled,
        cached=cached,
    )


def _tensors(network: Network, scheduled: Scheduled) -> Iterator[Tensor]:
    """All tensors that are met, inputs first, each behind the one that it is a view of."""
    ends = [*network.inputs, *network.outputs]
    inside = [tensor for layer in network.layers for tensor in (*layer.inputs, *layer.outputs)]
    for tensor in (*network.inputs, *inside, *ends, *scheduled.unplaced.dram.tensors):
        chain = [tensor]
        while chain[-1].view_of is not None:
            chain.append(chain[-1].view_of)
        yield from reversed(chain)


def _tensor(
    tensor: Tensor, numbers: Mapping[Tensor, int], places: Mapping[Tensor, tuple[int, int]]
) -> ScheduledTensor:
    segment, offset = places.get(tensor, (-1, 0))
    return ScheduledTensor(
        tensor.name,
        tensor.shape,
        tensor.order,
        tensor.dtype,
        tensor.scale,
        tensor.zero_point,
        -1 if tensor.view_of is None else numbers[tensor.view_of],
        segment,
        offset,
    )


_HEAD_SIZE = sum(np.dtype(part.type).itemsize * part.count for part in HEAD)
_HEAD_NUMBERS = sum(part.count for part in HEAD)


def _core(
    scheduled: Scheduled,
    core: int,
    tensors: Mapping[Tensor, int],
    blocks: Mapping[tuple[int, Rows], int],
) -> CoreSchedule:
    work, spans, addresses = scheduled.works[core], scheduled.spans[core], scheduled.addresses[core]
    stream = scheduled.streams[core]
    buffers = {buffer: number for number, buffer in enumerate(spans.buffers)}
    heads = np.ascontiguousarray(stream[:, :_HEAD_SIZE])
    waits = heads[:, _HEAD_SIZE - 4 * len(QUEUES) :].copy().view("<u4").tolist()
    flags = heads[:, 2:4].copy().view("<u2").reshape(-1).tolist()

    def issued(at: int, instruction: TypedInstruction) -> Issued:
        return Issued(instruction, tuple(waits[at]), flags[at])

    def transfer(at: int, buffer: Buffer) -> tuple[Issued, ...]:
        kind = BY_OPCODE[stream[at, 0]]
        numbers = list(packer(kind.name).unpack(stream[at])[_HEAD_NUMBERS:])
        (local,) = kind.addresses
        numbers[local] = Place(BUFFER, numbers[local] - addresses[buffer])
        return (issued(at, kind.of(numbers)),)

    def in_place(at: int, instruction: TypedInstruction) -> TypedInstruction:
        """An instruction with its bytes of DRAM."""
        if not instruction.far_addresses:
            return instruction
        numbers = instruction.numbers()
        encoded = packer(instruction.name).unpack(stream[at])[_HEAD_NUMBERS:]
        for pair in instruction.far_addresses:
            for place in pair:
                numbers[place] = encoded[place]
        return type(instruction).of(numbers)

    def load(entry: Load | Fence, at: int) -> Step:
        if isinstance(entry, Fence):
            meets = replace(issued(at, Barrier(entry.number)), among=QUEUES[stream[at, 1]])
            return BarrierStep(entry.number, (meets,))
        tensor, block = -1, -1
        if isinstance(entry.source, ConstantSlice):
            block = blocks[entry.source.layer, entry.source.channels]
        else:
            tensor = tensors[entry.source]
        return LoadStep(
            entry.layer, entry.tile_number, tensor, block, entry.at, buffers[entry.buffer], entry.offset, entry.size, entry.block,
            entry.multicast, transfer(at, entry.buffer),
        )  # fmt: skip

    def compute_or_store(step: Compute | Store, first: int) -> Step:
        if isinstance(step, Store):
            return StoreStep(
                step.layer, step.tile_number, tensors[step.tensor], step.at, buffers[step.buffer], step.offset, step.size,
                step.block, transfer(first, step.buffer),
            )  # fmt: skip
        operands = {slot: buffers[buffer] for slot, buffer in step.slots.items() if buffer in buffers}
        instructions = tuple(
            issued(first + i, in_place(first + i, template.instruction))
            for i, template in enumerate(step.templates)
        )
        return ComputeStep(step.layer, step.tile_number, step.tile, operands, instructions)

    # A load whose buffer has no address is not issued: nothing reads what it would bring.
    loads = sorted(
        (
            (at, entry)
            for entry, at in zip(work.loads, spans.loads, strict=True)
            if isinstance(entry, Fence) or entry.buffer in addresses
        ),
        key=lambda pair: pair[0],
    )
    steps: list[Step] = []
    pending = 0
    for step, (first, _) in zip(work.steps, spans.steps, strict=True):
        while pending < len(loads) and loads[pending][0] < first:
            steps.append(load(loads[pending][1], loads[pending][0]))
            pending += 1
        steps.append(compute_or_store(step, first))
    steps += [load(entry, at) for at, entry in loads[pending:]]
    return CoreSchedule(
        tuple(
            LocalBuffer(buffer.name, addresses[buffer], buffer.size, buffer.rows, low, high)
            for buffer, (low, high) in spans.buffers.items()
        ),
        tuple(steps),
    )
