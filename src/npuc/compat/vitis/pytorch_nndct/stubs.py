"""Stubs, the vendor's marks of what is quantized: a whole module between them is quantized as one without them is."""

from __future__ import annotations

from typing import Any

import torch

from npuc.compat.vitis.pytorch_nndct.nn import DeQuantStub, QuantStub
from npuc.errors import UsageError


def check_stubs(module: torch.nn.Module, arguments: tuple[Any, ...]) -> None:
    """Refuse stubs that leave a part of the module float: quantization is stated by layers here."""
    stubs = [part for part in module.modules() if isinstance(part, QuantStub | DeQuantStub)]
    if not stubs:
        return
    begins: list[Any] = []
    ends: list[Any] = []

    def watch(part: Any, inputs: Any, output: Any) -> None:
        begins.extend(inputs if isinstance(part, QuantStub) else ())
        ends.extend([output] if isinstance(part, DeQuantStub) else ())

    handles = [part.register_forward_hook(watch) for part in stubs]
    try:
        with torch.no_grad():
            results = module(*arguments)
    finally:
        for handle in handles:
            handle.remove()
    outputs = results if isinstance(results, tuple | list) else [results]
    inside = all(any(value is given for given in arguments) for value in begins)
    if not inside or not all(any(value is output for output in outputs) for value in ends):
        raise UsageError(
            "a QuantStub or DeQuantStub stands inside of the module: a part of it would stay float",
            fix='Name the float layers under layer_quantize_config with {"datatype": "float32"}, and put stubs at the ends',
        )
