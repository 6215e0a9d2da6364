"""The registry of export rules: which function writes an op as TFLite operators.

    @exports(top.Exp)
    def exp(op: top.Exp, emit: Emitter) -> None:
        ...

A rule lives in a module of `rules/`; it raises `NoForm` with the reason where TFLite cannot say what the op computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from npuc.ir.definition import TensorOp
from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.export.tflite.emitter import TFLiteEmitter

Rule = Callable[[Any, "TFLiteEmitter"], None]
_RuleT = TypeVar("_RuleT", bound=Callable[..., None])

RULES: Registry[type[TensorOp], Rule] = Registry(
    "a TFLite form of the op", provider="npuc.export.tflite.rules"
)
"""By the class of op."""
exports = RULES.register
"""Decorator that makes a function the export rule of some ops."""

SCHEME = "quantize it with --scheme tflite (or tflite-int16)"
"""The usual way out."""


class NoTFLiteForm(Exception):
    """An op has no form in TFLite; the text says why, `fix` what to do."""

    def __init__(self, reason: str, fix: str = "") -> None:
        super().__init__(reason)
        self.fix = fix
