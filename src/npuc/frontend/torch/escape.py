"""The escape hatch: an op without a Top form stays as `top.onnx` and runs on the CPU.

Where ONNX has the op, it is ONNX's. Any other is an op of a domain of its own: the namespace of a custom op, or
`npuc.torch` for ATen, with its arguments as attributes. Such an op is whole again when somebody provides a kernel.
"""

from __future__ import annotations

from typing import Any

import torch

from npuc.frontend.torch.scope import TorchContext
from npuc.ir import Value

DOMAIN = "npuc.torch"


def emit_custom(ctx: TorchContext, reason: str) -> list[Value]:
    """Any node as an op of its own domain: tensors are operands, all else attributes.

    The attribute `operands` has the argument that each operand belongs to, in order.
    """
    namespace, _, name = ctx.op.partition(".")
    overload = str(getattr(ctx.node.target, "_overloadname", "default"))
    operands: list[Value] = []
    places: list[str] = []
    attributes: dict[str, Any] = {}
    for argument, item in ctx.args.items():
        several = item if isinstance(item, list | tuple) else [item]
        tensors = [node for node in several if isinstance(node, torch.fx.Node)]
        if tensors:
            for node in tensors:
                operands.append(_any_value(ctx, node))
                places.append(argument)
        elif item is not None:
            attributes[argument] = _plain(item)
    attributes = {key: value for key, value in attributes.items() if value is not None}
    if places:
        attributes["operands"] = places
    if overload not in ("default", ""):
        attributes["overload"] = overload
    domain = DOMAIN if namespace in ("aten", "prims", ctx.op) else namespace
    return ctx.onnx(name or ctx.op, operands, ctx.result_types, reason, attributes, domain=domain)


def _any_value(ctx: TorchContext, node: Any) -> Value:
    meaning = ctx.meaning(node)
    return meaning if isinstance(meaning, Value) else ctx.value(node)


def _plain(item: Any) -> Any:
    """A Python value as ONNX holds it; None if it cannot."""
    if isinstance(item, bool):
        return int(item)
    if isinstance(item, int | float | str):
        return item
    if isinstance(item, list | tuple):
        plain = [_plain(element) for element in item]
        if (
            not plain
            or any(element is None for element in plain)
            or len({type(element) for element in plain}) > 1
        ):
            return None
        return plain
    return str(item)
