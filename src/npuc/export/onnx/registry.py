"""The registry of export rules: which function writes an op as ONNX nodes.

    @exports(top.Rsqrt)
    def rsqrt(op: top.Rsqrt, emit: Emitter) -> None:
        emit("Reciprocal", emit("Sqrt", op.x), to=op.y)

A rule lives in a module of `rules/`; importing that package is all it takes to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from npuc.errors import ExportError
from npuc.export.onnx.emitter import Emitter
from npuc.ir import layer_name
from npuc.ir.definition import TopOp
from npuc.registries import Registry

Rule = Callable[[Any, Emitter], None]
_RuleT = TypeVar("_RuleT", bound=Callable[..., None])

RULES: Registry[type[TopOp], Rule] = Registry("an ONNX form of the op", provider="npuc.export.onnx.rules")
"""By the class of op."""


exports = RULES.register
"""Decorator that makes a function the export rule of some ops."""


def rule_for(op: Any) -> Rule:
    """The rule of an op."""
    rule = RULES.get(type(op))
    if rule is None:
        raise ExportError(
            f"{op.name} '{layer_name(op)}' has no form in ONNX",
            fix="Give the float network that it was made of, or write the quantized one with npuc.export.qdq"
            if op.name.startswith("npu.")
            else None,
        )
    return rule
