"""Tasks from end to end: networks that are made to be right, so that a wrong turn on the way shows."""

from __future__ import annotations

import json
import wave
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import npuc
from npuc import plugins
from npuc.arrays import Array
from npuc.datasets.geometry import ImageView
from npuc.errors import EvaluationDataError, PluginError
from npuc.evaluate import DataLocation, evaluate
from npuc.evaluate.decoding import Decoder, inside
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, top
from npuc.runtime import postprocess as post
from support.graphs import build

SIZES = {"wide.png": (80, 40), "tall.png": (30, 60)}
BOXES = {
    "wide.png": [(10, 5, 30, 25, 0), (50, 10, 70, 38, 1)],
    "tall.png": [(3, 6, 20, 40, 1)],
}


def _telling(rows: Array, shape: tuple[int, ...]) -> Graph:
    """A network that reads from the first pixel which of its constant answers to give: 0, 1, ... times 10."""
    count = len(rows)

    def body(b: Any, x: Any) -> dict[str, Any]:
        first = b(top.Reduce, x, name="mean", kind="mean", axes=(1, 2, 3), keepdims=False)
        first = b(top.Reshape, first, name="row", shape=(1, 1))
        choices = np.arange(count, dtype=np.float32)[None]
        far = b(top.Sub, first, choices, name="far")
        near = b(
            top.Softmax,
            b(top.Mul, b(top.Mul, far, far, name="square"), np.float32([-1e4]), name="sharp"),
            name="choice",
            axis=1,
        )
        flat = b(top.MatMul, near, rows.reshape(count, -1), name="flat")
        return {"rows": b(top.Reshape, flat, name="answer", shape=(1, *rows.shape[1:]))}

    return build({"x": shape}, body)


def _coco(folder: Path) -> Path:
    (folder / "images").mkdir()
    content: dict[str, Any] = {
        "images": [],
        "annotations": [],
        "categories": [{"id": 5, "name": "a"}, {"id": 9, "name": "b"}],
    }
    for number, (name, size) in enumerate(SIZES.items()):
        Image.new("RGB", size, (10 * number,) * 3).save(folder / "images" / name)
        content["images"].append({"id": number, "file_name": name})
        for x1, y1, x2, y2, category in BOXES[name]:
            box = [x1, y1, x2 - x1, y2 - y1]
            content["annotations"].append(
                {"image_id": number, "category_id": (5, 9)[category], "bbox": box, "area": box[2] * box[3]}
            )
    (folder / "instances.json").write_text(json.dumps(content))
    return folder / "instances.json"


def _answers(place: Callable[[str, tuple[float, ...]], Array]) -> Array:
    """For both images rows of center, size, objectness, two classes; `place` moves a box into the input."""
    rows = np.zeros((2, 3, 7), np.float32)
    for number, name in enumerate(SIZES):
        for k, (*box, category) in enumerate(BOXES[name]):
            x1, y1, x2, y2 = place(name, tuple(map(float, box)))
            rows[number, k] = [(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 1, 0, 0]
            rows[number, k, 5 + category] = 0.9
    return rows


def _stretched(name: str, box: tuple[float, ...]) -> Array:
    width, height = SIZES[name]
    return np.array(box) * np.array([64 / width, 64 / height] * 2)


def _boxed(name: str, box: tuple[float, ...]) -> Array:
    width, height = SIZES[name]
    ratio = 64 / max(width, height)
    pad = ((64 - round(width * ratio)) // 2, (64 - round(height * ratio)) // 2)
    return np.array(box) * ratio + np.array(pad * 2)


@pytest.mark.parametrize(
    ("place", "preprocess"),
    [(_stretched, {"scale": (0.1,)}), (_boxed, {"scale": (0.1,), "keep_aspect_ratio": True})],
    ids=["stretched", "padded"],
)
def test_boxes_find_back_into_the_image(tmp_path: Path, place: Any, preprocess: dict[str, Any]) -> None:
    file = _coco(tmp_path)
    if place is _boxed:
        # The padding is darker than the second image: its mean is below 1, and the nearest answer is still the second.
        preprocess = preprocess | {"scale": (0.19,)}
    graph = _telling(_answers(place), (1, 3, 64, 64))
    report = evaluate(graph, file, ["map", "voc"], preprocess=preprocess, postprocess="rows")
    # One pixel of slack: the padded image has whole pixels.
    assert report.value("AP50") == 1.0 and report.value("mAP") == 1.0 and report.value("AP") > 0.95
    wrong = evaluate(graph, file, ["map"], preprocess=preprocess | {"pad_type": "corner"}, postprocess="rows")
    assert (wrong.value("AP") < 0.5) == (place is _boxed)


def test_outputs_that_are_no_boxes(tmp_path: Path) -> None:
    file = _coco(tmp_path)
    graph = _telling(_answers(_stretched), (1, 3, 64, 64))
    with pytest.raises(EvaluationDataError, match="gives no detections, and --postprocess does not say"):
        evaluate(graph, file, preprocess={"scale": (0.1,)})
    with pytest.raises(EvaluationDataError, match=r"--postprocess yolov5 does not fit the outputs \(1x3x7\)"):
        evaluate(graph, file, preprocess={"scale": (0.1,)}, postprocess="yolov5")


@pytest.mark.parametrize("kind", ["yolov2", "yolov3", "yolov4", "yolov5", "yolov6", "yolov8", "yolox"])
def test_decoders_are_those_of_the_runtime(kind: str) -> None:
    rng = np.random.default_rng(0)
    decoder = Decoder.parse(f"{kind}:score=0.3")
    options = decoder.options
    view = ImageView(100, 200, (1, 3, 64, 64), Preprocess())
    grids = (2,) if kind == "yolov2" else (8, 4, 2)
    anchors = len(options.anchors[0]) if options.anchors else 1
    channels = 4 * options.bins + 3 if kind in ("yolov6", "yolov8") else anchors * 8
    heads = [rng.normal(0, 1, (1, channels, g, g)).astype(np.float32) for g in grids]
    strides = [64 / g for g in grids]
    decode: dict[str, Callable[[], Any]] = {
        "yolov2": lambda: post.decode_v2(heads[0], options.anchors[0], 32),
        "yolov3": lambda: post.decode_v3(heads, options.anchors, strides),
        "yolov5": lambda: post.decode_v5(heads, options.anchors, strides),
        "yolov6": lambda: post.decode_v8(heads, strides, bins=1),
        "yolov8": lambda: post.decode_v8(heads, strides),
        "yolox": lambda: post.decode_x(heads, strides),
    }
    # Whatever the order of the outputs is.
    outputs = {f"o{k}": head for k, head in enumerate(reversed(heads))}
    found = decoder.detect(outputs, view, "here")
    assert len(found)
    if kind in decode:
        ((boxes, scores),) = decode[kind]()
        wanted = post.detect(boxes, scores, score_threshold=0.3, iou_threshold=0.65, limit=300)
        assert np.array_equal(found.scores, wanted.scores) and np.array_equal(found.classes, wanted.classes)
        assert np.allclose(found.boxes, view.boxes(wanted.boxes))
    if kind == "yolox":
        rows = np.concatenate([h.reshape(1, channels, -1).transpose(0, 2, 1) for h in heads], axis=1)
        assert np.array_equal(decoder.detect({"rows": rows}, view, "here").boxes, found.boxes)


def test_detections_of_the_network_itself() -> None:
    view = ImageView(100, 200, (1, 3, 50, 50), Preprocess())
    outputs = {
        "boxes": np.float32([[[5, 5, 10, 10], [1, 1, 1, 1]]]),
        "scores": np.float32([[0.5, 0]]),
        "classes": np.int64([[3, 0]]),
        "count": np.int64([1]),
    }
    found = inside(outputs, view)
    assert found is not None and found.boxes.tolist() == [[20, 10, 40, 20]] and found.classes.tolist() == [3]
    assert inside({"boxes": outputs["boxes"]}, view) is None


@pytest.mark.parametrize("options", ["", ",activated=1", ",order=yxhw", ",background=-1"])
def test_an_ssd_is_decoded_with_the_priors_of_a_file(tmp_path: Path, options: str) -> None:
    rng = np.random.default_rng(1)
    priors = post.ssd_priors([(2, 3), (1, 1)], [0.2, 0.5, 0.9], [[2.0], [2.0, 3.0]])
    np.save(tmp_path / "priors.npy", priors)
    offsets = rng.normal(0, 1, (1, len(priors), 4)).astype(np.float32)
    scores = rng.uniform(0, 1, (1, len(priors), 3)).astype(np.float32)
    decoder = Decoder.parse(f"ssd:priors={tmp_path / 'priors.npy'},score=0.3{options}")
    view = ImageView(120, 160, (1, 3, 240, 320), Preprocess())
    ((boxes, odds),) = post.decode_ssd(
        offsets,
        scores,
        priors,
        size=(240, 320),
        variances=(0.1, 0.2),
        order="yxhw" if "yxhw" in options else "xywh",
        activation="none" if "activated" in options else "sigmoid" if "yxhw" in options else "softmax",
        background=None if "background" in options else 0,
    )
    wanted = post.detect(boxes, odds, score_threshold=0.3, iou_threshold=0.65, limit=300)
    assert len(wanted)
    # Whatever the order of the outputs is.
    for outputs in ({"a": offsets, "b": scores}, {"b": scores, "a": offsets}):
        found = decoder.detect(outputs, view, "here")
        np.testing.assert_array_equal(found.classes, wanted.classes)
        np.testing.assert_array_equal(found.scores, wanted.scores)
        np.testing.assert_allclose(found.boxes, view.boxes(wanted.boxes))


def test_an_ssd_needs_its_priors_and_two_outputs(tmp_path: Path) -> None:
    view = ImageView(10, 10, (1, 3, 10, 10), Preprocess())
    offsets, scores = np.zeros((1, 5, 4), np.float32), np.zeros((1, 5, 3), np.float32)
    with pytest.raises(EvaluationDataError, match="the prior boxes are not in the network: give priors="):
        Decoder.parse("ssd").detect({"a": offsets, "b": scores}, view, "here")
    decoder = Decoder.parse(f"ssd:priors={tmp_path / 'none.npy'}")
    for outputs in ({"a": offsets}, {"a": scores, "b": scores}, {"a": offsets, "b": scores, "c": scores}):
        with pytest.raises(EvaluationDataError, match="it takes two outputs, N x priors x 4 and"):
            decoder.detect(outputs, view, "here")


def test_a_fastestdet_is_decoded_for_the_size_of_its_input() -> None:
    rng = np.random.default_rng(2)
    head = rng.uniform(0, 1, (1, 7, 2, 4)).astype(np.float32)
    view = ImageView(60, 200, (1, 3, 32, 64), Preprocess())
    ((boxes, scores),) = post.decode_fastestdet(head, (32, 64))
    wanted = post.detect(boxes, scores, score_threshold=0.001, iou_threshold=0.65, limit=300)
    found = Decoder.parse("fastestdet").detect({"head": head}, view, "here")
    np.testing.assert_array_equal(found.scores, wanted.scores)
    np.testing.assert_allclose(found.boxes, view.boxes(wanted.boxes))


def test_fastestdet_by_hand() -> None:
    head = np.zeros((1, 7, 2, 4), np.float32)
    head[0, :, 1, 2] = [0.5, np.arctanh(0.5), 0, np.log(1 / 3), np.log(3), 0.25, 0]
    ((boxes, scores),) = post.decode_fastestdet(head, (100, 200))
    best = int(scores.max(axis=1).argmax())
    assert best == 6 and scores[best, 0] == pytest.approx(0.5**0.6 * 0.25**0.4)
    # Center (2 + 0.5) / 4 of 200 and 1 / 2 of 100, a quarter of the width and three of the height.
    assert boxes[best].tolist() == pytest.approx([125 - 25, 50 - 37.5, 125 + 25, 50 + 37.5])


def test_segmentation(tmp_path: Path) -> None:
    """Red is 1, green is 2, the rest 0; the network sees images at half their size."""
    for name in ("images", "masks"):
        (tmp_path / name).mkdir()
    for number in range(3):
        labels = np.kron(np.random.default_rng(number).integers(0, 3, (4, 4)), np.ones((8, 8))).astype(
            np.uint8
        )
        pixels = np.zeros((32, 32, 3), np.uint8)
        pixels[labels == 1, 0] = pixels[labels == 2, 1] = 255
        Image.fromarray(pixels).save(tmp_path / "images" / f"{number}.png")
        Image.fromarray(labels).save(tmp_path / "masks" / f"{number}.png")
    weight = np.float32([[0, 0, 0], [1, 0, 0], [0, 1, 0]]).reshape(3, 3, 1, 1)
    conv: dict[str, Any] = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    graph = build(
        {"x": (1, 3, 16, 16)},
        lambda b, x: b(top.Conv, x, weight, np.float32([100, 0, 0]), name="y", **conv),
    )
    options: dict[str, Any] = {"preprocess": {"interpolation": "nearest"}}
    assert evaluate(graph, tmp_path, **options).value("mIoU") == 1.0
    Image.fromarray(np.full((32, 32), 255, np.uint8)).save(tmp_path / "masks" / "0.png")
    report = evaluate(graph, tmp_path, **options)
    assert report.value("mIoU") == 1.0 and report.value("pixel accuracy") == 1.0
    Image.fromarray(np.zeros((32, 32), np.uint8)).save(tmp_path / "masks" / "0.png")
    assert evaluate(graph, tmp_path, **options).value("mIoU") < 0.9


def test_sounds_with_and_without_a_function(tmp_path: Path) -> None:
    for word, value in (("loud", 30000), ("quiet", 300)):
        (tmp_path / "data" / word).mkdir(parents=True)
        for number in range(3):
            with wave.open(str(tmp_path / "data" / word / f"{number}.wav"), "wb") as out:
                out.setparams((1, 2, 8000, 0, "NONE", ""))
                out.writeframes(np.full(100 + 50 * number, value, "<i2").tobytes())
    weight = np.float32([[1, 0]] * 160)
    raw = build({"x": (1, 160)}, lambda b, x: b(top.MatMul, x, weight, name="y"))
    report = evaluate(raw, tmp_path / "data", ["auc", "accuracy"])
    # The second score less the first: loud, class 0, is the least.
    assert report.dataset == "folders" and report.value("auc") == 1.0 and report.value("accuracy") == 0.5
    (tmp_path / "feature.py").write_text(
        "import wave, numpy\n"
        "def energy(path):\n"
        "    with wave.open(path) as file:\n"
        "        sound = numpy.frombuffer(file.readframes(10), '<i2')\n"
        "    return numpy.float32([[abs(sound).mean() / 1000, 1]])\n"
    )
    small = build({"x": (1, 2)}, lambda b, x: b(top.MatMul, x, np.float32([[1, 0], [0, 1]]), name="y"))
    function = f"{tmp_path / 'feature.py'}:energy"
    for workers in (1, 2):
        report = evaluate(small, tmp_path / "data", ["accuracy"], preprocess=function, workers=workers)
        assert report.value("accuracy") == 1.0


def test_windows_of_a_sample_are_joined(tmp_path: Path) -> None:
    """An autoencoder over many windows of each sample: the error is the mean over all of them."""
    rng = np.random.default_rng(0)
    x = rng.normal(0, 1, (6, 5, 4)).astype(np.float32)
    x[3:, :, 3] += 3
    np.savez(tmp_path / "data.npz", x=x, labels=np.array([0, 0, 0, 1, 1, 1]))
    keep = np.diag(np.float32([1, 1, 1, 0]))
    for batch in (1, 2):
        graph = build({"x": (batch, 4)}, lambda b, x: b(top.MatMul, x, keep, name="y"))
        report = evaluate(graph, tmp_path / "data.npz", ["auc", "pauc"])
        assert report.value("auc") == report.value("pauc") == 1.0


def test_texts(tmp_path: Path) -> None:
    (tmp_path / "symbols").write_text("-\na\nb\n<space>\n")
    (tmp_path / "list.tsv").write_text("0.npy\tab a\n1.npy\tb\n")
    for number, symbols in enumerate(([1, 2, 0, 3, 1], [1, 1, 0, 0, 2])):
        np.save(tmp_path / f"{number}.npy", np.eye(4, dtype=np.float32)[symbols])
    graph = build({"x": (1, 5, 4)}, lambda b, x: b(top.Relu, x, name="y"))
    report = evaluate(graph, DataLocation(tmp_path / "list.tsv", classes=tmp_path / "symbols"))
    assert report.value("WER") == pytest.approx(1 / 3) and report.value("CER") == pytest.approx(1 / 5)


def test_a_plugin_brings_a_data_set_and_a_metric(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(
        '''
import numpy as np
from npuc.plugins.api import DataSet, Entry, Loaded, dataset, metric

def read(entry):
    return Loaded(tensors=np.full((1, 2), entry.truth, np.float32))

@dataset("odd-numbers", matches=lambda place: place.path.suffix == ".odd")
def odd(place):
    """Odd numbers."""
    return DataSet("numbers", [Entry(str(k), k) for k in range(1, 20, 2)], read)

@metric("total", task="numbers")
def total(seen):
    """The sum of the output."""
    return float(seen.outputs["y"].sum())
'''
    )
    (tmp_path / "x.odd").touch()
    graph = build({"x": (1, 2)}, lambda b, x: b(top.Relu, x, name="y"))
    plugins.load(tmp_path / "odd.py", installed=False)
    for workers in (1, 2):
        report = npuc.evaluate.evaluate(graph, tmp_path / "x.odd", workers=workers)
        assert report.dataset == "odd-numbers" and report.value("total") == 20.0
    with pytest.raises(PluginError):
        plugins.load(tmp_path / "none.py", installed=False)
