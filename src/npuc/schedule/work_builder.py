"""What all ways to run a group have in common: objects in local memory, loads, tiles of a layer, stores.

A `WorkBuilder` knows what a core has in local memory while the work of a network is written down, from the first group to the
last. How the layers of a group run is said by `whole_layers.py`, `row_tiles.py`, `region_tiles.py` and `dram_layers.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import BLOCK, Layer, Rows, Tensor, Tile
from npuc.schedule.spread import Spread, tiles_of
from npuc.schedule.steps import Buffer, Compute, ConstantSlice, Load, Store, Work
from npuc.schedule.tiler import Tiler
from npuc.schedule.turns import rows_in_one

LOAD_PARTS = 8
"""A whole tensor comes in so many parts, so that work can begin with the first."""


class WorkBuilder:
    """The work of one core so far, and what is in its local memory now."""

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

    def is_shared_out(self, group: Group) -> bool:
        """Whether the tiles of a group are shared out among the cores."""
        return self.cores > 1 and group.tile_count > 1 and not group.alone

    def leave(self, cut: int) -> None:
        """Forget the tensors that do not stay in local memory behind a cut."""
        number = self.group_of[cut - 1]
        stays = number < len(self.decisions.resident) and self.decisions.resident[number]
        for tensor in list(self.whole):
            later = any(use >= cut for use in self.grouping.uses.get(tensor, ()))
            if not (stays and later) or self.grouping.is_spilled(tensor, cut):
                del self.whole[tensor]

    def needed_in_dram(self, tensor: Tensor) -> bool:
        """Whether a reader comes after the tensor has left local memory, or it is a result."""
        if tensor in self.outputs:
            return True
        return any(not self.stays(tensor, use) for use in self.grouping.uses.get(tensor, ()))

    def stays(self, tensor: Tensor, use: int) -> bool:
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

    def operand(self, tensor: Tensor, index: int) -> Buffer:
        """A tensor whole in local memory, loaded if it is not there."""
        if tensor not in self.whole:
            buffer = self.work.buffer(tensor.name, tensor.size, (0, tensor.rows))
            self.whole[tensor] = buffer
            parts = min(LOAD_PARTS, tensor.rows)
            for part in range(parts):
                low, high = tensor.rows * part // parts, tensor.rows * (part + 1) // parts
                self.load_rows(index, tensor, buffer, (low, high))
        return self.whole[tensor]

    def load_turned(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
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
        self.spill(turn.source, step)

    def load_rows(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        """Load some rows of a tensor."""
        offset = (rows[0] - buffer.rows[0]) * tensor.row_size
        size = (rows[1] - rows[0]) * tensor.row_size
        self.load(index, tensor, buffer, offset, size, rows[0] * tensor.row_size)

    def load(self, index: int, tensor: Tensor, buffer: Buffer, offset: int, size: int, at: int) -> None:
        """Load some bytes of a tensor from DRAM."""
        step = len(self.work.steps)
        ready = self.work.stored.get(tensor, 0)
        self.work.loads.append(
            Load(index, buffer, offset, size, tensor, at, step, ready, tile_number=self.tile_number)
        )
        self.spill(tensor, step)

    def spill(self, tensor: Tensor, step: int) -> None:
        """A step or load touches a tensor in DRAM; it needs memory there while that goes on."""
        if tensor not in self.inputs and tensor not in self.outputs:
            first, last = self.work.spilled.get(tensor, (step, step))
            self.work.spilled[tensor] = min(first, step), max(last, step)

    def result(self, layer: Layer, position: int, index: int) -> Buffer:
        """An object for a result, or that of an operand whose place it takes."""
        tensor = layer.outputs[position]
        for operand in layer.in_place if position == 0 else ():
            source = layer.inputs[operand].storage
            if (
                source in self.whole
                and layer.inputs[operand].view_of is None
                and self.grouping.dies(source, index)
                and not self.needed_in_dram(source)
            ):
                buffer = self.whole.pop(source)
                self.whole[tensor] = buffer
                return buffer
        buffer = self.work.buffer(tensor.name, tensor.size, (0, tensor.rows))
        self.whole[tensor] = buffer
        return buffer

    def scratch(self, layer: Layer, rows: Rows) -> Buffer | None:
        """An object for scratch memory; None if a layer needs none."""
        size = layer.scratch(rows)
        return self.work.buffer(f"{layer.name}/scratch", size) if size else None

    def constants(self, index: int, channels: Rows, multicast: bool = False) -> Buffer | None:
        """Load the constants of some channels; None if there are none."""
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

    def tile(
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
        """Compute a tile of a layer."""
        layer = self.network.layers[index]
        output = results[0].rows if results else rows
        inputs = tuple(buffer.rows for buffer in operands)
        if not layer.sums:
            inputs = tuple(map(self.rows_in, layer.inputs, inputs))
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

    def rows_in(self, tensor: Tensor, rows: Rows) -> Rows:
        """Rows of the storage of an operand as the rows of the operand that the layer knows."""
        if tensor.view_of is None or self.grouping.producers[tensor.storage] not in self.grouping.turns:
            return rows
        each = rows_in_one(tensor)
        return (rows[0] // each, rows[1] // each) if each else rows

    def store(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        """Store rows of a result if it is read from DRAM."""
        if self.needed_in_dram(tensor):
            self.store_rows(index, tensor, buffer, rows)

    def store_rows(self, index: int, tensor: Tensor, buffer: Buffer, rows: Rows) -> None:
        """Store some rows of a result."""
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
        self.spill(tensor, step)

    def share_of(self, group: Group) -> range:
        """The tiles of a group that this core computes."""
        return (
            tiles_of(group, self.core, self.cores) if self.is_shared_out(group) else range(group.tile_count)
        )
