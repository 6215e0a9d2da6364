"""The ONNX importer: what a user may ask of it, and what comes out. ONNX Runtime on the original is the judge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.engine import FloatEngine, session_options
from npuc.errors import (
    DynamicShapeError,
    ExternalDataError,
    InvalidModelError,
    OpsetError,
    UnknownTensorError,
    UsageError,
)
from npuc.flow import check_model, import_model
from npuc.frontend.onnx import ImportOptions, import_onnx
from npuc.ir import FileSlice, Graph, layer_name, load_graph, result_names, save_graph, shape_of, top
from npuc.transform import canonicalize

FLOAT = TensorProto.FLOAT


def info(name: str, shape: Any = None, dtype: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def model(
    nodes: list[onnx.NodeProto], inputs: Any, outputs: Any, initializers: Any = (), opset: int = 17
) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in dict(initializers).items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def original(proto: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), session_options(1), providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, inputs))


def check(proto: onnx.ModelProto, inputs: dict[str, Any], options: ImportOptions | None = None) -> Graph:
    """Import, run both ways, compare; returns the graph."""
    graph = import_onnx(proto, options)
    expected = original(proto, inputs)
    for version in (graph, canonicalize(graph)):
        results = FloatEngine(version, threads=1).run(inputs)
        for port, value in zip(proto.graph.output, expected, strict=True):
            np.testing.assert_allclose(results[port.name], value, rtol=1e-5, atol=1e-6)
            assert results[port.name].dtype == value.dtype
    return graph


def kinds(graph: Graph) -> list[str]:
    return [op.name for op in graph.ops if not isinstance(op, top.WeightOp)]


def chain() -> onnx.ModelProto:
    rng = np.random.default_rng(0)
    return model(
        [
            helper.make_node("Conv", ["x", "w"], ["c"], name="conv1", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["c"], ["r"], name="relu1"),
            helper.make_node("GlobalAveragePool", ["r"], ["p"], name="pool"),
            helper.make_node("Flatten", ["p"], ["f"]),
            helper.make_node("Gemm", ["f", "m"], ["y"], name="fc", transB=1),
        ],
        [info("x", ["N", 3, "H", "W"])],
        [info("y", ["N", 5])],
        {"w": rng.normal(size=(4, 3, 3, 3)).astype("f4"), "m": rng.normal(size=(5, 4)).astype("f4")},
    )


SHAPE = ImportOptions(input_shapes={"x": (2, 3, 6, 7)})


def test_names_of_tensors_and_layers_survive() -> None:
    graph = import_onnx(chain(), SHAPE)
    names = {layer_name(op): result_names(op) for op in graph.ops}
    assert names["conv1"] == ("c",) and names["relu1"] == ("r",) and names["fc"] == ("y",)
    x = np.random.default_rng(1).normal(size=(2, 3, 6, 7)).astype("f4")
    check(chain(), {"x": x}, SHAPE)


def test_an_open_shape_shows_the_flag_to_add() -> None:
    with pytest.raises(DynamicShapeError) as caught:
        import_onnx(chain())
    assert "--input-shape x=1,3,224,224" in str(caught.value) and "('N')" in str(caught.value)


def test_a_network_can_be_cut_at_any_tensor() -> None:
    options = ImportOptions(input_shapes={"x": (2, 3, 6, 7)}, inputs=("r",), outputs=("f",))
    graph = import_onnx(chain(), options)
    assert [port.name for port in graph.inputs] == ["r"] and shape_of(graph.inputs[0].value) == (2, 4, 6, 7)
    assert kinds(graph) == ["top.avg_pool", "top.reshape"]
    with pytest.raises(UnknownTensorError, match="relu"):
        import_onnx(chain(), ImportOptions(outputs=("relu",)))
    proto = model([helper.make_node("Add", ["a", "b"], ["y"])], [info("a", [1]), info("b", [1])], [info("y")])
    with pytest.raises(UsageError, match="'b'"):
        import_onnx(proto, ImportOptions(inputs=("a",)))


def test_weights_stay_in_the_file_until_somebody_looks(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype("f4")
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", [1, 64])], [info("y")], {"w": weight}
    )
    onnx.save(proto, str(tmp_path / "m.onnx"))
    graph = import_onnx(tmp_path / "m.onnx")
    assert isinstance(graph.weights["w"].data, FileSlice)
    np.testing.assert_array_equal(graph.weights.array("w"), weight)
    save_graph(graph, tmp_path / "m.mlir")
    np.testing.assert_array_equal(load_graph(tmp_path / "m.mlir").weights.array("w"), weight)


def test_external_data_is_mapped_and_may_not_leave_the_folder(tmp_path: Path) -> None:
    weight = np.random.default_rng(0).normal(size=(64, 64)).astype("f4")
    proto = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", [1, 64])], [info("y")], {"w": weight}
    )
    folder = tmp_path / "inside"
    folder.mkdir()
    onnx.save(
        proto, str(folder / "m.onnx"), save_as_external_data=True, location="data.bin", size_threshold=0
    )
    graph = import_onnx(folder / "m.onnx")
    np.testing.assert_array_equal(graph.weights.array("w"), weight)
    (folder / "data.bin").rename(tmp_path / "data.bin")
    text = (folder / "m.onnx").read_bytes()
    with pytest.raises(ExternalDataError, match="missing"):
        import_onnx(folder / "m.onnx")
    (folder / "data.bin").symlink_to(tmp_path / "data.bin")
    with pytest.raises(ExternalDataError, match="not inside"):
        import_onnx(folder / "m.onnx")
    (folder / "m.onnx").write_bytes(text.replace(b"data.bin", b"../a.bin"))
    with pytest.raises(ExternalDataError, match="not inside"):
        import_onnx(folder / "m.onnx")


def test_shapes_spelled_out_as_graphs_are_folded() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["x", "shape"], ["y"]),
    ]
    constants = {"zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1])}
    graph = check(
        model(nodes, [info("x", [2, 3, 4])], [info("y")], constants), {"x": np.ones((2, 3, 4), "f4")}
    )
    assert kinds(graph) == ["top.reshape"]


def branch(name: str, value: float) -> onnx.GraphProto:
    nodes = [
        helper.make_node("Constant", [], [f"{name}_c"], value=numpy_helper.from_array(np.array(value, "f4"))),
        helper.make_node("Mul", ["x", f"{name}_c"], [f"{name}_y"]),
    ]
    return helper.make_graph(nodes, name, [], [info(f"{name}_y")])


@pytest.mark.parametrize("condition", [True, False])
def test_a_constant_if_is_folded(condition: bool) -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", 2.0), else_branch=branch("e", 3.0))
    proto = model([node], [info("x", [2])], [info("y", [2])], {"c": np.array(condition)})
    assert kinds(check(proto, {"x": np.array([1, 2], "f4")})) == ["top.mul"]


@pytest.mark.parametrize("condition", [True, False])
def test_an_if_on_data_stays_with_its_branches(condition: bool) -> None:
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch("t", 2.0), else_branch=branch("e", 3.0))
    proto = model([node], [info("x", [2]), info("c", [], TensorProto.BOOL)], [info("y", [2])])
    graph = check(proto, {"x": np.array([1, 2], "f4"), "c": np.array(condition)})
    assert kinds(graph) == ["top.onnx"]


def loop_body() -> onnx.GraphProto:
    nodes = [
        helper.make_node("Identity", ["go"], ["go_on"]),
        helper.make_node("Cast", ["i"], ["fi"], to=FLOAT),
        helper.make_node("Add", ["state", "fi"], ["sum"]),
        helper.make_node("Mul", ["sum", "outer"], ["next"]),
        helper.make_node("Identity", ["next"], ["scan"]),
    ]
    inputs = [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("state", [2])]
    return helper.make_graph(
        nodes, "b", inputs, [info("go_on", [], TensorProto.BOOL), info("next"), info("scan")]
    )


def test_a_loop_of_known_length_is_unrolled() -> None:
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], name="loop", body=loop_body())
    proto = model(
        [node], [info("x", [2]), info("outer", [2])], [info("y", [2]), info("all")], {"n": np.array(3)}
    )
    graph = check(proto, {"x": np.array([1, 2], "f4"), "outer": np.array([0.5, 2], "f4")})
    assert "top.onnx" not in kinds(graph) and kinds(graph).count("top.add") == 3
    assert "loop[1]/sum" in graph.tensor_names()


def test_a_loop_may_carry_tensors_of_different_types() -> None:
    """As tf2onnx writes the LSTM of Keras: a counter of its own, states, and a condition on the counter."""
    nodes = [
        helper.make_node("Gather", ["outer", "step"], ["row"]),
        helper.make_node("Add", ["state", "row"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["next"]),
        helper.make_node("Identity", ["next"], ["scan"]),
        helper.make_node("Add", ["step", "one"], ["following"]),
        helper.make_node("Less", ["following", "most"], ["go_on"]),
        helper.make_node("Identity", ["most"], ["same"]),
    ]
    integer, boolean = TensorProto.INT32, TensorProto.BOOL
    inputs = [info("i", [], TensorProto.INT64), info("go", [], boolean), info("step", [], integer)]
    inputs += [info("state", [2]), info("most", [], integer)]
    outputs = [info("go_on", [], boolean), info("following", [], integer), info("next", [2])]
    outputs += [info("same", [], integer), info("scan", [2])]
    body = helper.make_graph(nodes, "b", inputs, outputs)
    node = helper.make_node(
        "Loop", ["", "true", "zero", "x", "most0"], ["a", "y", "b", "all"], name="loop", body=body
    )
    values = {
        "zero": np.array(0, "i4"),
        "one": np.array(1, "i4"),
        "most0": np.array(3, "i4"),
        "true": np.array(True),
    }
    proto = model([node], [info("x", [2]), info("outer", [3, 2])], [info("y", [2]), info("all")], values)
    given = {"x": np.array([1, 2], "f4"), "outer": np.arange(6, dtype="f4").reshape(3, 2) / 5}
    graph = check(proto, given)
    assert "top.onnx" not in kinds(graph) and kinds(graph).count("top.tanh") == 3


@pytest.mark.parametrize("lengths", [[4, 4, 4], [3, 3, 3], [0, 0, 0], [1, 3, 2]])
@pytest.mark.parametrize("time", [0, 1])
def test_sequences_of_one_length_are_reversed_by_a_slice(lengths: list[int], time: int) -> None:
    shape = [4, 3, 2] if time == 0 else [3, 4, 2]
    node = helper.make_node("ReverseSequence", ["x", "n"], ["y"], time_axis=time, batch_axis=1 - time)
    proto = model([node], [info("x", shape)], [info("y", shape)], {"n": np.array(lengths)})
    graph = check(proto, {"x": np.arange(24, dtype="f4").reshape(shape)})
    assert ("top.onnx" in kinds(graph)) == (len(set(lengths)) > 1)


def test_a_loop_of_unknown_length_stays() -> None:
    node = helper.make_node("Loop", ["n", "", "x"], ["y", "all"], body=loop_body())
    inputs = [info("x", [2]), info("outer", [2]), info("n", [], TensorProto.INT64)]
    proto = model([node], inputs, [info("y", [2]), info("all", None)])
    graph = check(proto, {"x": np.array([1, 2], "f4"), "outer": np.array([0.5, 2], "f4"), "n": np.array(4)})
    assert kinds(graph) == ["top.onnx"]


def test_a_scan_is_unrolled() -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "v"], ["n"]), helper.make_node("Identity", ["n"], ["o"])],
        "b",
        [info("s", [2]), info("v", [2])],
        [info("n", [2]), info("o", [2])],
    )
    node = helper.make_node(
        "Scan", ["x", "v"], ["y", "all"], body=body, num_scan_inputs=1, scan_input_directions=[1]
    )
    proto = model([node], [info("x", [2]), info("v0", [4, 2])], [info("y", [2]), info("all", [4, 2])])
    proto.graph.node[0].input[1] = "v0"
    graph = check(proto, {"x": np.zeros(2, "f4"), "v0": np.arange(8, dtype="f4").reshape(4, 2)})
    assert "top.onnx" not in kinds(graph)


def test_functions_are_inlined() -> None:
    function = helper.make_function(
        "local",
        "Twice",
        ["a"],
        ["b"],
        [helper.make_node("Add", ["a", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="local")], "g", [info("x", [3])], [info("y", [3])]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    proto = helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=8)
    assert kinds(check(proto, {"x": np.ones(3, "f4")})) == ["top.add"]


def test_an_unknown_operator_becomes_a_cpu_op() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["i"])]
    nodes += [helper.make_node("Transpose", ["i"], ["y"])]
    graph = check(
        model(nodes, [info("x", [4])], [info("y", None, TensorProto.INT64)]),
        {"x": np.array([0, 1, 0, 2], "f4")},
    )
    assert kinds(graph) == ["top.relu", "top.onnx", "top.onnx"]
    assert "depends on data" in next(
        op.reason for op in graph.ops if getattr(op, "op_type", "") == "Transpose"
    )


def test_quantize_and_dequantize_keep_their_parameters() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"], axis=0),
        helper.make_node("MatMul", ["d", "wd"], ["y"]),
    ]
    constants = {
        "s": np.array(0.05, "f4"),
        "z": np.array(3, "i1"),
        "w": np.arange(-4, 4, dtype="i1").reshape(4, 2),
        "ws": np.array([0.1, 0.2, 0.3, 0.4], "f4"),
        "wz": np.zeros(4, "i1"),
    }
    graph = check(model(nodes, [info("x", [3, 4])], [info("y")], constants), {"x": np.ones((3, 4), "f4")})
    quantize = next(op for op in graph.ops if isinstance(op, top.Quantize))
    assert quantize.to == "i8" and graph.constant(quantize.scale) == np.float32(0.05)
    weights = [op for op in graph.ops if isinstance(op, top.Dequantize)][1]
    assert weights.axis == 0 and shape_of(weights.scale) == (4,)


def test_constant_nodes_of_every_kind() -> None:
    nodes = [
        helper.make_node("Constant", [], ["a"], value_float=2.0),
        helper.make_node("Constant", [], ["b"], value_floats=[1.0, 2.0, 3.0]),
        helper.make_node("Constant", [], ["k"], value_int=1),
        helper.make_node("Mul", ["x", "a"], ["t"]),
        helper.make_node("Add", ["t", "b"], ["y"]),
        helper.make_node("Identity", ["k"], ["z"]),
    ]
    check(
        model(nodes, [info("x", [3])], [info("y", [3]), info("z", [], TensorProto.INT64)]),
        {"x": np.ones(3, "f4")},
    )


def test_nodes_out_of_order_are_sorted() -> None:
    nodes = [helper.make_node("Relu", ["a"], ["y"]), helper.make_node("Neg", ["x"], ["a"])]
    assert kinds(import_onnx(model(nodes, [info("x", [3])], [info("y", [3])]))) == ["top.neg", "top.relu"]


def test_an_output_may_be_an_input_a_constant_or_shared() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Identity", ["a"], ["b"])]
    nodes += [helper.make_node("Identity", ["x"], ["c"])]
    proto = model(nodes, [info("x", [3])], [info("a", [3]), info("b", [3]), info("c", [3])])
    check(proto, {"x": np.array([-1, 0, 1], "f4")})


@pytest.mark.parametrize("opset", [7, 9, 11, 13, 17, 21, 23])
def test_one_network_in_many_opsets(opset: int) -> None:
    """Squeeze, reduce and softmax changed their spelling on the way."""
    constants: dict[str, Any] = {}
    axes = np.array([2])
    if opset >= 13:
        constants["axes"] = axes
        squeeze = helper.make_node("Squeeze", ["x", "axes"], ["s"])
    else:
        squeeze = helper.make_node("Squeeze", ["x"], ["s"], axes=[2])
    if opset >= 18:
        constants["axes1"] = np.array([1])
        mean = helper.make_node("ReduceMean", ["s", "axes1"], ["m"])
    else:
        mean = helper.make_node("ReduceMean", ["s"], ["m"], axes=[1])
    nodes = [
        squeeze,
        mean,
        helper.make_node("Sub", ["s", "m"], ["d"]),
        helper.make_node("Softmax", ["d"], ["y"], axis=1),
    ]
    proto = model(nodes, [info("x", [2, 5, 1])], [info("y", [2, 5])], constants, opset)
    check(proto, {"x": np.random.default_rng(0).normal(size=(2, 5, 1)).astype("f4")})


@pytest.mark.parametrize("kind", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("axis", [None, 0, 1, 2, 3, -1, -2, -3])
def test_an_old_softmax_is_over_all_axes_from_its_own_on(kind: str, axis: int | None) -> None:
    """Before operator set 13 the axes from `axis` on, 1 unless it is stated, are one; from then on it is that axis alone."""
    shape = [2, 3, 4, 5]
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    attributes = {} if axis is None else {"axis": axis}
    first = (1 if axis is None else axis) % 4
    node = helper.make_node(kind, ["x"], ["y"], **attributes)
    graph = check(model([node], [info("x", shape)], [info("y", shape)], opset=11), {"x": x})
    rows = np.exp(x.astype(np.float64)).reshape(int(np.prod(shape[:first])), -1)
    wanted = (rows / rows.sum(axis=1, keepdims=True)).reshape(shape)
    found = FloatEngine(graph, threads=1).run({"x": x})["y"]
    np.testing.assert_allclose(found if kind == "Softmax" else np.exp(found), wanted, rtol=1e-5)


def test_an_unknown_opset_is_named() -> None:
    with pytest.raises(OpsetError, match="999"):
        import_onnx(
            model([helper.make_node("Relu", ["x"], ["y"])], [info("x", [1])], [info("y", [1])], opset=999)
        )


def test_errors_name_the_node() -> None:
    proto = model(
        [helper.make_node("Conv", ["x", "w"], ["y"], name="stem")],
        [info("x", [1, 3, 8, 8])],
        [info("y")],
        {"w": np.zeros((4, 2, 3, 3), "f4")},
    )
    with pytest.raises(InvalidModelError, match="Conv node 'stem': 3 channels, but the weight is for 2"):
        import_onnx(proto)


def test_constants_of_kept_branches_are_weights(tmp_path: Path) -> None:
    """Both branches use one name for different tensors; neither stays in the text."""

    def heavy(name: str, factor: float) -> onnx.GraphProto:
        weight = numpy_helper.from_array(np.full((2, 40), factor, "f4"), "shared_name")
        return helper.make_graph(
            [helper.make_node("MatMul", ["x", "shared_name"], [f"{name}_y"])],
            name,
            [],
            [info(f"{name}_y")],
            [weight],
        )

    node = helper.make_node("If", ["c"], ["y"], then_branch=heavy("t", 2.0), else_branch=heavy("e", 3.0))
    proto = model([node], [info("x", [1, 2]), info("c", [], TensorProto.BOOL)], [info("y", [1, 40])])
    onnx.save(proto, str(tmp_path / "m.onnx"))
    graph = import_onnx(tmp_path / "m.onnx")
    assert len(graph.used_weights()) == 2
    save_graph(graph, tmp_path / "m.mlir")
    for condition in (True, False):
        inputs = {"x": np.ones((1, 2), "f4"), "c": np.array(condition)}
        result = FloatEngine(load_graph(tmp_path / "m.mlir"), threads=1).run(inputs)["y"]
        np.testing.assert_allclose(result, original(proto, inputs)[0])


def _refused(path: Path, proto: onnx.ModelProto) -> None:
    onnx.save(proto, path)
    options = ImportOptions()
    with pytest.raises(InvalidModelError, match="ONNX Runtime calls the model invalid"):
        check_model(path, import_model(path, options), options)


def test_other_words_of_onnx_runtime_for_invalid(tmp_path: Path) -> None:
    """A mode that no sampler has, an operator that came after the file's operator set, and no operator set."""
    grid = helper.make_node("GridSample", ["x", "g"], ["y"], mode="bilin%ar")
    ports = [info("x", [1, 1, 4, 4]), info("g", [1, 3, 3, 2])]
    _refused(tmp_path / "mode.onnx", model([grid], ports, [info("y")], {}, opset=18))
    early = helper.make_node("Mish", ["x"], ["y"])
    _refused(tmp_path / "early.onnx", model([early], ports[:1], [info("y")], {}, opset=11))
    bare = model([helper.make_node("Relu", ["x"], ["y"])], ports[:1], [info("y")], {})
    del bare.opset_import[:]
    _refused(tmp_path / "bare.onnx", bare)


def test_what_onnx_runtime_calls_invalid_is_refused(tmp_path: Path) -> None:
    node = helper.make_node("Gemm", ["x", "w"], ["y"])
    proto = model([node], [info("x", [1, 2, 1, 3])], [info("y")], {"w": np.ones((3, 2), "f4")})
    path = tmp_path / "net.onnx"
    onnx.save(proto, path)
    options = ImportOptions()
    with pytest.raises(InvalidModelError, match=r"(ONNX Runtime calls the model invalid|rank)"):
        check_model(path, import_model(path, options), options)
