"""Ops whose results nobody uses go, and weights that no op refers to leave the store.

%0 = top.relu(%x)                          return %x
return %x                         →
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.definition import TensorOp
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import WeightOp
from npuc.ir.weights import WeightStore


def drop_unused_weights(graph: Graph) -> None:
    """Remove the `top.weight` ops that nothing uses, as every pass that replaces constants does at its end."""
    for op in list(graph.ops):
        if isinstance(op, WeightOp) and op.output.first_use is None:
            graph.block.erase_op(op)


@register_pass
@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Remove what does not reach an output; inputs stay, used or not."""

    name: ClassVar[str] = "eliminate-dead-code"

    def run(self, graph: Graph) -> None:
        """One walk from the end: an op's users come after it."""
        op = graph.block.last_op
        while op is not None:
            before = op.prev_op
            if isinstance(op, TensorOp) and all(result.first_use is None for result in op.results):
                graph.block.erase_op(op)
            op = before
        used = graph.used_weights()
        if len(used) < len(graph.weights):
            graph.weights = WeightStore({ref: graph.weights[ref] for ref in used if ref in graph.weights})
