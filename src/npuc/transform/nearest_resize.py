"""Resizing by nearest neighbours in the place of interpolation, on request.

    resize(x) {mode = "linear"}   →   resize(x) {mode = "nearest"}

It changes what a network computes: what it changed is among the notes of the graph. Nearest neighbours only move elements,
which is exact in integers and cheap on most machines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.graph import Graph
from npuc.ir.names import shown_name
from npuc.ir.passes import Pass, PatternRewriter, apply_patterns, register_pass, rewrites
from npuc.ir.top import Resize
from npuc.transform.patterns import GraphPattern, set_properties
from npuc.words import counted


class NearestNeighbours(GraphPattern):
    """interpolation → nearest neighbour"""

    def __init__(self, graph: Graph, changed: list[str]) -> None:
        super().__init__(graph)
        self.changed = changed

    @rewrites
    def match_and_rewrite(self, op: Resize, rewriter: PatternRewriter) -> None:
        """Of any interpolation; antialiasing goes with it."""
        if op.mode != "nearest":
            self.changed.append(shown_name(op))
            set_properties(rewriter, op, mode="nearest", antialias=False, exclude_outside=False)


@register_pass
@dataclass(frozen=True)
class NearestResize(Pass):
    """Resizing by nearest neighbours; changes what a network computes, and says where."""

    name: ClassVar[str] = "nearest-resize"

    def run(self, graph: Graph) -> None:
        """Change every interpolation."""
        changed: list[str] = []
        apply_patterns(graph, [NearestNeighbours(graph, changed)])
        if changed:
            graph.notes.append(
                f"nearest neighbours instead of interpolation in {counted(len(changed), 'layer')}"
            )
