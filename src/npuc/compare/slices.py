"""Slices: the parts of a tensor that have different meanings and magnitudes.

A detector returns boxes (0 to 640) and scores (0 to 1) in one tensor: an error over the whole tensor says nothing about the
scores. A slice is an input of the tensor's last concat, found through ops that only move elements; an input that is itself a
concat is split further. Without a concat, a slice is a run of channels whose float ranges differ by less than a factor of 8.
Slices depend only on the float network and its float outputs, so they are the same for every tool that is compared.

Runs are built from the first channel to the last: a channel joins the current run if the largest range of the run stays
below 8 times the smallest; a channel that is always zero joins any run. More than `MOST_RUNS` runs mean that ranges vary
randomly: the factor is doubled until there are few enough. The result of a function with a fixed range (sigmoid, softmax,
tanh, ...) is one slice: all its channels have the same scale, also that of a class that never occurs.
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
"""Start and stop on every axis."""

FACTOR = 8.0
"""Neighbouring channels whose ranges differ by this factor or more are in different slices."""
MOST_RUNS = 8
_MOST = 32
"""Nested concats are split further only up to this number of slices."""
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
    """The name of the concat's input, or `tensor[a:b]`, or the tensor's own name if it is one slice."""
    bounds: tuple[tuple[int, int, int], ...] = ()
    """Axis, start and stop of each axis that is cut; empty for the whole tensor."""

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

    `outputs` are the outputs of the float network for some samples. They provide the ranges of channels for outputs without a
    concat; without them such an output is one slice.
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
    """The channel axis of a tensor; None if its channels have the same scale by construction, or there are no channels.

    The axis is traced from the layer with weights that computes the tensor. If that is not possible, it is axis 1 of two, four
    or more axes, and of three the shorter of the last two.
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
    ranges: dict[str, Array] = {}
    for tensors in samples:
        for name, axis in axes.items():
            array = np.abs(np.asarray(tensors[name], np.float64))
            array = np.where(np.isfinite(array), array, 0.0)
            largest = array.max(axis=tuple(i for i in range(array.ndim) if i != axis), initial=0.0)
            ranges[name] = np.maximum(ranges[name], largest) if name in ranges else largest
    return ranges


def channel_runs(ranges: Array) -> list[tuple[int, int]]:
    """Runs of channels whose ranges differ by less than a factor of 8, by the rule of this module.

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
    """The inputs of the last concat, each with its region of the tensor; the tensor itself if there is no concat."""
    shape = shape_of(value)
    whole: list[tuple[str, Region]] = [(value_name(value), tuple((0, size) for size in shape))]
    op = value.owner
    if isinstance(op, top.Concat):
        axis, start = op.axis % len(shape), 0
        operands = []
        for operand in op.inputs:
            operands.append((operand, start))
            start += shape_of(operand)[axis]
        inner = [_concat_regions(o, depth + 1) if depth < _DEEPEST else [] for o, _ in operands]
        further = sum(map(len, inner)) <= _MOST
        parts = []
        for (operand, start), regions in zip(operands, inner, strict=True):
            if not further or not regions:
                regions = [(value_name(operand), tuple((0, size) for size in shape_of(operand)))]
            for name, region in regions:
                low, high = region[axis]
                moved = (*region[:axis], (low + start, high + start), *region[axis + 1 :])
                if all(low < high for low, high in moved):
                    parts.append((name, moved))
        return parts if len(parts) > 1 else whole
    if isinstance(op, top.Reshape | top.Permute | top.Slice):
        parts = []
        for name, region in _concat_regions(op.x, depth):
            after = _region_after(op, region)
            if after is None:
                return whole
            if all(low < high for low, high in after):
                parts.append((name, after))
        return parts if len(parts) > 1 else whole
    return whole


def _region_after(op: Any, region: Region) -> Region | None:
    """The region of the result that holds a region of the operand; None if it is not a box."""
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
    moved = [(0, size) for size in new]
    taken: set[int] = set()
    for axis, (low, high) in enumerate(region):
        if (low, high) == (0, old[axis]):
            continue
        to = _reshaped_axis(old, new, axis)
        if to is None or to in taken:
            return None
        taken.add(to)
        times = new[to] // old[axis]
        moved[to] = (low * times, high * times)
    return tuple(moved)


def _reshaped_axis(old: tuple[int, ...], new: tuple[int, ...], axis: int) -> int | None:
    """The axis of the new shape that an old axis becomes, alone or as the outermost of several merged axes."""
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
