"""The escape hatch: an operator that only ONNX has an equivalent of becomes `top.onnx` and runs on the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from onnx import helper

from npuc.frontend.tflite.scope import Context
from npuc.ir import Value, top
from npuc.ir.onnx_attributes import encode_attribute

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
    properties = {
        "op_type": op_type,
        "domain": "",
        "version": _VERSIONS[op_type],
        "onnx_attributes": {k: encode_attribute(helper.make_attribute(k, v)) for k, v in attributes.items()},
        "arguments": list(range(len(operands))),
        "captures": [],
        "outputs_used": list(range(len(types))),
        "reason": reason,
    }
    op = top.Onnx.create(
        operands=list(operands),
        result_types=list(types),
        properties={key: top.Onnx.attribute_of(key, value) for key, value in properties.items()},
    )
    ctx.scope.graph.block.add_op(op)
    ctx.emitted.append(op)
    return list(op.results)
