"""Masks: which weights of a network stay when of every M input channels N are kept.

In each block those of largest magnitude stay; of equal ones the first. Blocks lie along the axis that a product sums over, for
each output channel and each tap of a kernel by itself, as machines read them (docs/weight-sparsity.md).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.arrays import Array
from npuc.errors import UsageError
from npuc.ir import Graph, Value, Weight, WeightStore, shape_of, shown_name, top


@dataclass(frozen=True)
class PrunableWeight:
    """A weight that may become sparse."""

    ref: str
    """Its name in the network."""
    layer: str
    """The first layer that uses it, as reports call it."""
    axis: int
    """The axis that is summed over."""
    reason: str = ""
    """Why it stays dense; empty if it need not."""


def prunable_weights(
    graph: Graph, pattern: SparsityPattern, exclude: Collection[str] = ()
) -> list[PrunableWeight]:
    """The weights of convolutions and products of a float network, those that have to stay dense with the reason."""
    weights: dict[str, PrunableWeight] = {}
    layers: set[str] = set()
    for op in graph.ops:
        weight = weight_value(op)
        if weight is None or not isinstance(weight.owner, top.WeightOp):
            continue
        ref, name = weight.owner.ref, shown_name(op)
        axis, inputs = _reduction(op, shape_of(weight))
        layers.add(name)
        reason = ""
        if name in exclude:
            reason = "excluded by the user"
        elif inputs % pattern.block:
            reason = f"its {inputs} input channels are no whole blocks of {pattern.block}"
        elif ref in weights and weights[ref].axis != axis:
            reason = f"'{weights[ref].layer}' sums over another axis of the same weight"
        if ref not in weights or reason:
            weights[ref] = PrunableWeight(ref, weights[ref].layer if ref in weights else name, axis, reason)
    for name in exclude:
        if name not in layers:
            raise UsageError(
                f"there is no layer '{name}' with weights, so it cannot be excluded from sparsity",
                fix=f"Layers with weights are {', '.join(sorted(layers)[:5]) or 'none'}",
            )
    return list(weights.values())


def weight_value(op: Any) -> Value | None:
    """The weight of a convolution or a product; None for other ops."""
    if isinstance(op, top.Conv | top.Deconv):
        return op.weight
    return op.b if isinstance(op, top.MatMul) else None


def _reduction(op: Any, shape: Sequence[int]) -> tuple[int, int]:
    """The axis of a layer's weight that it sums over, and how many of its entries belong to one output."""
    if isinstance(op, top.Deconv):
        return 0, shape[0] // op.group
    axis = len(shape) - (1 if op.transpose_b else 2) if isinstance(op, top.MatMul) else 1
    return axis, shape[axis]


def magnitude_mask(weight: Array, kept: int, block: int, axis: int) -> Array:
    """True for the `kept` weights of largest magnitude in each `block` along an axis.

    >>> magnitude_mask(np.array([[1.0, -3.0, 0.5, 2.0]]), 2, 4, 1).tolist()
    [[False, True, False, True]]
    """
    moved = np.moveaxis(np.abs(weight), axis, -1)
    blocks = moved.reshape(*moved.shape[:-1], -1, block)
    order = np.argsort(-blocks, axis=-1, kind="stable")
    mask = np.zeros(blocks.shape, bool)
    np.put_along_axis(mask, order[..., :kept], True, axis=-1)
    result: Array = np.moveaxis(mask.reshape(moved.shape), -1, axis)
    return result


def masks_of(
    graph: Graph, pattern: SparsityPattern, exclude: Collection[str] = (), kept: int | None = None
) -> dict[str, Array]:
    """The masks of all weights that may become sparse; `kept` values of a block instead of the pattern's own."""
    return {
        entry.ref: magnitude_mask(
            graph.weights[entry.ref].array(), kept or pattern.kept, pattern.block, entry.axis
        )
        for entry in prunable_weights(graph, pattern, exclude)
        if not entry.reason
    }


def kept_magnitude(graph: Graph, masks: Mapping[str, Array]) -> float:
    """The share of the magnitude of the masked weights that stays."""
    arrays = {ref: np.abs(graph.weights[ref].array().astype(np.float64)) for ref in masks}
    whole = sum(float(array.sum()) for array in arrays.values())
    return sum(float(arrays[ref][mask].sum()) for ref, mask in masks.items()) / whole if whole else 1.0


def masked_graph(graph: Graph, masks: Mapping[str, Array]) -> Graph:
    """The network with zeros where masks are False."""
    store: dict[str, Weight] = dict(graph.weights)
    for ref, mask in masks.items():
        array = store[ref].array()
        store[ref] = Weight.of(np.where(mask, array, np.zeros((), array.dtype)))
    copy = graph.copy()
    return Graph(copy.module, WeightStore(store))
