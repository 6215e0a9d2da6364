"""Slices: the parts of a tensor that mean different things and share nothing but its memory.

A detector gives boxes (0 to 640) and scores (0 to 1) in one tensor: a figure over the whole says nothing about the scores.
A slice is an input of the tensor's last concat, found through ops that only move elements; an input that is a concat itself
is cut further. Without a concat, a slice is a run of channels whose float ranges differ by less than 8 times. Slices are
found on the float network and its float outputs alone, so they are the same for every tool that is compared.

Runs are made from the first channel to the last: a channel joins the run before it if the largest range of the run stays
below 8 times the smallest; a channel that is always zero joins any run. More than `MOST_RUNS` runs say that ranges scatter
rather than that parts differ: the factor is doubled until there are no more. What a function of a fixed range made (sigmoid,
softmax, tanh, ...) is one slice: its channels have one scale, and a class that never occurs is no part of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, dtype_of, shape_of, top, value_name

Region = tuple[tuple[int, int], ...]
"""First and last + 1 on every axis."""

FACTOR = 8.0
"""Ranges of neighbouring channels that differ by this factor or more are of different slices."""
MOST_RUNS = 8
_MOST = 32
"""Concats inside a concat are looked into while there are no more slices than this."""
_DEEPEST = 4
_FIXED_RANGE = (top.Sigmoid, top.HardSigmoid, top.Softmax, top.LogSoftmax, top.Tanh, top.Softsign)
_ELEMENTWISE = (
    top.Relu,
    top.LeakyRelu,
    top.Clip,
    top.SiLU,
    top.HardSwish,
    top.Gelu,
    top.Scale,
    top.BatchNorm,
)


@dataclass(frozen=True)
class Slice:
    """A part of a tensor: a range on some axes, all of the others."""

    tensor: str
    name: str
    """That of the input of the concat, or `tensor[a:b]`; of a tensor in one part, its own."""
    bounds: tuple[tuple[int, int, int], ...] = ()
    """Axis, first, last + 1, for each axis that is cut; empty if it is the whole tensor."""

    def of(self, array: Array) -> Array:
        """This part of the tensor, a view.

        >>> Slice("y", "boxes", ((1, 0, 2),)).of(np.arange(6).reshape(1, 3, 2)).tolist()
        [[[0, 1], [2, 3]]]
        """
        index: list[slice] = [slice(None)] * array.ndim
        for axis, start, stop in self.bounds:
            index[axis] = slice(start, stop)
        return array[tuple(index)]

    def __str__(self) -> str:
        return self.name if self.name.startswith(self.tensor) else f"{self.name} (in {self.tensor})"


def find_slices(graph: Graph, outputs: Iterable[Mapping[str, Array]] = ()) -> dict[str, tuple[Slice, ...]]:
    """The slices of every float output of a float network, by the output's name.

    `outputs` are what the float network gives for some samples: they tell the ranges of channels where there is no concat;
    without them such an output is one slice.
    """
    ports = {port.name: port.value for port in graph.outputs if dtype_of(port.type).is_float}
    axes = {
        name: axis
        for name, value in ports.items()
        if len(_concat_regions(value)) < 2 and (axis := channel_axis(value)) is not None
    }
    ranges = channel_ranges(outputs, axes) if axes else {}
    return {name: slices_of(value, ranges.get(name), name) for name, value in ports.items()}


def slices_of(value: Value, ranges: Array | None = None, name: str = "") -> tuple[Slice, ...]:
    """The slices of any tensor of a float network; `ranges` are the largest magnitudes of its channels (`channel_axis`)."""
    tensor = name or value_name(value)
    regions = _concat_regions(value)
    if len(regions) > 1:
        return tuple(Slice(tensor, part, _bounds(region, shape_of(value))) for part, region in regions)
    axis = channel_axis(value)
    if ranges is None or axis is None:
        return (Slice(tensor, tensor),)
    runs = channel_runs(ranges)
    if len(runs) < 2:
        return (Slice(tensor, tensor),)
    cut = ", ".join([":"] * axis)
    before = f"{cut}, " if cut else ""
    return tuple(Slice(tensor, f"{tensor}[{before}{a}:{b}]", ((axis, a, b),)) for a, b in runs)


def channel_axis(value: Value) -> int | None:
    """The axis of the channels of a tensor; None where they have one scale by construction, or there are none.

    It is followed from the layer with weights that made the tensor; where it cannot be, it is axis 1 of four axes or more,
    the last of two, and of three the shorter of the last two.
    """
    shape = shape_of(value)
    if len(shape) < 2 or prod(shape) == 0:
        return None
    chain: list[Any] = []
    while True:
        op = value.owner
        if isinstance(op, _FIXED_RANGE):
            return None
        if isinstance(op, (top.Reshape, top.Permute, *_ELEMENTWISE)):
            chain.append(op)
            value = op.operands[0]
            continue
        break
    traced: int | None = None
    if isinstance(op, top.Conv | top.Deconv):
        traced = 1
    elif isinstance(op, top.MatMul):
        traced = len(shape_of(value)) - 1
    for step in reversed(chain):
        traced = None if traced is None else _axis_after(step, traced)
    if traced is not None:
        return traced
    if len(shape) == 3:
        return 1 if shape[1] < shape[2] else 2
    return 1


def channel_ranges(samples: Iterable[Mapping[str, Array]], axes: Mapping[str, int]) -> dict[str, Array]:
    """The largest magnitude of every channel of some tensors over samples; NaN and infinities do not count."""
    found: dict[str, Array] = {}
    for tensors in samples:
        for name, axis in axes.items():
            array = np.abs(np.asarray(tensors[name], np.float64))
            array = np.where(np.isfinite(array), array, 0.0)
            largest = array.max(axis=tuple(i for i in range(array.ndim) if i != axis), initial=0.0)
            found[name] = np.maximum(found[name], largest) if name in found else largest
    return found


def channel_runs(ranges: Array) -> list[tuple[int, int]]:
    """Runs of channels whose ranges differ by less than 8 times, by the rule of this module.

    >>> channel_runs(np.array([600.0, 0.0, 500.0, 1.0, 0.9]))
    [(0, 3), (3, 5)]
    """
    factor = FACTOR
    while len(runs := _runs(ranges, factor)) > MOST_RUNS:
        factor *= 2
    return runs


def _runs(ranges: Array, factor: float) -> list[tuple[int, int]]:
    starts, low, high = [0], np.inf, 0.0
    for channel, size in enumerate(ranges.tolist()):
        if size <= 0:
            continue
        if high > 0 and max(high, size) >= factor * min(low, size):
            starts.append(channel)
            low, high = size, size
        else:
            low, high = min(low, size), max(high, size)
    return list(zip(starts, [*starts[1:], len(ranges)], strict=True))


def _concat_regions(value: Value, depth: int = 0) -> list[tuple[str, Region]]:
    """The inputs of the last concat by name, and where they are in the tensor; the tensor itself if there is none."""
    shape = shape_of(value)
    whole: list[tuple[str, Region]] = [(value_name(value), tuple((0, size) for size in shape))]
    op = value.owner
    if isinstance(op, top.Concat):
        axis, start = op.axis % len(shape), 0
        parts = []
        for operand in op.inputs:
            parts.append((operand, start))
            start += shape_of(operand)[axis]
        inner = [_concat_regions(o, depth + 1) if depth < _DEEPEST else [] for o, _ in parts]
        further = sum(map(len, inner)) <= _MOST
        found = []
        for (operand, start), regions in zip(parts, inner, strict=True):
            if not further or not regions:
                regions = [(value_name(operand), tuple((0, size) for size in shape_of(operand)))]
            for name, region in regions:
                low, high = region[axis]
                moved = (*region[:axis], (low + start, high + start), *region[axis + 1 :])
                if all(low < high for low, high in moved):
                    found.append((name, moved))
        return found if len(found) > 1 else whole
    if isinstance(op, top.Reshape | top.Permute | top.Slice):
        found = []
        for name, region in _concat_regions(op.x, depth):
            after = _region_after(op, region)
            if after is None:
                return whole
            if all(low < high for low, high in after):
                found.append((name, after))
        return found if len(found) > 1 else whole
    return whole


def _region_after(op: Any, region: Region) -> Region | None:
    """Where a part of the operand is in the result; None if that is no box."""
    if isinstance(op, top.Permute):
        return tuple(region[axis] for axis in op.order)
    old, new = shape_of(op.x), shape_of(op.y)
    if isinstance(op, top.Slice):
        if any(step != 1 for step in op.steps):
            return None
        return tuple(
            (min(max(low - first, 0), size), min(max(high - first, 0), size))
            for (low, high), first, size in zip(region, op.offset, new, strict=True)
        )
    found = [(0, size) for size in new]
    taken: set[int] = set()
    for axis, (low, high) in enumerate(region):
        if (low, high) == (0, old[axis]):
            continue
        to = _reshaped_axis(old, new, axis)
        if to is None or to in taken:
            return None
        taken.add(to)
        times = new[to] // old[axis]
        found[to] = (low * times, high * times)
    return tuple(found)


def _reshaped_axis(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int | None:
    """The axis that has the elements of an axis in their order, alone or as the outermost of several."""
    before = prod(old[:axis])
    for to, size in enumerate(new):
        if prod(new[:to]) == before and size % old[axis] == 0 and (size > 1 or old[axis] == 1):
            return to
    return None


def _axis_after(op: Any, axis: int) -> int | None:
    if isinstance(op, top.Permute):
        return int(op.order.index(axis))
    if isinstance(op, top.Reshape):
        old, new = shape_of(op.x), shape_of(op.y)
        to = _reshaped_axis(old, new, axis)
        return to if to is not None and new[to] == old[axis] else None
    return axis


def _bounds(region: Region, shape: tuple[int, ...]) -> tuple[tuple[int, int, int], ...]:
    return tuple(
        (axis, low, high)
        for axis, ((low, high), size) in enumerate(zip(region, shape, strict=True))
        if (low, high) != (0, size)
    )
