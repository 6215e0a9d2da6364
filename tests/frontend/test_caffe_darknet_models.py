"""Every shared Caffe and Darknet model on real pictures: as in OpenCV, and compiled to the same bits in both modes.

Of networks without weights, the large ones are made thin here (an eighth of the filters) and small; whole, they are slow.
OpenCV cannot run the shortcuts of Darknet's ResNet-50, so plain NumPy judges it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.codegen.compile_model import compile_model
from npuc.compare.tensors import Tolerance
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.flow import ImportOptions, import_model, input_names, quantize_network
from npuc.import_check.check import check_import
from npuc.ir import Graph, shape_of
from npuc.sim import Simulator
from npuc.target import load_target
from support.oracles import darknet as reference

CAFFE = {
    "lenet.caffemodel": None,
    "squeezenet_v1.1.prototxt": (1, 3, 227, 227),
    "ultraface_rfb_320.prototxt": None,
    "wechat_detect.prototxt": None,
    "wechat_sr.prototxt": (1, 1, 56, 64),
}
DARKNET = {"mbv2_yolov3_nano_voc.cfg": None, "yoloface_50k.cfg": None}
CFG_ONLY = {"yolov3-tiny.cfg": (1, 3, 96, 96), "efficientnet_b0.cfg": (1, 3, 64, 64)}
THIN = {"yolov2.cfg": (1, 3, 96, 128), "yolov3-spp.cfg": (1, 3, 96, 96), "yolov4.cfg": (1, 3, 96, 96)}
BAR = Tolerance(0.9999, 0.99)


def _path(shared: Path, folder: str, name: str) -> Path:
    path = shared / "models" / folder / name
    if not path.is_file():
        pytest.skip(f"{path.name} is not here")
    return path


def _picture(shared: Path, shape: tuple[int, ...]) -> Array:
    files = sorted((shared / "data").rglob("*.jpg"))
    if not files:
        pytest.skip("the shared pictures are not here")
    _, channels, height, width = shape
    with Image.open(files[0]) as file:
        picture = file.convert("RGB" if channels == 3 else "L").resize((width, height))
    pixels = np.asarray(picture, np.float32).reshape(height, width, channels).transpose(2, 0, 1)
    return np.repeat(pixels[None] / 255, shape[0], 0)


def _imported(path: Path, shape: tuple[int, ...] | None, **more: Any) -> tuple[Graph, ImportOptions]:
    options = ImportOptions(input_shapes={input_names(path)[0]: shape} if shape else {}, **more)
    return import_model(path, options), options


def _inputs(shared: Path, graph: Graph) -> dict[str, Array]:
    return {port.name: _picture(shared, shape_of(port.value)) for port in graph.inputs}


def _agrees(path: Path, shared: Path, shape: tuple[int, ...] | None, **more: Any) -> Graph:
    pytest.importorskip("cv2", reason="OpenCV, the judge of Caffe and Darknet, is not installed")
    graph, options = _imported(path, shape, **more)
    report = check_import(path, graph, _inputs(shared, graph), options=options, tolerance=BAR, threads=2)
    assert report.passed, report.impossible or report.failures[:3]
    assert report.runtime == "OpenCV" and report.layers
    assert len(report.outputs) == len(list(graph.outputs))
    return graph


def _compiles(graph: Graph, inputs: dict[str, Array]) -> None:
    values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=2).run(inputs)}
    ranges = {
        name: (float(value.min()), float(value.max()))
        for name, value in values.items()
        if value.dtype == np.float32 and value.size and np.isfinite(value).all()
    }
    target = load_target("edge-4t")
    made = quantize_network(graph, ranges, target=target).graph
    wanted = IntegerEngine(made, threads=2).run(inputs)
    got = Simulator(compile_model(made, target), 2).run(inputs)
    assert wanted.keys() == got.keys()
    for name, value in wanted.items():
        assert got[name].dtype == value.dtype
        np.testing.assert_array_equal(got[name], value, err_msg=name)


@pytest.mark.parametrize("name", CAFFE)
def test_caffe_models(shared: Path, name: str) -> None:
    graph = _agrees(_path(shared, "caffe", name), shared, CAFFE[name])
    _compiles(graph, _inputs(shared, graph))


@pytest.mark.parametrize("name", DARKNET)
def test_darknet_models(shared: Path, name: str) -> None:
    path = _path(shared, "darknet", name)
    graph = _agrees(path, shared, DARKNET[name])
    (note,) = graph.notes
    option = (
        "yolov4:anchors=26x48+67x84+72x175/189x126+137x236+265x259,scale_xy=1.05/1.1"
        if "mbv2" in name
        else "yolov3:anchors=9x14+12x17+22x21"
    )
    assert note.endswith(f"; --add-postprocess {option} makes detections of them")
    _compiles(graph, _inputs(shared, graph))
    heads = tuple(f"{index}_yolo" for index in ((69, 79) if "mbv2" in name else (33,)))
    _agrees(path, shared, DARKNET[name], outputs=heads)


@pytest.mark.parametrize("name", CFG_ONLY)
def test_darknet_models_with_random_weights(shared: Path, name: str) -> None:
    graph = _agrees(_path(shared, "darknet/cfg_only", name), shared, CFG_ONLY[name])
    assert "the weights are random" in graph.notes[0]
    _compiles(graph, _inputs(shared, graph))


def _thin(text: str) -> str:
    """An eighth of the filters, but for those of the heads."""

    def fewer(match: re.Match[str]) -> str:
        count = int(match.group(1))
        return f"filters={count if count in (255, 425, 1000) else count // 8}"

    return re.sub(r"filters\s*=\s*(\d+)", fewer, text)


@pytest.mark.parametrize("name", THIN)
def test_large_darknet_models_made_thin(shared: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_text(_thin(_path(shared, "darknet/cfg_only", name).read_text()))
    graph = _agrees(path, shared, THIN[name])
    _compiles(graph, _inputs(shared, graph))


def test_shortcuts_of_resnet50(shared: Path, tmp_path: Path) -> None:
    """It adds tensors of other sizes: as Darknet does, every second pixel and the channels that both have."""
    text = _thin(_path(shared, "darknet/cfg_only", "resnet50.cfg").read_text())
    path = tmp_path / "resnet50.cfg"
    path.write_text(text)
    x = _picture(shared, (1, 3, 64, 64))
    numbers = reference.Numbers(4)
    wanted = reference.run(text, x, numbers)
    path.with_suffix(".weights").write_bytes(numbers.file())
    graph, _ = _imported(path, (1, 3, 64, 64))
    found = FloatEngine(graph, fetch=graph.tensor_names(), threads=2).run({"data": x})
    compared = 0
    for index, (kind, _) in enumerate(reference.sections(text)[1:]):
        name = f"{index}_{kind}"
        if name in found:
            ours, theirs = found[name].astype(np.float64).reshape(-1), wanted[index].reshape(-1)
            compared += 1
            assert ours @ theirs >= 0.9999 * np.linalg.norm(ours) * np.linalg.norm(theirs), name
    assert compared > 50
    _compiles(graph, {"data": x})


@pytest.mark.slow
@pytest.mark.parametrize("name", [*THIN, "resnet50.cfg"])
def test_large_darknet_models_whole(shared: Path, name: str) -> None:
    path = _path(shared, "darknet/cfg_only", name)
    shape = THIN.get(name, (1, 3, 64, 64))
    graph = _agrees(path, shared, shape) if name in THIN else _imported(path, shape)[0]
    _compiles(graph, _inputs(shared, graph))


def test_one_network_from_two_frameworks(shared: Path) -> None:
    """UltraFace is there with the same weights as ONNX and as Caffe; the Caffe network ends before the boxes are decoded."""
    caffe = import_model(_path(shared, "caffe", "ultraface_rfb_320.prototxt"))
    other = import_model(_path(shared, "onnx", "ultraface_rfb_320.onnx"))
    x = (_picture(shared, (1, 3, 240, 320)) * 255 - 127) / 128
    ours, theirs = (
        FloatEngine(graph, fetch=graph.tensor_names(), threads=2).run({graph.inputs[0].name: x})
        for graph in (caffe, other)
    )
    theirs["boxes"] = theirs["460"]
    common = [name for name in ours if name in theirs]
    assert len(common) > 60 and {"boxes", "scores"} <= set(common)
    for name in common:
        assert ours[name].shape == theirs[name].shape, name
        scale = max(1.0, float(np.abs(theirs[name]).max()))
        np.testing.assert_allclose(ours[name], theirs[name], rtol=0, atol=1e-5 * scale, err_msg=name)
