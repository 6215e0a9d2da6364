"""Custom ops and subgraphs become ops of plugins that know them, whichever importer made them.

top.onnx(x) {domain = "npuc.custom", op_type = "HardGlu"}   →   top.hard_glu(x)

An importer keeps an op that it does not know as `top.onnx` of a domain of its own (`npuc.caffe`, `npuc.keras`, ...), and
`npuc.lang.custom` makes one of `npuc.custom`. Subgraphs are found by the rules of plugins (`npuc.ir.subgraph_rules`). Without
plugins this pass has nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from npuc.ir.claims import CLAIMS, claim
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, register_pass
from npuc.ir.subgraph_rules import join_subgraphs


@register_pass
@dataclass(frozen=True)
class ClaimCustomOps(Pass):
    """Replace the custom ops and the subgraphs that plugins know."""

    name: ClassVar[str] = "claim-custom-ops"

    def run(self, graph: Graph) -> None:
        """One walk: what a plugin makes is its own business."""
        claimed(graph)
        join_subgraphs(graph)


def claimed(graph: Graph) -> Graph:
    """The network itself, after the custom ops that plugins know were replaced, and nothing else.

    For what runs a network as it stands: a file may have been imported without the plugin that is here now, and a custom op alone
    computes nothing.
    """
    for op in list(graph.ops) if CLAIMS else ():
        claim(op, graph)
    return graph
