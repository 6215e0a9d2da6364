"""CPU kernels for what stays of a torch program: ATen ops without a Top form, and custom ops, computed by torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.extras import require_torch
from npuc.frontend.torch.escape import DOMAIN
from npuc.kernels.custom import Kernel, register_family


def _arguments(op: Any, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of an op by name: `operands` says which tensor is which."""
    torch = require_torch()
    tensors: dict[str, list[Any]] = {}
    for name, array in zip(attributes.get("operands", []), arrays, strict=True):
        tensors.setdefault(name, []).append(torch.from_numpy(np.array(array)))
    arguments: dict[str, Any] = {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        if argument.name in tensors:
            group = tensors[argument.name]
            arguments[argument.name] = group if kind.startswith("List") else group[0]
        elif argument.name in attributes:
            value = attributes[argument.name]
            arguments[argument.name] = (
                bool(value) if kind in ("bool", "Optional[bool]") else _typed(torch, value)
            )
    return arguments


def _typed(torch: Any, value: Any) -> Any:
    """An attribute that spells a type or a device of torch, as such."""
    if isinstance(value, str) and value.startswith("torch."):
        return getattr(torch, value.removeprefix("torch."), value)
    return torch.device("cpu") if isinstance(value, str) and value in ("cpu", "cuda:0") else value


def _computed(op: Any, arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    torch = require_torch()
    with torch.no_grad():
        results = op(**_arguments(op, arrays, attributes))
    several = results if isinstance(results, tuple | list) else [results]
    return [item.contiguous().numpy() for item in several]


def overload_kernel(op: Any) -> Kernel:
    """A kernel that calls an op of torch."""
    return lambda arrays, attributes: _computed(op, arrays, attributes)


def _aten(name: str) -> Kernel | None:
    torch = require_torch()
    packet = getattr(torch.ops.aten, name, None)
    if packet is None:
        return None

    def run(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
        op = getattr(packet, str(attributes.get("overload", "default")))
        return _computed(op, arrays, attributes)

    return run


register_family(DOMAIN, _aten)
