"""Custom ops that plugins know: whoever claims one says which op stands for it.

An importer asks as soon as it has kept an op that it does not know, so that what follows has a shape; the pass `claim-custom-ops`
asks for programs that were imported without the plugin, and for importers that do not ask.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from xdsl.rewriter import InsertPoint, Rewriter

from npuc.errors import NpucError, PluginFaultError
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import is_static
from npuc.ir.graph import Graph
from npuc.ir.names import describe
from npuc.ir.top import Onnx
from npuc.plugin_code import fault_of
from npuc.registries import Registry

Claim = Callable[[Onnx, Graph], TopOp | None]
"""The op that stands for a custom op, made of its operands and `onnx_attributes`; or None to leave it."""

CLAIMS: Registry[tuple[str, str], Claim] = Registry("a claim on the custom op")
"""By domain and name."""


def claims(domain: str, *op_types: str, replace: bool = False) -> Callable[[Claim], Claim]:
    """Register what stands for the custom ops of a domain and some names."""
    return CLAIMS.register(*((domain, op_type) for op_type in op_types), replace=replace)


def is_claimed(op: Any) -> bool:
    """True if a plugin knows a custom op."""
    return isinstance(op, Onnx) and (op.domain, op.op_type) in CLAIMS


def claim(op: Any, graph: Graph) -> TopOp | None:
    """Put the op of the plugin that claims a custom op in its place; None, and nothing is changed, if nobody does."""
    if not is_claimed(op):
        return None
    try:
        claimed = CLAIMS[op.domain, op.op_type](op, graph)
    except NpucError:
        raise
    except Exception as error:
        raise fault_of(error) or PluginFaultError(
            f"{describe(op)}: the plugin that claims '{op.domain}:{op.op_type}' fails: {type(error).__name__}: {error}"
        ) from error
    if claimed is None:
        return None
    if len(claimed.results) != len(op.results):
        raise PluginFaultError(
            f"{describe(op)}: the plugin that claims '{op.domain}:{op.op_type}' gives {len(claimed.results)} results, not "
            f"{len(op.results)}"
        )
    for old, new in zip(op.results, claimed.results, strict=True):
        if is_static(old) and old.type != new.type:
            raise PluginFaultError(
                f"{describe(op)}: it makes {old.type}, and the op of the plugin that claims it {new.type}"
            )
    claimed.location = op.location
    Rewriter.insert_op(claimed, InsertPoint.before(op))
    for old, new in zip(op.results, claimed.results, strict=True):
        old.replace_all_uses_with(new)
    graph.block.erase_op(op)
    return claimed
