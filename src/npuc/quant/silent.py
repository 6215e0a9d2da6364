"""Ranges of tensors that were zero in all of the calibration data, derived from their operands.

A tensor that a mask sets to zero in every sample (such as the padding of a sentence) has an empty range, which would turn
all values of other data into zeros. The mask is 0 or 1 by its type, and the range of what it multiplies is known, so the
range of the product can be derived without a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npuc.calib.statistics import DEFAULT_BOUND
from npuc.calib.table import Entry
from npuc.ir import Graph, Value, dtype_of, top, value_name
from npuc.ir.top.movement import MOVERS

_METHOD = "operands"
Ends = tuple[float, float]


def silent_entries(graph: Graph, table: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries for tensors whose range in a table is empty, if their operands imply a larger one."""
    entries: dict[str, Entry] = {}

    def ends(value: Value) -> Ends:
        name = value_name(value)
        entry = entries.get(name) or table.get(name)
        if entry is not None:
            return entry.min, entry.max
        if isinstance(value.owner, top.WeightOp):
            array = graph.weights.array(value.owner.ref)
            return (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
        return 0.0, 0.0

    for op in graph.ops:
        for value in op.results:
            name = value_name(value)
            entry = table.get(name)
            if entry is None or entry.min or entry.max:
                continue
            low, high = 0.0, 0.0
            if isinstance(op, top.Cast) and dtype_of(op.operands[0].type).name == "i1":
                high = 1.0
            elif isinstance(op, MOVERS):
                low, high = ends(op.operands[0])
            elif isinstance(op, top.Mul):
                first, second = map(ends, op.operands)
                products = [a * b for a in first for b in second]
                low, high = min(0.0, *products), max(0.0, *products)
            elif isinstance(op, top.Where):
                first, second = map(ends, op.operands[1:])
                low, high = min(0.0, first[0], second[0]), max(0.0, first[1], second[1])
            # What is as large as a mask's -inf is no range: `npuc.quant.masks` has one for it.
            low, high = (end if abs(end) < DEFAULT_BOUND else 0.0 for end in (low, high))
            if low or high:
                entries[name] = replace(entry, min=low, max=high, threshold=max(-low, high), method=_METHOD)
    return entries
