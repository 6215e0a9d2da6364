"""Plugins of Compass on whole networks: parser plugins of operators and subgraphs, and operators that compute layers."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.compat.compass.optimizer_plugins import OPERATORS
from npuc.engine import FloatEngine
from npuc.errors import PluginError
from npuc.export.compass.text import parse_text
from npuc.flow import network_to_quantize
from npuc.frontend.caffe.registry import RULES as CAFFE_RULES
from npuc.frontend.onnx.node_groups import Edge, nodes_between, nodes_like
from npuc.frontend.onnx.subgraphs import RULES
from npuc.program.file import load_compiled
from npuc.registries import isolated
from npuc.runtime.engine import CompiledEngine

HEAD = """
import numpy as np
import torch
from AIPUBuilder.Optimizer.framework import OpType, op_register, register_optype
from AIPUBuilder.Parser.plugin_loader import PluginType, register_plugin
from AIPUBuilder.Parser.plugin_op import ParserOp
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    rules = list(RULES)
    assert "ReLU" in CAFFE_RULES  # npuc's own rules are there before a plugin replaces one
    with isolated():
        yield tmp_path
    RULES[:] = rules
    for name in [key for key in sys.modules if key.startswith(("aipubt_", "AIPUBuilder"))]:
        del sys.modules[name]


def network(
    path: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any], outputs: tuple[str, ...] = ("y",)
) -> None:
    """A model of nodes from x to its outputs, all of them rows of 8."""
    ports = {name: helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 8]) for name in ("x", *outputs)}
    arrays = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", [ports["x"]], [ports[name] for name in outputs], arrays)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def whole_way(folder: Path, plugin: str, samples: Array) -> tuple[dict[str, Array], dict[str, Array]]:
    """Results of the compiled program and of ONNX Runtime, by their order, after aipuparse, aipuopt and aipugb."""
    (folder / "aipubt_mine.py").write_text(HEAD + plugin)
    np.save("calib.npy", samples)
    (folder / "parse.cfg").write_text(
        "[Common]\nmodel_type=onnx\nmodel_name=net\ninput_model=net.onnx\noutput_dir=ir\n"
    )
    (folder / "opt.cfg").write_text(
        "[Common]\ngraph=ir/net.txt\nbin=ir/net.bin\nmodel_name=net\ndataset=NumpyDataset\ncalibration_data=calib.npy\n"
        "output_dir=opt\n"
    )
    for line in ("aipuparse -c parse.cfg", "aipuopt -c opt.cfg", "aipugb opt/net.txt -o aipu.bin"):
        assert run_command(["compat", "run", "compass", *line.split()]) == 0, line
    program = CompiledEngine(load_compiled("aipu.bin"))
    judge = onnxruntime.InferenceSession("net.onnx")
    names = [port.name for port in judge.get_outputs()]
    ours = [list(program.run({"x": row[None]}).values()) for row in samples]
    theirs = [judge.run(None, {"x": row[None]}) for row in samples]
    return tuple(
        {name: np.concatenate([row[place] for row in rows]) for place, name in enumerate(names)}
        for rows in (ours, theirs)
    )  # type: ignore[return-value]


def close(ours: dict[str, Array], judge: dict[str, Array]) -> None:
    for name in judge:
        assert np.abs(ours[name] - judge[name]).max() < 0.05 * np.abs(judge[name]).max(), name


def kinds(path: str) -> list[str]:
    return [layer.kind for layer in parse_text(Path(path).read_text()).layers]


def samples(count: int = 12) -> Array:
    return np.random.default_rng(1).standard_normal((count, 8)).astype(np.float32)


WEIGHT = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
BY_NAMES = """
@register_plugin(PluginType.Parser, "0.1")
class Scaled(ParserOp):
    op_type = "MyScaled"
    start_nodes, end_nodes = ["div"], ["sub"]
    def __init__(self, framework, op_info):
        super().__init__(framework, op_info)
        assert framework == "ONNX" and {"div", "act", "sub"} <= set(op_info), op_info
        self.params["slope"] = op_info["act"]["alpha"]
    def infer_shape(self, input_tensors, *args):
        first, last = input_tensors
        self.constants["by"], self.constants["less"] = first[1], last[0]
        self.remove_inputs_at(1)
        self.remove_inputs_at(tensor_index=0, node_index=1)
        return [first[0]]
@op_register(register_optype("MyScaled"))
def forward(self, *args):
    x = self.inputs[0].betensor / self.constants["by"].betensor
    self.outputs[0].betensor = torch.where(x > 0, x, x * self.get_param("slope")) - self.constants["less"].betensor
    return self.outputs[0].betensor
"""


def scaled_network(path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Div", ["a", "by"], ["b"], name="div"),
        helper.make_node("LeakyRelu", ["b"], ["c"], name="act", alpha=0.25),
        helper.make_node("Sub", ["c", "less"], ["d"], name="sub"),
        helper.make_node("MatMul", ["d", "w"], ["y"], name="last"),
    ]
    network(path, nodes, {"w": WEIGHT, "by": np.linspace(1, 2, 8), "less": np.full(8, 0.5)})


def test_a_subgraph_by_the_names_of_nodes_is_one_layer(folder: Path) -> None:
    scaled_network(folder / "net.onnx")
    close(*whole_way(folder, BY_NAMES, samples()))
    assert kinds("ir/net.txt") == ["Input", "FullyConnected", "MyScaled", "FullyConnected"]


def test_a_subgraph_by_a_pattern_is_one_layer_wherever_it_occurs(folder: Path) -> None:
    nodes, name = [], "x"
    for index in range(2):
        nodes += [
            helper.make_node("MatMul", [name, "w"], [f"a{index}"], name=f"m{index}"),
            helper.make_node(
                "HardSigmoid", [f"a{index}"], [f"g{index}"], name=f"g{index}", alpha=0.1 + 0.1 * index
            ),
            helper.make_node("Mul", [f"a{index}", f"g{index}"], [f"o{index}"], name=f"o{index}"),
        ]
        name = f"o{index}"
    # This one multiplies in the other order, which the edge does not allow.
    nodes += [
        helper.make_node("HardSigmoid", [name], ["g"], name="g", alpha=0.3),
        helper.make_node("Mul", ["g", name], ["y"], name="y"),
    ]
    network(folder / "net.onnx", nodes, {"w": WEIGHT})
    plugin = """
@register_plugin(PluginType.Parser, "0.1")
class Gate(ParserOp):
    op_type, alias_op_type = "Gate", "MyGate"
    pattern_nodes = [("gate", "HardSigmoid"), ("out", {"op": "Mul"})]
    pattern_edges = [("gate", "out", {"src_out_port": 0, "dst_in_port": 1})]
    def __init__(self, framework, op_info):
        super().__init__(framework, op_info)
        self.params["alpha"] = op_info["gate"]["alpha"]
    def infer_shape(self, input_tensors, *args):
        return [input_tensors[0][0]]
@op_register(register_optype("MyGate"))
def forward(self, *args):
    x = self.inputs[0].betensor
    self.outputs[0].betensor = x * torch.clamp(self.get_param("alpha") * x + 0.5, 0, 1)
    return self.outputs[0].betensor
"""
    close(*whole_way(folder, plugin, samples()))
    assert kinds("ir/net.txt").count("MyGate") == 2


def test_a_subgraph_with_two_results(folder: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Neg", ["a"], ["b"], name="neg"),
        helper.make_node("Abs", ["b"], ["z"], name="abs"),
        helper.make_node("Relu", ["b"], ["y"], name="relu"),
    ]
    network(folder / "net.onnx", nodes, {"w": WEIGHT}, ("y", "z"))
    plugin = """
@register_plugin(PluginType.Parser)
class Both(ParserOp):
    op_type, start_nodes, end_nodes = "MyBoth", ["neg"], ["relu", "abs"]
    def infer_shape(self, input_tensors, *args):
        assert [len(part) for part in input_tensors] == [1, 0, 0], input_tensors
        return [input_tensors[0][0], input_tensors[0][0]]
@op_register(register_optype("MyBoth"))
def forward(self, *args):
    x = -self.inputs[0].betensor
    self.outputs[0].betensor, self.outputs[1].betensor = torch.relu(x), torch.abs(x)
"""
    close(*whole_way(folder, plugin, samples()))
    assert kinds("ir/net.txt")[-1] == "MyBoth"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (BY_NAMES[: BY_NAMES.index("@op_register")], "MyScaled, which only the vendor's own core computes"),
        (BY_NAMES.replace("node_index=1", "node_index=3"), "there is no such input"),
        (BY_NAMES.replace("return [first[0]]", "return 3"), "gives no list of 1 arrays"),
        (BY_NAMES.replace("return [first[0]]", "return first[7]"), "failed at 'sub_plugin': IndexError"),
        (BY_NAMES.replace('["div"], ["sub"]', '["div", "last"], ["sub"]'), "goes through the node 'last'"),
    ],
)
def test_a_subgraph_that_cannot_be_a_layer(
    folder: Path, text: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    scaled_network(folder / "net.onnx")
    (folder / "aipubt_mine.py").write_text(HEAD + text)
    (folder / "parse.cfg").write_text(
        "[Common]\nmodel_type=onnx\nmodel_name=net\ninput_model=net.onnx\noutput_dir=ir\n"
    )
    assert run_command(["compat", "run", "compass", "aipuparse", "-c", "parse.cfg"]) in (1, 2)
    assert reason in capfd.readouterr().err.replace("\n", " ") and not (folder / "ir").exists()


def test_a_name_that_the_model_does_not_have_changes_nothing(folder: Path) -> None:
    scaled_network(folder / "net.onnx")
    close(*whole_way(folder, BY_NAMES.replace('["div"]', '["other"]'), samples()))
    assert "MyScaled" not in kinds("ir/net.txt")


def test_an_operator_plugin_computes_layers_of_the_tools_own_type(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="first"),
        helper.make_node("Softmax", ["a"], ["b"], name="soft", axis=1),
        helper.make_node("MatMul", ["b", "w"], ["y"], name="last"),
    ]
    network(folder / "net.onnx", nodes, {"w": WEIGHT})
    plugin = """
@op_register(OpType.Softmax, version="2.0")
def forward(self, *args):
    self.outputs[0].betensor = 2 * torch.softmax(self.inputs[0].betensor, self.get_param("axis"))
    return self.outputs[0].betensor
"""
    ours, judge = whole_way(folder, plugin, samples())
    close(ours, {name: 2 * array for name, array in judge.items()})
    assert "layers of the type Softmax are computed by aipubt_mine" in capfd.readouterr().err
    assert ("forward", "Softmax") in OPERATORS
    (folder / "build.cfg").write_text(
        "[Common]\nmode=build\n[Parser]\nmodel_type=onnx\nmodel_name=net\ninput_model=net.onnx\n"
        "[Optimizer]\ndataset=NumpyDataset\ncalibration_data=calib.npy\noutput_dir=opt2\n[GBuilder]\noutputs=whole.bin\n"
    )
    assert run_command(["compat", "run", "compass", "aipubuild", "build.cfg"]) == 0
    program = CompiledEngine(load_compiled("whole.bin"))
    whole = np.concatenate([next(iter(program.run({"x": row[None]}).values())) for row in samples()])
    close({"y": whole}, {"y": 2 * judge["y"]})


FRONT = """
@register_plugin(PluginType.Parser)
class Sums(ParserOp):
    op_type, priority, input_nodes, input_shapes = "Sums", 50, ["x"], [[1, 2, 8]]
    def infer_shape(self, input_tensors, *args):
        (inp,) = input_tensors
        self.params["axis"] = 1
        self.constants["scale"] = np.full(8, 0.5, np.float32)
        return [inp.sum(axis=1)]
@op_register(register_optype("Sums"))
def forward(self, *args):
    self.outputs[0].betensor = self.inputs[0].betensor.sum(self.get_param("axis")) * self.get_constant("scale").betensor
@register_plugin(PluginType.Parser)
class Later(ParserOp):
    op_type, priority, input_nodes, input_shapes = "Later", 49, ["x"], [[1, 3, 8]]
"""


def test_a_layer_in_front_of_an_input(folder: Path) -> None:
    network(folder / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], name="first")], {"w": WEIGHT})
    (folder / "aipubt_mine.py").write_text(HEAD + FRONT)
    pairs = np.random.default_rng(5).standard_normal((16, 2, 8)).astype(np.float32)
    np.save("calib.npy", pairs)
    (folder / "build.cfg").write_text(
        "[Common]\nmode=build\n[Parser]\nmodel_type=onnx\nmodel_name=net\ninput_model=net.onnx\n"
        "[Optimizer]\ndataset=NumpyDataset\ncalibration_data=calib.npy\noutput_dir=opt\n[GBuilder]\noutputs=whole.bin\n"
    )
    assert run_command(["compat", "run", "compass", "aipubuild", "build.cfg"]) == 0
    program = CompiledEngine(load_compiled("whole.bin"))
    ours = np.concatenate([next(iter(program.run({"x": pair[None]}).values())) for pair in pairs])
    close({"y": ours}, {"y": 0.5 * pairs.sum(axis=1) @ WEIGHT})
    text = (folder / "opt" / "net_float.txt").read_text()
    assert (
        "layer_top_shape=[[1,2,8]]" in text and "layer_type=Sums" in text and "layer_type=Later" not in text
    )


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FRONT.replace("[[1, 2, 8]]", "[]"), "input_nodes and input_shapes are lists of one length"),
        (FRONT.replace("inp.sum(axis=1)", "inp"), r"gives \[1, 2, 8\] for the input 'x', which is \[1, 8\]"),
        (
            FRONT.replace('register_optype("Sums")', 'register_optype("Other")'),
            "Sums, which only the vendor's own core",
        ),
    ],
)
def test_a_layer_that_cannot_be_in_front(
    folder: Path, text: str, reason: str, capfd: pytest.CaptureFixture[str]
) -> None:
    network(folder / "net.onnx", [helper.make_node("MatMul", ["x", "w"], ["y"], name="first")], {"w": WEIGHT})
    (folder / "aipubt_mine.py").write_text(HEAD + text)
    (folder / "parse.cfg").write_text(
        "[Common]\nmodel_type=onnx\nmodel_name=net\ninput_model=net.onnx\noutput_dir=ir\n"
    )
    assert run_command(["compat", "run", "compass", "aipuparse", "-c", "parse.cfg"]) in (1, 2)
    assert re.search(reason, capfd.readouterr().err.replace("\n", " ")) and not (folder / "ir").exists()


CAFFE = (
    'name: "n"\nlayer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 8 } } }\n'
    'layer { name: "r" type: "ReLU" bottom: "x" top: "y" relu_param { negative_slope: 0.25 } }\n'
)
OWN_RELU = """
@register_plugin(PluginType.Parser)
class Own(ParserOp):
    op_type, alias_op_type = "ReLU", "MyReLU"
    def __init__(self, framework, op_info):
        super().__init__(framework, op_info)
        assert framework == "Caffe" and op_info["name"] == "r", (framework, op_info)
        self.params["slope"] = 2 * op_info["negative_slope"]
    def infer_shape(self, input_tensors, *args):
        return input_tensors[0]
"""
COMPUTED = """
@op_register(register_optype("MyReLU"))
def forward(self, *args):
    x = self.inputs[0].betensor
    self.outputs[0].betensor = torch.where(x < 0, self.get_param("slope") * x, x)
"""


def test_a_layer_of_a_caffe_model(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / "net.prototxt").write_text(CAFFE)
    (folder / "parse.cfg").write_text(
        "[Common]\nmodel_type=caffe\nmodel_name=net\ninput_model=net.prototxt\noutput_dir=ir\n"
    )
    (folder / "aipubt_mine.py").write_text(HEAD + OWN_RELU)
    assert run_command(["compat", "run", "compass", "aipuparse", "-c", "parse.cfg"]) == 2
    assert "MyReLU, which only the vendor's own core computes" in capfd.readouterr().err.replace("\n", " ")
    (folder / "aipubt_mine.py").write_text(HEAD + OWN_RELU + COMPUTED)
    assert run_command(["compat", "run", "compass", "aipuparse", "-c", "parse.cfg"]) == 0
    assert kinds("ir/net.txt")[-1] == "MyReLU"
    x = samples()[:1]
    y = FloatEngine(network_to_quantize("ir/net.txt")).run({"x": x})["y"]
    np.testing.assert_allclose(y, np.where(x < 0, 0.5 * x, x), rtol=1e-6)


def test_groups_of_nodes() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"], name="a"),
        helper.make_node("Abs", ["a"], ["b"], name="b"),
        helper.make_node("Neg", ["a"], ["c"], name="c"),
        helper.make_node("Add", ["b", "c"], ["d"], name="d"),
        helper.make_node("Abs", ["d"], ["e"], name="e"),
    ]
    assert [node.name for node in nodes_between(nodes, ["a"], ["d"])] == ["a", "b", "c", "d"]
    assert [node.name for node in nodes_between(nodes, ["b"], ["e"])] == ["b", "d", "e"]
    assert nodes_between(nodes, ["a"], ["z"]) == []
    found = nodes_like(nodes, {"n": "Add", "m": "Abs"}, [Edge("n", "m")])
    assert [{key: node.name for key, node in match.items()} for match in found] == [{"n": "d", "m": "e"}]
    assert nodes_like(nodes, {"m": "Neg", "n": "Add"}, [Edge("m", "n", 0, 0)]) == []
    assert len(nodes_like(nodes, {"m": "Neg", "n": "Add"}, [Edge("m", "n", 0, 1)])) == 1


def test_plugins_have_the_methods_that_they_derive(folder: Path) -> None:
    from npuc.compat.compass.builder_plugins import BuilderOpPlugin, Node, OpType
    from npuc.compat.compass.optimizer_plugins import PyNode
    from npuc.compat.compass.parser_plugins import ParserOp, PluginType, register_plugin

    @register_plugin(type=PluginType.Builder, version="1.2")
    class Mine(BuilderOpPlugin):
        """Claims nothing that is here."""

        def get_graph_pattern(self) -> Any:
            return [("a", OpType.Softmax)], []

    plugin, node = Mine(), Node("n", OpType.Softmax)
    assert plugin.set_target("X2_1204") and plugin.check_params([node]) and plugin.setup(node, [node])
    assert plugin.generate_params(node, [node]) == [] and plugin.generate_descriptor(node, [node]) is None
    with pytest.raises(NotImplementedError):
        plugin.generate_code_name(node, [node])
    layer = PyNode("layer", "Mine", params={"axis": 1}, attrs={"bits": 8})
    assert layer.get_attrs("bits") == 8 and layer.get_param("no", optional=True, default_value=3) == 3
    assert layer.get_constant("no", optional=True) is None
    with pytest.raises(PluginError, match="layer 'layer' has no 'zero'"):
        layer.get_attrs("zero")
    with pytest.raises(PluginError, match="takes integers"):
        ParserOp("ONNX", {}).remove_inputs_at(tensor_index="a", node_index=0)  # type: ignore[arg-type]
