"""Reshapes move through elementwise ops until they meet, merge and cancel.

    %0 = top.reshape(%x)                                   %y = top.add(%x, %z)
    %1 = top.reshape(%z)                           →
    %2 = top.add(%0, %1)
    %y = top.reshape(%2) {shape = <the shape of x>}

Nothing moves unless fewer reshapes remain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, apply_patterns, register_pass
from npuc.transform.crossing import Refolding, cross
from npuc.transform.merge_reshapes import MergeReshapes


@register_pass
@dataclass(frozen=True)
class MoveReshapes(Pass):
    """Cancel reshapes across ops."""

    name: ClassVar[str] = "move-reshapes"

    def run(self, graph: Graph) -> None:
        """Until nothing moves; every round leaves fewer reshapes."""
        apply_patterns(graph, [MergeReshapes(graph)])
        while cross(graph, Refolding):
            apply_patterns(graph, [MergeReshapes(graph)])
