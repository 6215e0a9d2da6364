"""The slim network: a network without its removed channels; and the masked one, which has them with zeros for weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import Graph, Weight, WeightStore, shape_of, tensor_type, top
from npuc.train.pruning.groups import DependencyGraph, RemainingChannels
from npuc.train.pruning.rules import property_rule

Selection = Mapping[str, Sequence[int]]
"""For each group by name, the positions of the channels to remove."""


def slim(dependencies: DependencyGraph, selection: Selection) -> Graph:
    """The network without the selected channels; layers, tensors and weights keep their names."""
    left = RemainingChannels(dependencies, dependencies.removed(selection))
    empty = left.empty_tensor()
    if empty is not None:
        raise UsageError(
            f"nothing would be left of '{empty}'", fix="Keep at least one channel of every layer"
        )
    original = dependencies.graph
    graph = original.copy()
    store: dict[str, Weight] = dict(graph.weights)
    done: set[str] = set()
    for old, op in zip(original.ops, graph.ops, strict=True):
        changed: Any = op
        if isinstance(op, top.WeightOp):
            if op.ref not in done:
                done.add(op.ref)
                store[op.ref] = _cut(store[op.ref], op.ref, left)
            weight = store[op.ref]
            changed.results[0]._type = tensor_type(weight.shape, weight.dtype)
            continue
        changes = property_rule(old)
        if changes is not None:
            for key, value in changes(old, left).items():
                changed.properties[key] = changed.attribute_of(key, value)
        if all(shape_of(value) == left.shape(value) for value in old.results) and all(
            shape_of(before) == shape_of(after)
            for before, after in zip(old.operands, op.operands, strict=True)
        ):
            continue
        for result, kind in zip(changed.results, changed.infer(), strict=True):
            result._type = kind
    graph.weights = WeightStore(store)
    graph.refresh_signature()
    graph.verify()
    return graph


def _cut(weight: Weight, ref: str, left: RemainingChannels) -> Weight:
    indices = [left.weight_indices(ref, axis, size) for axis, size in enumerate(weight.shape)]
    if all(len(kept) == size for kept, size in zip(indices, weight.shape, strict=True)):
        return weight
    array = np.ascontiguousarray(weight.array()[np.ix_(*indices)])
    array.flags.writeable = False
    return Weight.of(array)


def mask_arrays(dependencies: DependencyGraph, removed: frozenset[int]) -> dict[str, Array]:
    """For each weight that removed channels touch, ones where it stays and zeros where it goes, broadcast to its shape.

    Rows that make a removed channel and columns that read it are masked, and so are the scale and bias of a batch norm; what
    else belongs to a channel, such as a divisor, keeps its values.
    """
    left = RemainingChannels(dependencies, removed)
    masks: dict[str, Array] = {}
    for (ref, axis), known in dependencies.labels.weights.items():
        if known.role == "other":
            continue
        shape = dependencies.graph.weights[ref].shape
        kept = left.weight_indices(ref, axis, shape[axis])
        if len(kept) == shape[axis]:
            continue
        line = np.zeros(shape[axis], np.float32)
        line[kept] = 1
        mask = line.reshape([-1 if at == axis else 1 for at in range(len(shape))])
        masks[ref] = masks[ref] * mask if ref in masks else mask
    return masks


def masked(dependencies: DependencyGraph, selection: Selection) -> Graph:
    """The network with zeros for all weights that make or read the selected channels: the slim network computes the same."""
    graph = dependencies.graph.copy()
    store: dict[str, Weight] = dict(graph.weights)
    for ref, mask in mask_arrays(dependencies, dependencies.removed(selection)).items():
        array = store[ref].array()
        product = (array * mask).astype(array.dtype)
        product.flags.writeable = False
        store[ref] = Weight.of(product)
    graph.weights = WeightStore(store)
    return graph
