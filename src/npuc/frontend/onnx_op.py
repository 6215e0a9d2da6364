"""The escape hatch of all importers: an op that only ONNX has, or nobody but the user, as `top.onnx`; it runs on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npuc.ir import Value, top


def onnx_op(
    op_type: str,
    operands: Sequence[Value],
    types: Sequence[Any],
    *,
    version: int,
    domain: str = "",
    reason: str = "",
    attributes: Mapping[str, Any] | None = None,
    captures: Mapping[str, Value] | None = None,
    order: Sequence[int] | None = None,
) -> top.Onnx:
    """An op with results of the types given, which may leave dimensions open; attributes are plain Python values, or graphs.

    `captures` are the outer values that graphs among the attributes use, by the names they have there. `order` tells
    which of ONNX's outputs each result is, where they are not in order.
    """
    from onnx import helper

    from npuc.ir.onnx_attributes import encode_attribute

    given, captured = attributes or {}, captures or {}
    properties = {
        "op_type": op_type,
        "domain": domain,
        "version": version,
        "onnx_attributes": {k: encode_attribute(helper.make_attribute(k, v)) for k, v in given.items()},
        "arguments": list(range(len(operands))),
        "captures": list(captured),
        "outputs_used": list(range(len(types)) if order is None else order),
        "reason": reason,
    }
    return top.Onnx.create(
        operands=[*operands, *captured.values()],
        result_types=list(types),
        properties={key: top.Onnx.attribute_of(key, value) for key, value in properties.items()},
    )
