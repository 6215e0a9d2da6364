"""Tensors that several cores keep between groups: each core has the rows that it made, and gets those that it lacks.

A group that is cut by rows leaves every core with rows of its own. If the next group is cut by rows too, a core needs few others:
what a window looks at beyond its own rows. So the tensor stays where it is, spread over the local memories of the cores, and
only the rows at the seams between cores go through the shared memory.

Example: a tensor of 16 rows between two convolutions of 3 x 3 with padding 1, each a group, on four cores.

    core    makes            needs            lacks          stores for others
    0       rows 0 to 4      rows 0 to 5      4 to 5         3 to 4
    1       rows 4 to 8      rows 3 to 9      3 to 4, 8 to 9    4 to 5, 7 to 8
    2       rows 8 to 12     rows 7 to 13     7 to 8, 12 to 13  8 to 9, 11 to 12
    3       rows 12 to 16    rows 11 to 16    11 to 12       12 to 13

Six rows are stored and loaded in place of 16 and 22. A core has one object for all rows that it makes or needs: steps write the
former to their places in it, loads the latter.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from npuc.schedule.decisions import Decisions, Group
from npuc.schedule.layers import Rows, Tensor
from npuc.schedule.tiles import Tiles


@dataclass(frozen=True)
class SpreadTensor:
    """A tensor in the local memories of all cores."""

    held: tuple[Rows, ...]
    """For each core, the rows that it has room for: all that it makes or needs."""
    lacks: tuple[tuple[Rows, ...], ...]
    """For each core, the rows that it needs and does not make."""
    stores: tuple[tuple[Rows, ...], ...]
    """For each core, rows of its own that others lack, in order."""


@dataclass
class Spread:
    """The tensors that stay spread over cores under some decisions."""

    tiles: Tiles
    decisions: Decisions
    cores: int
    _known: dict[Tensor, SpreadTensor] = field(default_factory=dict, init=False)

    def finds(self, tensor: Tensor, use: int) -> bool:
        """Whether a layer that reads a tensor finds its rows on its core."""
        producer = self.tiles.producers[tensor]
        if producer < 0:
            return False
        groups, group_of, resident = self.decisions.groups, self.decisions.group_of, self.decisions.resident
        first, last = group_of[producer], group_of[use]
        return (
            first < last
            and use not in self.tiles.turns
            and all(resident[first:last])
            and by_rows(groups[first], self.cores)
            and by_rows(groups[last], self.cores)
            and not any(self.tiles.is_spilled(tensor, groups[number].last) for number in range(first, last))
        )

    def stays(self, tensor: Tensor) -> bool:
        """Whether some reader of a tensor in a later group finds it."""
        return any(self.finds(tensor, use) for use in self.tiles.uses.get(tensor, ()))

    def tensor(self, tensor: Tensor) -> SpreadTensor:
        """The rows of a tensor that stays."""
        if tensor not in self._known:
            self._known[tensor] = self._tensor(tensor)
        return self._known[tensor]

    def _tensor(self, tensor: Tensor) -> SpreadTensor:
        group_of = self.decisions.group_of
        maker = group_of[self.tiles.producers[tensor]]
        readers = sorted({group_of[use] for use in self.tiles.uses[tensor] if self.finds(tensor, use)})
        cores = range(self.cores)
        computed = [self._rows(tensor, [maker], core) for core in cores]
        needed = [self._rows(tensor, readers, core) for core in cores]
        lacks = tuple(
            tuple(_parts([(need[0], min(make[0], need[1])), (max(make[1], need[0]), need[1])]))
            for make, need in zip(computed, needed, strict=True)
        )
        stores = []
        for core in cores:
            low, high = own_rows(tensor, core, self.cores)
            lacking = [part for other in cores if other != core for part in lacks[other]]
            stores.append(tuple(_parts((max(low, a), min(high, b)) for a, b in lacking)))
        return SpreadTensor(tuple(map(_hull, computed, needed)), lacks, tuple(stores))

    def _rows(self, tensor: Tensor, numbers: Iterable[int], core: int) -> Rows:
        """The rows of a tensor that a core makes or reads in some groups, from the first to the last."""
        hull: Rows | None = None
        for number in numbers:
            group = self.decisions.groups[number]
            for tile in tiles_of(group, core, self.cores):
                rows = self.tiles.tile_rows(group.first, group.last, group.tiles, tile)
                assert rows is not None
                hull = rows[tensor] if hull is None else _hull(hull, rows[tensor])
        assert hull is not None
        return hull


def by_rows(group: Group, cores: int) -> bool:
    """Whether each of several cores has some of the rows of a group, each tile of rows whole."""
    return (
        group.tiles >= cores > 1
        and group.tiles % cores == 0
        and not (group.has_regions or group.by_channels or group.alone)
    )


def tiles_of(group: Group, core: int, cores: int) -> range:
    """The tiles of a group that are a core's."""
    return range(group.tile_count * core // cores, group.tile_count * (core + 1) // cores)


def own_rows(tensor: Tensor, core: int, cores: int) -> Rows:
    """The rows of a result that are a core's own, into however many tiles its group is cut."""
    return tensor.rows * core // cores, tensor.rows * (core + 1) // cores


def _hull(a: Rows, b: Rows) -> Rows:
    return min(a[0], b[0]), max(a[1], b[1])


def _parts(ranges: Iterable[Rows]) -> list[Rows]:
    """Ranges that are not empty, in order, those that touch as one."""
    parts: list[Rows] = []
    for low, high in sorted(part for part in ranges if part[0] < part[1]):
        if parts and low <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(high, parts[-1][1])
        else:
            parts.append((low, high))
    return parts
