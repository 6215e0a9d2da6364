"""The exported model as a whole: names, outputs, fetched tensors, kept ONNX nodes and files."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from npuc.errors import InvalidModelError, OutputError, UnknownTensorError
from npuc.export.onnx import ALL_TENSORS, embed, export_onnx, file, to_onnx
from npuc.ir import Graph, dtype_of, location, tensor_type, top
from npuc.ir.attributes import to_attribute, to_native
from npuc.ir.onnx_attributes import decode_attribute, encode_attribute
from support.graphs import Array, build, evaluate, random_inputs

RANDOM = np.random.default_rng(3)


def nodes(graph: Graph) -> list[onnx.NodeProto]:
    return list(to_onnx(graph).proto.graph.node)


def kept(
    b: Any,
    op_type: str,
    operands: list[Any],
    types: list[Any],
    attributes: dict[str, Any] | None = None,
    *,
    names: Any = "y",
    version: int = 13,
    **properties: Any,
) -> Any:
    """A `top.onnx` as the importer makes it."""
    values = [b.weight(value) if isinstance(value, np.ndarray) else value for value in operands]
    encoded = {
        key: encode_attribute(helper.make_attribute(key, value)) for key, value in (attributes or {}).items()
    }
    defaults: dict[str, Any] = {
        "arguments": tuple(range(len(values))),
        "outputs_used": tuple(range(len(types))),
        "domain": "",
        "captures": (),
        "reason": "",
        **properties,
    }
    op = top.Onnx.create(
        operands=values,
        result_types=types,
        properties={
            key: top.Onnx.attribute_of(key, value)
            for key, value in {
                "op_type": op_type, "version": version, "onnx_attributes": encoded, **defaults
            }.items()
        },
    )  # fmt: skip
    op.location = location(names, "kept")
    return b.add(op)


def test_names_are_those_of_the_user() -> None:
    def network(b: Any, x: Any) -> Any:
        kernel = b.weight(np.ones((2, 1, 1, 1), np.float32), "conv1.weight")
        y = b(top.Conv, x, kernel, name="t", layer="conv1", strides=(1, 1),
              pads=(0,) * 4, dilations=(1, 1), relu=True)  # fmt: skip
        return {"scores": b(top.SiLU, y, name="scores", layer="act")}

    proto = to_onnx(build({"image": (1, 1, 2, 2)}, network)).proto.graph
    assert [i.name for i in proto.input] == ["image"]
    assert [o.name for o in proto.output] == ["scores"]
    assert [i.name for i in proto.initializer] == ["conv1.weight"]
    assert [(n.op_type, n.name, *n.output) for n in proto.node] == [
        ("Conv", "conv1/Conv", "t/conv"),
        ("Relu", "conv1", "t"),
        ("Sigmoid", "act/Sigmoid", "scores/sigmoid"),
        ("Mul", "act", "scores"),
    ]


def test_equal_names_are_told_apart_the_same_way_every_time() -> None:
    graph = build(
        {"x": (2,)}, lambda b, x: b(top.Exp, b(top.Abs, b(top.Neg, x, name="t"), name="t"), name="t")
    )
    assert [n.output[0] for n in nodes(graph)] == ["t", "t.1", "y"]
    assert to_onnx(graph).proto == to_onnx(graph.copy()).proto


def test_the_name_of_an_output_wins_over_an_intermediate_of_that_name() -> None:
    graph = build({"x": (2,)}, lambda b, x: {"t": b(top.Abs, b(top.Neg, x, name="t"), name="other")})
    assert [n.output[0] for n in nodes(graph)] == ["t.1", "t"]
    assert evaluate(graph, {"x": np.array([1, -2], np.float32)})["t"].tolist() == [1, 2]


def test_an_output_may_be_an_input_a_weight_or_another_output() -> None:
    def network(b: Any, x: Any) -> Any:
        w = b.weight(np.arange(3, dtype=np.float32), "w")
        y = b(top.Neg, x, name="n")
        return {"same": x, "w": w, "also": w, "first": y, "second": y, "x": x}

    graph = build({"x": (2,)}, network)
    value = np.array([1, 2], np.float32)
    found = evaluate(graph, {"x": value})
    assert list(found) == ["same", "w", "also", "first", "second", "x"]
    for name in ("same", "x"):
        np.testing.assert_array_equal(found[name], value)
    for name in ("first", "second"):
        np.testing.assert_array_equal(found[name], -value)
    for name in ("w", "also"):
        np.testing.assert_array_equal(found[name], [0, 1, 2])
    onnx.checker.check_model(to_onnx(graph).proto, full_check=True)


def test_fetched_tensors_become_outputs() -> None:
    graph = build({"x": (2,)}, lambda b, x: b(top.Exp, b(top.Abs, x, name="t", layer="abs"), name="e"))
    exported = to_onnx(graph, ["abs", "t", "e", "x"])
    assert exported.fetched == {"abs": "t", "t": "t", "e": "y", "x": "x/fetched"}
    assert [o.name for o in exported.proto.graph.output] == ["y", "t", "x/fetched"]
    onnx.checker.check_model(exported.proto, full_check=True)
    assert to_onnx(graph, ALL_TENSORS).fetched == {"t": "t", "e": "y"}


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    graph = build({"x": (2,)}, lambda b, x: b(top.Abs, x, name="features", layer="conv1"))
    with pytest.raises(UnknownTensorError, match=r"featurs.*features"):
        to_onnx(graph, ["featurs"])


def test_equal_constants_are_shared_and_weights_used_twice_are_stored_once() -> None:
    def network(b: Any, x: Any) -> Any:
        graph = b.graph
        first = graph.add_weight("w", np.ones((2, 3), np.float32))
        second = top.WeightOp.of("w", first.output.type)
        y = b(top.Reshape, b(top.Add, x, b.add(first)), shape=(3, 2))
        return b(
            top.Add,
            b(top.Reshape, b(top.Reshape, y, shape=(2, 3)), shape=(3, 2)),
            b(top.Reshape, b.add(second), shape=(3, 2)),
        )

    graph = build({"x": (2, 3)}, network)
    assert len(to_onnx(graph).proto.graph.initializer) == 3
    assert evaluate(graph, {"x": np.zeros((2, 3), np.float32)})["y"].tolist() == [[2, 2]] * 3


@pytest.mark.parametrize(
    "value",
    [1, -1.5, "text", b"\xff\xfe", [1, 2], [1.0, 2.0], ["a", "b"], [b"\xff", b"a"],
     numpy_helper.from_array(np.eye(2)), helper.make_graph([], "g", [], []), [helper.make_graph([], "g", [], [])] * 2,
     helper.make_tensor_type_proto(1, [1, None])],
    ids=lambda v: type(v).__name__,
)  # fmt: skip
def test_attributes_survive_the_ir(value: Any) -> None:
    attribute = helper.make_attribute("name", value)
    assert decode_attribute("name", to_native(to_attribute(encode_attribute(attribute)))) == attribute


@pytest.mark.parametrize("kind", ["INTS", "FLOATS", "STRINGS"])
def test_empty_lists_keep_their_kind(kind: str) -> None:
    attribute = onnx.AttributeProto(name="name", type=getattr(onnx.AttributeProto, kind))
    assert decode_attribute("name", to_native(to_attribute(encode_attribute(attribute)))) == attribute


@pytest.mark.parametrize("value", [{"tensor": "%"}, {"tensor": "AAAA"}, {"what": ""}, {}, (), (1, 1.5), None])
def test_attributes_that_are_not_are_refused(value: Any) -> None:
    with pytest.raises(InvalidModelError, match="'name'"):
        decode_attribute("name", value)


def test_a_kept_node_is_emitted_as_it_was() -> None:
    kind = tensor_type((3, 3), "f32")
    graph = build(
        {"x": (3, 3)}, lambda b, x: kept(b, "Trilu", [x, np.array(1)], [kind], {"upper": 0}, version=14)
    )
    value = random_inputs(graph)["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": value})["y"], np.tril(value, 1))


def test_left_out_inputs_and_unused_outputs_keep_their_places() -> None:
    """MaxPool's second output alone, and a Resize-like gap among the inputs."""
    indices = tensor_type((1, 1, 2, 2), "i64")
    image = (1, 1, 4, 4)

    def network(b: Any, x: Any) -> Any:
        return kept(
            b,
            "MaxPool",
            [x],
            [indices],
            {"kernel_shape": [2, 2], "strides": [2, 2]},
            version=12,
            outputs_used=(1,),
        )

    graph = build({"x": image}, network)
    assert list(nodes(graph)[0].output) == ["", "y"]

    def clipped(b: Any, x: Any) -> Any:
        return kept(
            b, "Clip", [x, np.array(0.5, np.float32)], [tensor_type(image, "f32")], arguments=(0, -1, 1)
        )

    graph = build({"x": image}, clipped)
    assert list(nodes(graph)[0].input) == ["x", "", "weight"]
    value = random_inputs(graph)["x"]
    np.testing.assert_array_equal(evaluate(graph, {"x": value})["y"], np.minimum(value, 0.5))


def test_the_opset_is_that_of_the_newest_kept_node() -> None:
    kind = tensor_type((2, 3), "f32")

    def network(b: Any, x: Any) -> Any:
        y = kept(b, "RMSNormalization", [x, np.ones(3, np.float32)], [kind], version=23, names="a")
        return kept(
            b, "Scaler", [y], [kind], {"scale": [2.0], "offset": [0.0]}, version=1, domain="ai.onnx.ml"
        )

    graph = build({"x": (2, 3)}, network)
    proto = to_onnx(graph).proto
    assert {entry.domain: entry.version for entry in proto.opset_import} == {"": 23, "ai.onnx.ml": 1}
    value = random_inputs(graph)["x"]
    wanted = 2 * value / np.sqrt((value**2).mean(1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(evaluate(graph, {"x": value})["y"], wanted, rtol=1e-5)


def branch(name: str, *body: onnx.NodeProto, output: str) -> onnx.GraphProto:
    info = helper.make_tensor_value_info(output, TensorProto.FLOAT, [2])
    return helper.make_graph(list(body), name, [], [info])


def conditional(
    b: Any, condition: Any, x: Any, hidden: Any, then: onnx.GraphProto, other: onnx.GraphProto
) -> Any:
    attributes = {"then_branch": then, "else_branch": other}
    return kept(b, "If", [condition, x, hidden], [tensor_type((2,), "f32")], attributes, version=21, arguments=(0,),
                captures=("x", "inner"))  # fmt: skip


def test_subgraphs_refer_to_outer_values_by_their_exported_names() -> None:
    """The captured 'inner' is called 't' outside, and the branches define names that the outer graph has too."""
    then = branch(
        "then",
        helper.make_node("Add", ["x", "inner"], ["t"]),
        helper.make_node("Neg", ["t"], ["y"]),
        output="y",
    )
    nested = branch("nested", helper.make_node("Mul", ["x", "inner"], ["x2"]), output="x2")
    again = helper.make_node("If", ["flag"], ["r"], then_branch=nested, else_branch=branch(
        "shadow", helper.make_node("Abs", ["x"], ["inner"]), helper.make_node("Exp", ["inner"], ["e"]), output="e"
    ))  # fmt: skip
    flag = helper.make_node("Constant", [], ["flag"], value=numpy_helper.from_array(np.array(False)))
    other = branch("other", flag, again, output="r")

    def network(b: Any, condition: Any, x: Any) -> Any:
        hidden = b(top.Neg, x, name="t")
        result = conditional(b, condition, x, hidden, then, other)
        return b(top.Add, result, b(top.Mul, hidden, hidden, name="r"), name="e")

    graph = build({"c": ((), "i1"), "x": (2,)}, network)
    x = np.array([1, -2], np.float32)
    proto = to_onnx(graph).proto
    onnx.checker.check_model(proto)
    for condition, wanted in ((True, np.zeros(2)), (False, np.exp(np.abs(x)))):
        feed: dict[str, Array] = {"c": np.array(condition), "x": x}
        np.testing.assert_allclose(evaluate(graph, feed)["y"], wanted + x * x, rtol=1e-6)
        np.testing.assert_allclose(ReferenceEvaluator(proto).run(None, feed)[0], wanted + x * x, rtol=1e-6)


def test_a_loop_body_may_use_the_names_of_the_outer_graph() -> None:
    """Its inputs, its outputs and a value that it defines collide with outer names; one outer value is captured."""
    info = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["x", "step"], ["y"]), helper.make_node("Identity", ["go"], ["keep"])],
        "body",
        [
            info("i", TensorProto.INT64, []),
            info("go", TensorProto.BOOL, []),
            info("x", TensorProto.FLOAT, [2]),
        ],
        [info("keep", TensorProto.BOOL, []), info("y", TensorProto.FLOAT, [2])],
    )

    def network(b: Any, x: Any) -> Any:
        step = b(top.Abs, x, name="i")
        return kept(b, "Loop", [np.array(3), np.array(True), x, step], [tensor_type((2,), "f32")], {"body": body},
                    version=21, arguments=(0, 1, 2), captures=("step",))  # fmt: skip

    graph = build({"x": (2,)}, network)
    onnx.checker.check_model(to_onnx(graph).proto)
    assert evaluate(graph, {"x": np.array([1, -2], np.float32)})["y"].tolist() == [4, 4]


def test_weights_are_declared_not_copied() -> None:
    big = np.zeros((256 << 20) // 4, np.float32)
    graph = build({"x": (big.size,)}, lambda b, x: b(top.Add, x, b(top.Add, big, np.ones(4, np.float32)[:1])))
    tracemalloc.start()
    exported = to_onnx(graph)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert exported.proto.ByteSize() < 1 << 12
    (name,) = exported.external
    assert np.shares_memory(exported.external[name].array(), big)


def sample_network() -> Graph:
    kernel, vector = RANDOM.standard_normal((64, 8, 3, 3)).astype(np.float32), np.ones(600, np.int8)

    def network(b: Any, x: Any) -> Any:
        y = b(
            top.Conv,
            x,
            kernel,
            np.ones(64, np.float32),
            strides=(1, 1),
            pads=(1,) * 4,
            dilations=(1, 1),
            name="c",
        )
        z = b(
            top.Gather,
            b(top.Cast, b.weight(np.tile(vector, 4)), to="f32"),
            b.weight(np.arange(300)),
            name="g",
        )
        return {"conv": y, "gathered": z}

    return build({"x": (1, 8, 5, 5)}, network)


@pytest.mark.parametrize("external", [None, False, True])
def test_a_written_model_runs_anywhere_and_its_bytes_are_reproducible(
    external: bool | None, tmp_path: Path
) -> None:
    graph = sample_network()
    path = tmp_path / "model.onnx"
    files = export_onnx(graph, path, external)
    assert files == ([path, tmp_path / "model.onnx.data"] if external else [path])
    assert sorted(tmp_path.iterdir()) == sorted(files)
    onnx.checker.check_model(str(path), full_check=True)
    feed = random_inputs(graph)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for found, wanted in zip(session.run(None, feed), evaluate(graph, feed).values(), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    first = [written.read_bytes() for written in files]
    export_onnx(graph.copy(), path, external)
    assert first == [written.read_bytes() for written in files]
    if external:
        loaded = onnx.load(str(path), load_external_data=False)
        for tensor in loaded.graph.initializer:
            entries = {entry.key: entry.value for entry in tensor.external_data}
            large = int(entries.get("length", 0)) >= 4096
            assert not large or int(entries["offset"]) % 4096 == 0


def test_a_model_too_large_for_one_file_gets_external_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "_LIMIT", 4096)
    assert len(export_onnx(sample_network(), tmp_path / "m.onnx")) == 2
    with pytest.raises(OutputError, match="external data"):
        export_onnx(sample_network(), tmp_path / "m.onnx", external_data=False)


@pytest.mark.parametrize("dtype", ["bf16", "f8E4M3FN", "i4", "ui4", "i2", "ui2", "f4E2M1FN"])
def test_weights_of_rare_types_are_written_as_onnx_has_them(dtype: str) -> None:
    values = RANDOM.integers(0, 2, (5, 3)).astype(dtype_of(dtype).numpy)
    graph = build({"x": (1,)}, lambda b, x: [b(top.Neg, x), b.weight(values, "w")])
    exported = to_onnx(graph)
    embed(exported.proto, exported.external)
    (tensor,) = exported.proto.graph.initializer
    np.testing.assert_array_equal(numpy_helper.to_array(tensor).astype(np.float32), values.astype(np.float32))
    onnx.checker.check_model(exported.proto)
