"""Operands of few bits beside results of more: where a layer of 4-bit activations reads a tensor of 8 bits, it gets a copy.

A residual stream keeps 8 bits while the convolutions that read it multiply 4: the copy is a clip without bounds, which the
quantizer makes a table, and which has a range of its own.

    add (i8) -+-> clip (i4) -> conv (i4)
              +-> add (i8)
"""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.dtypes import SHORT_ACTIVATIONS
from npuc.ir import Graph, Value, dtype_of, top, value_name
from npuc.ir.definition import TopOp
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.scheme import Scheme

_FURTHEST = 3e38
_MULTIPLY = (top.Conv, top.Deconv, top.MatMul)


def with_short_operands(graph: Graph, scheme_of: LayerSchemes) -> tuple[Graph, LayerSchemes]:
    """The network with copies of fewer bits, and the schemes of its layers; both are new if there is any."""
    pairs = [op for op in graph.ops if isinstance(op, TopOp)]
    if not any(_reads_wider(op, scheme_of) for op in pairs):
        return graph, scheme_of
    copy = graph.copy()
    twins = dict(zip(graph.ops, copy.ops, strict=True))
    schemes: dict[Any, Scheme | None] = {
        twins[op]: scheme for op, scheme in scheme_of.by_op.items() if op in twins
    }
    known = LayerSchemes(schemes)
    short: dict[tuple[Value, str], Any] = {}
    for op in list(copy.ops):
        if not isinstance(op, TopOp) or not _reads_wider(op, known):
            continue
        scheme = known(op)
        assert scheme is not None
        value = op.operands[0]
        key = (value, scheme.activation)
        if key not in short:
            clip = top.Clip.make(
                value, min=-_FURTHEST, max=_FURTHEST, name=f"{value_name(value)}/{scheme.activation}"
            )
            copy.block.insert_op_before(clip, op)
            short[key] = clip.results[0]
            schemes[clip] = scheme
        op.operands[0] = short[key]
    copy.verify()
    return copy, LayerSchemes(schemes)


def _reads_wider(op: TopOp, scheme_of: LayerSchemes) -> bool:
    """Whether a layer multiplies fewer bits than its operand has; operands that come from outside keep theirs."""
    scheme = scheme_of(op)
    if scheme is None or scheme.activation not in SHORT_ACTIVATIONS or not isinstance(op, _MULTIPLY):
        return False
    owner = op.operands[0].owner
    own = scheme_of(owner) if isinstance(owner, TopOp) else None
    return (
        own is not None
        and own.needs_ranges
        and dtype_of(own.activation).bits > dtype_of(scheme.activation).bits
    )
