"""Layers of f16 whose values f16 does not hold: 65,504 is its largest number, and what is larger becomes an infinity.

bf16 and f32 reach 3.4e38, so such a layer gets the first of them that the target computes with, and stays float elsewhere.
The ranges of tensors are those that were seen on data; without data nothing is known, and nothing is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from npuc.ir import Graph, shown_name, value_name
from npuc.quant.from_target import misfit
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.target import Target

LARGEST = float(np.finfo(np.float16).max)
"""The largest number of f16."""


def within_f16(
    graph: Graph, schemes: LayerSchemes, ranges: Mapping[str, Any], target: Target | None
) -> tuple[LayerSchemes, list[str]]:
    """Schemes under which no layer of f16 meets a number that it does not hold, and a sentence for each layer changed."""
    wider = [SCHEMES[name] for name in ("bf16", "f32")]
    wide = next((scheme for scheme in wider if target is None or misfit(scheme, target) is None), None)
    instead = "float32" if wide is None else wide.activation
    notes = []

    def change(op: Any, scheme: Scheme) -> Scheme | None:
        if scheme.activation != "f16":
            return scheme
        reach = reach_of(op, graph, ranges)
        if reach <= LARGEST:
            return scheme
        notes.append(
            f"layer '{shown_name(op)}' is kept in {instead}: its values reach {reach:,.0f}, and f16 holds up to {LARGEST:,.0f}"
        )
        return wide

    return schemes.changed(change), notes


def reach_of(op: Any, graph: Graph, ranges: Mapping[str, Any]) -> float:
    """The largest magnitude that was seen in what an op reads and makes."""
    names = map(value_name, _activations(op, graph))
    return max((_reach(ranges[name]) for name in names if name in ranges), default=0.0)


def _activations(op: Any, graph: Graph) -> list[Any]:
    """What an op reads and makes, but for constants."""
    return [value for value in (*op.operands, *op.results) if graph.constant(value) is None]


def _reach(range_: Any) -> float:
    """The largest magnitude in a range: a pair, or an entry of a calibration table."""
    ends = range_ if isinstance(range_, tuple) else (range_.min, range_.max)
    return float(max(abs(end) for end in ends))
