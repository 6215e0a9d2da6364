"""An image through models: what they are given, the classes and boxes that they find, and what may not be question."""

from __future__ import annotations

import base64
import gzip
import io
import json
from pathlib import Path
from urllib.parse import quote

import numpy as np
import onnx
import onnxruntime
import pytest
from PIL import Image

from npuc.errors import NpucError, UsageError
from npuc.studio.export import export
from npuc.studio.project import Project
from npuc.studio.studio import ImageQuestion, Studio

BOX = (10.0, 20.0, 50.0, 60.0)
"""Of the detector, in pixels of its input."""


def decoded(url: str) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(url.partition(",")[2]))))


@pytest.fixture
def digit(project_folder: Path) -> np.ndarray:
    """A gray image of the project, as its pixels."""
    with np.load(project_folder / "digits_samples.npz") as samples:
        pixels = next(samples[name][0, 0] for name in samples if samples[name].ndim == 4)
    image = np.clip(pixels * 16, 0, 255).astype(np.uint8)
    Image.fromarray(image).save(project_folder / "digit.png")
    return image


def detector(path: Path) -> None:
    """A network that finds one object whatever it is shown: rows of center, size, objectness and two classes."""
    x1, y1, x2, y2 = BOX
    found = np.array([[[(x1 + x2) / 2, (y1 + y2) / 2, x2 - x1, y2 - y1, 0.9, 0.1, 1.0]]], np.float32)
    helper = onnx.helper
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], "mean", axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "shape"], ["one"], "one"),
        helper.make_node("Mul", ["one", "zero"], ["nothing"], "nothing"),
        helper.make_node("Add", ["nothing", "found"], ["rows"], "rows"),
    ]
    constants = [
        onnx.numpy_helper.from_array(np.array([1, 1, 1], np.int64), "shape"),
        onnx.numpy_helper.from_array(np.zeros(1, np.float32), "zero"),
        onnx.numpy_helper.from_array(found, "found"),
    ]
    ends = (
        [helper.make_tensor_value_info("x", 1, [1, 3, 100, 100])],
        [helper.make_tensor_value_info("rows", 1, [1, 1, 7])],
    )
    graph = helper.make_graph(nodes, "detector", *ends, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def test_the_best_classes_are_those_of_the_network(project_folder: Path, digit: np.ndarray):
    (project_folder / "classes.txt").write_text("\n".join(f"digit {k}" for k in range(10)))
    models = ("digits.onnx", "digits.mlir", "digits.npu")
    question = ImageQuestion("digit.png", models, {"scale": [1 / 16]}, labels="classes.txt")
    answer = Studio(Project(project_folder)).image(question)
    session = onnxruntime.InferenceSession(str(project_folder / "digits.onnx"))
    name = session.get_inputs()[0].name
    (scores,) = session.run(None, {name: (digit / 16).astype(np.float32)[None, None]})
    order = np.argsort(-scores.reshape(-1))[:5]
    first = answer["models"][0]
    assert [one["class"] for one in first["best"]] == order.tolist() and first["classes"] == 10
    assert first["best"][0]["label"] == f"digit {order[0]}" and first["best"][0]["score"] > 0.5
    assert [model["form"] for model in answer["models"]] == ["float", "integer", "compiled"]
    assert all(model["best"][0]["class"] == order[0] and model["sqnr"] > 15 for model in answer["models"][1:])
    np.testing.assert_array_equal(decoded(first["input"]["picture"]), digit)
    assert first["input"]["flags"] == "--scale 0.0625 --pixel-format gray"
    assert answer["notes"] == [] and (answer["width"], answer["height"]) == digit.shape[::-1]


def test_what_nobody_says_is_told_once(project_folder: Path, digit: np.ndarray):
    answer = Studio(Project(project_folder)).image(ImageQuestion("digit.png", ("digits.onnx", "digits.mlir")))
    assert len(answer["notes"]) == 1 and answer["notes"][0].startswith("digits.onnx, digits.mlir: input")
    assert str(project_folder) not in json.dumps(answer)


@pytest.mark.parametrize(
    ("prepare", "expected"),
    [
        ({}, (20, 20, 100, 60)),
        ({"keep_aspect_ratio": True}, (20, -10, 100, 70)),
        ({"keep_aspect_ratio": True, "pad_type": "corner"}, (20, 40, 100, 100)),
    ],
)
def test_boxes_are_in_pixels_of_the_image(project_folder: Path, prepare, expected):
    """An image of 200 x 100 in an input of 100 x 100: stretched, between bars, and with one bar below."""
    detector(project_folder / "detector.onnx")
    Image.new("RGB", (200, 100), (10, 200, 30)).save(project_folder / "wide.png")
    question = ImageQuestion("wide.png", ("detector.onnx",), prepare, decode="rows:score=0.3")
    (found,) = Studio(Project(project_folder)).image(question)["models"][0]["boxes"]
    clipped = np.clip(expected, 0, [200, 100, 200, 100])
    np.testing.assert_allclose(found["box"], clipped, atol=1)
    assert found["class"] == 1 and found["score"] == pytest.approx(0.9, abs=1e-3)


def test_outputs_that_are_no_classes_ask_for_a_decoder(project_folder: Path):
    detector(project_folder / "detector.onnx")
    Image.new("RGB", (8, 8)).save(project_folder / "dark.png")
    studio = Studio(Project(project_folder))
    # Seven numbers could be seven classes; a network with two rows could not.
    assert "best" in studio.image(ImageQuestion("dark.png", ("detector.onnx",)))["models"][0]
    with pytest.raises(NpucError, match="does not fit the outputs"):
        studio.image(ImageQuestion("dark.png", ("detector.onnx",), decode="yolov8"))


def test_a_picture_reads_nothing_outside_of_the_project(client, project_folder: Path, digit: np.ndarray):
    outside = project_folder.parent / "outside.npy"
    np.save(outside, np.zeros((4, 4), np.float32))
    (project_folder.parent / "secret.txt").write_text("secret")
    client.enter()
    models = quote('["digits.onnx"]')
    assert client.json(f"/api/picture?file=digit.png&models={models}")["models"]
    for rest in (
        "decode=ssd:priors=../outside.npy",
        f"decode=ssd:priors={quote(str(outside), safe='')}",
        "labels=../secret.txt",
        "labels=digits.onnx",
        "recipe=../secret.yaml",
        "prepare=[1]",
        "prepare={",
        "prepare=%7B%22yuv%22:%22nv12%22%7D",
        "prepare=%7B%22mean%22:%5B%22x%22%5D%7D",
        "prepare=%7B%22resize%22:%5B99999,99999%5D%7D",
        "decode=rm",
    ):
        status, words = client.refusal(f"/api/picture?file=digit.png&models={models}&{rest}")
        assert status in (400, 404) and words, rest
    for bad in ("[1]", "{}", "[]", '["digits.onnx", "../digits.onnx"]'):
        assert client.refusal(f"/api/picture?file=digit.png&models={quote(bad)}")[0] in (400, 404)
    with pytest.raises(UsageError, match="1 to 4 models"):
        Studio(Project(project_folder)).image(ImageQuestion("digit.png", ()))


def test_an_exported_page_has_the_image(project_folder: Path, digit: np.ndarray, monkeypatch):
    monkeypatch.setattr("npuc.studio.page.library_text", lambda: "")
    page = export(Studio(Project(project_folder)), ["digits.npu", "digits.onnx", "digit.png"])
    data = json.loads(page.partition('id="answers">')[2].partition("</script>")[0])
    key = 'picture?file=digit.png&models=["digits.onnx","digits.npu"]'
    answer = json.loads(gzip.decompress(base64.b64decode(data["answers"][key])))
    assert answer["models"][1]["form"] == "compiled"
    assert data["start"]["models"] == '["digits.onnx","digits.npu"]'
