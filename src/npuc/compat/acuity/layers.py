"""A network as X.json shows it: layers by their identifiers (`lid`), with the toolkit's names of operators and parameters.

    "conv2_3": {"name": "conv2", "op": "convolution", "parameters": {"weights": 50, ...}, "inputs": ["@pool1_2:out0"], ...}

An identifier is the name of a layer and its number in the order of the network: inputs first, outputs last. `@conv2_3:out0` is
the tensor that the layer gives. The table of these names travels with the network (`Graph.names_for`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from npuc.compat.names import NameMap
from npuc.ir import Graph, Value, layer_name, result_names, shape_of, top, value_name

TOOL = "acuity"
"""The key of the table in a network."""
_OPERATORS = {
    "conv": "convolution", "deconv": "deconvolution", "matmul": "fullconnect", "max_pool": "pooling", "avg_pool": "pooling",
    "add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "clip": "clipbyvalue", "leaky_relu": "leakyrelu",
    "resize": "image_resize", "reduce": "reduce", "scale": "batchnorm_single", "lstm": "lstmunit", "quantize": "dtype_converter",
    "dequantize": "dtype_converter", "onnx": "customlayer",
}  # fmt: skip
"""The toolkit's operators by ours; others have the same name."""


@dataclass(frozen=True)
class Layer:
    """One layer of a network, with its identifier."""

    lid: str
    name: str
    op: Any
    tensors: tuple[str, ...]
    """The names of its results."""


def layers_of(graph: Graph) -> list[Layer]:
    """The layers in order, without inputs, outputs and constants."""
    first = len(graph.inputs)
    ops = [op for op in graph.ops if op.results and not isinstance(op, top.WeightOp)]
    layers = []
    for number, op in enumerate(ops, first):
        name = layer_name(op) or result_names(op)[0] or op.name.partition(".")[2]
        layers.append(Layer(f"{name}_{number}", name, op, tuple(result_names(op))))
    return layers


def tensor_names(graph: Graph) -> dict[str, str]:
    """The toolkit's name of every tensor: `@lid:out0`."""
    table = {port.name: f"@{port.name}_{number}:out0" for number, port in enumerate(graph.inputs)}
    for layer in layers_of(graph):
        for index, tensor in enumerate(layer.tensors):
            table.setdefault(tensor, f"@{layer.lid}:out{index}")
    return table


def names_of(graph: Graph) -> NameMap:
    """The names that are stored with a network."""
    return NameMap(graph.names_for(TOOL))


def lid_of(vendor_name: str) -> str:
    """The identifier of the layer that gives a tensor.

    >>> lid_of("@conv1_1:out0")
    'conv1_1'
    """
    return vendor_name.removeprefix("@").rpartition(":")[0]


def input_lids(graph: Graph) -> dict[str, str]:
    """Each input by the identifier of its layer."""
    names = names_of(graph)
    return {lid_of(names.vendor_name(port.name)): port.name for port in graph.inputs}


def attached_names(graph: Graph) -> dict[str, str]:
    """The identifiers of the layers that the toolkit attaches to inputs and outputs, by tensor: `attach_NAME/out0_N`."""
    names = names_of(graph)
    attached = {}
    for number, port in enumerate(graph.outputs):
        attached[port.name] = f"attach_{_plain(names.vendor_name(_source(graph, port.name)))}/out0_{number}"
    for number, port in enumerate(graph.inputs, len(graph.outputs)):
        attached[port.name] = f"attach_{_plain(names.vendor_name(port.name))}/out0_{number}"
    return attached


def _source(graph: Graph, output: str) -> str:
    """The tensor that an output is; an output may have a name of its own."""
    value = next(port.value for port in graph.outputs if port.name == output)
    return value_name(value) or output


def _plain(vendor_name: str) -> str:
    """The name of a layer without its number."""
    return lid_of(vendor_name).rpartition("_")[0] if vendor_name.startswith("@") else vendor_name


def view_of(graph: Graph, converters: Mapping[str, str] | None = None) -> dict[str, Any]:
    """The layers for X.json; `converters` are the types of layers that have one of their own, by identifier."""
    names = names_of(graph)
    layers: dict[str, Any] = {}
    for port in graph.inputs:
        lid = lid_of(names.vendor_name(port.name))
        parameters = {"size": "", "channels": 1, "shape": list(shape_of(port.value))}
        layers[lid] = _entry(port.name, "input", parameters, [])
    types = dict(converters or {})
    for layer in layers_of(graph):
        inputs = [f"@{_maker(names, value)}" for value in _tensors_read(layer.op)]
        if layer.lid in types:
            kind = types[layer.lid]
            for index, tensor in enumerate(inputs):
                converter = f"{layer.lid}_dtype_converter_{index}"
                layers[converter] = _entry(converter, "dtype_converter", {"to": kind}, [tensor])
                inputs[index] = f"@{converter}:out0"
        entry = _entry(layer.name, operator(layer.op), parameters_of(layer.op), inputs, len(layer.tensors))
        layers[layer.lid] = entry
        if layer.lid in types:
            back = f"{layer.lid}_dtype_converter_out"
            layers[back] = _entry(back, "dtype_converter", {"from": types[layer.lid]}, [f"@{layer.lid}:out0"])
    attached = attached_names(graph)
    for port in graph.outputs:
        layers[attached[port.name]] = _entry(
            f"attach_{port.name}/out0", "output", {}, [f"@{_maker(names, port.value)}"]
        )
    return layers


def _entry(
    name: str, op: str, parameters: dict[str, Any], inputs: list[str], outputs: int = 1
) -> dict[str, Any]:
    return {
        "name": name,
        "op": op,
        "parameters": parameters,
        "inputs": inputs,
        "outputs": [f"out{index}" for index in range(outputs)],
    }


def _maker(names: NameMap, value: Value) -> str:
    return names.vendor_name(value_name(value)).removeprefix("@")


def _tensors_read(op: Any) -> Iterator[Value]:
    """The operands that are no constants."""
    for value in op.operands:
        if not isinstance(value.owner, top.WeightOp):
            yield value


def operator(op: Any) -> str:
    """The toolkit's name of an operator."""
    name = str(op.name).partition(".")[2]
    return _OPERATORS.get(name, name.replace("_", ""))


def parameters_of(op: Any) -> dict[str, Any]:
    """The parameters of a layer, under the toolkit's names where it has some."""
    own = {key: _value(value) for key, value in op.native_properties().items()}
    if isinstance(op, top.Conv | top.Deconv):
        weight = shape_of(op.weight)
        height, width = (weight[-2], weight[-1]) if len(weight) > 3 else (weight[-1], 1)
        return {
            "weights": shape_of(op.results[0])[1],
            "padding": "EXPLICIT" if any(own.get("pads", ())) else "VALID",
            "bias": op.bias is not None,
            "group_number": own.pop("group", 1),
            "regularize": False,
            "ksize_h": height,
            "ksize_w": width,
            **_sides("stride", own.pop("strides", None)),
            **_sides("dilation", own.pop("dilations", None)),
            "pad": list(own.pop("pads", ())),
            **own,
        }
    if isinstance(op, top.MatMul):
        return {"weights": shape_of(op.results[0])[-1], "bias": len(op.operands) > 2, **own}
    if isinstance(op, top.MaxPool | top.AvgPool):
        kind = "MAX" if isinstance(op, top.MaxPool) else "AVG"
        kernel, strides = own.pop("kernel", None), own.pop("strides", None)
        return {
            "type": kind,
            **_sides("ksize", kernel),
            **_sides("stride", strides),
            "pad": own.pop("pads", []),
            **own,
        }
    return own


def _sides(name: str, values: Any) -> dict[str, int]:
    sides = list(values or (1, 1))
    height, width = (sides[-2], sides[-1]) if len(sides) > 1 else (sides[-1], 1)
    return {f"{name}_h": height, f"{name}_w": width}


def _value(value: Any) -> Any:
    """A property as JSON has it."""
    if isinstance(value, bool | int | float | str) or value is None:
        return value
    if isinstance(value, list | tuple):
        return [_value(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _value(item) for key, item in value.items()}
    return str(value)
