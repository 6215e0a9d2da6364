"""Masks of attention: infinities before a softmax become numbers that a quantizer can hold.

A score that is hidden by minus infinity has the weight e^-inf = 0, and so has one that is lowered by enough. Only where
the result goes to a softmax and nowhere else is the one put in place of the other. Such a tensor is not the one of the
original, so it is called after it with `/masked`, and an import check does not take the one for the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.frontend.torch.names import op_name
from npuc.frontend.torch.scope import TorchContext

HIDDEN = -1e4
"""What hides a score: e^-10000 is 0 in any float type."""
_PASSING = (
    "view",
    "clone",
    "to_copy",
    "reshape",
    "expand",
    "unsafe_view",
    "unsqueeze",
    "squeeze",
    "alias",
    "slice",
)
_SOFTMAX = ("softmax", "safe_softmax")


def feeds_softmax(node: Any) -> bool:
    """True if all that uses a node is softmax, with nothing but movement between."""
    stack, visited = [node], set()
    while stack:
        for user in stack.pop().users:
            if op_name(user) in _PASSING and user not in visited:
                visited.add(user)
                stack.append(user)
            elif op_name(user) not in _SOFTMAX:
                return False
    return bool(node.users)


def hides(ctx: TorchContext, name: str) -> bool:
    """True if an operand is constant, lower than any score somewhere, and hides it from a softmax."""
    if name not in ctx.args or not ctx.is_constant(name):
        return False
    array = np.asarray(ctx.known(name))
    return array.size > 0 and float(array.min()) < HIDDEN and feeds_softmax(ctx.node)


def mark_masked(ctx: TorchContext) -> None:
    """Give a tensor with another mask than the original's, and what only moves it, a name of its own."""
    node, masked = ctx.node, ctx.scope.masked
    if node in masked or (op_name(node) in _PASSING and not masked.isdisjoint(node.all_input_nodes)):
        masked.add(node)
        ctx.name += "/masked"


def limited(array: Any) -> np.ndarray[Any, Any]:
    """A mask without infinities."""
    return np.maximum(np.asarray(array, np.float32), np.float32(HIDDEN))
