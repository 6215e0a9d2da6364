"""The check against the original, on cut, dynamic, random and external models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.random_inputs import random_inputs
from npuc.engine import FloatEngine
from npuc.flow import ImportOptions, check_model, import_model
from npuc.images.loading import load_image
from npuc.images.preprocess import Preprocess
from npuc.import_check import check as import_check
from npuc.import_check.check import check_import
from support.shared_models import known


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


def test_integer_products_are_judged_alike_on_every_processor(tmp_path: Path) -> None:
    """255 * 127 + 255 * 127 does not fit 16 bits, where ONNX Runtime sums without VNNI unless it is told not to."""
    weight = numpy_helper.from_array(np.full((64, 8), 127, np.int8), "w")
    constants = [
        numpy_helper.from_array(np.array(value, kind), name)
        for name, value, kind in [
            ("one", 1.0, np.float32),
            ("step", 2.0**13, np.float32),
            ("zero", 0, np.uint8),
            ("zero_w", 0, np.int8),
        ]
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zero"], ["q"]),
        helper.make_node("QLinearMatMul", ["q", "one", "zero", "w", "one", "zero_w", "step", "zero"], ["p"]),
        helper.make_node("DequantizeLinear", ["p", "step", "zero"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", 1, [1, 64])],
        [helper.make_tensor_value_info("y", 1, [1, 8])],
        [weight, *constants],
    )
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    np.save(tmp_path / "x.npy", np.full((1, 64), 255, np.float32))
    report = check_model(path, import_model(path), ImportOptions(), [str(tmp_path / "x.npy")])
    assert report.passed and report.outputs[0].cosine > 0.99999
    assert report.outputs[0].euclid > 0.99


SHAPES = {
    "cifar10_resnet20": {"input": (1, 3, 32, 32)},
    "super_resolution": {"input": (1, 1, 224, 224)},
    "ppocrv3_text_det": {"x": (1, 3, 96, 96)},
}
SILENT = {"ppocrv3_text_det"}
"""Networks whose outputs are nothing but rounding on random pixels: a map of text where there is none, below 1e-6."""


def test_every_known_shared_model_agrees_with_its_original(shared: Path) -> None:
    for path in known(["onnx"], shared / "models"):
        options = ImportOptions(input_shapes=SHAPES.get(path.stem, {}))
        graph = import_model(path, options)
        report = check_model(path, graph, options)
        if path.stem == "mnist":
            assert report.impossible, "ONNX Runtime has no kernels for operator set 1"
            continue
        assert report.passed, path
        if path.stem in SILENT:
            results = FloatEngine(graph, threads=1).run(random_inputs(graph))
            assert all(np.abs(values).max() < 1e-6 for values in results.values()), path
            continue
        assert min(entry.cosine for entry in report.outputs) >= 0.99999, path


def test_a_network_that_is_silent_on_random_data_agrees_where_it_speaks(shared: Path) -> None:
    path = shared / "models" / "onnx" / "ppocrv3_text_det.onnx"
    preprocess = Preprocess(mean=(123.675, 116.28, 103.53), scale=(0.01712, 0.01751, 0.01743))
    options = ImportOptions(input_shapes={"x": (1, 3, 320, 320)}, preprocess={"x": preprocess})
    graph = import_model(path, options)
    engine = FloatEngine(graph, threads=1)
    spoke = 0
    for image in sorted((shared / "data" / "coco").rglob("*.jpg"))[:4]:
        report = check_model(path, graph, options, [str(image)])
        assert report.passed, image
        x = load_image(image, preprocess, (1, 3, 320, 320))
        if max(values.max() for values in engine.run({"x": x}).values()) > 1e-3:
            spoke += 1
            assert min(entry.cosine for entry in report.outputs) >= 0.99999, image
    assert spoke, "none of the images has text in it"


def test_closeness_does_not_excuse_a_wrong_tensor() -> None:
    tiny = np.full(10, 1e-3, np.float32)
    assert not import_check._compare("x", -tiny, tiny).close
    assert not import_check._compare("x", tiny * 1.01, tiny).close
    assert import_check._compare("x", tiny * 1e-5, tiny * 2e-5).close
