"""What a user says about an import means the same in every format, and what is wrong with it is told in the same words.

One network, `y = a + b` on 1 x 4 numbers, is written in every format that has networks of two inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.engine import FloatEngine
from npuc.errors import NpucError
from npuc.flow import ImportOptions, check_model, import_model
from npuc.ir import shape_of
from support.networks import caffe as caffe_nets
from support.networks import keras_files as keras
from support.networks import tensorflow_graphs as tensorflow
from support.networks.tflite import Net
from support.networks.tflite import Writer as TFLiteWriter

Writer = Callable[[Path], Path]


def _onnx(folder: Path) -> Path:
    ports = [onnx.helper.make_tensor_value_info(name, 1, [1, 4]) for name in "aby"]
    node = onnx.helper.make_node("Add", ["a", "b"], ["y"])
    graph = onnx.helper.make_graph([node], "g", ports[:2], ports[2:])
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)]), folder / "x.onnx"
    )
    return folder / "x.onnx"


def _tflite(folder: Path) -> Path:
    net = Net()
    sides = [net.input(name, (1, 4)) for name in "ab"]
    (folder / "x.tflite").write_bytes(net.data(net.op("ADD", sides, "f32", "AddOptions", shape=(1, 4))))
    return folder / "x.tflite"


def _keras(folder: Path) -> Path:
    pytest.importorskip("h5py", reason="h5py, which reads Keras files, is not installed")
    layers = [keras.source(4, name="a"), keras.source(4, name="b"), keras.layer("Add", "y", "a", "b")]
    return keras.write_h5(folder / "x.h5", keras.functional(layers, ["y"]), {})


def _tensorflow(folder: Path) -> Path:
    ports = [tensorflow.placeholder(name, 1, 4) for name in "ab"]
    (folder / "x.pb").write_bytes(tensorflow.graph([*ports, tensorflow.node("y", "AddV2", ["a", "b"])]))
    return folder / "x.pb"


def _caffe(folder: Path) -> Path:
    shapes = {name: (1, 4) for name in "ab"}
    (folder / "x.prototxt").write_text(caffe_nets.net(shapes, caffe_nets.layer("Eltwise", "a b")))
    return folder / "x.prototxt"


def _torch(folder: Path) -> Path:
    torch = pytest.importorskip("torch", reason="torch is not installed")

    class Sum(torch.nn.Module):
        def forward(self, a: Any, b: Any) -> Any:
            return {"y": a + b}

    examples = torch.zeros(1, 4), torch.ones(1, 4)
    torch.export.save(torch.export.export(Sum(), examples), folder / "x.pt2")
    return folder / "x.pt2"


WRITERS: dict[str, Writer] = {
    "onnx": _onnx,
    "tflite": _tflite,
    "keras": _keras,
    "tensorflow": _tensorflow,
    "caffe": _caffe,
    "torch": _torch,
}


@pytest.fixture(scope="module", params=WRITERS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network in one format."""
    return WRITERS[request.param](tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize(
    ("text", "values"), [("2", [2, 2, 2, 2]), ("1,2.5,3,-4", [1, 2.5, 3, -4]), ("true", [1, 1, 1, 1])]
)
def test_an_input_becomes_a_constant(model: Path, text: str, values: list[float]) -> None:
    options = ImportOptions(constants={"b": text})
    graph = import_model(model, options)
    assert [port.name for port in graph.inputs] == ["a"]
    a = np.array([[0.5, -1, 2, 3]], np.float32)
    np.testing.assert_array_equal(FloatEngine(graph, threads=1).run({"a": a})["y"], a + np.float32([values]))
    report = check_model(model, graph, options)
    assert report.passed or report.impossible


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown input": ({"inputs": ("nope",)}, "--inputs: there is no tensor 'nope'"),
    "unknown output": ({"outputs": ("nope",)}, "--outputs: there is no tensor 'nope'"),
    "unknown constant": ({"constants": {"nope": "1"}}, "--constant: there is no tensor 'nope'"),
    "shape of nothing": ({"input_shapes": {"nope": (1,)}}, "--input-shape: there is no input 'nope'"),
    "twice": ({"inputs": ("a", "b", "a")}, "--inputs: an input is given twice"),
    "two meanings": ({"inputs": ("a", "b"), "constants": {"b": "1"}}, "'b' is given to both"),
    "cut off": ({"inputs": ("a",)}, "'b'"),
    "too few numbers": (
        {"constants": {"b": "1,2,3"}},
        r"3 numbers for the shape \[1, 4\]. Give one number, or 4",
    ),
    "no numbers": ({"constants": {"b": "two"}}, "--constant b=two: these are not numbers"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_told_in_the_same_words(model: Path, name: str) -> None:
    given, words = WRONG[name]
    with pytest.raises(NpucError, match=words) as caught:
        import_model(model, ImportOptions(**given))
    assert caught.value.where == str(model) and "\n" not in caught.value.paragraph()


def test_weights_of_their_own(model: Path, tmp_path: Path) -> None:
    """Caffe, Darknet and Keras keep weights apart, TensorFlow has checkpoints; others do not swallow the option."""
    other = tmp_path / "other.weights"
    other.write_bytes(b"nothing of use")
    words = {
        ".h5": "not a readable HDF5",
        ".prototxt": "not a valid Caffe model",
        ".pb": "no such checkpoint",
    }.get(model.suffix, "inside")
    with pytest.raises(NpucError, match=words) as caught:
        import_model(model, ImportOptions(weights=other))
    assert str(other) in str(caught.value)


NOTE = "the batch of the input '{}' is open, and was taken as {} (--input-shape changes it)"


def _open_onnx(folder: Path, *sizes: Any) -> Path:
    ports = [onnx.helper.make_tensor_value_info(name, 1, [*sizes, 4]) for name in "aby"]
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("Add", ["a", "b"], ["y"])], "g", ports[:2], ports[2:]
    )
    path = folder / "open.onnx"
    onnx.save(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path
    )
    return path


def _open_tflite(folder: Path) -> Path:
    net = Net()
    sides = [net.input(name, (1, 4)) for name in "ab"]
    model = net.ended(net.op("ADD", sides, "f32", "AddOptions", shape=(1, 4)))
    (folder / "open.tflite").write_bytes(TFLiteWriter(model, open_batch=("a", "b")).run())
    return folder / "open.tflite"


def _open_tensorflow(folder: Path) -> Path:
    ports = [tensorflow.placeholder(name, -1, 4) for name in "ab"]
    (folder / "x.pb").write_bytes(tensorflow.graph([*ports, tensorflow.node("y", "AddV2", ["a", "b"])]))
    return folder / "x.pb"


OPEN: dict[str, Writer] = {
    "onnx": lambda folder: _open_onnx(folder, "N"),
    "onnx without a name": lambda folder: _open_onnx(folder, None),
    "tflite": _open_tflite,
    "keras": _keras,
    "tensorflow": _open_tensorflow,
}


@pytest.mark.parametrize("kind", OPEN)
def test_an_open_batch_is_one_in_every_format(kind: str, tmp_path: Path) -> None:
    path = OPEN[kind](tmp_path)
    graph = import_model(path)
    assert [shape_of(port.value) for port in graph.inputs] == [(1, 4), (1, 4)]
    assert graph.notes == [NOTE.format(name, 1) for name in "ab"]
    report = check_model(path, graph, ImportOptions())
    assert report.passed or "TensorFlow" in report.impossible


def test_a_batch_with_a_name_is_the_same_for_all_inputs(tmp_path: Path) -> None:
    path = _open_onnx(tmp_path, "N")
    graph = import_model(path, ImportOptions(input_shapes={"a": (3, 4)}))
    assert [shape_of(port.value) for port in graph.inputs] == [(3, 4), (3, 4)]
    assert graph.notes == [NOTE.format("b", 3)]


def test_other_open_dimensions_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(NpucError, match=r"open dimensions 0 \('N'\), 1 \('T'\).*Add --input-shape a=1,1,4"):
        import_model(_open_onnx(tmp_path, "N", "T"))
