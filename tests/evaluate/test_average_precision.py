"""Average precision against pycocotools, against a slow model of VOC's rules, and on cases done by hand."""

from __future__ import annotations

import contextlib
import io
from typing import Any

import numpy as np
import pytest

from npuc.datasets.sample import Boxes, LabelledBox
from npuc.metrics.builtin.detection import CocoPrecision, VocPrecision

pytest.importorskip("pycocotools", reason="pycocotools judges average precision")

TWELVE = ["AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl"]


def _scene(seed: int, images: int = 12, classes: int = 4) -> tuple[list[Any], list[Boxes]]:
    """Random images: true boxes of all sizes, some of them crowds, found boxes near them and anywhere, equal scores."""
    rng = np.random.default_rng(seed)
    records, truths = [], []
    for _ in range(images):
        true, found = [], []
        for _ in range(int(rng.integers(0, 6))):
            x, y = rng.uniform(0, 300, 2)
            w, h = np.exp(rng.uniform(1, 5.5, 2))
            crowd = bool(rng.random() < 0.15)
            number = int(rng.integers(classes))
            true.append(LabelledBox(x, y, x + w, y + h, number, float(w * h * rng.uniform(0.5, 1)), crowd))
            for _ in range(int(rng.integers(0, 4))):
                dx, dy, dw, dh = rng.normal(0, 0.12, 4) * [w, h, w, h]
                score = float(np.round(rng.random(), 1))
                found.append(
                    [x + dx, y + dy, x + dx + max(1, w + dw), y + dy + max(1, h + dh), score, number]
                )
        for _ in range(int(rng.integers(0, 4))):
            x, y, w, h = rng.uniform(1, 200, 4)
            found.append([x, y, x + w, y + h, float(np.round(rng.random(), 1)), int(rng.integers(classes))])
        records.append(
            {"size": [480, 640], "found": [[float(v) for v in row[:5]] + [row[5]] for row in found]}
        )
        truths.append(Boxes(tuple(true)))
    return records, truths


def _untied(seed: int) -> tuple[list[Any], list[Boxes]]:
    """Scores without ties, whose order is not part of any rule."""
    records, truths = _scene(seed)
    rng = np.random.default_rng(seed)
    for one in records:
        one["found"] = [[*row[:4], float(rng.random()), row[5]] for row in one["found"]]
    return records, truths


def _judge(records: list[Any], truths: list[Boxes], classes: int = 4) -> list[float]:
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    notes, results = [], []
    for index, (one, truth) in enumerate(zip(records, truths, strict=True)):
        for box in truth.boxes:
            notes.append(
                {
                    "id": len(notes) + 1,
                    "image_id": index,
                    "category_id": box.category,
                    "bbox": [box.x1, box.y1, box.x2 - box.x1, box.y2 - box.y1],
                    "area": box.area,
                    "iscrowd": int(box.crowd),
                }
            )
        for x1, y1, x2, y2, score, number in one["found"]:
            results.append(
                {"image_id": index, "category_id": number, "bbox": [x1, y1, x2 - x1, y2 - y1], "score": score}
            )
    with contextlib.redirect_stdout(io.StringIO()):
        coco = COCO()
        coco.dataset = {
            "info": {},
            "images": [{"id": k, "height": 480, "width": 640} for k in range(len(records))],
            "annotations": notes,
            "categories": [{"id": k, "name": str(k)} for k in range(classes)],
        }
        coco.createIndex()
        judge = COCOeval(coco, coco.loadRes(results), "bbox")
        judge.evaluate()
        judge.accumulate()
        judge.summarize()
    return [float(value) for value in judge.stats]


@pytest.mark.parametrize("seed", range(12))
def test_the_twelve_numbers_are_those_of_pycocotools(seed: int) -> None:
    records, truths = _scene(seed)
    ours = CocoPrecision().measure(records, truths, np.ones((1, len(records))))
    theirs = _judge(records, truths)
    assert list(ours) == TWELVE
    for name, value in zip(TWELVE, theirs, strict=True):
        got = -1.0 if np.isnan(ours[name][0]) else ours[name][0]
        assert got == pytest.approx(value, abs=1e-9), name


def test_no_more_than_a_hundred_boxes_of_a_class_count() -> None:
    rng = np.random.default_rng(5)
    found = [[0.0, 0.0, 10.0, 10.0, float(score), 0] for score in rng.random(150)]
    truths = [Boxes((LabelledBox(0, 0, 10, 10, 0, 100), LabelledBox(200, 200, 220, 220, 0, 400)))]
    records = [{"size": [480, 640], "found": [*found, [200.0, 200.0, 220.0, 220.0, 1e-9, 0]]}]
    ours = CocoPrecision().measure(records, truths, np.ones((1, 1)))
    assert [ours[name][0] for name in ("AP", "AR100")] == pytest.approx(
        [_judge(records, truths)[k] for k in (0, 8)]
    )
    assert ours["AR100"][0] == 0.5


def test_a_weight_of_two_is_the_image_twice() -> None:
    records, truths = _untied(3)
    weights = np.array([[2, 1, 0, 1, 3, 0, 1, 1, 0, 2, 1, 0]], float)
    repeated = [k for k, times in enumerate(weights[0]) for _ in range(int(times))]
    twice = [records[k] for k in repeated], [truths[k] for k in repeated]
    for metric in (CocoPrecision(), VocPrecision(), VocPrecision(points=11)):
        weighted = metric.measure(records, truths, weights)
        plain = metric.measure(*twice, np.ones((1, len(repeated))))
        for name, values in weighted.items():
            assert values[0] == pytest.approx(plain[name][0], nan_ok=True), (metric, name)


def test_by_hand() -> None:
    """Three found boxes, two true ones: right at 0.9, wrong at 0.8, right at 0.7."""
    truths = [Boxes((LabelledBox(0, 0, 10, 10, 0, 100), LabelledBox(20, 0, 30, 10, 0, 100)))]
    rows = [[0, 0, 10, 10, 0.9, 0], [50, 50, 60, 60, 0.8, 0], [20, 0, 30, 10, 0.7, 0]]
    records = [{"size": [100, 100], "found": rows}]
    one = np.ones((1, 1))
    # The precision is 1 up to a recall of 1/2, and 2/3 from there on.
    assert VocPrecision().measure(records, truths, one)["mAP"][0] == pytest.approx(0.5 + 0.5 * 2 / 3)
    eleven = VocPrecision(points=11).measure(records, truths, one)["mAP (11 points)"][0]
    assert eleven == pytest.approx((6 * 1 + 5 * 2 / 3) / 11)
    coco = CocoPrecision().measure(records, truths, one)
    assert coco["AP"][0] == pytest.approx((51 * 1 + 50 * 2 / 3) / 101)
    assert np.isnan(coco["APl"][0]) and coco["APs"][0] == coco["AP"][0] and coco["AR1"][0] == 0.5


def _slow_voc(records: list[Any], truths: list[Boxes], category: int, eleven: bool) -> float | None:
    """The rules of VOC's development kit, box by box."""
    found = sorted(
        ((row[4], k, row) for k, one in enumerate(records) for row in one["found"] if row[5] == category),
        key=lambda entry: -entry[0],
    )
    easy = sum(not (b.difficult or b.crowd) for t in truths for b in t.boxes if b.category == category)
    if not easy:
        return None
    used, hits, misses, curve = set(), 0, 0, []
    for _, k, row in found:
        best, at = 0.0, None
        for number, box in enumerate(truths[k].boxes):
            if box.category != category:
                continue
            w = min(row[2], box.x2) - max(row[0], box.x1)
            h = min(row[3], box.y2) - max(row[1], box.y1)
            shared = max(w, 0) * max(h, 0)
            both = (row[2] - row[0]) * (row[3] - row[1]) + (box.x2 - box.x1) * (box.y2 - box.y1)
            if shared / (both - shared) > best:
                best, at = shared / (both - shared), (k, number)
        if at is not None and best >= 0.5:
            box = truths[k].boxes[at[1]]
            if box.difficult or box.crowd:
                continue
            hits, misses = (hits + 1, misses) if at not in used else (hits, misses + 1)
            used.add(at)
        else:
            misses += 1
        curve.append((hits / easy, hits / (hits + misses)))
    if eleven:
        tops = [max((p for r, p in curve if r >= t - 1e-12), default=0.0) for t in np.arange(11) / 10]
        return float(np.mean(tops))
    area, before = 0.0, 0.0
    for index, (recall, _) in enumerate(curve):
        area += (recall - before) * max(p for _, p in curve[index:])
        before = recall
    return area


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("eleven", [False, True])
def test_voc_is_the_slow_model(seed: int, eleven: bool) -> None:
    records, truths = _untied(seed)
    truths = [Boxes(tuple(b._replace(difficult=b.crowd, crowd=False) for b in t.boxes)) for t in truths]
    ours = VocPrecision(points=11 if eleven else 0).measure(records, truths, np.ones((1, len(records))))
    slow = [value for k in range(4) if (value := _slow_voc(records, truths, k, eleven)) is not None]
    assert next(iter(ours.values()))[0] == pytest.approx(float(np.mean(slow)))
