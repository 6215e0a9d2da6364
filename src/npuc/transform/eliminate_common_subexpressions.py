"""Ops that compute the same thing are computed once.

    %0 = top.relu(%x)                          %0 = top.relu(%x)
    %1 = top.relu(%x)                 →        %2 = top.add(%0, %0)
    %2 = top.add(%0, %1)

Weights are the same if they refer to the same stored tensor, or to small ones of equal content.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from xdsl.dialects.func import ReturnOp
from xdsl.ir import Operation

from npuc.ir.definition import TopOp
from npuc.ir.graph import Graph
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import WeightOp
from npuc.transform.determinism import is_deterministic
from npuc.transform.patterns import is_output, take_name


@register_pass
@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Replace every op by the first one with the same name, operands and properties."""

    name: ClassVar[str] = "eliminate-common-subexpressions"

    small: int = 4096
    """Weights of at most this many bytes are compared by content."""

    def run(self, graph: Graph) -> None:
        """One walk from the start: operands are unified before their users."""
        first_of: dict[Hashable, Operation] = {}
        for op in list(graph.ops):
            if not isinstance(op, TopOp) or not is_deterministic(op):
                continue
            first = first_of.setdefault(self._key(graph, op), op)
            if first is op:
                continue
            if isinstance(op, WeightOp) and any(
                isinstance(use.operation, ReturnOp) for use in op.output.uses
            ):
                continue  # a constant output keeps its own name
            for old, new in zip(op.results, first.results, strict=True):
                if is_output(old):
                    take_name(old, new)
                old.replace_all_uses_with(new)
            graph.block.erase_op(op)

    def _key(self, graph: Graph, op: TopOp) -> Hashable:
        if isinstance(op, WeightOp):
            weight = graph.weights[op.ref]
            if weight.nbytes <= self.small and weight.dtype.numpy != np.dtype(object):
                return ("top.weight", op.output.type, weight.array().tobytes())
            return ("top.weight", op.ref)
        properties = tuple(sorted(op.properties.items()))
        return (op.name, tuple(op.operands), properties, tuple(value.type for value in op.results))
