"""Permutes move through the ops that do not mind them until they meet and cancel.

    %0 = top.permute(%x) {order = [0, 2, 3, 1]}            %y = top.sigmoid(%x)
    %1 = top.sigmoid(%0)                           →
    %y = top.permute(%1) {order = [0, 3, 1, 2]}

Elementwise ops, concat, split, slice, pad, tile, reductions and softmax do not mind, with their axes renumbered.
Nothing moves unless fewer permutes remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, apply_patterns, register_pass
from npuc.transform.crossing import Permutation, cross
from npuc.transform.merge_reshapes import MergePermutes


@register_pass
@dataclass(frozen=True)
class MovePermutes(Pass):
    """Cancel permutes across ops."""

    name: ClassVar[str] = "move-permutes"

    def run(self, graph: Graph) -> None:
        """Until nothing moves; every round leaves fewer permutes."""
        apply_patterns(graph, [MergePermutes(graph)])
        while cross(graph, Permutation):
            apply_patterns(graph, [MergePermutes(graph)])
