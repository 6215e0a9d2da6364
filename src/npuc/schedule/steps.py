"""Work: the tiles, loads and stores of a network in the order in which they are issued.

Everything that takes local memory is a `Buffer`: a tensor, some rows of one, the constants of a tile, scratch. A step
says which bytes of which buffers it touches; addresses come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from npuc.arrays import ceil_div
from npuc.schedule.layers import BLOCK, InstructionTemplate, Rows, Tensor, Tile
from npuc.schedule.moves import Block


@dataclass(eq=False)
class Buffer:
    """An object in local memory."""

    name: str
    size: int
    rows: Rows = (0, 0)
    """The rows of the tensor that it holds; none if it is no part of a tensor."""
    first: int = -1
    """The first step that touches it, and the last."""
    last: int = -1
    is_made: bool = False
    """Steps write to it before any load does."""

    def touch(self, step: int) -> None:
        """A step uses it."""
        self.first = step if self.first < 0 else min(self.first, step)
        self.last = max(self.last, step)


@dataclass(frozen=True, eq=False)
class ConstantSlice:
    """The constants of a layer for some output channels: one block in the weights."""

    layer: int
    channels: Rows


@dataclass(frozen=True, eq=False)
class Compute:
    """A tile of a layer."""

    layer: int
    templates: tuple[InstructionTemplate, ...]
    slots: dict[str, Buffer]
    """Operands, results, constants and scratch memory by the names that templates have for them."""
    tile: Tile | None = None
    """What it makes; None for a block that is turned on its way from DRAM to DRAM."""
    tile_number: int = 0
    """The tile of its group that it belongs to."""
    far: Mapping[str, Tensor] = field(default_factory=dict)
    """Operands and results in DRAM, of a layer that works there, by the same names."""


@dataclass(frozen=True, eq=False)
class Store:
    """Bytes of a buffer to a tensor in DRAM; both sides are dense."""

    layer: int
    buffer: Buffer
    offset: int
    size: int
    tensor: Tensor
    at: int
    """Byte of the tensor."""
    block: Block | None = None
    """How it is spread, if it is not dense."""
    tile_number: int = 0


@dataclass(eq=False)
class Load:
    """Bytes of a tensor or of constants from DRAM to a buffer."""

    layer: int
    buffer: Buffer
    offset: int
    size: int
    source: Tensor | ConstantSlice
    at: int
    need: int
    """The step that needs it."""
    ready: int = 0
    """The step before which what it loads is not in DRAM yet."""
    issue: int = -1
    """The step before which it is issued."""
    block: Block | None = None
    """How it is spread, if it is not dense."""
    multicast: bool = False
    """All cores load the same at the same time."""
    tile_number: int = 0
    """The tile of its group that needs it first."""
    segment: int = 0
    """How many barriers of its queue it is behind."""
    least_segment: int = 0
    """How many it has to be behind, so that it does not hold up what is needed earlier."""

    @property
    def is_constant(self) -> bool:
        """Whether it brings constants, which are in DRAM from the start: no barrier has to be waited for."""
        return isinstance(self.source, ConstantSlice)


@dataclass(eq=False)
class Fence:
    """A barrier among the loads: no load behind it before all cores have stored what they made before it."""

    number: int
    issue: int
    segment: int = 0
    """How many barriers of its queue stand up to it."""


Step = Compute | Store


@dataclass
class Work:
    """All there is to do."""

    steps: list[Step] = field(default_factory=list)
    loads: list[Load | Fence] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    spilled: dict[Tensor, tuple[int, int]] = field(default_factory=dict)
    """Tensors that are in DRAM on the way, with the first and last step that touches them there."""
    stored: dict[Tensor, int] = field(default_factory=dict)
    """Tensor to the step behind its last store so far."""
    workspaces: dict[Tensor, int] = field(default_factory=dict)
    """Bytes of DRAM that layers need beside their tensors, as tensors, to the layer."""

    alignment: int = BLOCK
    """Bytes: every object in local memory begins at a multiple."""
    runs_ahead: bool = False
    """Whether constants may come before barriers that stand before them in `loads`: those are in the order of need."""
    times: list[float] = field(default_factory=list)
    """Of such work, the cycle in which each step begins if no engine ever waits."""
    rate: float = 1.0
    """Of such work, bytes a cycle of DRAM."""
    patience: int = 0
    """Of such work, cycles that tensors behind a barrier may wait for constants."""
    made_at: dict[int, dict[Buffer, int]] = field(default_factory=dict)
    """Bytes of memory to where the objects that steps make lie in it: that does not depend on when loads come."""

    def buffer(self, name: str, size: int, rows: Rows = (0, 0)) -> Buffer:
        """A new object in local memory."""
        created = Buffer(name, size, rows)
        self.buffers.append(created)
        return created

    def queue(self) -> list[int]:
        """The places in `loads` in the order in which they are issued."""
        order = range(len(self.loads))
        if not self.runs_ahead:
            return list(order)

        def place(number: int) -> tuple[int, bool, int]:
            load = self.loads[number]
            return load.segment, isinstance(load, Load), load.issue

        return sorted(order, key=place)

    def room_for(self, buffer: Buffer) -> int:
        """Bytes from the beginning of an object to where the next one may begin."""
        return ceil_div(buffer.size, self.alignment) * self.alignment
