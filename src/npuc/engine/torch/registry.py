"""How each `top` op is computed with torch: functions of the op and its operands, found by its class."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.functional import hardtanh

from npuc.registries import Registry

Handler = Callable[..., Any]
HANDLERS: Registry[type[Any], Handler] = Registry("a torch form of the op")
"""From the class of an op to `(op, *operands) -> tensor or tuple of tensors`; an absent operand is None."""


handles = HANDLERS.register
"""Decorator: this function computes these ops."""


def fused(op: Any, y: Any) -> Any:
    """The result after the relu that is part of the op."""
    if not op.relu:
        return y
    # The gradients of these are an order of magnitude faster than those of `clamp` on a processor.
    return hardtanh(y, 0.0, op.relu_limit) if op.relu_limit > 0 else torch.relu(y)
