"""From decisions to work: the tiles, loads and stores of a network in the order in which they are issued.

Everything that takes local memory is a `Buffer`: a tensor, some rows of one, the constants of a tile, scratch. A step
says which bytes of which buffers it touches; addresses come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod

from npuc.arrays import ceil_div
from npuc.program.instruction import Place
from npuc.program.instructions import Copy
from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import BLOCK, InstructionTemplate, Layer, Rows, Tensor, Tile
from npuc.schedule.moves import Block, copies_of, moves
from npuc.schedule.regions import Operand, TileLayer, region_tile, span_of
from npuc.schedule.spread import Spread, tiles_of
from npuc.schedule.tiler import Tiler
from npuc.schedule.turns import rows_in_one

_LOAD_PARTS = 8
"""A whole tensor comes in so many parts, so that work can begin with the first."""


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


def build(
    grouping: Grouping, decisions: Decisions, core: int = 0, cores: int = 1, spread: Spread | None = None
) -> Work:
    """The work of a network on one of several cores; `spread` is the same for all of them."""
    return _Builder(grouping, decisions, core, cores, spread or Spread(grouping, decisions, cores)).run()


class _Builder:
    def __init__(
        self, grouping: Grouping, decisions: Decisions, core: int, cores: int, spread: Spread
    ) -> None:
        self.grouping, self.decisions, self.spread = grouping, decisions, spread
        self.core, self.cores = core, cores
        self.network = grouping.network
        self.tiler: Tiler = grouping.tiler
        # What instructions wait for is known by blocks: objects never share one, however small the target's alignment.
        self.work = Work(alignment=max(BLOCK, int(self.tiler.costs.target.memory.local.alignment)))
        self.outputs = set(self.network.stored_results)
        self.inputs = {tensor.storage for tensor in self.network.inputs}
        self.whole: dict[Tensor, Buffer] = {}
        """Tensors that are whole in local memory now."""
        self.part: dict[Tensor, Buffer] = {}
        """Tensors that are spread over cores: the rows of this one."""
        self.complete: set[Tensor] = set()
        """Those of them whose other rows have been loaded."""
        self.group_of = decisions.group_of
        self.tile_number = 0
        """The tile of the group that is at work."""

    def run(self) -> Work:
        for number, group in enumerate(self.decisions.groups):
            ahead = self._ahead(group) if self.cores > 1 else {}
            if self.cores > 1 and number:
                self.work.loads.append(Fence(number, len(self.work.steps)))
            if group.by_channels:
                self._by_channels(group.first)
            elif self._is_shared_out(group):
                self._tiled(number, group, ahead)
            elif self.core == 0:
                self._on_one(number, group)
            self._leave(group.last)
        return self.work

    def _is_shared_out(self, group: Group) -> bool:
        return self.cores > 1 and group.tile_count > 1 and not group.alone

    def _on_one(self, number: int, group: Group) -> None:
        if group.moved and self.network.layers[group.first].op.in_dram:
            self._in_dram(group.first)
        elif group.moved:
            self._moved(group.first)
        elif group.tile_count == 1:
            for index in range(group.first, group.last):
                self._whole(index)
        else:
            self._tiled(number, group, {})

    def _ahead(self, group: Group) -> dict[tuple[int, Rows], Buffer | None]:
        """Constants that all cores need can come before the barrier; they do not if a core has no tile of the group."""
        if not self._is_shared_out(group) or group.has_regions or group.tile_count < self.cores:
            return {}
        return {
            (index, channels): self._constants(index, channels, multicast=True)
            for index in range(group.first, group.last)
            for channels in self.tiler.channel_cuts(self.network.layers[index])
        }

    def _by_channels(self, index: int) -> None:
        """The output channels of a layer that are this core's."""
        layer = self.network.layers[index]
        lanes = self.tiler.costs.target.compute.array.output_channels
        share = ceil_div(layer.channels, self.cores * lanes) * lanes
        low, high = min(self.core * share, layer.channels), min((self.core + 1) * share, layer.channels)
        if low == high:
            return
        size = layer.constant_size((low, high))
        step = max(
            ceil_div(high - low, max(ceil_div(size, self.tiler.choices.chunk), 1) * lanes) * lanes, lanes
        )
        cuts = [(c, min(c + step, high)) for c in range(low, high, step)]
        constants = self._constants(index, cuts[0])
        operands = [self._operand(tensor.storage, index) for tensor in layer.inputs]
        y = layer.outputs[0]
        result = self.work.buffer(y.name, y.size, (0, y.rows))
        for cut in cuts:
            if cut != cuts[0]:
                constants = self._constants(index, cut)
            self._tile(index, (0, y.rows), cut, operands, [result], constants, None)
        step_number = len(self.work.steps)
        pixel = y.shape[1] if len(y.shape) == 4 else y.shape[-1]
        pixels = y.size // (pixel * y.itemsize)
        stride, run = pixel * y.itemsize, (high - low) * y.itemsize
        block = Block((1, 1, pixels, run), (0, 0, stride), (0, 0, stride))
        start = low * y.itemsize
        self.work.steps.append(Store(index, result, start, (pixels - 1) * stride + run, y, start, block))
        result.touch(step_number)
        self.work.stored[y] = step_number + 1
        self._spill(y, step_number)

    def _leave(self, cut: int) -> None:
        """Forget the tensors that do not stay in local memory behind a cut."""
        number = self.group_of[cut - 1]
        stays = number < len(self.decisions.resident) and self.decisions.resident[number]
        for tensor in list(self.whole):
            later = any(use >= cut for use in self.grouping.uses.get(tensor, ()))
            if not (stays and later) or self.grouping.is_spilled(tensor, cut):
                del self.whole[tensor]

    def _needed_in_dram(self, tensor: Tensor) -> bool:
        """Whether a reader comes after the tensor has left local memory, or it is a result."""
        if tensor in self.outputs:
            return True
        return any(not self._stays(tensor, use) for use in self.grouping.uses.get(tensor, ()))

    def _stays(self, tensor: Tensor, use: int) -> bool:
        """Whether a reader finds a tensor in local memory."""
        producer = self.grouping.producers[tensor]
        first, last = self.group_of[producer] if producer >= 0 else -1, self.group_of[use]
        if producer < 0:
            return False
        if first == last:
            return True
        if self.cores > 1:
            return self.spread.finds(tensor, use)
        for number in range(first, last):
            cut = self.decisions.groups[number].last
            if not self.decisions.resident[number] or self.grouping.is_spilled(tensor, cut):
                return False
        return True

    # Whole layers

    def _whole(self, index: int) -> None:
        layer = self.network.layers[index]
        if layer.sums:
            self._summed(index)
            return
        channel_cuts = self.tiler.channel_cuts(layer)
        # The constants of the first tile come before the operands: work begins with the first rows of those.
        constants = self._constants(index, channel_cuts[0])
        arriving = any(tensor.storage not in self.whole for tensor in layer.inputs)
        operands = [self._operand(tensor.storage, index) for tensor in layer.inputs]
        results = [self._result(layer, position, index) for position in range(len(layer.outputs))]
        rows = self.tiler.whole(layer)
        parts = _LOAD_PARTS if arriving else None
        row_cuts = self.tiler.row_cuts(layer, rows, parts) if len(channel_cuts) == 1 else [rows]
        scratch = self._scratch(layer, rows)
        for channels in channel_cuts:
            if channels != channel_cuts[0]:
                constants = self._constants(index, channels)
            for part in row_cuts:
                self._tile(index, part, channels, operands, results, constants, scratch)
                if len(channel_cuts) == 1 and len(layer.outputs) == 1:
                    self._store(index, layer.outputs[0], results[0], part)
        if len(channel_cuts) > 1 or len(layer.outputs) > 1:
            for tensor, buffer in zip(layer.outputs, results, strict=True):
                self._store(index, tensor, buffer, (0, tensor.rows))

    def _summed(self, index: int) -> None:
        """Parts of the input channels, which come with their weights, one after the other."""
        layer = self.network.layers[index]
        x = layer.inputs[0].storage
        sums = before = None
        for low, high in self.tiler.channel_cuts(layer):
            constants = self._constants(index, (low, high))
            operand = self.whole.get(x)
            if operand is None:
                size = (high - low) * x.itemsize
                operand = self.work.buffer(f"{x.name}[{low}:{high}]", size, (low, high))
                self._load(index, x, operand, 0, size, low * x.itemsize)
            if high == layer.channels:
                results = [self._result(layer, 0, index)]
            else:
                sums = self.work.buffer(f"{layer.name}/sums[:{high}]", layer.sum_size)
                results = []
            more = {"before": before, "after": None if results else sums}
            self._tile(index, (0, 1), (low, high), [operand], results, constants, None, more)
            before = sums
        self._store(index, layer.outputs[0], results[0], (0, layer.outputs[0].rows))

    def _operand(self, tensor: Tensor, index: int) -> Buffer:
        """A tensor whole in local memory, loaded if it is not there."""
        if tensor not in self.whole:
            buffer = self.work.buffer(tensor.name, tensor.size, (0, tensor.rows))
            self.whole[tensor] = buffer
            parts = min(_LOAD_PARTS, tensor.rows)
            for part in range(parts):
                low, high = tensor.rows * part // parts, tensor.rows * (part + 1) // parts
                self._load_rows(index, tensor, buffer, (low, high))
        return self.whole[tensor]

    def _load_turned(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        """Rows of a permuted tensor, from the operand of the permute."""
        turn, step = self.grouping.turns[index], len(self.work.steps)
        ready = self.work.stored.get(turn.source, 0)
        for at, offset, block in turn.blocks(rows):
            offset += (rows[0] - buffer.rows[0]) * tensor.row_size
            size = prod(block.size)
            self.work.loads.append(
                Load(
                    index,
                    buffer,
                    offset,
                    size,
                    turn.source,
                    at,
                    step,
                    ready,
                    block=block,
                    tile_number=self.tile_number,
                )
            )
        self._spill(turn.source, step)

    def _load_rows(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        offset = (rows[0] - buffer.rows[0]) * tensor.row_size
        size = (rows[1] - rows[0]) * tensor.row_size
        self._load(index, tensor, buffer, offset, size, rows[0] * tensor.row_size)

    def _load(self, index: int, tensor: Tensor, buffer: Buffer, offset: int, size: int, at: int) -> None:
        step = len(self.work.steps)
        ready = self.work.stored.get(tensor, 0)
        self.work.loads.append(
            Load(index, buffer, offset, size, tensor, at, step, ready, tile_number=self.tile_number)
        )
        self._spill(tensor, step)

    def _spill(self, tensor: Tensor, step: int) -> None:
        if tensor not in self.inputs and tensor not in self.outputs:
            first, last = self.work.spilled.get(tensor, (step, step))
            self.work.spilled[tensor] = min(first, step), max(last, step)

    def _result(self, layer: Layer, position: int, index: int) -> Buffer:
        tensor = layer.outputs[position]
        for operand in layer.in_place if position == 0 else ():
            source = layer.inputs[operand].storage
            if (
                source in self.whole
                and layer.inputs[operand].view_of is None
                and self.grouping.dies(source, index)
                and not self._needed_in_dram(source)
            ):
                buffer = self.whole.pop(source)
                self.whole[tensor] = buffer
                return buffer
        buffer = self.work.buffer(tensor.name, tensor.size, (0, tensor.rows))
        self.whole[tensor] = buffer
        return buffer

    def _scratch(self, layer: Layer, rows: Rows) -> Buffer | None:
        size = layer.scratch(rows)
        return self.work.buffer(f"{layer.name}/scratch", size) if size else None

    def _constants(self, index: int, channels: Rows, multicast: bool = False) -> Buffer | None:
        layer = self.network.layers[index]
        size = layer.constant_size(channels)
        if not size:
            return None
        suffix = f"[{channels[0]}:{channels[1]}]" if layer.channels else ""
        buffer = self.work.buffer(f"{layer.name}/constants{suffix}", size)
        self.work.loads.append(
            Load(
                index, buffer, 0, size, ConstantSlice(index, channels), 0, len(self.work.steps), multicast=multicast,
                tile_number=self.tile_number,
            )
        )  # fmt: skip
        return buffer

    def _tile(
        self,
        index: int,
        rows: Rows,
        channels: Rows,
        operands: list[Buffer],
        results: list[Buffer],
        constants: Buffer | None,
        scratch: Buffer | None,
        more: Mapping[str, Buffer | None] | None = None,
    ) -> None:
        layer = self.network.layers[index]
        output = results[0].rows if results else rows
        inputs = tuple(buffer.rows for buffer in operands)
        if not layer.sums:
            inputs = tuple(map(self._rows_in, layer.inputs, inputs))
        tile = Tile(rows, channels, inputs, output)
        slots = {f"in{i}": buffer for i, buffer in enumerate(operands)}
        slots |= {f"out{i}": buffer for i, buffer in enumerate(results)}
        for name, buffer in {"const": constants, "scratch": scratch, **(more or {})}.items():
            if buffer is not None:
                slots[name] = buffer
        step = len(self.work.steps)
        self.work.steps.append(Compute(index, tuple(layer.templates(tile)), slots, tile, self.tile_number))
        for buffer in slots.values():
            buffer.touch(step)

    def _rows_in(self, tensor: Tensor, rows: Rows) -> Rows:
        """Rows of the storage of an operand as the rows of the operand that the layer knows."""
        if tensor.view_of is None or self.grouping.producers[tensor.storage] not in self.grouping.turns:
            return rows
        each = rows_in_one(tensor)
        return (rows[0] // each, rows[1] // each) if each else rows

    def _store(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        if self._needed_in_dram(tensor):
            self._store_rows(index, tensor, buffer, rows)

    def _store_rows(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        step = len(self.work.steps)
        offset = (rows[0] - buffer.rows[0]) * tensor.row_size
        size = (rows[1] - rows[0]) * tensor.row_size
        self.work.steps.append(
            Store(
                index, buffer, offset, size, tensor, rows[0] * tensor.row_size, tile_number=self.tile_number
            )
        )
        buffer.touch(step)
        self.work.stored[tensor] = step + 1
        self._spill(tensor, step)

    # Layers that work in DRAM

    def _in_dram(self, index: int) -> None:
        layer = self.network.layers[index]
        tile = self.tiler.tile(layer, self.tiler.whole(layer), (0, 0))
        local = {"const": self._constants(index, (0, 0)), "scratch": self._scratch(layer, tile.rows)}
        slots = {name: buffer for name, buffer in local.items() if buffer is not None}
        far = {f"in{i}": tensor.storage for i, tensor in enumerate(layer.inputs)}
        far |= {f"out{i}": tensor for i, tensor in enumerate(layer.outputs)}
        if layer.op.workspace:
            far["workspace"] = Tensor(f"{layer.name}/workspace", (layer.op.workspace,), "u8", 1)
            self.work.workspaces[far["workspace"]] = index
        step = len(self.work.steps)
        self.work.steps.append(Compute(index, tuple(layer.templates(tile)), slots, tile, far=far))
        for buffer in slots.values():
            buffer.touch(step)
        for tensor in far.values():
            self._spill(tensor, step)
        for tensor in layer.outputs:
            self.work.stored[tensor] = step + 1

    # Blocks

    def _moved(self, index: int) -> None:
        layer = self.network.layers[index]
        copies = copies_of(layer)
        assert copies is not None
        y = layer.outputs[0]
        for number, move in enumerate(moves(copies, self.grouping.capacity // 8)):
            tensor = layer.inputs[move.operand].storage
            step = len(self.work.steps)
            first = self.work.buffer(f"{y.name}/block{number}", move.bytes)
            ready = self.work.stored.get(tensor, 0)
            self.work.loads.append(
                Load(index, first, 0, move.bytes, tensor, move.source, step, ready, block=move.load)
            )
            self._spill(tensor, step)
            last = first
            if move.turn is not None:
                last = self.work.buffer(f"{y.name}/turned{number}", move.bytes)
                self.work.steps.append(Compute(index, (move.turn,), {"in0": first, "out0": last}))
                first.touch(step)
                last.touch(step)
            step = len(self.work.steps)
            self.work.steps.append(Store(index, last, 0, move.bytes, y, move.target, move.store))
            last.touch(step)
            self.work.stored[y] = step + 1
            self._spill(y, step)

    # Tiles

    def _tiled(self, number: int, group: Group, ahead: dict[tuple[int, Rows], Buffer | None]) -> None:
        if group.has_regions:
            self._regions(group)
            return
        layers = self.network.layers
        resident_out = number < len(self.decisions.resident) and self.decisions.resident[number]
        constants: dict[tuple[int, Rows], Buffer | None] = dict(ahead)
        kept: dict[Tensor, Buffer] = {}
        done: dict[Tensor, int] = {}
        for tensor in (tensor for layer in layers[group.first : group.last] for tensor in layer.outputs):
            buffer = self._kept(tensor, group, resident_out)
            if buffer is not None:
                kept[tensor], done[tensor] = buffer, 0
        seams: dict[Tensor, Buffer] = {}
        leaving: list[Buffer] = []
        share = self._share_of(group)
        for tile in share:
            self.tile_number = tile
            behind = group.keeps_seams and tile > share.start
            rows = self.grouping.tile_rows(group.first, group.last, group.tiles, tile, behind)
            assert rows is not None
            here: dict[Tensor, Buffer] = {}
            before, seams = seams, {}
            away: list[Buffer] = []
            keep = {}
            if group.keeps_seams and tile + 1 in share:
                keep = self.grouping.seam(group.first, group.last, group.tiles, tile)
            for index in range(group.first, group.last):
                if self.grouping.is_loaded(index, group.first, group.last):
                    continue
                layer = layers[index]
                operands = []
                for tensor in layer.inputs:
                    storage = tensor.storage
                    operands.append(self._tile_operand(storage, index, rows, here, kept, before))
                y = layer.outputs[0]
                needed = rows[y]
                if y in kept:
                    # Rows that an earlier tile made are still there.
                    needed = self.tiler.expanded(layer, (max(needed[0], done[y]), max(needed[1], done[y])))
                    done[y] = max(done[y], needed[1])
                    buffer = kept[y]
                else:
                    buffer = self.work.buffer(
                        f"{y.name}[{needed[0]}:{needed[1]}]", (needed[1] - needed[0]) * y.row_size, needed
                    )
                    here[y] = buffer
                    if y in before:
                        self._copy_rows(index, y, before[y], buffer)
                        needed = self.tiler.expanded(
                            layer, (before[y].rows[1], max(needed[1], before[y].rows[1]))
                        )
                if needed[0] >= needed[1]:
                    self._keep_seams(index, group, keep, here, seams)
                    continue
                scratch = self._scratch(layer, needed)
                cuts = self.tiler.channel_cuts(layer)
                for channels in cuts:
                    key = (index, channels)
                    if not group.resident_weights or key not in constants:
                        constants[key] = self._constants(index, channels)
                    self._tile(index, needed, channels, operands, [buffer], constants[key], scratch)
                if group.keeps_seams:
                    for stored in leaving:  # on its way out while the next tile begins
                        stored.touch(len(self.work.steps) - 1)
                    leaving = []
                own = self._own_rows(y, group, tile)
                if own is not None and group.keeps_seams:
                    # What is made here, as no other tile makes it.
                    first, last = (y.rows * end // group.tiles for end in (share.start, share.stop))
                    own = max(needed[0], first), min(needed[1], last)
                if own is not None:
                    self._store(index, y, buffer, own)
                    if y in self.part and not self._needed_in_dram(y):
                        self._exchange(index, y, buffer, own)
                    away.append(buffer)
                self._keep_seams(index, group, keep, here, seams)
            leaving = [buffer for buffer in away if buffer not in kept.values()]
        self.tile_number = 0
        if self.cores == 1:
            self.whole.update(kept)

    def _kept(self, tensor: Tensor, group: Group, resident_out: bool) -> Buffer | None:
        """An object for a result of a group that stays for later ones: whole, or with this core's rows; None if it leaves."""
        rows = 0, tensor.rows
        if self.cores > 1:
            if not self.spread.stays(tensor):
                return None
            rows = self.spread.tensor(tensor).held[self.core]
        else:
            crosses = any(use >= group.last for use in self.grouping.uses.get(tensor, ()))
            if not (crosses and resident_out) or self.grouping.is_spilled(tensor, group.last):
                return None
        name = tensor.name if rows == (0, tensor.rows) else f"{tensor.name}[{rows[0]}:{rows[1]}]"
        buffer = self.work.buffer(name, (rows[1] - rows[0]) * tensor.row_size, rows)
        if self.cores > 1:
            buffer.is_made = True
            self.part[tensor] = buffer
        return buffer

    def _exchange(self, index: int, tensor: Tensor, buffer: Buffer, own: Rows) -> None:
        """Store the rows of a tile that other cores lack."""
        for low, high in self.spread.tensor(tensor).stores[self.core]:
            rows = max(low, own[0]), min(high, own[1])
            if rows[0] < rows[1]:
                self._store_rows(index, tensor, buffer, rows)

    def _keep_seams(
        self,
        index: int,
        group: Group,
        keep: Mapping[Tensor, Rows],
        here: Mapping[Tensor, Buffer],
        seams: dict[Tensor, Buffer],
    ) -> None:
        """Put rows for the next tile aside, of operands of a layer that no later one of the group reads."""
        for tensor in dict.fromkeys(tensor.storage for tensor in self.network.layers[index].inputs):
            last = max(use for use in self.grouping.uses[tensor] if use < group.last)
            if tensor not in keep or tensor not in here or last != index:
                continue
            low, high = keep[tensor]
            if (low, high) == here[tensor].rows:
                seams[tensor] = here[tensor]  # all of it
                continue
            name = f"{tensor.name}[{low}:{high}]/seam"
            seams[tensor] = self.work.buffer(name, (high - low) * tensor.row_size, (low, high))
            self._copy_rows(index, tensor, here[tensor], seams[tensor])

    def _copy_rows(self, index: int, tensor: Tensor, source: Buffer, target: Buffer) -> None:
        """The rows of a tensor that two buffers have, from one to the other."""
        low, high = max(source.rows[0], target.rows[0]), min(source.rows[1], target.rows[1])
        size = (high - low) * tensor.row_size
        at, to = ((low - buffer.rows[0]) * tensor.row_size for buffer in (source, target))
        count = size // tensor.itemsize
        sizes, strides = (1, 1, 1, 1, 1, count), (0, 0, 0, 0, 0, 1)
        copy = Copy(Place("from", at), Place("to", to), tensor.itemsize, sizes, strides, strides)
        template = InstructionTemplate(copy, (("from", at, at + size),), (("to", to, to + size),))
        step = len(self.work.steps)
        slots = {"from": source, "to": target}
        self.work.steps.append(Compute(index, (template,), slots, tile_number=self.tile_number))
        for buffer in slots.values():
            buffer.touch(step)

    def _share_of(self, group: Group) -> range:
        """The tiles of a group that this core computes."""
        return (
            tiles_of(group, self.core, self.cores) if self._is_shared_out(group) else range(group.tile_count)
        )

    def _regions(self, group: Group) -> None:
        """Tiles of some columns and channels, from DRAM to DRAM (`regions.py`)."""
        constants: dict[tuple[int, Rows], Buffer | None] = {}
        loaded: dict[Operand, Buffer] = {}
        together = self.tiler.choices.ahead > 1 and group.splits_channels(self.cores)
        for tile in self._share_of(group):
            self.tile_number = tile
            cut = region_tile(self.grouping, group, tile)
            computed: dict[Tensor, Buffer] = {}
            operands_before, loaded = loaded, {}
            for index, entry in enumerate(cut, group.first):
                slots: dict[str, Buffer] = {}
                for position, operand in enumerate(entry.operands):
                    buffer = (
                        computed.get(operand.tensor) or loaded.get(operand) or operands_before.get(operand)
                    )
                    if buffer is None:
                        # Cores that have channels of their own need the same of what has to be whole.
                        same = together and operand.region == operand.tensor.region
                        buffer = self._load_part(index, operand, same)
                    if operand.tensor not in computed:
                        loaded[operand] = buffer
                    slots[f"in{position}"] = buffer
                slots["out0"] = computed[entry.result.tensor] = self._part_buffer(entry.result)
                scratch = self._scratch(entry.layer, entry.result.rows)
                if scratch is not None:
                    slots["scratch"] = scratch
                for channels, whole_channels in entry.constant_cuts(self.tiler.channel_cuts(entry.layer)):
                    key = (index, whole_channels)
                    if not group.resident_weights or key not in constants:
                        constants[key] = self._constants(index, whole_channels)
                    block = constants[key]
                    self._part(index, entry, channels, slots if block is None else {**slots, "const": block})
                if entry.leaves is not None:
                    self._store_part(index, entry.leaves, entry.result, slots["out0"])
        self.tile_number = 0

    def _part_buffer(self, part: Operand) -> Buffer:
        """A part of a tensor in local memory. It has no rows of its own: a row of it is no row of the tensor."""
        tensor = part.tensor.part(part.region)
        return self.work.buffer(f"{tensor.name}[{part.rows[0]}:{part.rows[1]}]", part.size)

    def _load_part(self, index: int, part: Operand, multicast: bool = False) -> Buffer:
        buffer, span, step = self._part_buffer(part), span_of(part, part), len(self.work.steps)
        ready = self.work.stored.get(part.tensor, 0)
        self.work.loads.append(
            Load(
                index, buffer, 0, part.size, part.tensor, span.at, step, ready, block=span.block, multicast=multicast,
                tile_number=self.tile_number,
            )
        )  # fmt: skip
        self._spill(part.tensor, step)
        return buffer

    def _store_part(self, index: int, leaves: Operand, held: Operand, buffer: Buffer) -> None:
        span, step = span_of(leaves, held), len(self.work.steps)
        self.work.steps.append(
            Store(
                index, buffer, span.offset, span.size, leaves.tensor, span.at, span.block, tile_number=self.tile_number
            )
        )  # fmt: skip
        buffer.touch(step)
        self.work.stored[leaves.tensor] = step + 1
        self._spill(leaves.tensor, step)

    def _part(self, index: int, entry: TileLayer, channels: Rows, slots: dict[str, Buffer]) -> None:
        """The instructions of a part of a layer; the tile is noted in rows, columns and channels of the whole layer."""
        rows, inputs, region = (
            entry.result.rows,
            tuple(operand.rows for operand in entry.operands),
            entry.result.region,
        )
        templates = tuple(entry.layer.templates(Tile(rows, channels, inputs, rows)))
        first = region.channels[0]
        tile = Tile(rows, (first + channels[0], first + channels[1]), inputs, rows, region.columns)
        step = len(self.work.steps)
        self.work.steps.append(Compute(index, templates, slots, tile, self.tile_number))
        for buffer in slots.values():
            buffer.touch(step)

    def _own_rows(self, tensor: Tensor, group: Group, tile: int) -> Rows | None:
        """The rows of a result of a group that a tile is to store."""
        leaves = tensor in self.outputs or any(
            use >= group.last for use in self.grouping.uses.get(tensor, ())
        )
        if not leaves:
            return None
        return tensor.rows * tile // group.tiles, tensor.rows * (tile + 1) // group.tiles

    def _tile_operand(
        self,
        tensor: Tensor,
        index: int,
        rows: dict[Tensor, Rows],
        here: dict[Tensor, Buffer],
        kept: dict[Tensor, Buffer],
        before: Mapping[Tensor, Buffer],
    ) -> Buffer:
        for place in (kept, here, self.whole):
            if tensor in place:
                return place[tensor]
        if tensor in self.part and self.spread.finds(tensor, index):
            if tensor not in self.complete:
                self.complete.add(tensor)
                for lacking in self.spread.tensor(tensor).lacks[self.core]:
                    self._load_rows(index, tensor, self.part[tensor], lacking)
            return self.part[tensor]
        low, high = rows[tensor]
        if tensor in before and before[tensor].rows == (low, high):
            here[tensor] = before[tensor]
            return before[tensor]
        buffer = self.work.buffer(f"{tensor.name}[{low}:{high}]", (high - low) * tensor.row_size, (low, high))
        here[tensor] = buffer
        low = before[tensor].rows[1] if tensor in before else low
        maker = self.grouping.producers[tensor]
        if low < high and self.group_of[maker] == self.group_of[index] and maker in self.grouping.turns:
            self._load_turned(maker, tensor, buffer, (low, high))
        elif low < high:
            self._load_rows(index, tensor, buffer, (low, high))
        if tensor in before:  # behind the load, from whose issue on there is room
            self._copy_rows(index, tensor, before[tensor], buffer)
        return buffer
