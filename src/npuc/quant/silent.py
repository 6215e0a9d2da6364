"""Ranges of tensors that were zero in all of the calibration data, from what their ops can give.

A step that a mask left out in every sample (the padding of a sentence, which none of a few samples had at this place) shows
nothing but zeros, and a range of nothing makes zeros of whatever comes there on other data. The mask itself is 0 or 1 by its
type, and what it is multiplied by was seen: the range of the product is known without a sample.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from npuc.calib.table import Entry
from npuc.ir import Graph, Value, dtype_of, top, value_name
from npuc.ir.top.movement import MOVERS

_METHOD = "operands"
Ends = tuple[float, float]


def silent_entries(graph: Graph, table: Mapping[str, Entry]) -> dict[str, Entry]:
    """Entries for tensors whose range in a table is nothing, and which may be something."""
    found: dict[str, Entry] = {}

    def ends(value: Value) -> Ends:
        name = value_name(value)
        entry = found.get(name) or table.get(name)
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
                one, other = map(ends, op.operands)
                products = [a * b for a in one for b in other]
                low, high = min(0.0, *products), max(0.0, *products)
            elif isinstance(op, top.Where):
                one, other = map(ends, op.operands[1:])
                low, high = min(0.0, one[0], other[0]), max(0.0, one[1], other[1])
            if low or high:
                found[name] = replace(entry, min=low, max=high, threshold=max(-low, high), method=_METHOD)
    return found
