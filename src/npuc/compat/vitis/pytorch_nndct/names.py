"""Names of layers as the vendor's quantizer prints them: `Net::Net/Conv2d[layer1.0.conv1]/3`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from npuc.compat.vitis.notices import near_names, refusal
from npuc.ir import Graph, npu, result_names, top
from npuc.ir.definition import TensorOp

_BRACKETS = re.compile(r"\[([^\]]*)\]")
_NO_LAYERS = (top.WeightOp, npu.Quantize, npu.Dequantize)
_TYPES = {
    "conv": "Conv2d",
    "deconv": "ConvTranspose2d",
    "matmul": "Linear",
    "relu": "ReLU",
    "leaky_relu": "LeakyReLU",
    "max_pool": "MaxPool2d",
    "avg_pool": "AvgPool2d",
    "add": "Add",
    "sub": "Sub",
    "concat": "Cat",
    "sigmoid": "Sigmoid",
    "softmax": "Softmax",
    "hard_swish": "Hardswish",
    "hard_sigmoid": "Hardsigmoid",
}


def layer_list(graph: Graph) -> list[tuple[str, str]]:
    """The layers of a network in order: name of the result, type in the vendor's words."""
    layers = []
    for op in graph.ops:
        if isinstance(op, TensorOp) and op.results and not isinstance(op, _NO_LAYERS):
            kind = op.name.split(".", 1)[1]
            layers.append((result_names(op)[0], _TYPES.get(kind, kind)))
    return layers


def vendor_names(graph: Graph, model: str) -> dict[str, str]:
    """The vendor's name of each layer, by npuc's."""
    return {
        name: f"{model}::{model}/{kind}[{name}]/{number}"
        for number, (name, kind) in enumerate(layer_list(graph))
    }


def module_path(text: str) -> str:
    """The path of a module in a name of the vendor's, or of torch's own.

    >>> module_path("ResNet::ResNet/Sequential[layer1]/Conv2d[conv1]/input.2")
    'layer1.conv1'
    """
    return ".".join(_BRACKETS.findall(text)) or text


def excluded_names(model: Any, excludes: Sequence[Any] | None) -> list[str]:
    """Submodules of a model, given as such or by a name, as names."""
    known = {id(part): name for name, part in model.named_modules()}
    names = []
    for item in excludes or ():
        if isinstance(item, str):
            names.append(module_path(item))
        elif id(item) in known:
            names.append(known[id(item)])
        else:
            raise refusal(
                "OPTIMIZER_TORCH_MODULE_ERROR",
                f"excludes has a {type(item).__name__} that is no part of the model",
                "Give submodules of the model, or their names",
            )
    return names


def own_name(graph: Graph, text: str) -> str:
    """The layer that a name of the vendor's, or npuc's own, stands for.

    What is in brackets is the path of a module: `ResNet::ResNet/Sequential[layer1]/Conv2d[conv1]/input.2` is `layer1.conv1`.
    """
    known = [name for name, _ in layer_list(graph)]
    path = module_path(text)
    if path in known:
        return path
    raise refusal(
        "QUANTIZER_TORCH_QUANT_CONFIG",
        f"there is no layer '{text}': no layer has the name '{path}' after fusion",
        near_names(path, known),
    )
