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
from npuc.registries import add_once

if TYPE_CHECKING:
    from npuc.ir.dtypes import QuantType
    from npuc.quant.lower import Context

Rule = Callable[[Any, "Context"], Value | list[Value]]
Types = Callable[[Any, "Context"], list["QuantType | None"]]

_RULES: dict[type[TopOp], Rule] = {}
_SAME_TYPE: dict[type[TopOp], Callable[[Any], bool]] = {}
_TYPES: dict[type[TopOp], Types] = {}
_FLOAT_RULES: dict[type[Any], Rule] = {}


class NoIntegerForm(Exception):
    """This op has no integer form; the text says why."""


def lowers(
    *ops: type[TopOp], same_type: bool | Callable[[Any], bool] = False, types: Types | None = None
) -> Callable[[Rule], Rule]:
    """Register a rule.

    `same_type` ops, all or those that it is true for, give their result the type of their first operand. `types` gives the
    types of the results where ranges alone do not; None is a result that is not quantized.
    """

    def register(function: Rule) -> Rule:
        add_once(_RULES, ops, function, "an integer form of the op")
        for op in ops:
            if same_type:
                _SAME_TYPE[op] = same_type if callable(same_type) else (lambda _: True)
            if types is not None:
                _TYPES[op] = types
        return function

    return register


def lowers_float(*ops: type[Any]) -> Callable[[Rule], Rule]:
    """Register a rule for results of bf16 or f16; that of `TopOp` serves all ops without one."""

    def register(function: Rule) -> Rule:
        add_once(_FLOAT_RULES, ops, function, "a bf16 and f16 form of the op")
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


def has_rule(op: type) -> bool:
    """True if some ops of a class have an integer form."""
    _load()
    return op in _RULES


def find_float_rule(op: object) -> Rule:
    """The rule for an op whose result is bf16 or f16."""
    _load()
    base: type[Any] = TopOp
    return _FLOAT_RULES.get(type(op)) or _FLOAT_RULES[base]


def keeps_type(op: object) -> bool:
    """True if the op's result has the quantized type of its first operand."""
    _load()
    return type(op) in _SAME_TYPE and _SAME_TYPE[type(op)](op)  # type: ignore[index]


def may_keep_type(op: type) -> bool:
    """True if some ops of a class have the type of their first operand."""
    _load()
    return op in _SAME_TYPE


def find_types(op: object) -> Types | None:
    """What gives the types of an op's results, if it is not their ranges."""
    _load()
    return _TYPES.get(type(op))  # type: ignore[arg-type]
