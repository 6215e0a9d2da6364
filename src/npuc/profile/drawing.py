"""Where the nodes of a network go on paper: ranks from top to bottom, few crossings, short edges.

The usual four steps: a rank is the longest way from a start; an edge over several ranks becomes a row of bends, shared by all
edges from one node; nodes of a rank are ordered by the middle of their neighbours; then each gets as near to that middle as
its order and its width allow, which is a least-squares problem with an exact answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

_SWEEPS = 6
_BEND = 0.22
"""Width of a bend; a node has 1."""
MOST_BENDS = 20_000
"""Beyond that many, long edges are straight lines."""


@dataclass(frozen=True)
class Drawing:
    """Places in units of a node's width and of a rank; the leftmost is 0."""

    places: list[tuple[float, int]]
    """Of each node: its middle, and its rank."""
    lines: list[list[tuple[float, int]]]
    """Of each edge: the points that it goes through."""

    @property
    def width(self) -> float:
        """From the leftmost middle to the rightmost."""
        return max((x for line in (self.places, *self.lines) for x, _ in line), default=0.0)

    @property
    def ranks(self) -> int:
        """How many there are."""
        return max((rank for _, rank in self.places), default=-1) + 1


def draw(count: int, edges: Sequence[tuple[int, int]]) -> Drawing:
    """Places for nodes 0 to `count` - 1; an edge leads from a lower number to a higher one."""
    rank = _ranks(count, edges)
    width = [1.0] * count
    above: list[list[int]] = [[] for _ in range(count)]
    below: list[list[int]] = [[] for _ in range(count)]
    paths: list[list[int]] = []
    bends: dict[tuple[int, int], int] = {}
    straight = sum(max(0, rank[b] - rank[a] - 1) for a, b in edges) > MOST_BENDS

    def join(upper: int, lower: int) -> None:
        if lower not in below[upper]:
            below[upper].append(lower)
            above[lower].append(upper)

    for a, b in edges:
        path = [a]
        for level in () if straight else range(rank[a] + 1, rank[b]):
            if (a, level) not in bends:
                bends[a, level] = len(rank)
                rank.append(level)
                width.append(_BEND)
                above.append([])
                below.append([])
            join(path[-1], bends[a, level])
            path.append(bends[a, level])
        if not straight or rank[b] == rank[a] + 1:
            join(path[-1], b)
        paths.append([*path, b])
    levels: list[list[int]] = [[] for _ in range(max(rank, default=-1) + 1)]
    for node, level in enumerate(rank):
        levels[level].append(node)
    x = _settle(levels, above, below, width)
    least = min(x, default=0.0)
    points = [(round(at - least, 3), level) for at, level in zip(x, rank, strict=True)]
    return Drawing(points[:count], [[points[node] for node in path] for path in paths])


def _ranks(count: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    rank = [0] * count
    for a, b in sorted(edges, key=lambda edge: edge[1]):
        rank[b] = max(rank[b], rank[a] + 1)
    fed = {b for _, b in edges}
    first: dict[int, int] = {}
    for a, b in edges:
        if a not in fed:
            first[a] = min(first.get(a, rank[b]), rank[b])
    for node, level in first.items():
        rank[node] = level - 1  # what nothing leads to stands right above its first reader
    return rank


def _settle(
    levels: list[list[int]], above: list[list[int]], below: list[list[int]], width: list[float]
) -> list[float]:
    x = [0.0] * len(width)
    for level in levels:
        _spread(level, [0.0] * len(level), width, x)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        near = above if down else below
        for level in levels if down else reversed(levels):
            middles = {node: _middle(near[node], x, x[node]) for node in level}
            if sweep < _SWEEPS - 2:
                level.sort(key=middles.__getitem__)
            _spread(level, [middles[node] for node in level], width, x)
    # Last, by both sides, so that a fork stands over its branches; a link of a chain stays right below the one before.
    for level in levels:
        middles = {}
        for node in level:
            chained = len(above[node]) == 1 and len(below[above[node][0]]) == 1
            beside = above[node] if chained else [*above[node], *below[node]]
            middles[node] = _middle(beside, x, x[node])
        _spread(level, [middles[node] for node in level], width, x)
    return x


def _middle(nodes: Sequence[int], x: Sequence[float], own: float) -> float:
    return sum(x[node] for node in nodes) / len(nodes) if nodes else own


def _spread(level: Sequence[int], ideal: Sequence[float], width: Sequence[float], x: list[float]) -> None:
    """The places nearest to `ideal`, by least squares, that keep the order and the distances of a rank.

    With the distances taken out, places have to grow only: neighbours that would not are pooled at their mean.
    """
    offsets, at = [], 0.0
    for number, node in enumerate(level):
        at += (width[level[number - 1]] + width[node]) / 2 if number else 0.0
        offsets.append(at)
    pools: list[tuple[float, int]] = []
    """Sum and count."""
    for number in range(len(level)):
        total, count = ideal[number] - offsets[number], 1
        while pools and pools[-1][0] * count >= total * pools[-1][1]:
            before = pools.pop()
            total, count = total + before[0], count + before[1]
        pools.append((total, count))
    number = 0
    for total, count in pools:
        for node in level[number : number + count]:
            x[node] = total / count + offsets[number]
            number += 1
