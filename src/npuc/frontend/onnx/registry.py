"""Import rules by operator: `@rule("Conv")` above a function is all it takes to add one.

A rule gets a `NodeContext` and returns the node's outputs in order: values, or arrays where an output is constant. It
raises `NoTopForm` where this node cannot be expressed, and the importer keeps the node as `top.onnx`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import Value
from npuc.registries import Registry

Outcome = Value | np.ndarray[Any, Any]
Rule = Callable[[NodeContext], Outcome | Sequence[Outcome]]

RULES: Registry[tuple[str, str], Rule] = Registry(
    "an import rule for the ONNX operator", provider="npuc.frontend.onnx.rules"
)
"""By domain and operator."""


def rule(*op_types: str, domain: str = "", replace: bool = False) -> Callable[[Rule], Rule]:
    """Register a rule for one or more operators."""
    return RULES.register(*((domain, op_type) for op_type in op_types), replace=replace)


def find_rule(domain: str, op_type: str) -> Rule | None:
    """The rule for an operator, or None."""
    return RULES.get((domain, op_type))
