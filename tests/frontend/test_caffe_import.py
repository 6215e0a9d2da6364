"""Caffe files of all ages: three generations of layers, blobs of every kind, phases, names, cuts, layers of one's own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.engine import FloatEngine
from npuc.errors import (
    DynamicShapeError,
    FileMissingError,
    InvalidModelError,
    UnknownTensorError,
    UsageError,
)
from npuc.flow import import_model, input_names
from npuc.frontend.caffe import CaffeContext, import_caffe, rule, supported
from npuc.frontend.caffe.text import parse, written
from npuc.frontend.caffe.wire import _encode, _field, decode, encode_model
from npuc.frontend.options import ImportOptions
from npuc.ir import layer_name, shape_of, top
from npuc.kernels import custom
from npuc.registries import isolated
from support.networks.caffe import judged, layer, net, run, sample

RNG = np.random.default_rng(11)
X = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
WEIGHT = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
BIAS = RNG.standard_normal(4).astype(np.float32)


def _floats(array: np.ndarray) -> bytes:
    return array.astype("<f4").tobytes()


def _convolved() -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(X, (3, 3), axis=(2, 3))
    return np.einsum("ncyxji,ocji->noyx", windows, WEIGHT) + BIAS.reshape(1, 4, 1, 1)


def _import(folder: Path, text: str, model: bytes | None = None, **options: Any) -> Any:
    path = folder / "net.prototxt"
    path.write_text(text)
    if model is not None:
        path.with_suffix(".caffemodel").write_bytes(model)
    return import_caffe(path, ImportOptions(**options))


V2 = net(
    {"data": (1, 3, 8, 8)},
    layer("Convolution", "data", "y", "convolution_param { num_output: 4 kernel_size: 3 }", "c"),
)
V1 = """
name: "old" input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "c" type: CONVOLUTION bottom: "data" top: "y" convolution_param { num_output: 4 kernel_size: 3 } }
"""
V0 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { layer { name: "c" type: "conv" num_output: 4 kernelsize: 3 } bottom: "data" top: "y" }
"""
SHAPED = V1.replace(
    "input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8", "input_shape { dim: [1, 3, 8, 8] }"
)


@pytest.mark.parametrize("text", [V2, V1, V0, SHAPED], ids=["layer", "layers", "first form", "input_shape"])
def test_all_generations_of_text_mean_the_same(tmp_path: Path, text: str) -> None:
    graph = _import(tmp_path, text, encode_model({"c": [WEIGHT, BIAS]}))
    found = FloatEngine(graph, threads=1).run({"data": X})
    np.testing.assert_allclose(found["y"], _convolved(), atol=1e-4)
    assert not graph.notes
    assert [port.name for port in graph.inputs] == ["data"]
    pytest.importorskip("cv2")
    (output,) = judged(tmp_path, text, {"data": X})[1].values()
    np.testing.assert_allclose(output, _convolved(), atol=1e-4)


def _old_blob(array: np.ndarray) -> bytes:
    four = (1,) * (4 - array.ndim) + array.shape
    dims = b"".join(_encode((i + 1) << 3) + _encode(n) for i, n in enumerate(four))
    return dims + _field(5, _floats(array))


BLOBS = {
    "four axes": _old_blob,
    "doubles": lambda a: _field(8, a.astype("<f8").tobytes()),
    "halves": lambda a: _encode(10 << 3) + _encode(2) + _field(12, a.astype("<f2").tobytes()),
    "not packed": lambda a: b"".join(_encode(5 << 3 | 5) + struct.pack("<f", x) for x in a.reshape(-1)),
    "in two parts": lambda a: _field(5, _floats(a.reshape(-1)[:3])) + _field(5, _floats(a.reshape(-1)[3:])),
}


@pytest.mark.parametrize("kind", BLOBS)
@pytest.mark.parametrize("generation", [0, 1, 2])
def test_blobs_of_all_kinds(tmp_path: Path, kind: str, generation: int) -> None:
    parts = [BLOBS[kind](array) for array in (WEIGHT, BIAS)]
    if generation == 2:
        model = _field(100, _field(1, b"c") + b"".join(_field(7, part) for part in parts))
    elif generation == 1:
        model = _field(1, b"old") + _field(2, _field(4, b"c") + b"".join(_field(6, part) for part in parts))
    else:
        inner = _field(1, b"c") + b"".join(_field(50, part) for part in parts)
        model = _field(1, b"old") + _field(2, _field(1, inner))
    found = FloatEngine(_import(tmp_path, V2, model), threads=1).run({"data": X})
    np.testing.assert_allclose(found["y"], _convolved(), atol=1e-4 if kind != "halves" else 5e-2)


def _binary_net() -> bytes:
    """A network that is its own description: what Caffe writes."""
    shape = b"".join(_encode(1 << 3) + _encode(n) for n in (1, 3, 8, 8))
    source = _field(1, b"data") + _field(2, b"Input") + _field(4, b"data") + _field(143, _field(1, shape))
    convolution = _encode(1 << 3) + _encode(4) + _encode(4 << 3) + _encode(3)
    conv = (
        _field(1, b"c")
        + _field(2, b"Convolution")
        + _field(3, b"data")
        + _field(4, b"y")
        + _field(106, convolution)
    )
    blobs = b"".join(_field(7, _field(5, _floats(array))) for array in (WEIGHT, BIAS))
    skipped = _field(8, _encode(1 << 3) + _encode(0))
    train = _field(1, b"t") + _field(2, b"TanH") + _field(3, b"y") + _field(4, b"t") + skipped
    return _field(1, b"net") + b"".join(_field(100, part) for part in (source, conv + blobs, train))


def test_a_caffemodel_alone_says_what_its_layers_are(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    path.write_bytes(_binary_net())
    graph = import_model(path)
    assert input_names(path) == ("data",) and [port.name for port in graph.outputs] == ["y"]
    found = FloatEngine(graph, threads=1).run({"data": X})
    np.testing.assert_allclose(found["y"], _convolved(), atol=1e-4)
    assert parse(written(decode(memoryview(_binary_net())), ("blobs",)).encode()).messages("layer")


def test_a_caffemodel_takes_the_text_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "net.caffemodel"
    path.write_bytes(_binary_net())
    path.with_suffix(".prototxt").write_text(V2.replace('top: "y"', 'top: "renamed"'))
    graph = import_caffe(path)
    assert [port.name for port in graph.outputs] == ["renamed"] and "net.prototxt" in graph.notes[0]


def test_without_weights_they_are_random_and_always_the_same(tmp_path: Path) -> None:
    first, second = (_import(tmp_path, V2) for _ in range(2))
    assert len(first.notes) == 1 and first.notes[0].startswith(
        "the weights are random: there is no net.caffemodel"
    )
    for name in first.used_weights():
        np.testing.assert_array_equal(first.weights.array(name), second.weights.array(name))
    results = [FloatEngine(graph, threads=1).run({"data": X})["y"] for graph in (first, second)]
    np.testing.assert_array_equal(*results)
    assert np.ptp(results[0]) > 0.5


def test_weights_may_lie_elsewhere(tmp_path: Path) -> None:
    other = tmp_path / "elsewhere.bin"
    other.write_bytes(encode_model({"c": [WEIGHT, BIAS]}))
    graph = _import(tmp_path, V2, weights=other)
    np.testing.assert_allclose(FloatEngine(graph, threads=1).run({"data": X})["y"], _convolved(), atol=1e-4)
    with pytest.raises(FileMissingError):
        _import(tmp_path, V2, weights=tmp_path / "nowhere.caffemodel")


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidModelError, match=r"layer 'c' needs weights that are not in net\.caffemodel"):
        _import(tmp_path, V2, encode_model({"d": [WEIGHT, BIAS]}))
    with pytest.raises(
        InvalidModelError, match=r"has 27 elements in net\.caffemodel, but the layer needs 108"
    ):
        _import(tmp_path, V2, encode_model({"c": [WEIGHT[0], BIAS]}))


TRAINING = """
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TRAIN } }
layer { name: "data" type: "Data" top: "data" top: "label" include { phase: TEST } }
layer { name: "fc" type: "InnerProduct" bottom: "data" top: "fc" inner_product_param { num_output: 4 } }
layer { name: "drop" type: "Dropout" bottom: "fc" top: "fc" include: { phase: TRAIN } }
layer { name: "late" type: "TanH" bottom: "fc" top: "fc" include { stage: "deploy" } }
layer { name: "never" type: "TanH" bottom: "fc" top: "fc" exclude { phase: TEST } }
layer { name: "acc" type: "Accuracy" bottom: "fc" bottom: "label" top: "acc" }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "fc" bottom: "label" top: "loss" }
"""


def test_a_training_file_becomes_what_it_tests(tmp_path: Path) -> None:
    with pytest.raises(DynamicShapeError, match="--input-shape 'data="):
        _import(tmp_path, TRAINING)
    graph = _import(tmp_path, TRAINING, input_shapes={"data": (2, 3)})
    assert [port.name for port in graph.inputs] == ["data"]
    assert [port.name for port in graph.outputs] == ["loss"]
    kinds = [type(op) for op in graph.ops if not isinstance(op, top.WeightOp)]
    assert kinds == [top.MatMul, top.Softmax]
    staged = _import(tmp_path, 'state { stage: "deploy" }' + TRAINING, input_shapes={"data": (2, 3)})
    assert top.Tanh in [type(op) for op in staged.ops]


IN_PLACE = net(
    {"data": (1, 3, 8, 8)},
    layer("BatchNorm", "data", "data", name="bn"),
    layer("Convolution", "data", "c", "convolution_param { num_output: 4 kernel_size: 1 }"),
    layer("ReLU", "c", "c", name="act"),
    layer("Dropout", "c", "c", name="drop"),
    layer("Pooling", "c", "p", "pooling_param { kernel_size: 2 stride: 2 }"),
    layer("Sigmoid", "c", "s", name="gate"),
)


def test_names_of_blobs_that_layers_write_in_place(tmp_path: Path) -> None:
    graph = _import(tmp_path, IN_PLACE)
    assert graph.tensor_names() == ["bn", "c/Convolution", "c", "p", "s"]
    assert [port.name for port in graph.outputs] == ["p", "s"]
    relu = next(op for op in graph.ops if isinstance(op, top.Relu))
    assert layer_name(relu) == "act"


def test_a_network_is_cut_by_blobs_and_layers(tmp_path: Path) -> None:
    graph = _import(tmp_path, IN_PLACE, inputs=("c",), outputs=("gate",))
    assert [shape_of(port.value) for port in graph.inputs] == [(1, 4, 8, 8)]
    assert [port.name for port in graph.outputs] == ["gate"]
    assert [type(op) for op in graph.ops] == [top.Sigmoid]
    assert len(list(_import(tmp_path, IN_PLACE, outputs=("act",)).outputs)) == 1
    assert shape_of(_import(tmp_path, IN_PLACE, input_shapes={"data": (2, 3, 6, 4)}).outputs[0].value) == (
        2,
        4,
        3,
        2,
    )
    with pytest.raises(UnknownTensorError, match="Did you mean 'gate'"):
        _import(tmp_path, IN_PLACE, outputs=("gates",))
    with pytest.raises(UsageError, match="still need the input 'data'"):
        _import(tmp_path, IN_PLACE, inputs=("p",))
    with pytest.raises(UsageError, match="has 4 axes, not 3"):
        _import(tmp_path, IN_PLACE, input_shapes={"data": (1, 3, 8)})


def test_an_input_may_become_a_constant(tmp_path: Path) -> None:
    text = net({"a": (1, 2), "b": (1, 2)}, layer("Eltwise", "a b", "y"))
    graph = _import(tmp_path, text, constants={"b": "1,10"})
    found = FloatEngine(graph, threads=1).run({"a": np.array([[1, 2]], np.float32)})
    np.testing.assert_array_equal(found["y"], [[2, 12]])
    with pytest.raises(UsageError, match="3 numbers for the shape"):
        _import(tmp_path, text, constants={"b": "1,2,3"})


def test_the_first_form_pads_with_a_layer(tmp_path: Path) -> None:
    text = V0.replace('bottom: "data" top: "y"', 'bottom: "p" top: "y"') + ""
    padding = 'layers { layer { name: "p" type: "padding" pad: 1 } bottom: "data" top: "p" }\nlayers'
    graph = _import(tmp_path, text.replace("layers", padding, 1), encode_model({"c": [WEIGHT, BIAS]}))
    assert shape_of(graph.outputs[0].value) == (1, 4, 8, 8)


@pytest.fixture
def own_rules() -> Iterator[None]:
    with isolated():
        yield


PYTHON = """layer { name: "mine" type: "Python" bottom: "r" top: "m"
  python_param { module: "my_layers" layer: "Double" param_str: "{'by': 2}" } }"""


def test_an_unknown_layer_is_kept_with_its_parameters(tmp_path: Path) -> None:
    text = net({"x": (1, 4)}, layer("ReLU", "x", "r")) + PYTHON
    text += "layer { " + layer("Proposal", "m", "p", "proposal_param { feat_stride: 16 }") + " }"
    graph = _import(tmp_path, text)
    custom = [op for op in graph.ops if isinstance(op, top.Onnx)]
    assert [op.domain for op in custom] == ["npuc.caffe"] * 2
    assert [op.op_type for op in custom] == ["Python_Double", "Proposal"]
    assert "by" in str(custom[0].onnx_attributes["parameters"])
    assert "feat_stride: 16" in str(custom[1].onnx_attributes["parameters"])
    assert any("2 layers have no form" in note and "'mine' (Python:Double)" in note for note in graph.notes)
    graph.verify()


@pytest.mark.usefixtures("own_rules")
def test_a_user_may_register_a_rule(tmp_path: Path) -> None:
    @rule("Python:Double")
    def double(ctx: CaffeContext) -> Any:
        """Twice its input."""
        by = ctx.parameters("python_param").string("param_str")
        assert by == "{'by': 2}"
        return ctx.emit(top.Mul, ctx.value(), ctx.number(2.0))

    text = net({"x": (1, 4)}, layer("ReLU", "x", "r")) + PYTHON
    inputs = sample({"x": (1, 4)})
    found, _ = run(tmp_path, text, inputs)
    np.testing.assert_allclose(found["m"], 2 * np.maximum(inputs["x"], 0))
    assert supported()["Python:Double"] == "Twice its input."


@pytest.mark.usefixtures("own_rules")
def test_a_layer_of_ones_own_may_be_computed_in_python(
    tmp_path: Path,
) -> None:
    """A rule that states the shape keeps what follows in `top`; a kernel computes the op."""

    @rule("Python:Double")
    def double(ctx: CaffeContext) -> Any:
        """Twice its input, in Python."""
        return ctx.onnx("Double", [ctx.value()], [ctx.value().type], "it is Python", "my.layers", by=2)

    custom.register_kernel("my.layers", "Double", lambda arrays, attributes: [arrays[0] * attributes["by"]])
    text = (
        net({"x": (1, 4)}, layer("ReLU", "x", "r")) + PYTHON + "layer { " + layer("Sigmoid", "m", "s") + " }"
    )
    inputs = sample({"x": (1, 4)})
    found, _ = run(tmp_path, text, inputs)
    np.testing.assert_allclose(found["s"], 1 / (1 + np.exp(-2 * np.maximum(inputs["x"], 0))), rtol=1e-6)


def test_the_text_form_in_all_its_spellings() -> None:
    message = parse(
        b"""# a comment
        name: 'single' "joined" a: 1, b: -2.5e-1; c: 0x1F d: true e: [1, 2, 3] f { g: MAX } f: < g: AVE >
        h: "line\\n\\"quote\\" \\101" i: .5f"""
    )
    assert message.string("name") == "singlejoined"
    assert (message.int("a"), message.float("b"), message.int("c")) == (1, -0.25, 31)
    assert message.bool("d") and message.ints("e") == (1, 2, 3)
    assert [one.enum("g", ("MAX", "AVE"), "") for one in message.messages("f")] == ["MAX", "AVE"]
    assert message.string("h") == 'line\n"quote" A' and message.float("i") == 0.5
    again = parse(written(message).encode())
    assert again.string("h") == message.string("h") and again.ints("e") == message.ints("e")


def test_the_page_lists_every_layer(root: Path) -> None:
    from npuc.frontend.darknet import supported as darknet

    for name, kinds in (("caffe", supported()), ("darknet", darknet())):
        text = (root / "docs" / f"import-{name}.md").read_text().split("<!-- layers -->")[1]
        assert text.replace("`", " ").replace(",", " ").replace(".", " ").split() == list(kinds), name
