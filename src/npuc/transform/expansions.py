"""Which passes a network needs before it is quantized: those that replace ops without an integer form by ops that have one.

They are no part of the canonical form, because the float engine runs the whole ops faster. A network that has none of these ops
is left as it is. So are networks that come quantized, but for attention, scales and ops that only move or compare elements
(gathers, max pools of volumes): they state the types of their own tensors, and none of what stands between those of a new
composition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.ir import top
from npuc.ir.graph import Graph
from npuc.transform import (
    constant_indices,
    cumsum_to_matmul,
    expand_reduce,
    expand_resize,
    fold_depth,
    grid_to_matmul,
    pad_to_gather,
    runtime_indices,
)

Applies = Callable[[Any, Graph], bool]

_PASSES: tuple[tuple[str, tuple[type, ...], Applies], ...] = (
    ("expand-attention", (top.Attention,), lambda op, graph: True),
    ("gather-to-slice", (top.Gather,), lambda op, graph: True),
    ("expand-reduce", (top.Reduce,), lambda op, graph: expand_reduce.is_composite(op)),
    ("cumsum-to-matmul", (top.CumSum,), lambda op, graph: cumsum_to_matmul.is_product(op)),
    (
        "fold-depth",
        (top.Conv, top.Deconv, top.AvgPool, top.MaxPool),
        lambda op, graph: fold_depth.is_volume(op),
    ),
    ("expand-resize", (top.Resize,), lambda op, graph: expand_resize.is_composite(op)),
    ("grid-to-matmul", (top.GridSample,), grid_to_matmul.is_product),
    ("pad-to-gather", (top.Pad,), lambda op, graph: pad_to_gather.has_gathers(op)),
    (
        "constant-indices",
        (top.Gather, top.GatherElements, top.GatherND, top.ScatterElements, top.ScatterND),
        constant_indices.applies,
    ),
    (
        "run-time-indices",
        (top.GatherElements, top.GatherND, top.ScatterElements, top.ScatterND),
        runtime_indices.is_flat_gather,
    ),
    ("fold-scale,scale-to-conv", (top.Attention, top.Gather, top.Scale), lambda op, graph: True),
)
"""Passes in their order, the kinds of op that they are for, and which of those they replace."""
_OF_QUANTIZED: dict[str, tuple[type, ...]] = {
    "expand-attention": (top.Attention,),
    "gather-to-slice": (top.Gather,),
    "constant-indices": (top.Gather, top.GatherElements, top.GatherND),
    "run-time-indices": (top.GatherElements, top.GatherND),
    "fold-depth": (top.MaxPool,),
    "fold-scale,scale-to-conv": (top.Attention, top.Gather, top.Scale),
}
"""Those that networks which come quantized need, too, and for which ops: elements that only move, or are compared, keep their
types on the way."""
_MOVING = ("fold-depth", "expand-resize", "cumsum-to-matmul")
"""Passes whose reshapes and permutes may cancel those of their neighbours."""


def expansions_of(graph: Graph) -> str:
    """The pipeline that replaces the composite ops of a network; empty if it has none."""
    quantized = any(isinstance(op, top.Quantize | top.Dequantize) for op in graph.ops)
    needed = []
    for name, kinds, applies in _PASSES:
        replaced = [op for op in graph.ops if isinstance(op, kinds) and applies(op, graph)]
        if replaced and (
            not quantized or all(isinstance(op, _OF_QUANTIZED.get(name, ())) for op in replaced)
        ):
            needed.append(name)
    if set(needed) & set(_MOVING):
        needed += ["merge-reshapes", "remove-identities"]
    if "constant-indices" in needed:
        needed.append("fold-constants")
    return ",".join(needed)
