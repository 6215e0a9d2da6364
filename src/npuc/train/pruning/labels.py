"""Channel labels: which elements of which tensors disappear together when a channel is removed.

Every element of every tensor has a label, and two elements with the same label are removed together or not at all. Ops
unite labels (union-find): a residual addition unites channel i of its two operands, a depthwise convolution its input and
output channels. What moves elements moves their labels, so a flatten, a split or a transposition needs no thought of its own.

The labels of a tensor are an array that broadcasts to its shape: an axis along which they do not change has length 1 there.
A convolution of 64 channels thus has labels of shape (1, 64, 1, 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, shape_of, top, value_name

Role = Literal["producer", "consumer", "other"]
"""What an axis of a weight does: its rows make a channel, its columns read one, or it belongs to the channel otherwise."""


@dataclass
class WeightAxis:
    """The labels along one axis of a stored weight."""

    ref: str
    axis: int
    labels: Array
    role: Role
    layer: str
    """The layer that uses the weight, as reports call it."""


@dataclass
class Labelling:
    """The labels of all tensors of a network, with the reason for each label that may not be removed."""

    graph: Graph
    tensors: dict[Value, Array] = field(default_factory=dict)
    """Labels of inputs and of results of ops, but not of weights."""
    weights: dict[tuple[str, int], WeightAxis] = field(default_factory=dict)
    frozen: dict[int, str] = field(default_factory=dict)
    """Why a label must stay, by its root."""
    _parents: list[int] = field(default_factory=list)

    def fresh(self, count: int) -> Array:
        """New labels."""
        first = len(self._parents)
        self._parents.extend(range(first, first + count))
        return np.arange(first, first + count)

    def root(self, label: int) -> int:
        """The label that stands for all that are united with this one."""
        parents = self._parents
        while parents[label] != label:
            parents[label] = parents[parents[label]]
            label = parents[label]
        return label

    def roots(self, labels: Array) -> Array:
        """The roots of an array of labels."""
        unique, inverse = np.unique(labels, return_inverse=True)
        return np.array([self.root(int(label)) for label in unique])[inverse].reshape(labels.shape)

    def unite(self, a: Array, b: Array) -> None:
        """Unite two arrays of labels element by element, under broadcasting."""
        a, b = np.broadcast_arrays(a, b)
        pairs = np.unique(np.stack([a.ravel(), b.ravel()], 1), axis=0)
        for left, right in pairs.tolist():
            low, high = sorted((self.root(left), self.root(right)))
            if low != high:
                self._parents[high] = low
                reason = self.frozen.pop(high, None)
                if reason is not None:
                    self.frozen.setdefault(low, reason)

    def freeze(self, labels: Array, reason: str) -> None:
        """These labels may not be removed; the first reason is kept."""
        for root in np.unique(self.roots(labels)).tolist():
            self.frozen.setdefault(root, reason)

    def collapse(self, labels: Array, axis: int) -> Array:
        """Unite the labels along an axis: all of it is removed, or nothing."""
        first = np.take(labels, [0], axis)
        self.unite(labels, first)
        return first

    def varying(self, labels: Array) -> list[int]:
        """The axes along which labels change."""
        labels = self.roots(labels)
        return [axis for axis in range(labels.ndim) if (labels != np.take(labels, [0], axis)).any()]

    def compact(self, labels: Array) -> Array:
        """The same labels with length 1 along the axes where they do not change."""
        labels = self.roots(labels)
        for axis in range(labels.ndim):
            first = np.take(labels, [0], axis) if labels.shape[axis] else labels
            labels = first if (labels == first).all() else labels
        return labels

    def is_constant(self, value: Value | None) -> bool:
        """Whether a value is a stored weight."""
        return value is not None and isinstance(value.owner, top.WeightOp)

    def of(self, value: Value) -> Array:
        """The labels of a tensor that is computed; constants have none."""
        labels = self.tensors[value] = self.compact(self.tensors[value])
        return labels

    def full(self, value: Value) -> Array:
        """The labels of a tensor, one for each element."""
        return np.broadcast_to(self.of(value), shape_of(value))

    def along(self, value: Value, axis: int) -> Array:
        """The labels along one axis, after uniting those along all others."""
        labels = self.of(value)
        for other in range(labels.ndim):
            if other != axis % labels.ndim:
                labels = self.collapse(labels, other)
        return np.broadcast_to(labels.reshape(-1), (shape_of(value)[axis],))

    def give(self, value: Value, labels: Array) -> None:
        """State the labels of a result."""
        self.tensors[value] = self.compact(labels)

    def give_frozen(self, value: Value, reason: str) -> None:
        """State that no part of a tensor may be removed."""
        labels = self.fresh(1)
        self.freeze(labels, reason)
        self.tensors[value] = labels.reshape((1,) * len(shape_of(value)))

    def use_weight(self, value: Value, axis: int, labels: Array, role: Role, layer: str) -> None:
        """State the labels along an axis of a weight. A weight that several ops share has the labels of all of them."""
        owner = value.owner
        assert isinstance(owner, top.WeightOp)
        known = self.weights.get((owner.ref, axis))
        if known is None:
            self.weights[owner.ref, axis] = WeightAxis(owner.ref, axis, np.array(labels), role, layer)
            return
        self.unite(known.labels, labels)
        if known.role == "other":
            known.role = role

    def name(self, value: Value) -> str:
        """How reports call a tensor."""
        return value_name(value) or "a tensor without a name"
