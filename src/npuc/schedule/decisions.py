"""What a schedule decides: groups of layers, the tiles of each, and where the tensors between groups are kept."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from npuc.schedule.tiler import Choices


@dataclass(frozen=True)
class Group:
    """Layers that run tile by tile, with everything between them in local memory."""

    first: int
    last: int
    """The layer behind the last one."""
    tiles: int = 1
    """Tiles of rows."""
    resident_weights: bool = True
    """Constants are loaded once for all tiles, or once for each."""
    moved: bool = False
    """One layer that works from DRAM to DRAM: it moves elements, in blocks, or is an instruction that works there."""
    by_channels: bool = False
    """One layer whose output channels are shared out among cores."""
    alone: bool = False
    """Its tiles are not shared out among cores."""
    by_inputs: bool = False
    """One layer that is cut by its input channels, whose parts add up."""
    keeps_seams: bool = False
    """Rows that a tile and the next both need are kept from one to the other, and not made or loaded twice."""
    column_tiles: int = 1
    """Each tile of rows is cut into so many of columns: only where a user states it."""
    channel_tiles: int = 1
    """And into so many of output channels."""

    @property
    def has_regions(self) -> bool:
        """Whether its tiles are some columns or some channels of their rows."""
        return self.column_tiles * self.channel_tiles > 1

    def splits_channels(self, cores: int) -> bool:
        """Whether each of several cores has output channels of its own, and all rows."""
        return self.channel_tiles == cores > 1 and self.column_tiles == 1

    @property
    def tile_count(self) -> int:
        """Tiles of all three axes."""
        return self.tiles * self.column_tiles * self.channel_tiles

    def describe(self, names: list[str]) -> dict[str, Any]:
        """As a schedule file states it."""
        entry: dict[str, Any] = {"layers": names[self.first : self.last], "tiles": self.tiles}
        for name in ("column_tiles", "channel_tiles"):
            if getattr(self, name) > 1:
                entry[name] = getattr(self, name)
        if self.tile_count > 1:
            entry["resident_weights"] = self.resident_weights
        for name in ("moved", "by_channels", "alone", "by_inputs", "keeps_seams"):
            if getattr(self, name):
                entry[name] = True
        return entry


@dataclass(frozen=True)
class Decisions:
    """Groups in order, and for each cut between two groups whether the tensors that cross it stay in local memory."""

    groups: tuple[Group, ...]
    resident: tuple[bool, ...]
    """For the cut behind each group but the last."""
    spill_distance: int = 0
    """Tensors that are needed more than this many layers later go to DRAM in between; 0: none do for that reason."""

    @cached_property
    def group_of(self) -> tuple[int, ...]:
        """For each layer, the number of its group."""
        return tuple(
            number for number, group in enumerate(self.groups) for _ in range(group.first, group.last)
        )


Placing = Literal["packed", "around", "apart"]


@dataclass(frozen=True)
class PrefetchPolicy:
    """Loads that come just in time, so that a program is faster, or takes less local memory."""

    memory: int
    """Bytes of local memory that it takes."""
    margin: float
    """How much earlier loads come than they have to, as a part of the cycles of the program."""
    placing: Placing
    """Objects are packed all at once; or those that are loaded go around the others, or apart from the banks at work."""


@dataclass(frozen=True)
class ScheduleDecisions:
    """All that a search finds out about a subgraph: its program follows from it."""

    decisions: Decisions
    choices: Choices
    memory: int
    """Bytes of local memory that groups are planned with."""
    cores: int = 1
    """Cores that share the work."""
    local_memory: int = 0
    """Bytes of local memory that may be used; 0: all that the machine has."""
    prefetch: PrefetchPolicy | None = None
    """None: loads come as early as there is room for them."""
