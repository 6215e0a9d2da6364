"""The registry of export rules: which function writes an op as ONNX nodes.

    @exports(top.Rsqrt)
    def rsqrt(op: top.Rsqrt, emit: Emitter) -> None:
        emit("Reciprocal", emit("Sqrt", op.x), to=op.y)

A rule lives in a module of `rules/`; importing that package is all it takes to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from npuc.errors import InternalError
from npuc.export.onnx.emitter import Emitter
from npuc.ir.definition import TopOp

Rule = Callable[[Any, Emitter], None]
_RuleT = TypeVar("_RuleT", bound=Callable[..., None])

_RULES: dict[type[TopOp], Rule] = {}


def exports(*kinds: type[TopOp]) -> Callable[[_RuleT], _RuleT]:
    """Decorator that makes a function the export rule of some ops."""

    def register(rule: _RuleT) -> _RuleT:
        for kind in kinds:
            assert kind not in _RULES, f"{kind.name} has two export rules"
            _RULES[kind] = rule
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
        raise InternalError(f"{op.name} has no ONNX export rule")
    return rule
