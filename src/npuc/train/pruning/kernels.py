"""Smaller kernels: the middle of a convolution's kernel, with less padding around the input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Weight, WeightStore, shape_of, shown_name, tensor_type, top


def kernel_choices(graph: Graph) -> dict[str, list[int]]:
    """For each convolution with a square kernel of odd size and padding for it, the sizes that it can have, largest first."""
    choices: dict[str, list[int]] = {}
    uses: dict[str, int] = {}
    for op in graph.ops:
        for value in op.operands:
            if isinstance(value.owner, top.WeightOp):
                uses[value.owner.ref] = uses.get(value.owner.ref, 0) + 1
    for op in graph.ops:
        if not isinstance(op, top.Conv) or not isinstance(op.weight.owner, top.WeightOp):
            continue
        sizes = set(shape_of(op.weight)[2:])
        size = max(sizes)
        spare = min(pad // dilation for pad, dilation in zip(op.pads, op.dilations * 2, strict=True))
        smaller = [k for k in range(size - 2, 0, -2) if (size - k) // 2 <= spare]
        if len(sizes) == 1 and size % 2 and smaller and uses[op.weight.owner.ref] == 1:
            choices[shown_name(op)] = [size, *smaller]
    return choices


def kernel_mask(size: int, kept: int, rank: int) -> Array:
    """Ones in the middle of a kernel, to be multiplied with a weight.

    >>> kernel_mask(3, 1, 1).reshape(-1).tolist()
    [0.0, 1.0, 0.0]
    """
    mask = np.zeros((1, 1, *(size,) * rank), np.float32)
    border = (size - kept) // 2
    mask[(slice(None), slice(None), *(slice(border, size - border),) * rank)] = 1
    return mask


def kernel_masks(graph: Graph, kernels: Mapping[str, int]) -> dict[str, Array]:
    """For each weight whose kernel gets smaller, its mask."""
    masks: dict[str, Array] = {}
    for op in graph.ops:
        if isinstance(op, top.Conv) and isinstance(op.weight.owner, top.WeightOp):
            shape = shape_of(op.weight)
            kept = kernels.get(shown_name(op), shape[2])
            if kept != shape[2]:
                masks[op.weight.owner.ref] = kernel_mask(shape[2], kept, len(shape) - 2)
    return masks


def with_kernels(graph: Graph, kernels: Mapping[str, int]) -> Graph:
    """The network with smaller kernels: it computes what it would with zeros around their middles."""
    graph = graph.copy()
    store: dict[str, Weight] = dict(graph.weights)
    for op in graph.ops:
        changed: Any = op
        if not isinstance(op, top.Conv) or shown_name(op) not in kernels:
            continue
        owner: Any = op.weight.owner
        array = store[owner.ref].array()
        border = (array.shape[2] - kernels[shown_name(op)]) // 2
        if not border:
            continue
        inner = (slice(None), slice(None), *(slice(border, -border),) * (array.ndim - 2))
        store[owner.ref] = Weight.of(np.ascontiguousarray(array[inner]))
        owner.results[0]._type = tensor_type(store[owner.ref].shape, store[owner.ref].dtype)
        pads = [pad - border * step for pad, step in zip(op.pads, op.dilations * 2, strict=True)]
        changed.properties["pads"] = changed.attribute_of("pads", pads)
    graph.weights = WeightStore(store)
    graph.verify()
    return graph
