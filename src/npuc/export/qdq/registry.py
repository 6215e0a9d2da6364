"""The registry of QDQ rules: which function writes an op of the `npu` dialect as a float op.

    @expresses(npu.Softmax)
    def softmax(op: npu.Softmax, form: QdqForm) -> None:
        form.finish(op, form.emit(top.Softmax, form.real(op.x), axis=op.axis, loc=op.location).y)

A rule lives in a module of `rules/`; importing that package is all it takes to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from npuc.ir.npu import NpuOp
from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.export.qdq.form import QdqForm

Rule = Callable[[Any, "QdqForm"], None]

RULES: Registry[type[NpuOp], Rule] = Registry("a QDQ form of the op", provider="npuc.export.qdq.rules")
"""By the class of op."""

expresses = RULES.register
"""Decorator that makes a function the QDQ rule of some ops."""
