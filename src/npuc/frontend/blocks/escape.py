"""The escape hatch: an op that only ONNX has, or nobody but the user, becomes `top.onnx` and runs on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

from npuc.frontend.blocks.canvas import Canvas
from npuc.ir import Value, top
from npuc.ir.onnx_attributes import encode_attribute

_VERSION = 21
"""The operator set of the ops of ONNX itself."""


def emit_onnx(
    c: Canvas,
    op_type: str,
    operands: Sequence[Value],
    types: Sequence[Any],
    reason: str,
    attributes: Mapping[str, Any] | None = None,
    domain: str = "",
) -> list[Value]:
    """An op of ONNX, or of a domain of its own; its results have the types given, which may leave dimensions open."""
    properties = {
        "op_type": op_type,
        "domain": domain,
        "version": _VERSION if not domain else 1,
        "onnx_attributes": {
            name: encode_attribute(helper.make_attribute(name, value))
            for name, value in (attributes or {}).items()
        },
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
    c.graph.block.add_op(op)
    c.emitted.append(op)
    return list(op.results)
