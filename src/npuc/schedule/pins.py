"""Decisions of a schedule that are fixed before the search: groups of layers, and where tensors are at the cuts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from npuc.schedule.decisions import Decisions, Group


@dataclass(frozen=True)
class Pins:
    """What a search must not change."""

    groups: tuple[Group, ...] = ()
    """Some groups, in order."""
    cuts: Mapping[int, bool] = field(default_factory=dict)
    """For the cut before a layer: whether the tensors that cross it stay in local memory."""
    max_halo: float = inf
    """Groups may compute at most so much twice, as a part of their work."""

    @cached_property
    def starts(self) -> dict[int, Group]:
        """The group that starts with a layer."""
        return {group.first: group for group in self.groups}

    @cached_property
    def longest(self) -> int:
        """Layers of the longest group."""
        return max((group.last - group.first for group in self.groups), default=0)

    def allow(self, first: int, last: int) -> bool:
        """Whether layers may form a group: it is one that is pinned, or touches none of those."""
        group = self.starts.get(first)
        if group is not None:
            return group.last == last
        return not any(other.first < last and first < other.last for other in self.groups)

    def allow_cut(self, cut: int, resident: bool) -> bool:
        """Whether what crosses a cut may be in that place."""
        return self.cuts.get(cut, resident) == resident

    def complete(self, layers: int, spill_distance: int) -> Decisions | None:
        """All decisions, if nothing is left open."""
        at = 0
        for group in self.groups:
            if group.first != at:
                return None
            at = group.last
        cuts = [group.last for group in self.groups[:-1]]
        if at != layers or any(cut not in self.cuts for cut in cuts):
            return None
        return Decisions(self.groups, tuple(self.cuts[cut] for cut in cuts), spill_distance)


NOTHING = Pins()
