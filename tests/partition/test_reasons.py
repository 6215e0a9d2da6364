"""The words for what is not on the NPU are true, and what they advise helps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuc.cli.app import run_command
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import network_to_quantize, save_graph
from npuc.inspect.inspection import Inspection, inspect_graph
from npuc.ir import Graph, top
from npuc.partition.ends import words_for
from npuc.partition.fit import _INSTEAD, limit_fit
from npuc.quant.config import QuantizationConfig
from npuc.target import available, load_target
from support.graphs import build
from support.networks.placement import NETWORKS

DPU = load_target("dpuczdx8g-b4096-like")


def reasons(found: Inspection) -> dict[str, str]:
    return {layer.name: layer.reason for layer in found.layers if layer.device == "cpu"}


def test_only_what_was_asked_for_is_as_asked() -> None:
    found = reasons(inspect_graph(NETWORKS["recurrent"](), DPU)[0])
    assert found["steps"] == "dpuczdx8g-b4096-like has no 'lstm'"
    assert found["y"] == "Softmax is left to the CPU"
    assert not any("asked" in words for words in found.values())
    kept = QuantizationConfig().with_layers(("features",), "float")
    found = reasons(inspect_graph(NETWORKS["recurrent"](), DPU, config=kept)[0])
    assert found["features"] == "it stayed float: as asked"
    asked = CompileOptions(devices={"features": "cpu"})
    assert reasons(inspect_graph(NETWORKS["recurrent"](), DPU, asked)[0])["features"] == "as asked"


def test_an_integer_file_tells_what_the_target_says_of_its_float_layers(tmp_path: Path, capsys: Any) -> None:
    save_graph(NETWORKS["recurrent"](), tmp_path / "net.mlir")
    base = ["quantize", str(tmp_path / "net.mlir"), "--random", "--target", DPU.name, "-q"]
    assert run_command([*base, "-o", str(tmp_path / "int.mlir")]) == 0
    assert run_command(["inspect", str(tmp_path / "int.mlir"), "--target", DPU.name, "--json"]) == 0
    layers = json.loads(capsys.readouterr().out)["layers"]
    told = {layer["name"]: layer["reason"] for layer in layers}
    assert told["steps"] == "dpuczdx8g-b4096-like has no 'lstm'"
    assert told["y"] == "Softmax is left to the CPU"


def test_a_static_op_is_not_called_dynamic() -> None:
    """An operator that npuc has no form of: its shapes are as static as any."""
    node = helper.make_node("Det", ["x"], ["y"], name="det")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("x", [3, 3]), ("y", []))]
    model = helper.make_model(
        helper.make_graph([node], "g", ports[:1], ports[1:]),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    from npuc.frontend.onnx import import_onnx

    [layer] = inspect_graph(import_onnx(onnx.load_from_string(model.SerializeToString())), DPU)[0].layers
    assert layer.device == "cpu" and "run time" not in layer.reason
    graph = build({"x": (1, 4)}, lambda b, x: b(top.Relu, x, name="y"))
    assert "run time" not in limit_fit(next(iter(graph.ops)), graph, DPU).reason


def test_the_work_at_the_ends_is_named_by_its_ops() -> None:
    found = inspect_graph(NETWORKS["embedding"](), DPU)[0]
    assert (found.before, found.after) == ("", "1 l2_norm")
    graph = build({"x": (2, 4)}, lambda b, x: b(top.Exp, b(top.Exp, b(top.Neg, x))))
    assert words_for(list(graph.ops)) == "2 exp, 1 neg"  # type: ignore[arg-type]


def activated(kind: str) -> Graph:
    """A convolution with an activation behind it."""
    ops = {
        "sigmoid": top.Sigmoid, "silu": top.SiLU, "gelu": top.Gelu, "tanh": top.Tanh, "mish": top.Mish,
        "relu": top.Relu, "clip": top.Clip, "hard_sigmoid": top.HardSigmoid, "hard_swish": top.HardSwish,
    }  # fmt: skip
    more = {"min": -1.0, "max": 1.0} if kind == "clip" else {}
    weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    common: dict[str, Any] = {
        "pads": [1] * 4,
        "strides": [1, 1],
        "dilations": [1, 1],
        "group": 1,
        "name": "c",
    }

    def body(b: Any, x: Any) -> Any:
        y = b(ops[kind], b(top.Conv, x, weight, None, **common), name="a", **more)
        return b(top.Conv, y, weight, None, **{**common, "name": "y"})

    return build({"x": (1, 16, 16, 16)}, body)


@pytest.mark.parametrize("kind", _INSTEAD)
def test_an_advised_activation_runs_where_it_is_advised(kind: str) -> None:
    """On every target that leaves an activation to the CPU and advises another: the network with that is on the NPU."""
    keep_islands = CompileOptions(island_threshold=0)
    for file in available():
        target = load_target(file.name)
        [layer] = [
            one for one in inspect_graph(activated(kind), target, keep_islands)[0].layers if one.name == "a"
        ]
        if "instead" not in layer.lever:
            continue
        other = inspect_graph(activated(_INSTEAD[kind]), target, keep_islands)[0]
        assert {one.device for one in other.layers} == {"npu"}, (file.name, _INSTEAD[kind], reasons(other))


def test_integers_of_the_network_itself_are_not_called_float(tmp_path: Path) -> None:
    """Ids are cut, reshaped and compared on the CPU: nothing of that was ever float."""
    nodes = [
        helper.make_node("Slice", ["ids", "begin", "end"], ["cut"]),
        helper.make_node("Reshape", ["cut", "shape"], ["row"]),
        helper.make_node("Equal", ["row", "three"], ["same"]),
        helper.make_node("Cast", ["same"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["x", "mask"], ["y"]),
    ]
    values = {"begin": [0, 0], "end": [1, 4], "shape": [1, 4], "three": 3}
    graph = helper.make_graph(
        nodes,
        "masked",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, [1, 8]),
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
        [onnx.numpy_helper.from_array(np.array(value, np.int64), name) for name, value in values.items()],
    )
    path = tmp_path / "masked.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found = reasons(inspect_graph(network_to_quantize(path), load_target("edge-4t"))[0])
    plain = {name: words for name, words in found.items() if name not in ("mask", "y")}
    assert plain and set(plain.values()) == {"it computes with i64, and only float32 is quantized"}
    assert not any("float:" in words for words in plain.values())
