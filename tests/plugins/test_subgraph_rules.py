"""Subgraphs of several outputs become one op of a plugin, in models of every format, by a pattern or by their names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from npuc import lang
from npuc.engine import FloatEngine
from npuc.errors import PluginError, PluginFaultError
from npuc.export.tflite import export_tflite
from npuc.flow import import_model
from npuc.ir import Graph
from npuc.ir.passes import run_pipeline
from npuc.plugins.api import TopOp, float_forward, operand, result, top_op, top_pattern, top_subgraph

NAME = "top.test_gate_and_tanh"
SHAPE = (1, 4, 6, 5)
PATTERN = """
    gate = sigmoid(b)
    y = mul(a, gate)
    z = tanh(gate)
"""


@pytest.fixture
def gate_op() -> Any:
    """An op of a plugin: y = a * sigmoid(b), z = tanh(sigmoid(b))"""

    class GateAndTanh(TopOp):
        """y = a * sigmoid(b), z = tanh(sigmoid(b))"""

        name = NAME
        a = operand()
        b = operand()
        y = result()
        z = result()

        def infer(self) -> Any:
            """Both as a."""
            return [self.a.type, self.b.type]

    defined = top_op(GateAndTanh)

    @float_forward(defined)
    def forward(arrays: Any, attributes: Any) -> Any:
        a, b = arrays
        gate = 1 / (1 + np.exp(-b))
        return [a * gate, np.tanh(gate)]

    return defined


def spelled_out() -> Graph:
    """y and z of the op above, of an input and twice that."""
    x = lang.input("x", SHAPE)
    b = lang.mul(x, lang.constant(np.float32(2)))
    gate = lang.sigmoid(b)
    return lang.build({"y": lang.mul(gate, x), "z": lang.tanh(gate)})


def as_onnx(folder: Path) -> Path:
    nodes = [
        helper.make_node("Add", ["x", "x"], ["b"], name="blocks.0/double"),
        helper.make_node("Sigmoid", ["b"], ["gate"], name="blocks.0/glu/gate"),
        helper.make_node("Mul", ["x", "gate"], ["y"], name="blocks.0/glu/product"),
        helper.make_node("Tanh", ["gate"], ["z"], name="blocks.0/glu/tanh"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xyz"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8),
        folder / "m.onnx",
    )
    return folder / "m.onnx"


def as_tflite(folder: Path) -> Path:
    export_tflite(spelled_out(), folder / "m.tflite")
    return folder / "m.tflite"


def as_caffe(folder: Path) -> Path:
    (folder / "m.prototxt").write_text(
        """
        layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 4 dim: 6 dim: 5 } } }
        layer { name: "b" type: "Power" bottom: "x" top: "b" power_param { scale: 2 } }
        layer { name: "gate" type: "Sigmoid" bottom: "b" top: "gate" }
        layer { name: "y" type: "Eltwise" bottom: "x" bottom: "gate" top: "y" eltwise_param { operation: PROD } }
        layer { name: "z" type: "TanH" bottom: "gate" top: "z" }
        """
    )
    return folder / "m.prototxt"


def as_torch(folder: Path) -> Path:
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            gate = torch.sigmoid(2 * x)
            return x * gate, torch.tanh(gate)

    torch.export.save(torch.export.export(Net(), (torch.zeros(SHAPE),)), str(folder / "m.pt2"))
    return folder / "m.pt2"


def kinds(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops]


@pytest.mark.parametrize("write", [as_onnx, as_tflite, as_caffe, as_torch])
def test_a_pattern_of_two_outputs_in_every_format(write: Any, gate_op: Any, tmp_path: Path) -> None:
    path = write(tmp_path)
    plain = import_model(path)

    @top_pattern(PATTERN, outputs=("y", "z"))
    def take(match: Any) -> TopOp:
        assert match.op("gate") is match.ops[0] and match.inputs == (match["b"], match["a"])
        return gate_op.make(match["a"], match["b"])

    joined = import_model(path)
    assert NAME in kinds(joined) and "top.tanh" not in kinds(joined)
    assert NAME not in kinds(plain)
    assert [port.name for port in joined.outputs] == [port.name for port in plain.outputs]
    x = {port.name: np.random.default_rng(0).normal(size=SHAPE).astype(np.float32) for port in plain.inputs}
    shape = tuple(plain.inputs[0].type.get_shape())  # type: ignore[attr-defined]
    x = {name: value.reshape(shape) for name, value in x.items()}
    wanted = FloatEngine(plain).run(x)
    for name, value in FloatEngine(joined).run(x).items():
        np.testing.assert_allclose(value, wanted[name], atol=1e-6)


def test_all_layers_below_a_name(gate_op: Any, tmp_path: Path) -> None:
    path = as_onnx(tmp_path)
    seen = []

    @top_subgraph("blocks.*/glu")
    def take(match: Any) -> TopOp:
        seen.append((len(match.ops), len(match.inputs), len(match.outputs)))
        b, a = match.inputs
        return gate_op.make(a, b)

    assert NAME in kinds(import_model(path)) and seen == [(3, 2, 2)]


def test_what_a_rule_leaves_alone(tmp_path: Path) -> None:
    path = as_onnx(tmp_path)

    @top_pattern(PATTERN, outputs=("y", "z"))
    def refused(match: Any) -> None:
        return None

    @top_pattern("gate = sigmoid(b)\ny = mul(a, gate)")  # the gate is read elsewhere
    def leaking(match: Any) -> TopOp:
        raise AssertionError("this is no match")

    assert "top.tanh" in kinds(import_model(path))


def test_faults_of_rules_are_said_in_words(gate_op: Any, tmp_path: Path) -> None:
    for pattern, outputs, words in (
        ("", (), "has no lines"),
        ("y = mul(a, b)\ny = tanh(a)", (), "makes a result twice"),
        ("y = mul(a", (), "is no line of a pattern"),
        ("y = mul(a, b)", ("z",), "no line makes it"),
        ("y = mul(a, b)\nz = tanh(c)", (), "nothing joins the line of 'y'"),
    ):
        with pytest.raises(PluginError, match=words):
            top_pattern(pattern, outputs)

    @top_pattern("gate = sigmoid(b)", outputs=("gate",))
    def wrong(match: Any) -> TopOp:
        return gate_op.make(match["b"], match["b"])

    with pytest.raises(PluginFaultError, match="the pattern that ends in sigmoid"):
        import_model(as_onnx(tmp_path))


def test_a_subgraph_that_cannot_be_one_op(gate_op: Any) -> None:
    """The second half reads what is made of the first half's output, outside of the subgraph."""
    x = lang.input("x", SHAPE)
    y = lang.tanh(x)
    between = lang.exp(y)
    graph = lang.build({"z": lang.mul(x, lang.sigmoid(between)), "y": y})

    @top_pattern("y = tanh(x)\ng = sigmoid(b)\nz = mul(x, g)", outputs=("y", "z"))
    def take(match: Any) -> TopOp:
        return gate_op.make(match["x"], match["b"])

    with pytest.raises(PluginError, match="cannot be one op"):
        run_pipeline(graph, "claim-custom-ops")
