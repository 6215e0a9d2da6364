"""The registry of export rules: which function writes an op as TFLite operators.

    @exports(top.Exp)
    def exp(op: top.Exp, emit: Emitter) -> None:
        ...

A rule lives in a module of `rules/`; it raises `NoForm` with the reason where TFLite cannot say what the op computes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any, TypeVar

from npuc.ir.definition import TensorOp
from npuc.registries import add_once

if TYPE_CHECKING:
    from npuc.export.tflite.emitter import Emitter

Rule = Callable[[Any, "Emitter"], None]
_RuleT = TypeVar("_RuleT", bound=Callable[..., None])

_RULES: dict[type[TensorOp], Rule] = {}

SCHEME = "quantize it with --scheme tflite (or tflite-int16)"
"""The usual way out."""


class NoForm(Exception):
    """An op has no form in TFLite; the text says why, `fix` what to do."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix


def exports(*kinds: type[TensorOp]) -> Callable[[_RuleT], _RuleT]:
    """Decorator that makes a function the export rule of some ops."""

    def register(rule: _RuleT) -> _RuleT:
        add_once(_RULES, kinds, rule, "a TFLite form of the op")
        return rule

    return register


@cache
def rules() -> dict[type[TensorOp], Rule]:
    """All rules, by the class of op."""
    package = import_module("npuc.export.tflite.rules")
    for module in sorted(iter_modules(package.__path__), key=lambda m: m.name):
        import_module(f"{package.__name__}.{module.name}")
    return _RULES
