"""Post-processing that is appended at import gives what the library makes of the outputs of the plain network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.errors import UsageError
from npuc.flow import import_model
from npuc.frontend.options import ImportOptions
from npuc.frontend.postprocess import KINDS, PostprocessOptions
from npuc.runtime.postprocess import (
    decode_ssd,
    decode_v2,
    decode_v3,
    decode_v5,
    decode_v8,
    decode_x,
    detect,
    softmax,
    top_k,
)

CLASSES = 4
SIZE = 96
STRIDES = [8, 16, 32]


def network(path: Path, channels: int, strides: list[int], batch: int = 1) -> Path:
    """A convolution a head; weights are such that some boxes are sure and overlap."""
    rng = np.random.default_rng(0)
    nodes, weights, outputs = [], [], []
    for k, stride in enumerate(strides):
        kernel = (rng.standard_normal((channels, 3, stride, stride)) * 4 / stride).astype(np.float32)
        weights.append(numpy_helper.from_array(kernel, f"w{k}"))
        nodes.append(helper.make_node("Conv", ["image", f"w{k}"], [f"head{k}"], strides=[stride, stride]))
        side = SIZE // stride
        outputs.append(helper.make_tensor_value_info(f"head{k}", 1, [batch, channels, side, side]))
    image = helper.make_tensor_value_info("image", 1, [batch, 3, SIZE, SIZE])
    # The coarse head first: the order of outputs must not matter.
    graph = helper.make_graph(nodes, "net", [image], outputs[::-1], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def picture(batch: int = 1) -> Array:
    return np.random.default_rng(1).standard_normal((batch, 3, SIZE, SIZE)).astype(np.float32) / 2


def run(path: Path, postprocess: str = "", batch: int = 1) -> dict[str, Array]:
    graph = import_model(path, ImportOptions(postprocess=postprocess))
    return FloatEngine(graph, threads=1).run({"image": picture(batch)})


def compare(found: dict[str, Array], decoded: list[tuple[Array, Array]], **options: Any) -> None:
    """Every picture has the detections of the library, and nothing behind them."""
    for n, (boxes, scores) in enumerate(decoded):
        wanted = detect(boxes, scores, **options)
        count = int(found["count"][n])
        assert count == len(wanted) > 3
        np.testing.assert_array_equal(found["classes"][n, :count], wanted.classes)
        np.testing.assert_allclose(found["scores"][n, :count], wanted.scores, rtol=1e-5)
        np.testing.assert_allclose(found["boxes"][n, :count], wanted.boxes, rtol=1e-4, atol=1e-3)
        assert not found["scores"][n, count:].any() and not found["boxes"][n, count:].any()
        assert (found["classes"][n, count:] == -1).all()


def anchors_of(kind: str) -> Any:
    return KINDS[kind].anchors


def v4(heads: list[Array]) -> list[tuple[Array, Array]]:
    parts = [
        decode_v3([head], [own], [stride], scale)[0]
        for head, own, stride, scale in zip(
            heads, anchors_of("yolov4"), STRIDES, (1.2, 1.1, 1.05), strict=True
        )
    ]
    return [tuple(np.concatenate(ones) for ones in zip(*parts, strict=True))]  # type: ignore[misc]


DECODERS: dict[str, tuple[int, list[int], Any]] = {
    "yolov2": (5 * (5 + CLASSES), [32], lambda h: decode_v2(h[0], anchors_of("yolov2")[0])),
    "yolov3": (3 * (5 + CLASSES), STRIDES, lambda h: decode_v3(h, anchors_of("yolov3"), STRIDES)),
    "yolov4": (3 * (5 + CLASSES), STRIDES, v4),
    "yolov5": (3 * (5 + CLASSES), STRIDES, lambda h: decode_v5(h, anchors_of("yolov5"), STRIDES)),
    "yolov7": (3 * (5 + CLASSES), STRIDES, lambda h: decode_v5(h, anchors_of("yolov7"), STRIDES)),
    "yolov6": (4 + CLASSES, STRIDES, lambda h: decode_v8(h, STRIDES, bins=1)),
    "yolov8": (64 + CLASSES, STRIDES, lambda h: decode_v8(h, STRIDES)),
    "yolox": (5 + CLASSES, STRIDES, lambda h: decode_x(h, STRIDES)),
}


@pytest.mark.parametrize("kind", DECODERS)
def test_detectors(kind: str, tmp_path: Path) -> None:
    channels, strides, decode = DECODERS[kind]
    path = network(tmp_path / "net.onnx", channels, strides)
    plain = run(path)
    heads = [plain[f"head{k}"] for k in range(len(strides))]
    compare(
        run(path, f"{kind}:score=0.3,iou=0.5,limit=150"),
        decode(heads),
        score_threshold=0.3,
        iou_threshold=0.5,
        limit=150,
    )


def test_batches_and_limits(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", 64 + CLASSES, STRIDES, batch=3)
    plain = run(path, batch=3)
    decoded = decode_v8([plain[f"head{k}"] for k in range(3)], STRIDES)
    found = run(path, "yolov8:limit=7", batch=3)
    assert found["boxes"].shape == (3, 7, 4) and found["classes"].shape == found["scores"].shape == (3, 7)
    compare(found, decoded, limit=7)
    assert not run(path, "yolov8:score=1", batch=3)["count"].any()


def test_equal_scores_are_in_the_order_of_boxes(tmp_path: Path) -> None:
    """Integers make many scores equal: the order has to be that of the library all the same, whatever the class."""
    path = network(tmp_path / "net.onnx", 4 + CLASSES, STRIDES)
    model = onnx.load(path)
    for k in range(3):
        weight = model.graph.initializer[k]
        weight.CopyFrom(numpy_helper.from_array(np.zeros_like(numpy_helper.to_array(weight)), weight.name))
        bias = np.full(4 + CLASSES, 0.3, np.float32)
        bias[4 + 2 - k] = 1
        model.graph.initializer.append(numpy_helper.from_array(bias, f"b{k}"))
        model.graph.node[k].input.append(f"b{k}")
    onnx.save(model, path)
    plain = run(path)
    decoded = decode_v8([plain[f"head{k}"] for k in range(3)], STRIDES, bins=1)
    found = run(path, "yolov6:limit=200")
    assert set(found["classes"][0, :189]) == {0, 1, 2}
    compare(found, decoded, limit=200)


def test_yolox_as_it_is_exported(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", 5 + CLASSES, STRIDES)
    plain = run(path)
    model = onnx.load(path)
    rows = []
    for k in range(3):
        model.graph.node.append(helper.make_node("Reshape", [f"head{k}", "shape"], [f"r{k}"]))
        model.graph.node.append(helper.make_node("Transpose", [f"r{k}"], [f"t{k}"], perm=[0, 2, 1]))
        rows.append(f"t{k}")
    model.graph.initializer.append(numpy_helper.from_array(np.int64([1, 5 + CLASSES, -1]), "shape"))
    model.graph.node.append(helper.make_node("Concat", rows, ["output"], axis=1))
    count = sum((SIZE // stride) ** 2 for stride in STRIDES)
    del model.graph.output[:]
    model.graph.output.append(helper.make_tensor_value_info("output", 1, [1, count, 5 + CLASSES]))
    onnx.save(model, path)
    compare(run(path, "yolox:limit=200"), decode_x([plain[f"head{k}"] for k in range(3)], STRIDES), limit=200)


@pytest.mark.parametrize("order", ["xywh", "yxhw"])
def test_ssd(order: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    priors = np.concatenate([rng.random((60, 2)), 0.1 + rng.random((60, 2)) / 4], axis=1).astype(np.float32)
    np.save(tmp_path / "priors.npy", priors)
    side = SIZE * SIZE * 3
    weights = [
        numpy_helper.from_array((rng.standard_normal((side, 60 * n)) / 60).astype(np.float32), f"w{n}")
        for n in (4, 5)
    ]
    shapes = [numpy_helper.from_array(np.int64([1, 60, n]), f"s{n}") for n in (4, 5)]
    nodes = [helper.make_node("Flatten", ["image"], ["flat"])]
    for n, title in ((4, "loc"), (5, "conf")):
        nodes.append(helper.make_node("MatMul", ["flat", f"w{n}"], [f"m{n}"]))
        nodes.append(helper.make_node("Reshape", [f"m{n}", f"s{n}"], [title]))
    outputs = [helper.make_tensor_value_info(t, 1, [1, 60, n]) for n, t in ((4, "loc"), (5, "conf"))]
    image = helper.make_tensor_value_info("image", 1, [1, 3, SIZE, SIZE])
    graph = helper.make_graph(nodes, "ssd", [image], outputs[::-1], [*weights, *shapes])
    path = tmp_path / "ssd.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    plain = run(path)
    activation = "softmax" if order == "xywh" else "sigmoid"
    decoded = decode_ssd(
        plain["loc"], plain["conf"], priors, size=(SIZE, SIZE), order=order, activation=activation
    )  # type: ignore[arg-type]
    compare(run(path, f"ssd:priors={tmp_path / 'priors.npy'},order={order}"), decoded, limit=100)
    with pytest.raises(UsageError, match="prior boxes are not among its outputs"):
        run(path, "ssd")
    # As a constant output of the network: center and size, or corners and variances as Caffe has them.
    low, high = priors[:, :2] - priors[:, 2:] / 2, priors[:, :2] + priors[:, 2:] / 2
    table = np.stack([np.concatenate([low, high], axis=1).reshape(-1), np.full(240, 0.1, np.float32)])[None]
    for own in (priors, priors[None], table):
        model = onnx.load(path)
        model.graph.node.append(
            helper.make_node(
                "Constant", [], ["priors"], value=numpy_helper.from_array(own.astype(np.float32))
            )
        )
        model.graph.output.insert(0, helper.make_tensor_value_info("priors", 1, own.shape))
        onnx.save(model, tmp_path / "own.onnx")
        compare(run(tmp_path / "own.onnx", f"ssd:order={order}"), decoded, limit=100)


def test_scores(tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", 6, [32])
    plain = run(path)["head0"]
    np.testing.assert_allclose(run(path, "softmax")["head0/softmax"], softmax(plain), rtol=1e-5, atol=1e-6)
    found = run(path, "topk:k=2")
    indices, values = top_k(plain, 2)
    np.testing.assert_array_equal(found["indices"], indices)
    np.testing.assert_array_equal(found["values"], values)


def test_compiled_models_have_the_same_detections(tmp_path: Path) -> None:
    """The heads on the NPU, the rest on the CPU: what the library makes of the compiled heads."""
    from npuc.calib.sources import random_data
    from npuc.codegen.compile_model import compile_model
    from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
    from npuc.program.file import load_compiled, save_compiled
    from npuc.runtime import Runner
    from npuc.target import load_target

    target = load_target("edge-4t")
    path = network(tmp_path / "net.onnx", 64 + CLASSES, STRIDES)
    found: dict[str, dict[str, Array]] = {}
    for name in ("", "yolov8:limit=50"):
        graph = network_to_quantize(path, ImportOptions(postprocess=name))
        ranges = ranges_from(graph, random_data(graph, 2, 0), schemes_of(graph, None, target), "max")
        made = compile_model(quantize_network(graph, ranges, None, target).graph, target, level=1)
        save_compiled(made, tmp_path / "net.npu")
        with Runner(load_compiled(tmp_path / "net.npu")) as runner:
            found[name] = runner.run(picture())
    heads = [found[""][f"head{k}"] for k in range(3)]
    compare(found["yolov8:limit=50"], decode_v8(heads, STRIDES), limit=50)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yolo9000", "has no 'yolo9000'"),
        ("yolov5:limit", "'limit' is not an option"),
        ("yolov5:colour=red", "'colour=red' is not an option"),
        ("yolov5:limit=many", "limit cannot be 'many'"),
        ("yolov5:limit=0", "limit is 0"),
        ("yolov5:anchors=10x13x4", "anchors cannot be"),
        ("yolov8:activated=perhaps", "activated cannot be"),
        ("yolov5:anchors=-1x2", "above 0"),
        ("ssd:order=wxyz", "order is"),
    ],
)
def test_texts_that_make_no_sense(text: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        PostprocessOptions.parse(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("yolov5", "not divided evenly|do not fit"),
        ("yolov5:anchors=1x1", "anchors has 1 entries"),
        ("yolov8", "do not fit"),
        ("topk", "3 outputs"),
        ("ssd", "two outputs"),
    ],
)
def test_networks_that_do_not_fit(text: str, words: str, tmp_path: Path) -> None:
    path = network(tmp_path / "net.onnx", 4, STRIDES)
    with pytest.raises(UsageError, match=words):
        run(path, text)
