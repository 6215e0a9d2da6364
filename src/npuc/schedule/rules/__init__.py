"""From ops of the `npu` dialect to layers that can be cut: one function an op, found by its class.

A rule returns a `Layer`, or raises `NotHere` with the reason why the op cannot run on the NPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.ir import Graph
from npuc.registries import Lenient, Registry
from npuc.schedule.layers import Layer, Tensor

Tensors = Callable[[Any], Tensor]
"""The tensor of a value."""
Rule = Callable[[Any, Graph, Tensors], Layer]

RULES: Registry[type, Rule] = Registry("a layer of the op", provider=__name__, lenient=Lenient.ALL)
"""Op class to its rule."""
layers_as = RULES.register
"""Register a rule for op classes."""


class NotHere(Exception):
    """An op, or this form of it, cannot run on the NPU; the message is the reason."""


def find_rule(op: Any) -> Rule | None:
    """The rule of an op."""
    return RULES.get(type(op))
