"""What commands show: compiled models in `show`, folders and lists for `run`, classes only where there are classes, and names and
types in `analyze` that make sense."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from npuc.calib.several import load_given
from npuc.evaluate.batches import top_classes
from npuc.ir import load_graph
from npuc.quant.config import QuantizationConfig


def test_show_takes_a_compiled_model(npuc: Any, program: Path) -> None:
    assert npuc("quantize", program, "--random", "-o", "q.mlir", "-q").status == 0
    assert npuc(
        "compile", "q.mlir", "--target", "edge-4t", "--device", "c=cpu", "-o", "q.npu", "-q"
    ).status in (0, 2)
    assert npuc("compile", "q.mlir", "--target", "edge-4t", "-o", "q.npu", "-q").status == 0
    done = npuc("show", "q.npu")
    assert done.status == 0 and "compiled for edge-4t" in done.out and "on the NPU, 0 on the CPU" in done.out
    assert "scores" in done.out and "1x5x" in done.out
    found = json.loads(npuc("show", "q.npu", "--json").out)
    assert found["inputs"] == {"x": "1x3x8x8xf32"} and found["outputs"] == {"scores": "1x5xf32"}
    assert {one["device"] for one in found["layers"]} == {"npu", "convert"}
    assert npuc("show", "q.npu", "--graph", "g.svg").status == 2
    Path("bad.npu").write_bytes(Path("q.npu").read_bytes()[:1000])
    assert npuc("show", "bad.npu").status == 2


def test_run_takes_folders_and_lists(npuc: Any, program: Path) -> None:
    folder = Path("p")
    folder.mkdir()
    rng = np.random.default_rng(0)
    for index in range(3):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / f"{index}.png")
    np.save(folder / "3.npy", rng.random((1, 3, 8, 8), np.float32))
    Path("list.txt").write_text("p/2.png\np/3.npy\n")
    whole = npuc("run", program, "--input", "p", "-o", "whole.npz", "--json")
    assert whole.status == 0 and json.loads(whole.out)["samples"] == 4
    some = npuc("run", program, "--input", "x=list.txt", "-o", "some.npz", "--json")
    assert some.status == 0 and json.loads(some.out)["samples"] == 2
    one = npuc("run", program, "--input", "p/2.png", "-o", "one.npz", "--json")
    assert one.status == 0
    every, two, single = (np.load(name)["scores"] for name in ("whole.npz", "some.npz", "one.npz"))
    np.testing.assert_array_equal(every[2:], two)
    np.testing.assert_array_equal(every[2:3], single)
    both = npuc("run", program, "--input", "p", "--input", "p/0.png", "--json")
    assert json.loads(both.out)["samples"] == 5
    assert npuc("diff", program, program, "--input", "p").status == 0
    Path("empty").mkdir()
    done = npuc("run", program, "--input", "empty")
    assert done.status == 2 and "there are no samples in it" in done.err
    Path("list.txt").write_text("p/9.png\n")
    done = npuc("run", program, "--input", "list.txt")
    assert done.status == 2 and "9.png" in done.err


def test_folders_for_two_inputs(two: Path, npuc: Any) -> None:
    assert npuc("import", two, "-q").status == 0
    for name, shape in (("a", (3,)), ("b", (3, 2))):
        Path(name).mkdir()
        for index in range(2):
            np.save(
                Path(name) / f"{index}.npy", np.full(shape, index + 1).astype("i8" if name == "a" else "f4")
            )
    graph = load_graph(Path("two.mlir"))
    found = load_given(graph, ["ids=a", "x=b"])
    assert found.runs == 2
    assert [batch.inputs["x"][0, 0] for batch in found] == [1, 2]


def test_only_scores_of_classes_have_a_top_five(npuc: Any, here: Path) -> None:
    assert top_classes(np.array([[0.1, 0.7, 0.2]])) and top_classes(np.zeros((2, 10, 1, 1)))
    for shape in ((1, 8400, 1), (1, 1, 8400), (10,), (1, 4, 8, 8), (1, 10, 2, 1), (1, 2)):
        assert top_classes(np.zeros(shape)) == []
    # Boxes, and scores of the same places: neither is a list of classes.
    weights = {
        "wb": np.ones((12, 40), np.float32),
        "ws": np.ones((12, 10), np.float32),
        "shape": np.array([1, 10, 4]),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "wb"], ["flat"], name="m"),
        helper.make_node("Reshape", ["flat", "shape"], ["boxes"], name="r"),
        helper.make_node("MatMul", ["x", "ws"], ["scores"], name="s"),
    ]
    graph = helper.make_graph(
        nodes,
        "detector",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 12])],
        [
            helper.make_tensor_value_info("boxes", TensorProto.FLOAT, [1, 10, 4]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, [1, 10]),
        ],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, "detector.onnx")
    done = npuc("run", "detector.onnx", "--random")
    assert done.status == 0 and "top" not in done.out and "1x10x4" in done.out
    del model.graph.output[0]
    onnx.save(model, "classifier.onnx")
    assert "scores: top 5 of the first sample" in npuc("run", "classifier.onnx", "--random").out


def test_a_name_of_a_histogram_is_checked_before_the_work(
    npuc: Any, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.save("data.npy", np.random.default_rng(0).random((4, 3, 8, 8), np.float32))

    def never(*arguments: Any, **options: Any) -> Any:
        raise AssertionError("work before the check")

    with monkeypatch.context() as patch:
        patch.setattr("npuc.cli.quantization.quantized", never)
        done = npuc("analyze", program, "--data", "data.npy", "--histogram", "r", "--histogram", "scorse")
        assert done.status == 2 and "no tensor 'scorse'" in done.err and "Did you mean 'scores'" in done.err
    done = npuc("analyze", program, "--data", "data.npy", "--histogram", "relu", "--no-tune")
    assert done.status == 0


@pytest.mark.parametrize("target", ["edge-4t", "dpuczdx8g-b4096-like"])
def test_hybrid_proposes_what_the_target_runs(npuc: Any, program: Path, target: str) -> None:
    rng = np.random.default_rng(0)
    np.save("data.npy", rng.standard_normal((8, 3, 8, 8)).astype(np.float32) * 3)
    run = ("--data", "data.npy", "--no-tune", "--target", target)
    done = npuc("analyze", program, *run, "--hybrid", "h.yaml", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)["hybrid"]
    config = QuantizationConfig.load(Path("h.yaml"))
    assert config.layers == found["layers"] and "float" not in config.layers.values()
    compiled = npuc("compile", program, *run, "--config", "h.yaml", "-o", "m.npu", "--json")
    assert compiled.status == 0
    assert {one["device"] for one in json.loads(compiled.out)["subgraphs"]} <= {"npu", "convert"}
    if target == "edge-4t":
        # Weights of 16 bits by activations of 8 are nothing that its array multiplies.
        assert found["layers"] and {"weight": "i16"} not in found["layers"].values()
    else:
        assert not found["layers"] and found["refused"]
        assert f"{target} does not run" in done.err
