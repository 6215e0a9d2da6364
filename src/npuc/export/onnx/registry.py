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
from npuc.registries import add_once

Rule = Callable[[Any, Emitter], None]
_RuleT = TypeVar("_RuleT", bound=Callable[..., None])

_RULES: dict[type[TopOp], Rule] = {}


def exports(*kinds: type[TopOp]) -> Callable[[_RuleT], _RuleT]:
    """Decorator that makes a function the export rule of some ops."""

    def register(rule: _RuleT) -> _RuleT:
        add_once(_RULES, kinds, rule, "an ONNX form of the op")
        return rule

    return register


def rules() -> dict[type[TopOp], Rule]:
    """All rules, by the class of op."""
    from npuc.export.onnx import rules as _rules  # noqa: F401  (registers them)

    return _RULES


def rule_for(op: Any) -> Rule:
    """The rule of an op."""
    rule = rules().get(type(op))
    if rule is None:
        raise ExportError(
            f"{op.name} '{layer_name(op)}' has no form in ONNX",
            fix="Give the float network that it was made of; 'npuc export tflite' writes integer networks"
            if op.name.startswith("npu.")
            else None,
        )
    return rule
