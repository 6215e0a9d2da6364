"""Import rules of plugins: single ops, subgraphs by name and by pattern, custom ops of any importer, and whole formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc import flow, lang
from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.codegen.outputs import check_shape
from npuc.engine import FloatEngine
from npuc.errors import CompileError, InvalidModelError, PluginError, PluginFaultError, UnknownTensorError
from npuc.frontend import formats
from npuc.frontend.formats import add_format
from npuc.frontend.onnx import import_onnx
from npuc.frontend.onnx.subgraphs import onnx_pattern, onnx_subgraph
from npuc.ir import load_graph, print_graph, save_graph
from npuc.plugins import load
from npuc.plugins.api import Format, claims, onnx_rule, register_kernel, tflite_rule, top
from npuc.transform import canonicalize
from support.paths import PLUGINS


def model_of(
    nodes: list[Any], shape: tuple[int, ...], *weights: tuple[str, Array], outputs: tuple[str, ...] = ("y",)
) -> Any:
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights],
    )
    domains = sorted({node.domain for node in nodes} - {""})
    imports = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
    model = helper.make_model(graph, opset_imports=imports)
    model.ir_version = 10
    return model


def kinds(graph: Any) -> list[str]:
    return [op.name for op in graph.ops if not isinstance(op, top.WeightOp)]


def node(kind: str, reads: str, makes: str, name: str = "", **attributes: Any) -> Any:
    return helper.make_node(kind, reads.split(), makes.split(), name=name or makes, **attributes)


X = np.random.default_rng(0).standard_normal((1, 4, 5, 6)).astype(np.float32)


def hard_glu(a: Array, b: Array, slope: float) -> Array:
    found: Array = a * np.clip(np.float32(slope) * b + np.float32(0.5), 0, 1)
    return found


# Single ops


def test_a_node_of_a_domain_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load(PLUGINS / "hard_glu.py")
    model = model_of(
        [node("Neg", "x", "n"), node("HardGlu", "x n", "y", domain="com.example", slope=0.25)], X.shape
    )
    graph = import_onnx(model)
    assert kinds(graph) == ["top.neg", "top.hard_glu"]
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], hard_glu(X, -X, 0.25))
    onnx.save(model, tmp_path / "m.onnx")
    assert flow.check_model(tmp_path / "m.onnx", graph, flow.ImportOptions()).passed
    save_graph(graph, tmp_path / "m.mlir")
    assert kinds(load_graph(tmp_path / "m.mlir")) == kinds(graph)


def test_without_the_plugin_the_node_is_kept_and_the_run_says_who_is_missing() -> None:
    model = model_of([node("HardGlu", "x x", "y", domain="com.example")], X.shape)
    graph = import_onnx(model)
    assert kinds(graph) == ["top.onnx"]
    with pytest.raises(Exception, match=r"nobody computes the op 'com.example:HardGlu'.*--plugin"):
        FloatEngine(graph).run({"x": X})


def test_without_the_plugin_a_compilation_says_which_op_is_not_known() -> None:
    nodes = [node("HardGlu", "x x", "g", "glu", domain="com.example"), node("Relu", "g", "y")]
    value = import_onnx(model_of(nodes, X.shape)).find("g")
    assert value is not None
    with pytest.raises(
        CompileError, match=r"the op 'com.example:HardGlu' of the layer 'glu' is not.*--plugin"
    ):
        check_shape(value, "tensor 'g'")


def test_a_kept_node_runs_on_the_cpu_by_a_kernel() -> None:
    register_kernel("com.example", "Twice", lambda arrays, attributes: [arrays[0] * 2])
    graph = import_onnx(model_of([node("Twice", "x", "y", domain="com.example")], X.shape))
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], X * 2)


def test_a_rule_may_have_no_form_for_a_node() -> None:
    from npuc.frontend.onnx.node import NoTopForm

    @onnx_rule("Odd", domain="com.example")
    def odd(ctx: Any) -> Any:
        raise NoTopForm("it is odd")

    (op,) = import_onnx(model_of([node("Odd", "x", "y", domain="com.example")], X.shape)).ops
    assert isinstance(op, top.Onnx) and op.reason == "it is odd"


def test_tflite_takes_rules_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from npuc.frontend.tflite.registry import find_rule

    made = tflite_rule("MyCustomOp")(lambda ctx: ctx.emit(top.Relu, ctx.operand(0)).y)
    assert find_rule("MyCustomOp") is made


# Custom ops that any importer kept


def test_a_custom_op_of_lang_is_claimed() -> None:
    load(PLUGINS / "hard_glu.py")
    x = lang.input("x", X.shape)
    (y,) = lang.custom(
        "HardGlu", [x, -x], lambda a, b: [(a.shape, a.dtype)], attributes={"slope": 0.25}, name="glu"
    )
    graph = canonicalize(lang.build({"y": y}))
    assert kinds(graph) == ["top.neg", "top.hard_glu"]
    assert graph.tensor_names()[-1] == "glu"
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], hard_glu(X, -X, 0.25))


def test_a_claim_may_decline_and_must_fit() -> None:
    @claims("d", "Maybe")
    def maybe(op: Any, graph: Any) -> Any:
        found = {
            "relu": lambda: top.Relu.make(*op.operands),
            "wrong": lambda: top.Reshape.make(*op.operands, shape=(8,)),
        }
        return found.get(op.onnx_attributes["what"], lambda: None)()

    def made(what: str) -> Any:
        x = lang.input("x", (2, 4))
        (y,) = lang.custom("Maybe", [x], [((2, 4), "f32")], domain="d", attributes={"what": what})
        return canonicalize(lang.build({"y": y}))

    assert kinds(made("relu")) == ["top.relu"]
    assert kinds(made("nothing")) == ["top.onnx"]
    with pytest.raises(PluginFaultError, match=r"the op of the plugin that claims it tensor<8xf32>"):
        made("wrong")


# Subgraphs


def test_a_subgraph_by_name_and_one_by_pattern() -> None:
    load(PLUGINS / "glu_subgraphs.py")
    nodes = [
        node("Relu", "x", "r"),
        node("Mul", "r sixth", "s", "/block.0/glu/Mul"),
        node("Add", "s half", "t", "/block.0/glu/Add"),
        node("Clip", "t zero one", "g", "/block.0/glu/Clip"),
        node("Mul", "x g", "u", "/block.0/glu/Mul_1"),
        node("HardSigmoid", "u", "h", alpha=0.25),
        node("Mul", "h r", "y", "/tail/Mul"),
    ]
    scalars = {"sixth": 1 / 6, "half": 0.5, "zero": 0.0, "one": 1.0}
    model = model_of(
        nodes, X.shape, *((name, np.array(value, np.float32)) for name, value in scalars.items())
    )
    graph = import_onnx(model)
    assert kinds(graph) == ["top.relu", "top.hard_glu", "top.hard_glu"]
    assert graph.tensor_names() == ["r", "u", "y"]
    relu = np.maximum(X, 0)
    u = hard_glu(X, relu, 1 / 6)
    np.testing.assert_allclose(FloatEngine(graph).run({"x": X})["y"], hard_glu(relu, u, 0.25), rtol=1e-5)


def pattern_of(nodes: list[Any], outputs: tuple[str, ...] = ("y",)) -> list[str]:
    graph = import_onnx(model_of(nodes, X.shape, outputs=outputs))
    return [op.op_type if isinstance(op, top.Onnx) else op.name for op in graph.ops]


def test_a_pattern_matches_only_what_nothing_else_reads() -> None:
    onnx_pattern("d", "Glu(a, b)", "g = Sigmoid(b)\ny = Mul(a, g)")
    gate, product = node("Sigmoid", "x", "g"), node("Mul", "x g", "y")
    assert pattern_of([gate, product]) == ["Glu"]
    assert pattern_of([gate, node("Mul", "g x", "y")]) == ["Glu"]
    assert pattern_of([gate, product, node("Neg", "g", "z")], ("y", "z")) == [
        "top.sigmoid",
        "top.mul",
        "top.neg",
    ]
    assert pattern_of([gate, product], ("y", "g")) == ["top.sigmoid", "top.mul"]
    assert pattern_of([node("Sigmoid", "x", "g"), node("Add", "x g", "y")]) == ["top.sigmoid", "top.add"]
    twice = [gate, node("Mul", "x g", "m"), node("Sigmoid", "m", "h"), node("Mul", "h m", "y")]
    assert pattern_of(twice) == ["Glu", "Glu"]


def test_a_pattern_binds_a_name_to_one_tensor() -> None:
    onnx_pattern("d", "Swish(x)", "g = Sigmoid(x)\ny = Mul(x, g)")
    assert pattern_of([node("Sigmoid", "x", "g"), node("Mul", "x g", "y")]) == ["Swish"]
    other = [node("Neg", "x", "n"), node("Sigmoid", "n", "g"), node("Mul", "x g", "y")]
    assert pattern_of(other) == ["top.neg", "top.sigmoid", "top.mul"]


def test_attributes_may_decline() -> None:
    onnx_pattern(
        "d", "Leaky(x)", "y = LeakyRelu(x)", lambda nodes: None if nodes[0].attribute[0].f > 0.5 else {"a": 1}
    )
    assert pattern_of([node("LeakyRelu", "x", "y", alpha=0.125)]) == ["Leaky"]
    assert pattern_of([node("LeakyRelu", "x", "y", alpha=0.75)]) == ["top.leaky_relu"]


def test_each_part_of_a_name_is_a_subgraph_of_its_own_and_order_is_kept() -> None:
    onnx_subgraph("/b.*", "d", "Block")
    nodes = [
        node("Neg", "x", "a", "/b.0/Neg"),
        node("Abs", "x", "side", "/side/Abs"),
        node("Add", "a side", "c", "/b.0/Add"),
        node("Exp", "c", "y", "/b.1/Exp"),
    ]
    graph = import_onnx(model_of(nodes, X.shape))
    assert [op.op_type if isinstance(op, top.Onnx) else op.name for op in graph.ops] == [
        "top.abs",
        "Block",
        "Block",
    ]


def test_a_subgraph_that_reads_what_is_made_of_it_is_refused() -> None:
    onnx_subgraph("/b", "d", "Block")
    nodes = [
        node("Neg", "x", "a", "/b/Neg"),
        node("Abs", "a", "s", "/out/Abs"),
        node("Add", "a s", "y", "/b/Add"),
    ]
    with pytest.raises(PluginError, match="reads 's', which is made of its own results"):
        import_onnx(model_of(nodes, X.shape))


# Formats


@pytest.fixture
def tiny(tmp_path: Path) -> Path:
    load(PLUGINS / "tiny_format.py")
    path = tmp_path / "net.txt"
    path.write_text("tinynet 1\ninput x 1 8\nscale -0.5\nrelu\nscale 3\n")
    return path


def test_a_format_of_a_plugin_is_imported_checked_and_cut(
    tiny: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = flow.import_model(tiny, canonical=False)
    x = np.arange(8, dtype=np.float32).reshape(1, 8) - 4
    np.testing.assert_allclose(FloatEngine(graph).run({"x": x})["line3"], np.maximum(x * -0.5, 0) * 3)
    cut = flow.import_model(tiny, flow.ImportOptions(outputs=("line1",)))
    np.testing.assert_allclose(FloatEngine(cut).run({"x": x})["line1"], x * -0.5)
    shape = flow.ImportOptions(input_shapes={"x": (2, 3)})
    assert flow.check_model(tiny, flow.import_model(tiny, shape), shape).passed
    with pytest.raises(UnknownTensorError):
        flow.import_model(tiny, flow.ImportOptions(outputs=("line9",)))
    assert run_command(["import", str(tiny), "-o", str(tiny.with_suffix(".mlir"))]) == 0
    assert "agrees with NumPy" in capsys.readouterr().out


def test_what_a_plugin_keeps_of_its_network_stays_as_it_was(
    tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = flow.import_model(tiny, canonical=False)
    before = print_graph(held)
    monkeypatch.setattr(formats, "named", lambda place: lambda path, options: held)
    assert print_graph(flow.import_model(tiny)) != before
    assert print_graph(held) == before


def test_a_broken_file_of_such_a_format_is_an_error(tiny: Path) -> None:
    tiny.write_text("tinynet 1\ninput x 1 -8\n")
    with pytest.raises(InvalidModelError, match="the shape of 'x'"):
        flow.import_model(tiny)


def test_a_format_that_is_there_already_is_refused() -> None:
    form = Format("a model", "a:b", "a:c", "a:d")
    for kind in ("onnx", "mlir"):
        with pytest.raises(PluginError, match=r"there is a format '.*' already"):
            add_format(kind, form, lambda path, head: True)


def test_what_a_format_fails_with_is_a_fault_of_its_plugin(
    tiny: Path,
) -> None:
    from npuc.frontend.sniff import RECOGNIZERS

    tiny.write_text("tinynet 1\ninput x 1 8\nscale half\n")
    with pytest.raises(PluginFaultError, match=r"line 48 of tiny_format\.py, in layers: ValueError"):
        flow.import_model(tiny)
    RECOGNIZERS.add(["tinynet"], ("looks tiny", lambda path, head: head.no_such_thing), replace=True)
    with pytest.raises(PluginError, match="what recognises the format 'tinynet' failed: AttributeError"):
        flow.import_model(tiny)
