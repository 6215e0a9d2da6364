"""Dependency groups: the channels of a network that can be removed, and which of them are interchangeable.

A *channel* is a set of elements of activations and weights that disappear together (`labels`). Channels that appear in the
same places are one *group*: any number of them may be removed, and only their number changes the cost of the network. The
channels between the two convolutions of a residual block are a group; so are all those that a chain of residual additions
carries along.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import Graph, Value, shape_of, shown_name, top, value_name
from npuc.train.pruning.labels import Labelling, WeightAxis
from npuc.train.pruning.rules import apply_rule


@dataclass(frozen=True)
class PruningGroup:
    """Channels that can be removed one by one, in exchange for each other."""

    name: str
    """The first layer that makes them."""
    channels: tuple[int, ...]
    """The label of each channel, in the order of the first layer."""
    layers: tuple[str, ...]
    """The layers that make them."""
    unit: int
    """Elements of the first layer's result that one channel is: the width of an attention head, else 1."""
    reason: str = ""
    """Why none of them may be removed; empty if they may."""

    @property
    def size(self) -> int:
        """How many channels there are."""
        return len(self.channels)


class DependencyGraph:
    """The channels and groups of a float network.

    >>> from npuc import lang
    >>> x = lang.input("x", (1, 3, 8, 8))
    >>> def conv(y, i, o, name):
    ...     return lang.conv(y, np.ones((o, i, 3, 3), "f4"), pads=1, name=name)
    >>> stem = conv(x, 3, 4, "stem")
    >>> y = lang.reduce(stem + conv(conv(stem, 4, 6, "inner"), 6, 4, "outer"), kind="mean", axes=(2, 3))
    >>> graph = lang.build({"y": lang.matmul(lang.reshape(y, shape=(1, 4)), np.ones((4, 2), "f4"), name="head")})
    >>> [(group.name, group.size) for group in DependencyGraph(graph).groups]
    [('stem', 4), ('inner', 6)]
    """

    def __init__(
        self, graph: Graph, exclude: Collection[str] = (), fixed_weights: Mapping[str, str] | None = None
    ) -> None:
        """`exclude` names layers whose channels stay; `fixed_weights` weights that stay as they are, each with the reason."""
        self.graph = graph
        self.labels = Labelling(graph)
        self._order: list[Value] = []
        self._trace()
        for axis in self.labels.weights.values():
            if fixed_weights is not None and axis.ref in fixed_weights:
                self.labels.freeze(axis.labels, fixed_weights[axis.ref])
        self._make_rectangular()
        self._keep_whole_tensors()
        self._exclude(exclude)

    def _trace(self) -> None:
        labels = self.labels
        for port in self.graph.inputs:
            labels.give_frozen(port.value, f"'{port.name}' is an input of the network")
            self._order.append(port.value)
        for op in self.graph.ops:
            if isinstance(op, top.WeightOp):
                continue
            apply_rule(op, labels)
            self._order += op.results
        for port in self.graph.outputs:
            if not labels.is_constant(port.value):
                labels.freeze(labels.tensors[port.value], f"'{port.name}' is an output of the network")

    def _make_rectangular(self) -> None:
        """A tensor has channels along one axis only: where a reshape spread them over several, whole slices go together."""
        labels, changed = self.labels, True
        while changed:
            changed = False
            for value in self._order:
                array = labels.of(value)
                axes = labels.varying(array)
                if len(axes) < 2:
                    continue
                keep = max(axes, key=lambda axis: array.shape[axis])
                for axis in axes:
                    if axis != keep:
                        labels.collapse(array, axis)
                changed = True

    def _keep_whole_tensors(self) -> None:
        """The last channel of a tensor cannot go; a tensor that is one channel never has another."""
        for value in self._order:
            array = self.labels.of(value)
            if array.size and (array == array.flat[0]).all():
                self.labels.freeze(array, f"all of '{value_name(value)}' is one channel")

    def _exclude(self, names: Collection[str]) -> None:
        known = {name for group in self.all_groups for name in (group.name, *group.layers)}
        for name in names:
            tensor = self.graph.tensor_called(name)
            if tensor not in known:
                examples = ", ".join(sorted(known)[:5])
                raise UsageError(
                    f"there is no layer '{name}' that makes channels, so it cannot be excluded from pruning",
                    fix=f"Layers that make channels are {examples}" + (", ..." if len(known) > 5 else ""),
                )
            for axis in self.labels.weights.values():
                if axis.layer == tensor and axis.role == "producer":
                    self.labels.freeze(axis.labels, "excluded by the user")
        self.__dict__.pop("all_groups", None)

    @cached_property
    def all_groups(self) -> list[PruningGroup]:
        """All groups, those that cannot be pruned with the reason."""
        labels = self.labels
        footprints: dict[int, Counter[Any]] = {}
        for number, value in enumerate(self._order):
            array = labels.of(value)
            axes = labels.varying(array)
            if axes:
                for root, count in Counter(array.reshape(-1).tolist()).items():
                    footprints.setdefault(root, Counter())[number, axes[0]] += count
        makers: dict[int, list[WeightAxis]] = {}
        for axis in labels.weights.values():
            for root, count in Counter(labels.roots(axis.labels).tolist()).items():
                footprints.setdefault(root, Counter())[axis.ref, axis.axis] += count
                if axis.role == "producer":
                    makers.setdefault(root, []).append(axis)
        by_place: dict[Any, list[int]] = {}
        for root, places in footprints.items():
            if root in makers:
                by_place.setdefault((frozenset(places.items()), labels.frozen.get(root)), []).append(root)
        groups = []
        names: Counter[str] = Counter()
        order = self._layer_order()
        for (_, reason), roots in by_place.items():
            layers = sorted({axis.layer for axis in makers[roots[0]]}, key=lambda name: order.get(name, 0))
            first = next(axis for axis in makers[roots[0]] if axis.layer == layers[0])
            vector = labels.roots(first.labels)
            positions = {root: int(np.argmax(vector == root)) for root in roots}
            names[layers[0]] += 1
            number = names[layers[0]]
            name = layers[0] if number == 1 else f"{layers[0]}#{number}"
            channels = tuple(sorted(roots, key=lambda root: positions[root]))
            unit = int((vector == channels[0]).sum())
            groups.append(PruningGroup(name, channels, tuple(layers), unit, reason or ""))
        return sorted(groups, key=lambda group: order.get(group.layers[0], 0))

    def _layer_order(self) -> dict[str, int]:
        return {shown_name(op): at for at, op in enumerate(self.graph.ops)}

    @property
    def groups(self) -> list[PruningGroup]:
        """The groups that can be pruned."""
        return [group for group in self.all_groups if not group.reason]

    @property
    def frozen(self) -> list[PruningGroup]:
        """The groups that cannot, each with its reason."""
        return [group for group in self.all_groups if group.reason]

    def group(self, name: str) -> PruningGroup:
        """The group of a name."""
        for group in self.all_groups:
            if group.name == name:
                return group
        raise UsageError(
            f"there is no group of channels '{name}'",
            fix=f"The groups are {', '.join(group.name for group in self.groups) or 'none'}",
        )

    @cached_property
    def weight_axes(self) -> dict[int, list[tuple[WeightAxis, Array]]]:
        """For each channel, the axes of weights in which it appears, with its indices there."""
        table: dict[int, list[tuple[WeightAxis, Array]]] = {}
        for axis in self.labels.weights.values():
            roots = self.labels.roots(axis.labels)
            for root in np.unique(roots).tolist():
                table.setdefault(root, []).append((axis, np.flatnonzero(roots == root)))
        return table

    def removed(self, selection: Mapping[str, Sequence[int]]) -> frozenset[int]:
        """The labels of a selection: for each group the positions of the channels to remove."""
        labels: set[int] = set()
        for name, positions in selection.items():
            group = self.group(name)
            if group.reason and len(positions):
                raise UsageError(
                    f"the channels of '{name}' cannot be removed: {group.reason}",
                    fix="Leave the group out",
                )
            for position in positions:
                if not 0 <= position < group.size:
                    raise UsageError(
                        f"group '{name}' has {group.size} channels, and none with the number {position}"
                    )
                labels.add(group.channels[position])
        return frozenset(labels)


@dataclass(frozen=True, eq=False)
class RemainingChannels:
    """What is left of every tensor when channels are removed."""

    dependencies: DependencyGraph
    removed: frozenset[int]

    def _stays(self, labels: Array) -> Array:
        roots = self.dependencies.labels.roots(labels)
        return ~np.isin(roots, list(self.removed))

    @cached_property
    def _kept(self) -> dict[Value, tuple[int, Array]]:
        """The channel axis of each tensor that has one, and the indices that stay."""
        kept: dict[Value, tuple[int, Array]] = {}
        labels = self.dependencies.labels
        for value in self.dependencies._order:
            array = labels.of(value)
            axes = labels.varying(array)
            if axes:
                kept[value] = axes[0], np.flatnonzero(self._stays(array.reshape(-1)))
        return kept

    def indices(self, value: Value, axis: int) -> Array:
        """The indices along an axis that stay."""
        channel_axis, kept = self._kept.get(value, (-1, np.zeros(0, int)))
        if channel_axis == axis % len(shape_of(value)):
            return kept
        return np.arange(shape_of(value)[axis])

    def shape(self, value: Value) -> tuple[int, ...]:
        """The shape that is left of a tensor."""
        return tuple(len(self.indices(value, axis)) for axis in range(len(shape_of(value))))

    def empty_tensor(self) -> str | None:
        """The name of a tensor of which nothing would be left."""
        for value, (_, kept) in self._kept.items():
            if not len(kept):
                return value_name(value)
        return None

    def weight_indices(self, ref: str, axis: int, size: int) -> Array:
        """The indices along an axis of a weight that stay."""
        known = self.dependencies.labels.weights.get((ref, axis))
        return np.arange(size) if known is None else np.flatnonzero(self._stays(known.labels))
