"""The escape hatch: an op that only ONNX has, or nobody but the user, becomes `top.onnx` and runs on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuc.frontend.blocks.canvas import Canvas
from npuc.frontend.onnx_op import onnx_op
from npuc.ir import Value

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
    version = _VERSION if not domain else 1
    op = onnx_op(
        op_type, operands, types, version=version, domain=domain, reason=reason, attributes=attributes
    )
    c.graph.block.add_op(op)
    c.emitted.append(op)
    return list(op.results)
