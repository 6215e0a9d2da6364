"""Operators of the user's own (`op_register`): torch functions that compute layers of types which npuc does not know, on the CPU.

    MyClip = register_optype("MyClip")

    @op_register(MyClip)
    def forward(self, *args):
        self.outputs[0].betensor = torch.clamp(self.inputs[0].betensor, *self.get_param("limits"))
        return self.outputs[0].betensor

The function sees real numbers: such a layer stays float in a quantized network, so that `quant_register` has no effect.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import PluginError
from npuc.export.compass.text import DOMAIN
from npuc.kernels.custom import Kernel, register_family
from npuc.registries import Registry


def compute_layers(
    operators: Registry[tuple[str, str], Any], node: Callable[..., Any], tensor: Callable[..., Any]
) -> None:
    """Let the functions of a table compute layers; `node` and `tensor` make what a function sees."""

    def find(kind: str) -> Kernel | None:
        function = operators.get(("forward", kind))
        if function is None:
            return None

        def compute(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
            keys = [key for key in str(attributes.get("constants", "")).split(",") if key]
            count = len(arrays) - len(keys)
            layer = node(
                name=str(attributes.get("layer", kind)),
                type=kind,
                inputs=[_tensor(tensor, f"in{index}", array) for index, array in enumerate(arrays[:count])],
                outputs=[tensor(name=f"out{index}") for index in range(_OUTPUTS)],
                params={
                    key.removeprefix("ir_"): _value(text)
                    for key, text in attributes.items()
                    if key.startswith("ir_")
                },
                constants={
                    key: _tensor(tensor, key, array) for key, array in zip(keys, arrays[count:], strict=True)
                },
            )
            function(layer)
            results = [entry.betensor for entry in layer.outputs if entry.betensor is not None]
            if not results:
                raise PluginError(f"the operator {kind} writes no outputs[0].betensor")
            return [np.ascontiguousarray(np.asarray(result), np.float32) for result in results]

        return compute

    register_family(DOMAIN, find, replace=True)


_OUTPUTS = 8
"""Results that a layer may have."""


def _tensor(tensor: Callable[..., Any], name: str, array: Array) -> Any:
    from npuc.compat.compass.optimizer_plugins import as_tensor

    return tensor(name=name, betensor=as_tensor(array), ir_shape=tuple(array.shape))


def _value(text: Any) -> Any:
    """A parameter of the text as Python has it: numbers and lists of them; other words stay words."""
    try:
        return ast.literal_eval(str(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return {"true": True, "false": False}.get(str(text), text)
