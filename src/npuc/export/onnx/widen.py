"""Arithmetic in bfloat16: through float32, rounded after every op.

ONNX Runtime's CPU kernels move bfloat16 but do not compute with it. An op on it is written as casts to float32, the op,
and casts back: exact products, one rounding on the result, which is what bfloat16 arithmetic means.
"""

from __future__ import annotations

from typing import Any

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import rule_for
from npuc.ir import Graph, dtype_of, is_static, shape_of, tensor_type, top
from npuc.ir.definition import TopOp

_MOVERS: tuple[type[TopOp], ...] = (
    top.Onnx,
    top.Cast,
    top.Reshape,
    top.Permute,
    top.Concat,
    top.Split,
    top.Slice,
    top.Expand,
    top.Tile,
    top.Where,
    top.Gather,
    top.GatherElements,
    top.GatherND,
)


def needs_widening(op: Any) -> bool:
    """True if an op computes with bfloat16."""
    if isinstance(op, _MOVERS):
        return False
    return any(
        is_static(value) and dtype_of(value.type).name == "bf16" for value in (*op.operands, *op.results)
    )


def emit_widened(op: Any, emit: Emitter) -> None:
    """The op between casts: its rule sees a copy of it in float32."""
    wide = dtype_of("f32")

    def widened(value: Any) -> Any:
        dtype = dtype_of(value.type)
        return tensor_type(shape_of(value), wide if dtype.name == "bf16" else dtype)

    scratch = Graph.empty([(f"operand{i}", widened(value)) for i, value in enumerate(op.operands)])
    for value, copy in zip(op.operands, scratch.block.args, strict=True):
        narrow = dtype_of(value.type).name == "bf16"
        emit.bind(copy, emit.cast(value, wide) if narrow else emit.name(value))
    clone = type(op).create(
        operands=list(scratch.block.args),
        result_types=[widened(value) for value in op.results],
        properties=op.properties,
        location=op.location,
    )
    scratch.block.add_op(clone)
    for value, copy in zip(op.results, clone.results, strict=True):
        narrow = dtype_of(value.type).name == "bf16"
        emit.bind(copy, emit.derived("wide") if narrow else emit.name(value))
    rule_for(clone)(clone, emit)
    for value, copy in zip(op.results, clone.results, strict=True):
        if dtype_of(value.type).name == "bf16":
            emit.cast(emit.name(copy), dtype_of("bf16"), to=value)
