"""Import rules by operator: `@rule("Conv")` above a function is all it takes to add one.

A rule gets a `NodeContext` and returns the node's outputs in order: values, or arrays where an output is constant. It
raises `NoTopForm` where this node cannot be expressed, and the importer keeps the node as `top.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.rules import load_rules
from npuc.ir import Value
from npuc.registries import add_once

Outcome = Value | np.ndarray[Any, Any]
Rule = Callable[[NodeContext], Outcome | Sequence[Outcome]]

_PACKAGE = "npuc.frontend.onnx.rules"
_RULES: dict[tuple[str, str], Rule] = {}


def rule(*op_types: str, domain: str = "") -> Callable[[Rule], Rule]:
    """Register a rule for one or more operators."""

    def register(function: Rule) -> Rule:
        keys = [(domain, op_type) for op_type in op_types]
        add_once(_RULES, keys, function, "an import rule for the ONNX operator")
        return function

    return register


def find_rule(domain: str, op_type: str) -> Rule | None:
    """The rule for an operator, or None."""
    load_rules(_PACKAGE)
    return _RULES.get((domain, op_type))


def rules() -> dict[tuple[str, str], Rule]:
    """All rules."""
    load_rules(_PACKAGE)
    return dict(_RULES)
