"""What `convert_deploy` writes: the trained network, and the quantization that it was trained with.

NAME.onnx                                       the integers of the network, in QDQ form
NAME_deploy_model.onnx                          the float network with the trained weights, for model_transform.py
NAME_cali_table_from_mqbench_sophgo_tpu         ranges and scales of weights, for model_deploy.py --calibration_table
NAME_clip_ranges.json                           the ranges alone
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from onnx import ModelProto

from npuc.compat.tpumlir.tables import write_text
from npuc.errors import UsageError
from npuc.export.onnx import to_onnx, write_onnx
from npuc.export.qdq.file import to_qdq_onnx
from npuc.files import writable
from npuc.flow import expanded, quantize_network
from npuc.integrations.torch.live import from_torch
from npuc.ir import Graph, shape_of
from npuc.target import load_target
from npuc.train.qat.module import QatModule
from npuc.train.qat.prepare import trained_form

_WORK_MODE = "# work_mode:QAT_all_int8 //Automatically generated, do not modify"


def write_deployment(quantized: Any, shapes: Mapping[str, Any], example: Any, prefix: Path) -> None:
    """Write the files of a trained model; inputs have the names and shapes that are stated."""
    qat: QatModule = quantized.qat
    files = {
        name: prefix.with_name(f"{prefix.name}{name}")
        for name in (
            ".onnx",
            "_deploy_model.onnx",
            "_clip_ranges.json",
            "_cali_table_from_mqbench_sophgo_tpu",
        )
    }
    for path in files.values():
        writable(path)
    graph = _at_shapes(quantized, shapes, example)
    exported = to_onnx(graph)
    renamed = dict(zip((port.name for port in graph.inputs), shapes, strict=False))
    _rename_inputs(exported.proto, renamed)
    operators = {
        output: f"{output}_{node.op_type}" for node in exported.proto.graph.node for output in node.output
    }
    ranges = {name: _ends(stated) for name, stated in qat.ranges().items()}
    rows, clips = [], {}
    weights = {
        layer.name: scale().detach().cpu().numpy().reshape(-1)
        for layer, scale in zip(qat.plan.layers, qat.weight_scales, strict=True)
    }
    for name in [*(port.name for port in graph.inputs), *graph.tensor_names()]:
        if name not in ranges:
            continue
        low, high = ranges[name]
        theirs = renamed.get(name, operators.get(name, name))
        if name in weights:
            numbers = " ".join(repr(float(scale)) for scale in weights[name])
            count = weights[name].size
            rows.append(f"{theirs}_weight {count} {numbers} {count} {' '.join(['0'] * count)}")
        rows.append(f"{theirs} {max(-low, high)!r} {low!r} {high!r}")
        clips[theirs] = {"bit": 8, "threshold": max(-low, high), "min": low, "max": high}
    write_onnx(exported, files["_deploy_model.onnx"])
    integers = quantize_network(graph, ranges, quantized.config, load_target(quantized.chip), weights).graph
    as_integers = to_qdq_onnx(integers)
    _rename_inputs(as_integers.proto, renamed)
    write_onnx(as_integers, files[".onnx"])
    write_text(files["_clip_ranges.json"], json.dumps({"sophgo_tpu": clips}, indent=1) + "\n")
    write_text(
        files["_cali_table_from_mqbench_sophgo_tpu"],
        "\n".join([_WORK_MODE, "# op_name    threshold    min    max", *rows]) + "\n",
    )
    for path in files.values():
        print(f"written to {path}")


def _ends(stated: Any) -> tuple[float, float]:
    low, high = stated if isinstance(stated, tuple) else (stated.min, stated.max)
    return float(low), float(high)


def _at_shapes(quantized: Any, shapes: Mapping[str, Any], example: Any) -> Graph:
    """The float network with the trained weights, for inputs of the stated shapes."""
    qat: QatModule = quantized.qat
    own = [tuple(shape_of(port.value)) for port in qat.plan.source.inputs]
    stated = [tuple(int(side) for side in shape) for shape in shapes.values()]
    if not stated and example is not None:
        tensors = example if isinstance(example, tuple | list) else (example,)
        stated = [tuple(tensor.shape) for tensor in tensors]
    if not stated or stated == own:
        return qat.to_float()
    if len(stated) != len(own):
        raise UsageError(f"input_shape_dict has {len(stated)} shapes, and the model has {len(own)} inputs")
    model = quantized.float_model.eval()
    again = expanded(from_torch(model, tuple(torch.zeros(shape) for shape in stated)))
    graph, _ = trained_form(again, quantized.chip, quantized.config)
    weights = qat.network.weight_store()
    if {*graph.used_weights()} - {*weights} or any(
        graph.weights.array(name).shape != weights.array(name).shape for name in graph.used_weights()
    ):
        raise UsageError(
            f"the model has other weights for inputs of {[list(shape) for shape in stated]}",
            fix=f"Give the shapes that it was trained with: {[list(shape) for shape in own]}",
        )
    return Graph(graph.module, weights)


def _rename_inputs(proto: ModelProto, renamed: Mapping[str, str]) -> None:
    """Give inputs of a model other names."""
    for port in proto.graph.input:
        port.name = renamed.get(port.name, port.name)
    for node in proto.graph.node:
        node.input[:] = [renamed.get(name, name) for name in node.input]
