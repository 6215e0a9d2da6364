"""From decisions to work: group after group, each in the way that was decided."""

from __future__ import annotations

from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.dram_layers import layer_in_dram, moved_in_blocks
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import Rows
from npuc.schedule.region_tiles import region_tiles
from npuc.schedule.row_tiles import row_tiles
from npuc.schedule.spread import Spread
from npuc.schedule.steps import Buffer, Fence, Work
from npuc.schedule.whole_layers import own_channels, whole_layer
from npuc.schedule.work_builder import WorkBuilder


def build(
    grouping: Grouping, decisions: Decisions, core: int = 0, cores: int = 1, spread: Spread | None = None
) -> Work:
    """The work of a network on one of several cores; `spread` is the same for all of them."""
    builder = WorkBuilder(grouping, decisions, core, cores, spread or Spread(grouping, decisions, cores))
    for number, group in enumerate(builder.decisions.groups):
        ahead = _ahead(builder, group) if builder.cores > 1 else {}
        if builder.cores > 1 and number:
            builder.work.loads.append(Fence(number, len(builder.work.steps)))
        if group.by_channels:
            own_channels(builder, group.first)
        elif builder.is_shared_out(group):
            _in_tiles(builder, number, group, ahead)
        elif builder.core == 0:
            _on_one(builder, number, group)
        builder.leave(group.last)
    return builder.work


def _on_one(builder: WorkBuilder, number: int, group: Group) -> None:
    if group.moved and builder.network.layers[group.first].op.in_dram:
        layer_in_dram(builder, group.first)
    elif group.moved:
        moved_in_blocks(builder, group.first)
    elif group.tile_count == 1:
        for index in range(group.first, group.last):
            whole_layer(builder, index)
    else:
        _in_tiles(builder, number, group, {})


def _in_tiles(
    builder: WorkBuilder, number: int, group: Group, ahead: dict[tuple[int, Rows], Buffer | None]
) -> None:
    if group.has_regions:
        region_tiles(builder, group)
    else:
        row_tiles(builder, number, group, ahead)


def _ahead(builder: WorkBuilder, group: Group) -> dict[tuple[int, Rows], Buffer | None]:
    """Constants that all cores need can come before the barrier; they do not if a core has no tile of the group."""
    if not builder.is_shared_out(group) or group.has_regions or group.tile_count < builder.cores:
        return {}
    return {
        (index, channels): builder.constants(index, channels, multicast=True)
        for index in range(group.first, group.last)
        for channels in builder.tiler.channel_cuts(builder.network.layers[index])
    }
