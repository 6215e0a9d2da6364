"""Post-processing against the same in slow words: one box, one number at a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.detectors import DETECTORS
from npuc.errors import InputDataError
from npuc.images.preprocess import Preprocess
from npuc.runtime import postprocess as pp

QUICK = settings(deadline=None, derandomize=True, max_examples=60)


def slow_sigmoid(x: float) -> float:
    return 1 / (1 + exp(-x))


def slow_softmax(values: Sequence[float]) -> list[float]:
    total = sum(exp(v) for v in values)
    return [exp(v) / total for v in values]


def slow_iou(a: Sequence[float], b: Sequence[float]) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared
    return shared / union if union else 0.0


def box_of(cx: float, cy: float, w: float, h: float) -> list[float]:
    return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]


def test_softmax_and_sigmoid() -> None:
    x = np.random.default_rng(0).normal(0, 3, (4, 7)).astype(np.float32)
    np.testing.assert_allclose(pp.softmax(x), [slow_softmax(row) for row in x], rtol=1e-5)
    np.testing.assert_allclose(pp.softmax(x, axis=0).sum(axis=0), np.ones(7), rtol=1e-5)
    np.testing.assert_allclose(pp.sigmoid(x), [[slow_sigmoid(v) for v in row] for row in x], rtol=1e-5)
    with np.errstate(all="raise", under="ignore"):
        huge = np.float32([1e4, -1e4, 0])
        assert pp.sigmoid(huge).tolist() == [1, 0, 0.5] and pp.softmax(huge).tolist() == [1, 0, 0]
    assert pp.sigmoid(x).dtype == pp.softmax(x).dtype == np.float32


@QUICK
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=12), st.integers(1, 14))
def test_top_k(values: list[int], k: int) -> None:
    wanted = sorted(range(len(values)), key=lambda i: (-values[i], i))[:k]
    indices, best = pp.top_k(np.int8([values, values[::-1]]), k)
    assert indices[0].tolist() == wanted and best[0].tolist() == [values[i] for i in wanted]
    assert best[1].tolist() == best[0].tolist()


boxes_strategy = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 8), st.integers(0, 8), st.integers(0, 5), st.integers(0, 1)),
    max_size=14,
)  # fmt: skip


@QUICK
@given(boxes_strategy, st.sampled_from([0.0, 0.3, 0.5]), st.booleans(), st.sampled_from([None, 3]))
def test_nms(rows: list[tuple[int, ...]], threshold: float, per_class: bool, limit: int | None) -> None:
    boxes = np.float32([[x, y, x + w, y + h] for x, y, w, h, _, _ in rows]).reshape(-1, 4)
    scores, classes = np.float32([row[4] for row in rows]), np.array([row[5] for row in rows], np.int64)
    kept: list[int] = []
    for i in sorted(range(len(rows)), key=lambda i: (-rows[i][4], i)):
        rivals = [k for k in kept if not per_class or rows[k][5] == rows[i][5]]
        if all(slow_iou(boxes[k].tolist(), boxes[i].tolist()) <= threshold + 1e-9 for k in rivals):
            kept.append(i)
    found = pp.nms(boxes, scores, threshold, classes if per_class else None, limit)
    assert found.tolist() == (kept if limit is None else kept[:limit])


def test_detect() -> None:
    boxes = np.float32([[0, 0, 10, 10], [1, 0, 10, 10], [0, 0, 10, 10], [50, 50, 60, 60]])
    scores = np.float32([[0.9, 0.1], [0.8, 0.2], [0.1, 0.7], [0.2, 0.1]])
    found = pp.detect(boxes, scores)
    assert found.classes.tolist() == [0, 1] and found.scores.tolist() == pytest.approx([0.9, 0.7])
    assert len(pp.detect(boxes, scores, per_class=False)) == 1
    assert len(pp.detect(boxes, scores, score_threshold=0.15, limit=2)) == 2
    assert len(pp.detect(boxes[:0], scores[:0])) == 0


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(("resize", "pad_type"), [(None, "center"), (None, "corner"), ((96, 96), "center")])
def test_boxes_return_to_their_image(keep: bool, resize: Any, pad_type: Any) -> None:
    """A bright rectangle is found where it was drawn, whatever the preprocessing."""
    from PIL import Image

    from npuc.images.loading import image_tensor

    how = Preprocess(keep_aspect_ratio=keep, resize=resize, pad_type=pad_type, pixel_format="gray")
    shape, (height, width), drawn = (1, 1, 64, 80), (120, 200), (60, 40, 120, 80)
    pixels = np.zeros((height, width), np.uint8)
    pixels[drawn[1] : drawn[3], drawn[0] : drawn[2]] = 255
    seen = image_tensor(Image.fromarray(pixels), how, shape)[0, 0] > 127
    rows, columns = np.flatnonzero(seen.any(axis=1)), np.flatnonzero(seen.any(axis=0))
    box = np.float32([[columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]])
    np.testing.assert_allclose(pp.boxes_to_image(box, how, shape, height, width)[0], drawn, atol=3)
    everything = pp.boxes_to_image(np.float32([[-500, -500, 900, 900]]), how, shape, height, width)
    assert everything.tolist() == [[0, 0, width, height]]


ANCHORS = [[(10.0, 13.0), (16.0, 30.0)], [(30.0, 61.0), (62.0, 45.0)]]
STRIDES = [8, 16]
CLASSES = 3


def heads(channels: int) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.normal(0, 1, (2, channels, *size)).astype(np.float32) for size in ((4, 6), (2, 3))]


def slow_anchors(form: str, scale_xy: float = 1.0, activated: bool = False) -> list[tuple[Array, Array]]:
    """All that have anchors, or as YOLOX one box a cell, by their formulas."""
    found = []
    anchors = {"x": [[(1.0, 1.0)]] * 2, "v2": ANCHORS[:1]}.get(form, ANCHORS)
    each = 5 + CLASSES
    tensors = heads(len(anchors[0]) * each)
    for n in range(2):
        boxes, scores = [], []
        for head, own, stride in zip(tensors, anchors, STRIDES, strict=False):
            for a, (aw, ah) in enumerate(own):
                for row in range(head.shape[2]):
                    for column in range(head.shape[3]):
                        x, y, w, h, o, *c = (
                            float(v) for v in head[n, a * each : (a + 1) * each, row, column]
                        )
                        if form == "x":
                            boxes.append(
                                box_of(
                                    (x + column) * stride,
                                    (y + row) * stride,
                                    exp(w) * stride,
                                    exp(h) * stride,
                                )
                            )
                        elif form == "v5":
                            boxes.append(
                                box_of(
                                    (2 * slow_sigmoid(x) - 0.5 + column) * stride,
                                    (2 * slow_sigmoid(y) - 0.5 + row) * stride,
                                    (2 * slow_sigmoid(w)) ** 2 * aw,
                                    (2 * slow_sigmoid(h)) ** 2 * ah,
                                )
                            )
                        else:
                            unit = stride if form == "v2" else 1
                            shift = (scale_xy - 1) / 2
                            boxes.append(
                                box_of(
                                    (slow_sigmoid(x) * scale_xy - shift + column) * stride,
                                    (slow_sigmoid(y) * scale_xy - shift + row) * stride,
                                    exp(w) * aw * unit,
                                    exp(h) * ah * unit,
                                )
                            )
                        if activated:
                            scores.append([o * v for v in c])
                        else:
                            odds = slow_softmax(c) if form == "v2" else [slow_sigmoid(v) for v in c]
                            scores.append([slow_sigmoid(o) * v for v in odds])
        found.append((np.array(boxes), np.array(scores)))
    return found


def check(found: list[tuple[Array, Array]], wanted: list[tuple[Array, Array]]) -> None:
    assert len(found) == len(wanted)
    for (boxes, scores), (boxes_wanted, scores_wanted) in zip(found, wanted, strict=True):
        np.testing.assert_allclose(boxes, boxes_wanted, rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(scores, scores_wanted, rtol=1e-4, atol=1e-5)


def test_yolo_v2() -> None:
    check(pp.decode_v2(heads(2 * (5 + CLASSES))[0], ANCHORS[0], 8), slow_anchors("v2"))


@pytest.mark.parametrize("scale_xy", [1.0, 1.2])
def test_yolo_v3_and_v4(scale_xy: float) -> None:
    check(pp.decode_v3(heads(2 * (5 + CLASSES)), ANCHORS, STRIDES, scale_xy), slow_anchors("v3", scale_xy))


def test_yolo_v5_and_v7() -> None:
    check(pp.decode_v5(heads(2 * (5 + CLASSES)), ANCHORS, STRIDES), slow_anchors("v5"))


@pytest.mark.parametrize("activated", [False, True])
def test_yolox(activated: bool) -> None:
    found = pp.decode_x(heads(5 + CLASSES), STRIDES, activated)
    check(found, slow_anchors("x", activated=activated))


@pytest.mark.parametrize("bins", [1, 4, 16])
def test_yolo_v6_and_v8(bins: int) -> None:
    tensors = heads(4 * bins + CLASSES)
    wanted = []
    for n in range(2):
        boxes, scores = [], []
        for head, stride in zip(tensors, STRIDES, strict=True):
            for row in range(head.shape[2]):
                for column in range(head.shape[3]):
                    values = [float(v) for v in head[n, :, row, column]]
                    sides = []
                    for k in range(4):
                        own = values[k * bins : (k + 1) * bins]
                        mean = sum(i * p for i, p in enumerate(slow_softmax(own)))
                        sides.append(mean if bins > 1 else own[0])
                    x, y = column + 0.5, row + 0.5
                    box = [x - sides[0], y - sides[1], x + sides[2], y + sides[3]]
                    boxes.append([v * stride for v in box])
                    scores.append([slow_sigmoid(v) for v in values[4 * bins :]])
        wanted.append((np.array(boxes), np.array(scores)))
    check(pp.decode_v8(tensors, STRIDES, bins=bins), wanted)


def test_yolo_v4_has_a_scale_for_each_head() -> None:
    tensors = heads(2 * (5 + CLASSES))
    both = pp.decode_v3(tensors, ANCHORS, STRIDES, [1.2, 1.05])
    for k, scale in enumerate((1.2, 1.05)):
        own = pp.decode_v3(tensors[k : k + 1], ANCHORS[k : k + 1], STRIDES[k : k + 1], scale)
        rows = slice(0, 48) if k == 0 else slice(48, None)
        np.testing.assert_array_equal(both[0][0][rows], own[0][0])


@pytest.mark.parametrize("name", DETECTORS)
def test_a_published_network_is_decoded_by_its_name(name: str) -> None:
    detector = DETECTORS[name]
    anchors = len(detector.anchors[0]) if detector.anchors else 1
    channels = 4 * detector.bins + CLASSES if detector.family == "yolov8" else anchors * (5 + CLASSES)
    rng = np.random.default_rng(0)
    sides = [int(128 / stride) for stride in detector.strides]
    tensors = [rng.normal(0, 1, (2, channels, side, side)).astype(np.float32) for side in sides]
    decoded = pp.decode_yolo(name, tensors[::-1])
    assert len(decoded) == 2 and len(decoded[0][0]) == anchors * sum(side * side for side in sides)
    assert np.isfinite(decoded[0][0]).all() and decoded[0][1].shape[1] == CLASSES
    if detector.anchors and detector.family != "yolov2":
        # A box without a shift and a scale is its anchor in the middle of its cell.
        plain = pp.decode_yolo(name, [np.zeros_like(tensor) for tensor in tensors])[0][0]
        width, height = detector.anchors[0][1]
        at = sides[0] * sides[0]
        assert plain[at].tolist() == pytest.approx(
            box_of(detector.strides[0] / 2, detector.strides[0] / 2, width, height)
        )


def test_names_and_heads_that_no_published_network_has() -> None:
    with pytest.raises(InputDataError, match="Did you mean 'yolov3_tiny'"):
        pp.decode_yolo("yolov3-tiny", [])
    with pytest.raises(InputDataError, match="yolov3_tiny has 2 heads, not 1"):
        pp.decode_yolo("yolov3_tiny", heads(255)[:1])
    with pytest.raises(InputDataError, match="no scores with their sigmoid inside"):
        pp.decode_yolo("yolov2", heads(2)[:1], activated=True)


def test_anchors_are_those_of_darknets_own_files(shared: Path) -> None:
    for name, strides in (("yolov2", 1), ("yolov3-spp", 3), ("yolov3-tiny", 2), ("yolov4", 3)):
        text = (shared / f"models/darknet/cfg_only/{name}.cfg").read_text()
        numbers = [float(n) for n in re.search(r"^anchors *= *(.*)$", text, re.M)[1].split(",")]  # type: ignore[index]
        stated = np.array(numbers).reshape(strides, -1, 2)
        np.testing.assert_array_equal(np.array(DETECTORS[name.replace("-", "_")].anchors), stated)


def test_final_rows_need_no_suppression() -> None:
    rows = np.float32([[[0, 0, 4, 4, 0.5, 2], [1, 1, 5, 5, 0.9, 1], [0, 0, 1, 1, 0.1, 0]]])
    (found,) = pp.decode_final(rows)
    assert found.classes.tolist() == [1, 2] and found.boxes[0].tolist() == [1, 1, 5, 5]
    with pytest.raises(InputDataError, match="N x rows x 6"):
        pp.decode_final(rows[0])


def slow_move(box: Sequence[float], delta: Sequence[float], size: tuple[int, int]) -> list[float]:
    w, h = box[2] - box[0], box[3] - box[1]
    x, y = box[0] + w / 2 + delta[0] * w, box[1] + h / 2 + delta[1] * h
    moved = box_of(x, y, w * exp(min(delta[2], 4.135166556742356)), h * exp(min(delta[3], 4.135166556742356)))
    return [min(max(v, 0.0), float(size[1 - k % 2])) for k, v in enumerate(moved)]


def test_the_first_stage_of_a_faster_rcnn() -> None:
    anchors = pp.rpn_anchors((3, 4), 16, sizes=[16, 40])
    assert anchors.shape == (3 * 4 * 6, 4)
    assert anchors[6 + 2].tolist() == [16 - 8, -8, 16 + 8, 8]  # the second cell, ratio 1, size 16
    rng = np.random.default_rng(0)
    scores, deltas = pp.rpn_rows(
        rng.normal(0, 1, (1, 6, 3, 4)).astype(np.float32),
        rng.normal(0, 0.4, (1, 24, 3, 4)).astype(np.float32),
    )
    found = pp.decode_rpn(
        scores[0], deltas[0], anchors, size=(48, 64), before=50, limit=20, iou_threshold=0.6, least=4
    )
    order = sorted(range(72), key=lambda i: (-scores[0][i], i))[:50]
    boxes = [slow_move(anchors[i].tolist(), deltas[0][i].tolist(), (48, 64)) for i in order]
    kept: list[list[float]] = []
    for box in boxes:
        if min(box[2] - box[0], box[3] - box[1]) >= 4 and all(slow_iou(k, box) <= 0.6 for k in kept):
            kept.append(box)
    assert 5 < len(found) == len(kept[:20])
    np.testing.assert_allclose(found.boxes, kept[:20], rtol=1e-4, atol=1e-3)
    with pytest.raises(InputDataError, match="do not belong"):
        pp.rpn_rows(np.zeros((1, 6, 3, 4)), np.zeros((1, 6, 3, 4)))


@pytest.mark.parametrize("shared", [False, True])
def test_the_second_stage_of_a_faster_rcnn(shared: bool) -> None:
    rng = np.random.default_rng(1)
    corner = rng.uniform(0, 40, (12, 2))
    proposals = np.concatenate([corner, corner + rng.uniform(5, 30, (12, 2))], axis=1).astype(np.float32)
    scores = rng.normal(0, 2, (12, 4)).astype(np.float32)
    deltas = rng.normal(0, 2, (12, 4 if shared else 16)).astype(np.float32)
    found = pp.decode_rcnn(scores, deltas, proposals, size=(50, 60), score_threshold=0.2, iou_threshold=0.4)
    rows = []
    for i in range(12):
        odds = slow_softmax(scores[i].tolist())
        for k in range(1, 4):
            own = deltas[i] if shared else deltas[i, 4 * k : 4 * k + 4]
            delta = [float(d) * s for d, s in zip(own, (0.1, 0.1, 0.2, 0.2), strict=True)]
            rows.append((odds[k], k - 1, slow_move(proposals[i].tolist(), delta, (50, 60))))
    kept: list[Any] = []
    for row in sorted((row for row in rows if row[0] >= 0.2), key=lambda row: -row[0]):
        if all(k[1] != row[1] or slow_iou(k[2], row[2]) <= 0.4 for k in kept):
            kept.append(row)
    assert found.classes.tolist() == [row[1] for row in kept] and len(kept) > 4
    np.testing.assert_allclose(found.scores, [row[0] for row in kept], rtol=1e-5)
    np.testing.assert_allclose(found.boxes, [row[2] for row in kept], rtol=1e-4, atol=1e-3)


def test_rows_of_boxes() -> None:
    rows = np.random.default_rng(0).random((2, 5, 4 + 1 + CLASSES)).astype(np.float32)
    wanted = [
        (
            np.array([box_of(*row[:4].tolist()) for row in one]),
            np.array([[row[4] * c for c in row[5:]] for row in one]),
        )
        for one in rows
    ]
    check(pp.decode_rows(rows, objectness=True), wanted)
    plain = np.delete(rows, 4, axis=2)
    wanted = [(boxes, one[:, 4:]) for (boxes, _), one in zip(wanted, plain, strict=True)]
    check(pp.decode_rows(plain.transpose(0, 2, 1), objectness=False), wanted)


@pytest.mark.parametrize("order", ["xywh", "yxhw"])
@pytest.mark.parametrize("activation", ["softmax", "sigmoid", "none"])
def test_ssd(order: Any, activation: Any) -> None:
    grids, sizes, ratios = [(2, 3), (1, 1)], [0.2, 0.5, 0.9], [[2.0], [2.0, 3.0]]
    priors = pp.ssd_priors(grids, sizes, ratios)
    assert len(priors) == 6 * 4 + 6
    np.testing.assert_allclose(priors[4], [0.5, 0.25, 0.2, 0.2], rtol=1e-6)
    np.testing.assert_allclose(priors[5][2:], [(0.2 * 0.5) ** 0.5] * 2, rtol=1e-6)
    np.testing.assert_allclose(priors[6][2:], [0.2 * 2**0.5, 0.2 / 2**0.5], rtol=1e-6)
    rng = np.random.default_rng(0)
    offsets = rng.normal(0, 1, (2, len(priors), 4)).astype(np.float32)
    scores = rng.normal(0, 1, (2, len(priors), 1 + CLASSES)).astype(np.float32)
    wanted = []
    for n in range(2):
        boxes, kept = [], []
        for k, (px, py, pw, ph) in enumerate(priors.astype(float)):
            x, y, w, h = (
                float(offsets[n, k, i]) for i in ((0, 1, 2, 3) if order == "xywh" else (1, 0, 3, 2))
            )
            box = box_of(px + x * 0.1 * pw, py + y * 0.1 * ph, pw * exp(0.2 * w), ph * exp(0.2 * h))
            boxes.append([box[0] * 320, box[1] * 240, box[2] * 320, box[3] * 240])
            row = [float(v) for v in scores[n, k]]
            odds = {"softmax": slow_softmax(row), "sigmoid": [slow_sigmoid(v) for v in row], "none": row}[
                activation
            ]
            kept.append(odds[1:])
        wanted.append((np.array(boxes), np.array(kept)))
    found = pp.decode_ssd(offsets, scores, priors, size=(240, 320), order=order, activation=activation)
    check(found, wanted)
    assert (
        pp.decode_ssd(offsets, scores, priors, size=(240, 320), background=None)[0][1].shape[1] == 1 + CLASSES
    )


def test_heads_that_do_not_fit() -> None:
    flat = np.zeros((1, 16, 2, 2), np.float32)
    with pytest.raises(InputDataError, match="16 channels does not fit 3 anchors"):
        pp.decode_v3([flat], [[(1, 1)] * 3], [8])
    with pytest.raises(InputDataError, match="rank 4"):
        pp.decode_v5([flat[0]], ANCHORS[:1], [8])
    with pytest.raises(InputDataError, match="the sides of a box"):
        pp.decode_v8([flat], [8])
    with pytest.raises(InputDataError, match="rank 3"):
        pp.decode_rows(flat, objectness=True)
    with pytest.raises(InputDataError, match="no head"):
        pp.decode_v8([], [])
    with pytest.raises(InputDataError, match="do not belong together"):
        pp.decode_ssd(np.zeros((1, 5, 4)), np.zeros((1, 5, 2)), np.zeros((6, 4)), size=(1, 1))
    with pytest.raises(InputDataError, match="2 sizes"):
        pp.ssd_priors([(1, 1)], [0.1], [[]])


def test_the_old_names_work_and_tell_the_new_ones() -> None:
    with pytest.warns(FutureWarning, match="to_picture is now boxes_to_image"):
        assert pp.to_picture is pp.boxes_to_image
    with pytest.warns(FutureWarning, match="labels_to_picture is now labels_to_image"):
        assert pp.labels_to_picture is pp.labels_to_image
    image, labels = np.full((1, 2, 3), 9, np.uint8), np.array([[0, 1]], np.uint8)
    with pytest.warns(FutureWarning, match="'picture' is now 'image'"):
        old = pp.overlay(picture=image, labels=labels)
    assert np.array_equal(old, pp.overlay(image, labels))
