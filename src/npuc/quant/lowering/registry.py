"""Lowering rules by op: `@lowers(top.Conv)` above a function is all it takes to add one.

A rule gets the op and a `Context` and returns the value that stands for the op's result: integers of the type that
`context.type_of(result)` says. It raises `NoIntegerForm` with the reason where it cannot, and the op stays float.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

from npuc.ir import Value
from npuc.ir.definition import TopOp

if TYPE_CHECKING:
    from npuc.quant.lower import Context

Rule = Callable[[Any, "Context"], Value | list[Value]]

_RULES: dict[type[TopOp], Rule] = {}
_SAME_TYPE: set[type[TopOp]] = set()


class NoIntegerForm(Exception):
    """This op has no integer form; the text says why."""


def lowers(*ops: type[TopOp], same_type: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule; `same_type` ops give their result the type of their first operand."""

    def register(function: Rule) -> Rule:
        for op in ops:
            assert op not in _RULES, f"two rules for {op.name}"
            _RULES[op] = function
            if same_type:
                _SAME_TYPE.add(op)
        return function

    return register


@cache
def _load() -> None:
    package = import_module("npuc.quant.lowering")
    for module in sorted(iter_modules(package.__path__), key=lambda m: m.name):
        import_module(f"{package.__name__}.{module.name}")


def find_rule(op: object) -> Rule | None:
    """The rule for an op, or None."""
    _load()
    return _RULES.get(type(op))  # type: ignore[arg-type]


def keeps_type(op: object) -> bool:
    """True if the op's result has the quantized type of its first operand."""
    _load()
    return type(op) in _SAME_TYPE
