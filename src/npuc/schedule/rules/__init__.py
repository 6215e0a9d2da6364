"""From ops of the `npu` dialect to layers that can be cut: one function an op, found by its class.

A rule returns a `Layer`, or raises `NotHere` with the reason why the op cannot run on the NPU.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from functools import cache
from typing import Any

from npuc.ir import Graph
from npuc.schedule.layers import Layer, Tensor

Tensors = Callable[[Any], Tensor]
"""The tensor of a value."""
Rule = Callable[[Any, Graph, Tensors], Layer]

RULES: dict[type, Rule] = {}
"""Op class to its rule."""


class NotHere(Exception):
    """An op, or this form of it, cannot run on the NPU; the message is the reason."""


def layers_as(*classes: type) -> Callable[[Rule], Rule]:
    """Register a rule for op classes."""

    def register(rule: Rule) -> Rule:
        for op_class in classes:
            RULES[op_class] = rule
        return rule

    return register


@cache
def load_rules() -> None:
    """Import every module of rules."""
    for module in pkgutil.iter_modules(__path__):
        importlib.import_module(f"{__name__}.{module.name}")


def find_rule(op: Any) -> Rule | None:
    """The rule of an op."""
    load_rules()
    return RULES.get(type(op))
