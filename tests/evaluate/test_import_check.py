"""The check against the original, on cut, dynamic, random and external models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.evaluate import import_check
from npuc.evaluate.import_check import check_import
from npuc.flow import ImportOptions, check_model, import_model


def chain(path: Path, *, external: bool = False) -> Path:
    """y = relu(x @ w) @ w, with a branch that nothing needs."""
    w = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["r"]),
        helper.make_node("MatMul", ["r", "w"], ["y"]),
        helper.make_node("Sqrt", ["r"], ["unused"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 8])],
        [numpy_helper.from_array(w, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(path), save_as_external_data=external, location="w.bin", size_threshold=0)
    return path


OPTIONS = ImportOptions(input_shapes={"x": (3, 8)})


@pytest.mark.parametrize("canonical", [True, False])
def test_outputs_and_surviving_tensors_are_compared(tmp_path: Path, canonical: bool) -> None:
    path = chain(tmp_path / "m.onnx")
    report = check_model(path, import_model(path, OPTIONS, canonical=canonical), OPTIONS)
    assert report.passed
    assert [entry.name for entry in report.outputs] == ["y"]
    names = {entry.name for entry in report.layers}
    assert "r" in names and ("a" in names) == (not canonical)


def test_external_data_is_found_beside_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = chain(tmp_path / "m.onnx", external=True)
    monkeypatch.chdir("/")
    assert check_model(path, import_model(path, OPTIONS), OPTIONS).passed


def test_a_cut_network_is_compared_where_it_was_cut(tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx")
    options = ImportOptions(input_shapes={"r": (3, 8)}, inputs=("r",), outputs=("y",))
    report = check_model(path, import_model(path, options), options)
    assert report.passed and [entry.name for entry in report.outputs] == ["y"]


def test_memory_is_bounded_by_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_check, "_GROUP_BYTES", 1)
    path = chain(tmp_path / "m.onnx")
    graph = import_model(path, OPTIONS, canonical=False)
    report = check_import(path, graph, random_inputs(graph))
    assert report.passed and {"a", "r"} <= {entry.name for entry in report.layers}


def test_random_results_are_not_compared(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("RandomNormalLike", ["x"], ["n"]),
        helper.make_node("Add", ["x", "n"], ["noisy"]),
        helper.make_node("Relu", ["x"], ["clean"]),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in ("x", "noisy", "clean")]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "m.onnx"
    onnx.save(model, str(path))
    report = check_model(path, import_model(path), ImportOptions())
    assert report.passed and [entry.name for entry in report.outputs] == ["clean"]
    assert "random" in report.notes[0]


def test_a_file_that_onnx_runtime_cannot_run_is_not_checked(tmp_path: Path) -> None:
    path = chain(tmp_path / "m.onnx")
    graph = import_model(path, OPTIONS)
    model = onnx.load(str(path))
    model.graph.node[0].op_type = "NoSuchOp"
    onnx.save(model, str(path))
    report = check_model(path, graph, OPTIONS)
    assert not report.passed and "NoSuchOp" in report.impossible
    report.require()


def test_every_shared_model_agrees_with_its_original(shared: Path) -> None:
    shapes = {
        "cifar10_resnet20": {"input": (1, 3, 32, 32)},
        "super_resolution": {"input": (1, 1, 224, 224)},
        "ppocrv3_text_det": {"x": (1, 3, 96, 96)},
    }
    for path in sorted((shared / "models" / "onnx").glob("*.onnx")):
        options = ImportOptions(input_shapes=shapes.get(path.stem, {}))
        report = check_model(path, import_model(path, options), options)
        if path.stem == "mnist":
            assert report.impossible, "ONNX Runtime has no kernels for operator set 1"
            continue
        assert report.passed, path
        assert all(entry.close or entry.cosine >= 0.99999 for entry in report.outputs), path
