"""Lowering rules by op: `@lowers(top.Conv)` above a function is all it takes to add one.

A rule gets the op and a `LoweringContext` and returns the value that stands for the op's result: integers of the type that
`context.type_of(result)` says. It raises `NoIntegerForm` with the reason where it cannot, and the op stays float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.ir import Value
from npuc.ir.definition import TopOp
from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.ir.dtypes import QuantType
    from npuc.quant.lower import LoweringContext
    from npuc.quant.type_assignment import TypeAssignment

Rule = Callable[[Any, "LoweringContext"], Value | list[Value]]
Types = Callable[[Any, "TypeAssignment"], list["QuantType | None"]]


class NoIntegerForm(Exception):
    """This op has no integer form; the text says why."""


@dataclass(frozen=True)
class Entry:
    """A rule, and which types its results have."""

    rule: Rule
    same_type: Callable[[Any], bool] | None = None
    types: Types | None = None
    reals: Callable[[Any], Sequence[Value]] | None = None


RULES: Registry[type[TopOp], Entry] = Registry("an integer form of the op", provider="npuc.quant.lowering")
"""By the class of op."""
FLOAT_RULES: Registry[type[Any], Rule] = Registry(
    "a bf16 and f16 form of the op", provider="npuc.quant.lowering"
)
"""By the class of op."""
lowers_float = FLOAT_RULES.register
"""Register a rule for results of bf16 or f16; that of `TopOp` serves all ops without one."""


def lowers(
    *ops: type[TopOp],
    same_type: bool | Callable[[Any], bool] = False,
    types: Types | None = None,
    reals: Callable[[Any], Sequence[Value]] | None = None,
    replace: bool = False,
) -> Callable[[Rule], Rule]:
    """Register a rule.

    `same_type` ops, all or those that it is true for, give their result the type of their first operand. `types` gives the
    types of the results where ranges alone do not; None is a result that is not quantized. `reals` gives the operands that
    have to be float32; without it, it is the first.
    """
    keeps = same_type if callable(same_type) else (lambda _: True) if same_type else None

    def register(function: Rule) -> Rule:
        RULES.add(ops, Entry(function, keeps, types, reals), replace=replace)
        return function

    return register


def find_rule(op: object) -> Rule | None:
    """The rule for an op, or None."""
    entry = RULES.get(type(op))
    return None if entry is None else entry.rule


def has_rule(op: type) -> bool:
    """True if some ops of a class have an integer form."""
    return op in RULES


def find_float_rule(op: object) -> Rule:
    """The rule for an op whose result is bf16 or f16."""
    return FLOAT_RULES.get(type(op)) or FLOAT_RULES[TopOp]


def keeps_type(op: object) -> bool:
    """True if the op's result has the quantized type of its first operand."""
    entry = RULES.get(type(op))
    return entry is not None and entry.same_type is not None and entry.same_type(op)


def may_keep_type(op: type) -> bool:
    """True if some ops of a class have the type of their first operand."""
    entry = RULES.get(op)
    return entry is not None and entry.same_type is not None


def real_operands(op: Any) -> Sequence[Value]:
    """The operands of an op that have to be float32 for its rule."""
    entry = RULES.get(type(op))
    if entry is None or entry.reals is None:
        return tuple(op.operands[:1])
    return entry.reals(op)


def find_types(op: object) -> Types | None:
    """What gives the types of an op's results, if it is not their ranges."""
    entry = RULES.get(type(op))
    return None if entry is None else entry.types
