"""Custom ops become ops of plugins that know them, whichever importer kept them.

top.onnx(x) {domain = "npuc.custom", op_type = "HardGlu"}   →   top.hard_glu(x)

An importer keeps an op that it does not know as `top.onnx` of a domain of its own (`npuc.caffe`, `npuc.keras`, ...), and
`npuc.lang.custom` makes one of `npuc.custom`. Without plugins this pass has nothing to do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from xdsl.rewriter import InsertPoint, Rewriter

from npuc.errors import PassError
from npuc.ir.definition import ShapeError, TopOp
from npuc.ir.dtypes import is_static
from npuc.ir.graph import Graph
from npuc.ir.names import describe
from npuc.ir.passes import Pass, register_pass
from npuc.ir.top import Onnx
from npuc.registries import add_once

Claim = Callable[[Onnx, Graph], TopOp | None]
"""The op that stands for a custom op, made of its operands and `onnx_attributes`; or None to leave it."""

CLAIMS: dict[tuple[str, str], Claim] = {}
"""By domain and name."""


def claims(domain: str, *op_types: str) -> Callable[[Claim], Claim]:
    """Register what stands for the custom ops of a domain and some names."""

    def register(function: Claim) -> Claim:
        keys = [(domain, op_type) for op_type in op_types]
        add_once(CLAIMS, keys, function, "a claim on the custom op")
        return function

    return register


@register_pass
@dataclass(frozen=True)
class ClaimCustomOps(Pass):
    """Replace the custom ops that plugins know."""

    name: ClassVar[str] = "claim-custom-ops"

    def run(self, graph: Graph) -> None:
        """One walk: what a plugin makes is its own business."""
        for op in list(graph.ops) if CLAIMS else ():
            claim = CLAIMS.get((op.domain, op.op_type)) if isinstance(op, Onnx) else None
            if claim is not None:
                _replace(op, claim, graph)


def _replace(op: Any, claim: Claim, graph: Graph) -> None:
    try:
        made = claim(op, graph)
    except (ShapeError, ValueError, TypeError, KeyError, IndexError, AttributeError) as error:
        raise PassError(
            f"{describe(op)}: the plugin that claims '{op.domain}:{op.op_type}' fails: {error}"
        ) from error
    if made is None:
        return
    if len(made.results) != len(op.results):
        raise PassError(
            f"{describe(op)}: the plugin that claims '{op.domain}:{op.op_type}' gives {len(made.results)} results, not "
            f"{len(op.results)}"
        )
    for old, new in zip(op.results, made.results, strict=True):
        if is_static(old) and old.type != new.type:
            raise PassError(
                f"{describe(op)}: it makes {old.type}, and the op of the plugin that claims it {new.type}"
            )
    made.location = op.location
    Rewriter.insert_op(made, InsertPoint.before(op))
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    graph.block.erase_op(op)
