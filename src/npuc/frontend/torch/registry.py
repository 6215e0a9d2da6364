"""Import rules by ATen op: `@rule("aten.conv2d", limits="...")` above a function is all it takes to add one.

A rule gets a `TorchContext` and returns the node's results: values, or constants. An op with a rule is kept whole when torch
decomposes a program; any other is decomposed into simpler ones, as far as torch knows how.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.registries import Registry

if TYPE_CHECKING:
    from npuc.frontend.torch.scope import TorchContext

Outcome = Any
Rule = Callable[["TorchContext"], Outcome | Sequence[Outcome]]


@dataclass(frozen=True)
class TorchRule:
    """A rule, and what it does not do."""

    rule: Rule
    limits: str = ""
    keep: bool = True
    """Whether torch shall leave the op whole where it could decompose it."""


RULES: Registry[str, TorchRule] = Registry("an import rule for the op", provider="npuc.frontend.torch.rules")
"""By ATen op, without its overload."""


class NoTopForm(Exception):
    """A node in a form that no Top op has; the text says why. It stays as a custom op."""


def rule(*names: str, limits: str = "", keep: bool = True, replace: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for ops, without their overloads; `limits` are the words of the table in `docs/`."""

    def register(function: Rule) -> Rule:
        RULES.add(names, TorchRule(function, limits, keep), replace=replace)
        return function

    return register


def find_rule(name: str) -> Rule | None:
    """The rule for an op, or None."""
    entry = RULES.get(name)
    return None if entry is None else entry.rule


def kept() -> frozenset[str]:
    """The ops that torch shall not decompose."""
    return frozenset(name for name, entry in RULES.items() if entry.keep)


def supported() -> dict[str, str]:
    """Every op with a rule, and the words of its limits."""
    return {name: RULES[name].limits for name in sorted(RULES)}
