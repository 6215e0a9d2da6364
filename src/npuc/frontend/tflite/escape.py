"""The escape hatch: an operator that only ONNX has an equivalent of becomes `top.onnx` and runs on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from npuc.frontend.onnx_op import onnx_op
from npuc.frontend.tflite.scope import Context
from npuc.ir import Value

_VERSIONS = {
    "Concat": 13,
    "GatherND": 13,
    "NonMaxSuppression": 11,
    "NonZero": 13,
    "ReverseSequence": 10,
    "Shape": 13,
    "Slice": 13,
    "TopK": 11,
    "Transpose": 13,
}


def emit_onnx(
    ctx: Context,
    op_type: str,
    operands: Sequence[Value],
    types: Sequence[Any],
    reason: str = "the number of its results depends on data",
    **attributes: Any,
) -> list[Value]:
    """An op of ONNX; its results have the types given, which may leave dimensions open."""
    op = onnx_op(op_type, operands, types, version=_VERSIONS[op_type], reason=reason, attributes=attributes)
    ctx.scope.graph.block.add_op(op)
    ctx.emitted.append(op)
    return list(op.results)
