"""Operators whose result is known at compile time."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.reader import element_type
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import top

_SMALL = 1 << 20
"""Constants beyond this many elements stay ops: a scalar that is expanded."""


def _filled(ctx: NodeContext, shape: tuple[int, ...], value: np.ndarray[Any, Any]) -> Outcome:
    if min(shape, default=0) < 0:
        raise InvalidModelError(f"{ctx.node.label}: the shape {list(shape)} is not valid")
    if prod(shape) <= _SMALL:
        return np.full(shape, value.reshape(-1)[0], value.dtype)
    return ctx.emit(top.Expand, ctx.literal(value.reshape(()), "value"), shape=shape).y


@rule("ConstantOfShape")
def constant_of_shape(ctx: NodeContext) -> Outcome:
    """One value everywhere."""
    shape = ctx.known_ints(0, "shape")
    value = (
        ctx.scope.source.weight(ctx.node.tensor("value")).array()
        if ctx.node.has("value")
        else np.zeros(1, "f4")
    )
    if value.size != 1:
        raise InvalidModelError(f"{ctx.node.label}: its value has {value.size} elements, not one")
    return _filled(ctx, shape, value)


@rule("Range")
def range_(ctx: NodeContext) -> Outcome:
    """start, limit, delta."""
    start, limit, delta = (
        ctx.known(i, what).reshape(()) for i, what in enumerate(("start", "limit", "delta"))
    )
    if ctx.dtype(0).name in ("f16", "bf16"):
        raise NoTopForm("its steps are rounded to 16 bits")
    if delta == 0 or not all(np.isfinite(float(x)) for x in (start, limit, delta)):
        raise InvalidModelError(f"{ctx.node.label}: from {start} to {limit} by {delta}")
    count = max(0, int(np.ceil((np.float64(limit) - np.float64(start)) / np.float64(delta))))
    if count > _SMALL:
        raise NoTopForm(f"it has {count} elements")
    steps: np.ndarray[Any, Any] = start + np.arange(count, dtype=start.dtype) * delta
    return steps.astype(start.dtype)


@rule("EyeLike")
def eye_like(ctx: NodeContext) -> Outcome:
    """Ones on a diagonal."""
    shape = ctx.shape(0)
    if len(shape) != 2 or prod(shape) > _SMALL:
        raise NoTopForm("it is not a small matrix")
    dtype = element_type(ctx.node.int("dtype"), ctx.node.label) if ctx.node.has("dtype") else ctx.dtype(0)
    return np.eye(*shape, k=ctx.node.int("k", 0)).astype(dtype.numpy)
