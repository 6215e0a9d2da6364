"""The escape hatch of all importers: an op that only ONNX has, or nobody but the user, as `top.onnx`; it runs on the CPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from onnx import helper

from npuc.ir import Value, top
from npuc.ir.onnx_attributes import encode_attribute


def onnx_op(
    op_type: str,
    operands: Sequence[Value],
    types: Sequence[Any],
    *,
    version: int,
    domain: str = "",
    reason: str = "",
    attributes: Mapping[str, Any] | None = None,
) -> top.Onnx:
    """An op with results of the types given, which may leave dimensions open; attributes are plain Python values."""
    given = attributes or {}
    properties = {
        "op_type": op_type,
        "domain": domain,
        "version": version,
        "onnx_attributes": {k: encode_attribute(helper.make_attribute(k, v)) for k, v in given.items()},
        "arguments": list(range(len(operands))),
        "captures": [],
        "outputs_used": list(range(len(types))),
        "reason": reason,
    }
    return top.Onnx.create(
        operands=list(operands),
        result_types=list(types),
        properties={key: top.Onnx.attribute_of(key, value) for key, value in properties.items()},
    )
