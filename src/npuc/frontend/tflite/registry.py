"""Import rules by operator: `@rule("CONV_2D")` above a function is all it takes to add one.

A rule gets a `Context` and returns the operator's outputs in order: values (with a layout where they are pictures), or
arrays where an output is constant. Outputs that the model quantizes are quantized by the importer, so a rule deals in
reals unless it only moves elements.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc.frontend.rules import load_rules
from npuc.frontend.tflite.layout import Laid
from npuc.frontend.tflite.scope import Context
from npuc.ir import Value
from npuc.registries import add_once

Outcome = Value | Laid | np.ndarray[Any, Any]
Rule = Callable[[Context], Outcome | Sequence[Outcome]]

_PACKAGE = "npuc.frontend.tflite.rules"
_RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Register a rule for one or more operators; a custom operator goes by its custom code."""

    def register(function: Rule) -> Rule:
        add_once(_RULES, names, function, "an import rule for the TFLite operator")
        return function

    return register


def find_rule(name: str) -> Rule | None:
    """The rule for an operator, or None."""
    load_rules(_PACKAGE)
    return _RULES.get(name)


def rules() -> dict[str, Rule]:
    """All rules."""
    load_rules(_PACKAGE)
    return dict(_RULES)
