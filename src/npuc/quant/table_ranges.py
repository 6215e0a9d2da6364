"""Ranges of tensors that only an elementwise function reads, chosen by the error at the function's result.

A silu maps -20 and -10 to the same 8-bit value, and a hard sigmoid is constant beyond 3: a range chosen for the operand spends
steps where the function does not need them. The histogram of the operand gives the squared error at the result for any range;
the two ends are searched in turn.

The operand of a softmax needs no search: a score 20 below the largest of its row has the weight e^-20, which is 0 in 8 bits.
Without that limit, attention masks (sums with -10000) would leave one step for all scores. The limit is taken per row: in a
text recognizer the largest score of one position may be far below those of the others (`softmax_floors`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.statistics import Statistics, TensorStatistics
from npuc.calib.table import Entry
from npuc.engine import float_engine
from npuc.ir import Graph, value_name
from npuc.ir.top import Softmax
from npuc.ir.top.functions import FUNCTIONS
from npuc.quant.inserted import SOFTMAX_REACH
from npuc.quant.layer_schemes import LayerSchemes

_ENDS = 64
_ROUNDS = 3
_METHOD = "table"
_MASKED = 1000.0
"""A row whose largest score is this far below that of the tensor is entirely masked."""


def softmax_floors(
    graph: Graph, samples: Sequence[Mapping[str, Array]], threads: int = 1
) -> dict[str, float]:
    """For each operand of a softmax, by name: the smallest of the largest scores of its rows, over some samples."""
    axes = {value_name(op.x): op.axis for op in graph.ops if isinstance(op, Softmax)}
    floors: dict[str, float] = {}
    if not axes or not samples:
        return floors
    engine = float_engine(graph, fetch=list(axes), threads=threads)
    for sample in samples:
        scores = engine.run(sample)
        for name, axis in axes.items():
            if not scores[name].size:
                continue
            largest = np.nan_to_num(scores[name].max(axis=axis), neginf=-np.inf)
            visible = largest[largest > largest.max() - _MASKED]
            floors[name] = min(floors.get(name, np.inf), float(visible.min(initial=np.inf)))
    return {name: floor for name, floor in floors.items() if np.isfinite(floor)}


Ends = tuple[float, float]


def refined_entries(
    graph: Graph,
    statistics: Statistics,
    table: Mapping[str, Entry],
    scheme_of: LayerSchemes,
    known: dict[tuple[str, Ends], Ends] | None = None,
    floors: Mapping[str, float] | None = None,
) -> dict[str, Entry]:
    """Better ranges for the operands of functions of 8-bit affine layers, searched from those of a table.

    `known` caches search results by tensor and initial range, because the search is slow. `floors` are those of
    `softmax_floors`; a softmax that is not among them keeps its range.
    """
    known, floors = {} if known is None else known, floors or {}
    entries: dict[str, Entry] = {}
    for op in graph.ops:
        function = FUNCTIONS.get(type(op))
        if function is None and not isinstance(op, Softmax):
            continue
        x, scheme = op.operands[0], scheme_of(op)
        owner = x.owner
        before = scheme_of(owner) if hasattr(owner, "operands") else scheme
        name = value_name(x)
        eight = [
            s is not None and not s.has_wide_activations and s.activation_scales == "affine"
            for s in (scheme, before)
        ]
        if not (all(eight) and x.has_one_use() and name in table and name in statistics):
            continue
        old = table[name]
        if function is None:
            observed, floor = statistics[name], floors.get(name)
            if floor is not None and floor - old.min > SOFTMAX_REACH:
                entries[name] = replace(
                    old, min=max(observed.min, floor - SOFTMAX_REACH), max=observed.max, method=_METHOD
                )
            continue
        start = (name, (old.min, old.max))
        if start not in known:
            known[start] = best_ends(
                statistics[name], lambda v, f=function, op=op: f(op, v), old.min, old.max
            )
        low, high = known[start]
        entries[name] = replace(old, min=low, max=high, method=_METHOD)
    return entries


def best_ends(
    statistics: TensorStatistics, function: Any, low: float, high: float, levels: int = 255
) -> tuple[float, float]:
    """The range with the least squared error at the function's result, searched from a given one."""
    used = statistics.histogram > 0
    counts, centers = statistics.histogram[used].astype(np.float64), statistics.centers()[used]
    with np.errstate(all="ignore"):
        exact = np.nan_to_num(function(centers))

    def cost(low: float, high: float) -> float:
        scale = max((high - low) / levels, 1e-12)
        zero = np.rint(-low / scale)
        with np.errstate(all="ignore"):
            entries = np.nan_to_num(function(scale * (np.arange(levels + 1) - zero)))
        steps = np.clip(np.rint(centers / scale) + zero, 0, levels).astype(np.int64)
        return float((counts * np.square(entries[steps] - exact)).sum())

    best = cost(low, high)
    bottom, top = min(0.0, statistics.min), max(0.0, statistics.max)
    for _ in range(_ROUNDS):
        before = best
        for end in np.linspace(bottom, 0.0, _ENDS, endpoint=False) if bottom < 0 else ():
            if (error := cost(float(end), high)) < best:
                best, low = error, float(end)
        for end in np.linspace(top, 0.0, _ENDS, endpoint=False) if top > 0 else ():
            if (error := cost(low, float(end))) < best:
                best, high = error, float(end)
        if best == before:
            break
    return low, high
