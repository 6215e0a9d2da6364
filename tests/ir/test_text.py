"""Programs as text: what is written is read back, any MLIR tool could read it, and broken text is an error in words."""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.errors import NpucError, ParseError, VerificationError, WeightFileError
from npuc.ir import (
    DYNAMIC,
    Graph,
    load_graph,
    location,
    parse_graph,
    print_graph,
    save_graph,
    tensor_type,
    top,
    value_name,
)
from npuc.ir.attributes import to_attribute, to_native


def small() -> Graph:
    graph = Graph.empty([("x", tensor_type((1, 3, 8, 8), "f32"))], preprocess={"x": {"mean": (1.0, 2.5)}})
    weight = graph.add_weight("conv1/weight: odd name", np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3))
    graph.block.add_op(weight)
    conv = top.Conv.make(
        graph.inputs[0].value,
        weight.output,
        None,
        strides=(1, 1),
        pads=(1, 1, 1, 1),
        dilations=(1, 1),
        name='conv1 "out"',
        layer="conv1",
    )
    graph.block.add_op(conv)
    clip = top.Clip.make(conv.y, min=-inf, max=6.1, name="clip")
    graph.block.add_op(clip)
    split = top.Split.make(clip.y, axis=1, sizes=(1, 3), name=("left", "right"))
    graph.block.add_op(split)
    graph.set_outputs([("b", split.results[1]), ("a", split.results[0]), ("again", split.results[0])])
    return graph


def test_a_saved_program_is_read_back_the_same(tmp_path: Path) -> None:
    path, weights = save_graph(small(), tmp_path / "m.mlir")
    loaded = load_graph(path)
    assert print_graph(loaded) == path.read_text()
    assert [port.name for port in loaded.outputs] == ["b", "a", "again"]
    assert loaded.inputs[0].preprocess == {"mean": (1.0, 2.5)}
    assert value_name(loaded.outputs[0].value) == "right"
    found = loaded.find("conv1")
    assert found is not None and value_name(found) == 'conv1 "out"'
    np.testing.assert_array_equal(
        loaded.weights.array("conv1/weight: odd name"), np.arange(108, dtype=np.float32).reshape(4, 3, 3, 3)
    )
    assert weights.name == "m.safetensors"


def test_dynamic_and_unknown_shapes_are_read_back(tmp_path: Path) -> None:
    graph = Graph.empty([("x", tensor_type((2, 3), "f32"))])
    results = []
    for name, kind in (
        ("rows", tensor_type((DYNAMIC, 3), "f32")),
        ("anything", tensor_type(None, "i64")),
    ):
        op = top.Onnx.create(
            operands=[graph.inputs[0].value],
            result_types=[kind],
            properties={
                key: top.Onnx.attribute_of(key, value)
                for key, value in {
                    "op_type": "Custom",
                    "version": 1,
                    "arguments": [0],
                    "outputs_used": [0],
                }.items()
            },
            location=location(name),  # type: ignore[arg-type]
        )
        graph.block.add_op(op)
        results.append((name, op.results[0]))
    graph.set_outputs(results)
    path, _ = save_graph(graph, tmp_path / "m.mlir")
    assert "tensor<?x3xf32>" in path.read_text() and "tensor<*xi64>" in path.read_text()
    assert print_graph(load_graph(path)) == path.read_text()


def test_saving_twice_gives_the_same_bytes(tmp_path: Path) -> None:
    first = [p.read_bytes() for p in save_graph(small(), tmp_path / "m.mlir")]
    second = [p.read_bytes() for p in save_graph(load_graph(tmp_path / "m.mlir"), tmp_path / "m.mlir")]
    assert first == second


def test_a_copy_is_independent() -> None:
    graph = small()
    before = print_graph(graph)
    copy = graph.copy()
    copy.set_outputs([("only", copy.outputs[0].value)])
    assert print_graph(graph) == before
    assert len(copy.outputs) == 1


natives = st.recursive(
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4).map(tuple)
    | st.lists(st.floats(allow_nan=False), min_size=1, max_size=4).map(tuple),
    lambda inner: st.dictionaries(
        st.text(st.characters(codec="ascii", categories=["L"]), min_size=1), inner, max_size=3
    ),
    max_leaves=6,
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(natives)
def test_properties_survive_printing_and_parsing(value: Any) -> None:
    graph = Graph.empty([("x", tensor_type((1,), "f32"))])
    graph.set_outputs([("x", graph.inputs[0].value)])
    graph.module.attributes["test.value"] = to_attribute({"v": value})
    again = parse_graph(print_graph(graph))
    assert to_native(again.module.attributes["test.value"]) == {"v": value}


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("tensor<1x4x8x8xf32> loc", "tensor<1x5x8x8xf32> loc", "line 5"),
        ("array<i64: 1, 3>", "array<i64: 1, 4>", "left"),
        ("group = 1", "group = 2", "conv1"),
        ("%2 = ", "%2 == ", "line"),
        ('"top.clip"', '"top.nonsense"', "nonsense"),
        ("min = 0xfff0000000000000 : f64", "min = 1 : i64", "clip"),
    ],
)
def test_broken_text_is_refused_with_the_layer_or_line(
    tmp_path: Path, old: str, new: str, words: str
) -> None:
    path, _ = save_graph(small(), tmp_path / "m.mlir")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    with pytest.raises((ParseError, VerificationError)) as caught:
        load_graph(path)
    assert words in str(caught.value)
    assert caught.value.exit_status == 2


def test_weights_must_lie_beside_the_text(tmp_path: Path) -> None:
    path, weights = save_graph(small(), tmp_path / "m.mlir")
    path.write_text(path.read_text().replace("m.safetensors", "../m.safetensors"))
    with pytest.raises(WeightFileError, match="beside"):
        load_graph(path)
    save_graph(small(), path)
    weights.unlink()
    with pytest.raises(WeightFileError, match="missing"):
        load_graph(path)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(st.data())
def test_mutated_text_never_escapes_as_another_exception(data: st.DataObject) -> None:
    text = bytearray(print_graph(small()).encode())
    for _ in range(data.draw(st.integers(1, 4))):
        text[data.draw(st.integers(0, len(text) - 1))] = data.draw(st.integers(32, 126))
    try:
        graph = parse_graph(text.decode(), small().weights)
        graph.verify()
    except NpucError as error:
        assert error.exit_status == 2
