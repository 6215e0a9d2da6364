"""Compass IR: what is written is read back, and what is damaged is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import FileMissingError, InvalidModelError, NpucError, UnsupportedOpError
from npuc.export.compass import export_compass, to_compass
from npuc.export.compass.text import parse_text, parse_value
from npuc.flow import import_model, network_to_quantize, quantize_network, quantize_on_data
from npuc.frontend.formats import declared_inputs
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph, dtype_of
from npuc.target import load_target
from npuc.transform.input_types import with_input_types
from support.paths import ROOT

DIGITS = ROOT / "examples" / "digits.onnx"


def network() -> Graph:
    """Many kinds of layers."""
    rng = np.random.default_rng(0)

    def numbers(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32) * 0.3

    x = lang.input("x", (1, 4, 8, 8))
    a = lang.conv(x, numbers(6, 4, 3, 3), numbers(6), pads=1, relu=True, name="a")
    b = lang.conv(a, numbers(6, 1, 3, 3), pads=1, group=6, name="b")
    c = lang.add(a, lang.sigmoid(b), name="c")
    d = lang.max_pool(c, kernel=2, strides=2, name="d")
    e = lang.concat(
        [d, lang.leaky_relu(d, alpha=0.2), lang.avg_pool(c, kernel=2, strides=2)], axis=1, name="e"
    )
    f = lang.mul(e, numbers(18, 1, 1), name="f")
    g = lang.softmax(f, axis=1, name="g")
    h = lang.reshape(lang.permute(g, order=(0, 2, 3, 1)), shape=(1, 288), name="h")
    y = lang.matmul(h, numbers(288, 5), numbers(5), name="y")
    return lang.build({"y": y, "f": f})


def read_back(graph: Graph, folder: Path) -> Graph:
    export_compass(graph, folder / "net.txt")
    return import_model(folder / "net.txt")


def same(ours: Graph, other: Graph) -> None:
    inputs = random_inputs(ours)
    named = {port.name: inputs[own.name] for own, port in zip(ours.inputs, other.inputs, strict=True)}
    first, second = FloatEngine(ours).run(inputs), FloatEngine(other).run(named)
    for a, b in zip(first.values(), second.values(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_inputs_of_plain_integers_stay_those(tmp_path: Path) -> None:
    graph = with_input_types(lang.build({"y": lang.neg(lang.input("x", (2, 3)), name="y")}), {"x": "i8"})
    text, data = to_compass(graph)
    assert "layer_top_type=[int8]" in text and "layer_top_scale" not in text
    # A layer may have the name that the reader would give the real numbers.
    (tmp_path / "net.txt").write_text(text)
    (tmp_path / "net.bin").write_bytes(data)
    back = import_model(tmp_path / "net.txt")
    assert [dtype_of(port.type).name for port in back.inputs] == ["i8"]
    assert declared_inputs(tmp_path / "net.txt", ImportOptions())["x"].name == "i8"
    x = np.array([[-128, 0, 1], [127, 5, -7]], np.int8)
    np.testing.assert_array_equal(FloatEngine(back).run({"x": x})["y"], -x.astype(np.float32))


def test_a_network_is_read_back_to_the_bit(tmp_path: Path) -> None:
    graph = network()
    same(graph, read_back(graph, tmp_path))


def test_nothing_is_turned_between_convolutions() -> None:
    text, _ = to_compass(import_model(DIGITS))
    kinds = [layer.kind for layer in parse_text(text).layers]
    assert kinds.count("Transpose") == 2  # behind the input, and before the vector
    assert {"Convolution", "DepthwiseConv", "Eltwise", "Pooling", "FullyConnected"} <= set(kinds)


def test_a_quantized_network_is_read_back_to_its_integers(tmp_path: Path) -> None:
    images = np.load(ROOT / "examples" / "digits_samples.npz")["image"]
    graph, target = network_to_quantize(DIGITS), load_target("zhouyi-x2-like")
    source = open_data(graph, [{"image": image[None]} for image in images[:8]])
    done, _ = quantize_on_data(graph, source, None, target)
    export_compass(done.source, tmp_path / "q.txt", integers=done.graph)
    layers = {layer.name: layer for layer in parse_text((tmp_path / "q.txt").read_text()).layers}
    assert (
        layers["logits"].values["weights_type"] == "int8" and layers["logits"].values["shift_type"] == "int8"
    )
    again = quantize_network(network_to_quantize(tmp_path / "q.txt"), None, None, target)
    first, second = IntegerEngine(done.graph), IntegerEngine(again.graph)
    for image in images[:8]:
        np.testing.assert_array_equal(
            first.run({"image": image[None]})["logits"], second.run({"image": image[None]})["logits"]
        )


def test_an_op_without_a_layer_is_named() -> None:
    x = lang.input("x", (1, 4))
    graph = lang.build({"y": lang.cumsum(x, axis=1, name="running")})
    with pytest.raises(UnsupportedOpError, match=r"running.*no layer for it in Compass IR"):
        to_compass(graph)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("layer_number=14", "layer_number=15", "there are 14 layers"),
        ("weights_offset=0", "weights_offset=99999999", "beyond the end"),
        ("weights_shape=[16,3,3,1]", "weights_shape=[16,3,3,2]", "576 bytes for the shape"),
        ("weights_type=float32", "weights_type=float9", "'float9', which is not read"),
        ("kernel_x=2", "kernel_x=two", "not an integer"),
        ("layer_top_shape=[[1,8,8,16]]", "layer_top_shape=[[1,8,8,17]]", "its parameters make"),
        ("layer_bottom=[image_nhwc]", "layer_bottom=[nobody]", "nobody"),
        ("layer_type=Input", "layer_type", "is not KEY=VALUE"),
        ("perm=[0,2,3,1]", "perm=[0,2,3,1", "no list"),
        ("model_name=", "subgraph_name=x\nmodel_name=", "subgraphs"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, old: str, new: str, words: str) -> None:
    path, _ = export_compass(import_model(DIGITS), tmp_path / "net.txt")
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InvalidModelError, match=words):
        import_model(path) if "subgraph" not in new else parse_text(path.read_text())


def test_a_missing_binary_file_is_named(tmp_path: Path) -> None:
    path, binary = export_compass(import_model(DIGITS), tmp_path / "net.txt")
    binary.unlink()
    with pytest.raises(FileMissingError, match=r"net\.bin"):
        import_model(path)
    binary.write_bytes(b"")
    with pytest.raises(NpucError, match="not whole"):
        import_model(path)


def test_nesting_has_an_end() -> None:
    assert parse_value("[[1,2],[]]", "x") == [["1", "2"], []]
    with pytest.raises(InvalidModelError, match="too deep"):
        parse_value("[" * 50, "x")
