"""Detections in C are those of the library in Python: the same boxes, classes and order, scores but for rounding."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.detectors import DETECTORS, FAMILIES
from npuc.native import library
from npuc.runtime import postprocess as pp

CLASSES = 5


class Detection(ctypes.Structure):
    """`npu_detection`."""

    _fields_ = (
        ("box", ctypes.c_float * 4),
        ("score", ctypes.c_float),
        ("class_id", ctypes.c_int32),
        ("index", ctypes.c_int32),
    )


class Head(ctypes.Structure):
    """`npu_head`."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("channels", ctypes.c_int32),
        ("rows", ctypes.c_int32),
        ("columns", ctypes.c_int32),
    )


class Ssd(ctypes.Structure):
    """`npu_ssd`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("count", "classes", "background", "y_first", "activation")),
        ("variance", ctypes.c_float * 2),
        ("height", ctypes.c_float),
        ("width", ctypes.c_float),
    )


class Rcnn(ctypes.Structure):
    """`npu_rcnn`."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("count", "classes", "background", "shared", "activation")),
        ("deviation", ctypes.c_float * 4),
        ("height", ctypes.c_float),
        ("width", ctypes.c_float),
    )


def function(name: str) -> Any:
    found = getattr(library(), name)
    found.restype = ctypes.c_void_p if name == "npu_network_of" else ctypes.c_int32
    return found


def pointer(array: Array) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def real(value: float) -> ctypes.c_float:
    return ctypes.c_float(value)


def network(name: str) -> ctypes.c_void_p:
    return ctypes.c_void_p(function("npu_network_of")(name.encode()))


def suppressed(out: Any, count: int, iou: float, limit: int = 300) -> pp.Detections:
    kept = function("npu_suppress")(out, count, real(iou), 1, limit)
    rows = out[:kept]
    boxes = np.array([list(row.box) for row in rows], np.float32).reshape(-1, 4)
    return pp.Detections(
        boxes, np.array([row.score for row in rows]), np.array([row.class_id for row in rows], int)
    )


def check(ours: pp.Detections, wanted: pp.Detections, least: int = 5) -> None:
    assert len(wanted) >= least
    np.testing.assert_array_equal(ours.classes, wanted.classes)
    np.testing.assert_allclose(ours.scores, wanted.scores, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ours.boxes, wanted.boxes, rtol=1e-4, atol=1e-3)


def heads_of(name: str) -> list[Array]:
    detector = DETECTORS[name]
    anchors = len(detector.anchors[0]) if detector.anchors else 1
    channels = 4 * detector.bins + CLASSES if detector.family == "yolov8" else anchors * (5 + CLASSES)
    rng = np.random.default_rng(len(name))
    shapes = [(channels, int(256 / stride), int(192 / stride)) for stride in detector.strides]
    return [rng.normal(0, 1, shape).astype(np.float32) for shape in shapes]


def as_c(heads: list[Array]) -> Any:
    return (Head * len(heads))(*(Head(head.ctypes.data, *head.shape) for head in heads))


@pytest.mark.parametrize("name", DETECTORS)
def test_every_published_network(name: str) -> None:
    heads = heads_of(name)
    out = (Detection * 4000)()
    count = function("npu_decode_yolo")(network(name), as_c(heads), 0, real(0.4), out, 4000)
    ((boxes, scores),) = pp.decode_yolo(name, [head[None] for head in heads])
    assert count == int((scores.max(axis=1) >= 0.4).sum())
    wanted = pp.detect(boxes, scores, score_threshold=0.4, iou_threshold=0.5)
    check(suppressed(out, count, 0.5), wanted)


def test_scores_that_the_network_has_activated() -> None:
    heads = [np.abs(head) / 3 for head in heads_of("yolox")]
    out = (Detection * 4000)()
    count = function("npu_decode_yolo")(network("yolox"), as_c(heads), 1, real(0.3), out, 4000)
    ((boxes, scores),) = pp.decode_yolo("yolox", [head[None] for head in heads], activated=True)
    check(suppressed(out, count, 0.5), pp.detect(boxes, scores, score_threshold=0.3, iou_threshold=0.5))


def test_a_short_array_keeps_the_surest() -> None:
    heads = heads_of("yolov8")
    whole, short = (Detection * 4000)(), (Detection * 30)()
    decode = function("npu_decode_yolo")
    count = decode(network("yolov8"), as_c(heads), 0, real(0.3), whole, 4000)
    assert count > 30 == decode(network("yolov8"), as_c(heads), 0, real(0.3), short, 30)
    best = sorted((-row.score, row.index) for row in whole[:count])[:30]
    assert sorted((-row.score, row.index) for row in short) == best


@pytest.mark.parametrize("activation", ["none", "softmax", "sigmoid"])
@pytest.mark.parametrize("order", ["xywh", "yxhw"])
@pytest.mark.parametrize("background", [0, 3, None])
def test_ssd(activation: Any, order: Any, background: int | None) -> None:
    rng = np.random.default_rng(0)
    priors = pp.ssd_priors([(8, 8), (4, 4)], [0.1, 0.3, 0.6], [[2.0], [2.0, 3.0]])
    offsets = rng.normal(0, 1, (len(priors), 4)).astype(np.float32)
    scores = rng.normal(0, 2, (len(priors), CLASSES)).astype(np.float32)
    number = ["none", "softmax", "sigmoid"].index(activation)
    none = -1 if background is None else background
    variances = (ctypes.c_float * 2)(0.1, 0.2)
    how = Ssd(len(priors), CLASSES, none, order == "yxhw", number, variances, 240, 320)
    out = (Detection * 1000)()
    decode = function("npu_decode_ssd")
    count = decode(
        ctypes.byref(how), pointer(offsets), pointer(scores), pointer(priors), real(0.3), out, 1000
    )
    ((boxes, odds),) = pp.decode_ssd(
        offsets[None],
        scores[None],
        priors,
        size=(240, 320),
        order=order,
        activation=activation,
        background=background,
    )
    check(suppressed(out, count, 0.45), pp.detect(boxes, odds, score_threshold=0.3))


@pytest.mark.parametrize("shared", [False, True])
def test_faster_rcnn(shared: bool) -> None:
    rng = np.random.default_rng(2)
    anchors = pp.rpn_anchors((6, 8), 16, sizes=[16, 40])
    scores = rng.random(len(anchors)).astype(np.float32)
    deltas = rng.normal(0, 0.4, (len(anchors), 4)).astype(np.float32)
    out = (Detection * 100)()
    decode = function("npu_decode_rpn")
    arguments = (pointer(scores), pointer(deltas), pointer(anchors), real(96), real(128), real(0))
    count = decode(len(anchors), *arguments, out, 100)
    wanted = pp.decode_rpn(
        scores, deltas, anchors, size=(96, 128), before=100, iou_threshold=0.7, least=0, activated=True
    )
    proposals = suppressed(out, count, 0.7, 1000)
    check(proposals, wanted)
    boxes = np.ascontiguousarray(proposals.boxes)
    odds = rng.normal(0, 2, (len(boxes), CLASSES)).astype(np.float32)
    moves = rng.normal(0, 2, (len(boxes), 4 if shared else 4 * CLASSES)).astype(np.float32)
    how = Rcnn(len(boxes), CLASSES, 0, shared, 1, (ctypes.c_float * 4)(0.1, 0.1, 0.2, 0.2), 96, 128)
    out = (Detection * 1000)()
    count = function("npu_decode_rcnn")(
        ctypes.byref(how), pointer(moves), pointer(odds), pointer(boxes), real(0.2), out, 1000
    )
    wanted = pp.decode_rcnn(odds, moves, boxes, size=(96, 128), score_threshold=0.2)
    check(suppressed(out, count, 0.5, 100), wanted)


def test_nonsense_is_answered_and_not_run() -> None:
    assert not network("yolov99").value and not network("").value
    out, heads = (Detection * 4)(), as_c(heads_of("yolov3"))
    decode = function("npu_decode_yolo")
    assert decode(network("yolov3"), heads, 0, real(0.5), out, 0) == -1
    assert decode(None, heads, 0, real(0.5), out, 4) == -1
    heads[1].channels = 7
    assert decode(network("yolov3"), heads, 0, real(0.5), out, 4) == -1
    assert function("npu_suppress")(out, -1, real(0.5), 1, 3) == -1
    assert function("npu_suppress")(out, 0, real(0.5), 1, 3) == 0


def test_families_are_numbered_as_in_the_header(root: Any) -> None:
    text = (root / "native/include/npu_networks.h").read_text()
    for code, name in enumerate(FAMILIES):
        assert f"NPU_{name.upper()} = {code}" in text
