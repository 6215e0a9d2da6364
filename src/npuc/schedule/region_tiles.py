"""Groups of tiles of some columns and channels (`regions.py`), from DRAM to DRAM."""

from __future__ import annotations

from npuc.schedule.decisions import Group
from npuc.schedule.layers import Rows, Tensor, Tile
from npuc.schedule.regions import Operand, TileLayer, region_tile, span_of
from npuc.schedule.steps import Buffer, Compute, Load, Store
from npuc.schedule.work_builder import WorkBuilder


def region_tiles(builder: WorkBuilder, group: Group) -> None:
    """Tiles of some columns and channels, from DRAM to DRAM (`regions.py`)."""
    constants: dict[tuple[int, Rows], Buffer | None] = {}
    loaded: dict[Operand, Buffer] = {}
    together = builder.tiler.choices.ahead > 1 and group.splits_channels(builder.cores)
    for tile in builder.share_of(group):
        builder.tile_number = tile
        cut = region_tile(builder.grouping, group, tile)
        computed: dict[Tensor, Buffer] = {}
        operands_before, loaded = loaded, {}
        for index, entry in enumerate(cut, group.first):
            slots: dict[str, Buffer] = {}
            for position, operand in enumerate(entry.operands):
                buffer = computed.get(operand.tensor) or loaded.get(operand) or operands_before.get(operand)
                if buffer is None:
                    # Cores that have channels of their own need the same of what has to be whole.
                    same = together and operand.region == operand.tensor.region
                    buffer = _load_part(builder, index, operand, same)
                if operand.tensor not in computed:
                    loaded[operand] = buffer
                slots[f"in{position}"] = buffer
            slots["out0"] = computed[entry.result.tensor] = _part_buffer(builder, entry.result)
            scratch = builder.scratch(entry.layer, entry.result.rows)
            if scratch is not None:
                slots["scratch"] = scratch
            for channels, whole_channels in entry.constant_cuts(builder.tiler.channel_cuts(entry.layer)):
                key = (index, whole_channels)
                if not group.resident_weights or key not in constants:
                    constants[key] = builder.constants(index, whole_channels)
                block = constants[key]
                _part(builder, index, entry, channels, slots if block is None else {**slots, "const": block})
            if entry.leaves is not None:
                _store_part(builder, index, entry.leaves, entry.result, slots["out0"])
    builder.tile_number = 0


def _part_buffer(builder: WorkBuilder, part: Operand) -> Buffer:
    """A part of a tensor in local memory. It has no rows of its own: a row of it is no row of the tensor."""
    tensor = part.tensor.part(part.region)
    return builder.work.buffer(f"{tensor.name}[{part.rows[0]}:{part.rows[1]}]", part.size)


def _load_part(builder: WorkBuilder, index: int, part: Operand, multicast: bool = False) -> Buffer:
    buffer, span, step = _part_buffer(builder, part), span_of(part, part), len(builder.work.steps)
    ready = builder.work.stored.get(part.tensor, 0)
    builder.work.loads.append(
        Load(
            index, buffer, 0, part.size, part.tensor, span.at, step, ready, block=span.block, multicast=multicast,
            tile_number=builder.tile_number,
        )
    )  # fmt: skip
    builder.spill(part.tensor, step)
    return buffer


def _store_part(builder: WorkBuilder, index: int, leaves: Operand, held: Operand, buffer: Buffer) -> None:
    span, step = span_of(leaves, held), len(builder.work.steps)
    builder.work.steps.append(
        Store(
            index, buffer, span.offset, span.size, leaves.tensor, span.at, span.block, tile_number=builder.tile_number
        )
    )  # fmt: skip
    buffer.touch(step)
    builder.work.stored[leaves.tensor] = step + 1
    builder.spill(leaves.tensor, step)


def _part(
    builder: WorkBuilder, index: int, entry: TileLayer, channels: Rows, slots: dict[str, Buffer]
) -> None:
    """The instructions of a part of a layer; the tile is noted in rows, columns and channels of the whole layer."""
    rows, inputs, region = (
        entry.result.rows,
        tuple(operand.rows for operand in entry.operands),
        entry.result.region,
    )
    templates = tuple(entry.layer.templates(Tile(rows, channels, inputs, rows)))
    first = region.channels[0]
    tile = Tile(rows, (first + channels[0], first + channels[1]), inputs, rows, region.columns)
    step = len(builder.work.steps)
    builder.work.steps.append(Compute(index, templates, slots, tile, builder.tile_number))
    for buffer in slots.values():
        buffer.touch(step)
