"""Layers that npuc has no form for: custom ops of a domain of their own, so that an import never fails because of one."""

from __future__ import annotations

from typing import Any

from npuc.frontend.keras.registry import KerasContext, tensors_in
from npuc.frontend.layout import LayoutTensor
from npuc.ir import DYNAMIC, tensor_type

DOMAIN = "npuc.keras"


def custom(ctx: KerasContext, stated: tuple[int, ...] | None) -> list[LayoutTensor]:
    """A custom op: operands are the layer's inputs, then its weights; the shape is known where the file states it."""
    operands = [ctx.c.value(x) for x in tensors_in([ctx.arguments, ctx.keywords])]
    if not operands:
        raise ctx.refuse("it makes its result from nothing")
    batch = ctx.x().shape[0] if ctx.inputs and ctx.x().is_static and ctx.x().rank else DYNAMIC
    weights = ctx.weights.arrays()
    operands += [ctx.c.value(ctx.weight(array, f"weight_{i}")) for i, array in enumerate(weights)]
    shape = None
    if stated is not None:
        shape = [
            batch if n == -1 and not axis else DYNAMIC if n == -1 else n for axis, n in enumerate(stated)
        ]
    kinds = [tensor_type(shape, "f32")]
    reason = f"npuc has no form of Keras' {ctx.kind}"
    (value,) = ctx.c.onnx(ctx.kind, operands, kinds, reason, _plain(ctx), domain=DOMAIN)
    return [LayoutTensor(value)]


def _plain(ctx: KerasContext) -> dict[str, Any]:
    """The settings that an attribute can hold."""
    settings: dict[str, Any] = {}
    for name, value in ctx.config.items():
        if name in ("name", "trainable", "dtype") or value is None:
            continue
        if isinstance(value, bool):
            settings[name] = int(value)
        elif isinstance(value, int | float | str) or (
            isinstance(value, list)
            and value
            and all(type(item) is type(value[0]) for item in value)
            and isinstance(value[0], int | float | str)
            and not isinstance(value[0], bool)
        ):
            settings[name] = value
    return settings
