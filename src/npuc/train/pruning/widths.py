"""Widths: how many channels of each group stay, and the shape of every tensor as a function of that."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, shape_of, shown_name, top
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.slimming import slim

Widths = Mapping[str, int]
"""How many channels of each group stay, by its name; a group that is not there stays whole."""


@dataclass(frozen=True)
class _Axis:
    """The length of a channel axis: what cannot be removed, and so much for each channel of a group."""

    axis: int
    fixed: int
    shares: tuple[tuple[str, int], ...]

    def length(self, widths: Widths, sizes: Mapping[str, int]) -> int:
        return self.fixed + sum(count * widths.get(name, sizes[name]) for name, count in self.shares)


class ChannelShapes:
    """The shapes of the tensors of a network whose groups have other widths, without making that network."""

    def __init__(self, dependencies: DependencyGraph) -> None:
        self.dependencies = dependencies
        self.sizes = {group.name: group.size for group in dependencies.groups}
        self._group_of = {channel: group.name for group in dependencies.groups for channel in group.channels}

    def _axis(self, axis: int, labels: Array) -> _Axis:
        counts = Counter(self._group_of.get(label, "") for label in labels.tolist())
        shares = {name: count // self.sizes[name] for name, count in counts.items() if name}
        fixed = len(labels) - sum(share * self.sizes[name] for name, share in shares.items())
        return _Axis(axis, fixed, tuple(sorted(shares.items())))

    @cached_property
    def _layers(self) -> dict[str, list[_Axis]]:
        """For each layer, the channel axes of the tensors and weights that it touches."""
        labels = self.dependencies.labels
        layers: dict[str, list[_Axis]] = {}
        for op in self.dependencies.graph.ops:
            if isinstance(op, top.WeightOp):
                continue
            axes = layers.setdefault(shown_name(op), [])
            for value in (*op.operands, *op.results):
                if labels.is_constant(value):
                    continue
                array = labels.of(value)
                varying = labels.varying(array)
                if varying:
                    axes.append(self._axis(varying[0], array.reshape(-1)))
        return layers

    def signatures(self, widths: Widths) -> dict[str, tuple[int, ...]]:
        """For each layer, the lengths of the channel axes of its operands and results: equal ones cost the same."""
        return {
            layer: tuple(axis.length(widths, self.sizes) for axis in axes)
            for layer, axes in self._layers.items()
        }

    @cached_property
    def _weights(self) -> dict[str, list[tuple[int, list[_Axis]]]]:
        """For each layer, its weights: the elements of each, and its channel axes. Shared ones belong to the first layer."""
        table: dict[str, list[tuple[int, list[_Axis]]]] = {}
        counted: set[str] = set()
        weights = self.dependencies.labels.weights
        roots = self.dependencies.labels.roots
        for op in self.dependencies.graph.ops:
            for value in op.operands:
                owner = value.owner
                if not isinstance(owner, top.WeightOp) or owner.ref in counted:
                    continue
                counted.add(owner.ref)
                shape = shape_of(value)
                axes = [
                    self._axis(axis, roots(weights[owner.ref, axis].labels))
                    for axis in range(len(shape))
                    if (owner.ref, axis) in weights
                ]
                table.setdefault(shown_name(op), []).append((prod(shape), axes))
        return table

    def weight_elements(self, widths: Widths) -> dict[str, list[float]]:
        """For each layer, how many elements of each of its weights stay."""
        return {
            layer: [
                whole * prod(axis.length(widths, self.sizes) / axis.length({}, self.sizes) for axis in axes)
                for whole, axes in weights
            ]
            for layer, weights in self._weights.items()
        }

    def network(self, widths: Widths) -> Graph:
        """A network of these widths; which of the channels stay says nothing about its cost."""
        return slim(self.dependencies, dropped(self.dependencies, widths))


def dropped(
    dependencies: DependencyGraph, widths: Widths, importance: Mapping[str, Array] | None = None
) -> dict[str, list[int]]:
    """The channels to remove so that groups have these widths: the least important ones, or the last ones."""
    selection: dict[str, list[int]] = {}
    for group in dependencies.groups:
        keep = widths.get(group.name, group.size)
        if keep == group.size:
            continue
        scores = importance[group.name] if importance is not None else -np.arange(group.size)
        order = np.argsort(-np.asarray(scores, np.float64), kind="stable")
        selection[group.name] = sorted(order[keep:].tolist())
    return selection


_MOST_CHOICES = 16


def snapped_widths(size: int, lanes: int, unit: int = 1) -> list[int]:
    """The widths worth trying, largest first: all of a group, and those that fill the lanes of the machine.

    >>> snapped_widths(20, 8)
    [20, 16, 8]
    >>> snapped_widths(3, 16, unit=64)
    [3, 2, 1]
    >>> snapped_widths(6, 8)
    [6]
    >>> snapped_widths(48, 1)[:3]
    [48, 45, 42]
    """
    step = 1 if lanes > 1 else max(1, size // _MOST_CHOICES)
    return [
        keep
        for keep in range(size, 0, -1)
        if keep == size or not (keep * unit % lanes or (size - keep) % step)
    ]
