"""Orders of channels that keep more magnitude: the same network, its channels sorted so that large weights share fewer blocks.

Channels that are interchangeable (`npuc.train.pruning.groups`) may be put into any order, if all that makes and all that reads
them is: rows of the layers before, biases and scales, and columns of the layers behind. The network computes the same, up to
the order of floating-point sums. The search swaps two channels of different blocks as long as a swap keeps more
(after Pool and Yu, "Channel Permutations for N:M Sparsity", 2021).

Example, 2:4: a row of weights 9 8 7 6 | 1 2 1 2 keeps 9 + 8 + 2 + 2; in the order 7 6 1 2 | 9 8 1 2 it keeps 7 + 6 + 9 + 8.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arrays import Array
from npuc.ir import Graph, Weight, WeightStore
from npuc.train.pruning.groups import DependencyGraph, PruningGroup
from npuc.train.sparsity.masks import prunable_weights

_MOST_ROWS = 1024
"""Rows of weights that a search looks at, evenly spaced."""
_MOST_SWEEPS = 20
_GAIN = 1e-6
"""The least gain of a swap, as a share of the whole."""


@dataclass(frozen=True)
class PermutedNetwork:
    """The network in its new order."""

    graph: Graph
    orders: dict[str, tuple[int, ...]]
    """For each group that changed, by its first layer, the old position of each channel."""


def permuted(graph: Graph, pattern: SparsityPattern, exclude: Collection[str] = ()) -> PermutedNetwork:
    """The network with channels in an order in which N:M masks keep more magnitude."""
    dependencies = DependencyGraph(graph)
    axes = {entry.ref: entry.axis for entry in prunable_weights(graph, pattern, exclude) if not entry.reason}
    store: dict[str, Weight] = dict(graph.weights)
    orders: dict[str, tuple[int, ...]] = {}
    for group in dependencies.groups:
        rows = _rows(dependencies, group, store, axes, pattern)
        if rows is None:
            continue
        order = best_order(rows, pattern)
        if (order != np.arange(group.size)).any():
            orders[group.name] = tuple(order.tolist())
            _apply(dependencies, group, order, store)
    copy = graph.copy()
    return PermutedNetwork(Graph(copy.module, WeightStore(store)), orders)


def best_order(rows: Array, pattern: SparsityPattern) -> Array:
    """The order of columns, whole blocks of them, in which each block of each row keeps most; found by swaps.

    >>> best_order(np.array([[9.0, 8, 7, 6, 1, 2, 1, 2]]), SparsityPattern(2, 4)).tolist()
    [2, 3, 4, 5, 0, 1, 6, 7]
    """
    size, block = rows.shape[1], pattern.block
    order = np.arange(size)
    magnitude = np.abs(rows)
    least = _GAIN * float(magnitude.sum())
    count = size // block
    kept = [_kept(magnitude[:, order[b * block : (b + 1) * block]], pattern.kept) for b in range(count)]
    for _ in range(_MOST_SWEEPS):
        improved = False
        for first in range(count):
            for second in range(first + 1, count):
                gain, i, j = _best_swap(magnitude, order, first, second, kept, pattern)
                if gain <= least:
                    continue
                a, b = first * block + i, second * block + j
                order[a], order[b] = order[b], order[a]
                for at in (first, second):
                    kept[at] = _kept(magnitude[:, order[at * block : (at + 1) * block]], pattern.kept)
                improved = True
        if not improved:
            break
    return np.concatenate([np.sort(order[b * block : (b + 1) * block]) for b in range(count)])


def _kept(block: Array, count: int) -> float:
    """The magnitude that stays of a block of columns."""
    if count >= block.shape[1]:
        return float(block.sum())
    return float(np.partition(block, block.shape[1] - count, axis=1)[:, -count:].sum())


def _best_swap(
    magnitude: Array, order: Array, first: int, second: int, kept: list[float], pattern: SparsityPattern
) -> tuple[float, int, int]:
    """The swap between two blocks that gains most: the gain, and the columns of the two blocks."""
    block = pattern.block
    a = magnitude[:, order[first * block : (first + 1) * block]]
    b = magnitude[:, order[second * block : (second + 1) * block]]
    now = kept[first] + kept[second]
    best = (0.0, 0, 0)
    for i in range(block):
        for j in range(block):
            left, right = a.copy(), b.copy()
            left[:, i], right[:, j] = b[:, j], a[:, i]
            gain = _kept(left, pattern.kept) + _kept(right, pattern.kept) - now
            if gain > best[0]:
                best = gain, i, j
    return best


def _rows(
    dependencies: DependencyGraph,
    group: PruningGroup,
    store: dict[str, Weight],
    axes: dict[str, int],
    pattern: SparsityPattern,
) -> Array | None:
    """What reads the channels of a group, as rows of weights with a column for each channel; None if blocks do not fit them."""
    if group.size % pattern.block or group.size == pattern.block:
        return None
    table = dependencies.weight_axes
    readers: dict[tuple[str, int], list[Array]] = {}
    for channel in group.channels:
        for axis, indices in table[channel]:
            if axis.role == "consumer" and axes.get(axis.ref) == axis.axis:
                readers.setdefault((axis.ref, axis.axis), []).append(indices)
    rows = []
    for (ref, place), columns in readers.items():
        together = np.concatenate(columns)
        start = int(together[0])
        if start % pattern.block or not np.array_equal(together, start + np.arange(group.size)):
            continue  # one channel is several columns, or blocks are shared with other channels
        array = np.moveaxis(store[ref].array(), place, -1)[..., start : start + group.size]
        rows.append(array.reshape(-1, group.size))
    if not rows:
        return None
    stacked = np.concatenate(rows).astype(np.float64)
    return stacked[:: -(-len(stacked) // _MOST_ROWS)]


def _apply(
    dependencies: DependencyGraph, group: PruningGroup, order: Array, store: dict[str, Weight]
) -> None:
    """Put the channels of a group into their new order in all weights that have them."""
    table = dependencies.weight_axes
    sources: dict[tuple[str, int], list[tuple[Array, Array]]] = {}
    for position, old in enumerate(order.tolist()):
        here, there = table[group.channels[position]], table[group.channels[old]]
        origin = {(axis.ref, axis.axis): indices for axis, indices in there}
        for axis, indices in here:
            sources.setdefault((axis.ref, axis.axis), []).append((indices, origin[axis.ref, axis.axis]))
    for (ref, place), moves in sources.items():
        array = store[ref].array()
        index = np.arange(array.shape[place])
        for indices, old_indices in moves:
            index[indices] = old_indices
        store[ref] = Weight.of(np.ascontiguousarray(np.take(array, index, axis=place)))
