"""How each `top` op is computed with torch: functions of the op and its operands, found by its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.registries import add_once

Handler = Callable[..., Any]
HANDLERS: dict[type[Any], Handler] = {}
"""From the class of an op to `(op, *operands) -> tensor or tuple of tensors`; an absent operand is None."""


def handles(*kinds: type[Any]) -> Callable[[Handler], Handler]:
    """Decorator: this function computes these ops."""

    def register(function: Handler) -> Handler:
        add_once(HANDLERS, kinds, function, "a torch form of the op")
        return function

    return register


def fused(op: Any, y: Any) -> Any:
    """The result after the relu that is part of the op."""
    if not op.relu:
        return y
    return y.clamp(0, op.relu_limit) if op.relu_limit > 0 else y.clamp(min=0)
