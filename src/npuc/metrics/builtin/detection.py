"""Detection: the twelve numbers of COCO, and the mean average precision of VOC.

A record holds the found boxes of an image in its own pixels, and the image's size; matching is done once for all images,
so that a bootstrap costs the curves only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.datasets.sample import Boxes, Observation
from npuc.errors import EvaluationDataError, UsageError
from npuc.metrics.matching import Matches, match_coco, match_voc, overlaps
from npuc.metrics.measuring import metric, of_type
from npuc.metrics.precision import Curve, coco_precision, curve_of, final_recall, voc_precision

THRESHOLDS = np.linspace(0.5, 0.95, 10)
AREAS = {"all": (0.0, 1e10), "s": (0.0, 32.0**2), "m": (32.0**2, 96.0**2), "l": (96.0**2, 1e10)}
LIMIT = 100
"""Found boxes of a class in an image that COCO looks at."""


def record(observation: Observation) -> dict[str, Any]:
    """What was found in an image."""
    of_type(observation, Boxes, "boxes")
    if observation.detections is None or observation.view is None:
        raise EvaluationDataError(
            "its outputs are not boxes of an image",
            where=observation.name,
            fix="Give --postprocess NAME, and preprocessing by options, not by a function",
        )
    detections = observation.detections()
    rows = [
        [*(float(side) for side in box), float(score), int(number)]
        for box, score, number in zip(detections.boxes, detections.scores, detections.classes, strict=True)
    ]
    return {"size": [observation.view.height, observation.view.width], "found": rows}


@dataclass(frozen=True)
class _Pair:
    """One class of one image: what was found (rows of box and score) and what is there."""

    image: int
    category: int
    detected: Array
    true: Array
    """Rows of box, area, crowd, difficult."""


def _pairs(records: Sequence[Any], truths: Sequence[Any]) -> Iterator[_Pair]:
    """By class, then image; the found ones in descending order of scores."""
    table: dict[tuple[int, int], tuple[list[Any], list[Any]]] = defaultdict(lambda: ([], []))
    for index, (record, truth) in enumerate(zip(records, truths, strict=True)):
        for *box, score, number in record["found"]:
            table[number, index][0].append([*box, score])
        for box in truth.in_pixels(*record["size"]):
            table[box.category, index][1].append([*box[:4], box.area, box.crowd, box.difficult])
    for (number, index), (detected, true) in sorted(table.items()):
        rows = np.array(detected, np.float64).reshape(-1, 5)
        rows = rows[np.argsort(-rows[:, 4], kind="stable")]
        yield _Pair(index, number, rows, np.array(true, np.float64).reshape(-1, 7))


def _by_class(parts: Sequence[tuple[int, int, Matches]]) -> list[list[tuple[int, Matches]]]:
    by_class: dict[int, list[tuple[int, Matches]]] = defaultdict(list)
    for number, index, matches in parts:
        by_class[number].append((index, matches))
    # A class that is nowhere to be found has no precision; its wrong detections count for nothing.
    return [
        class_matches
        for class_matches in by_class.values()
        if any(matches.positives for _, matches in class_matches)
    ]


class _Cached:
    """The matches of the records that were asked for last: a bootstrap asks for the same ones again and again."""

    def __init__(self, build: Callable[[Sequence[Any], Sequence[Any]], Any]) -> None:
        self._build = build
        self._key: tuple[int, int] | None = None
        self._kept: Any = None
        self._built: Any = None

    def __call__(self, records: Sequence[Any], truths: Sequence[Any]) -> Any:
        if self._key != (id(records), id(truths)):
            self._built = self._build(records, truths)
            # The sequences are kept, so that nothing else can get their identity.
            self._key, self._kept = (id(records), id(truths)), (records, truths)
        return self._built


def _coco_curves(records: Sequence[Any], truths: Sequence[Any]) -> dict[tuple[str, int], list[Curve]]:
    """For areas and limits the curves of all classes."""
    matches: dict[str, list[tuple[int, int, Matches]]] = {name: [] for name in AREAS}
    for pair in _pairs(records, truths):
        detected, true = pair.detected[:LIMIT], pair.true
        crowd = true[:, 5].astype(bool)
        shares = overlaps(detected, true, crowd)
        sizes = np.prod(detected[:, 2:4] - detected[:, :2], axis=1)
        for name, (low, high) in AREAS.items():
            ignored = crowd | (true[:, 4] < low) | (true[:, 4] > high)
            area_matches = match_coco(detected[:, 4], sizes, shares, ignored, crowd, THRESHOLDS, (low, high))
            matches[name].append((pair.category, pair.image, area_matches))
    count = len(records)
    return {
        (name, limit): [curve_of(class_matches, count, limit) for class_matches in _by_class(parts)]
        for name, parts in matches.items()
        for limit in ((1, 10, LIMIT) if name == "all" else (LIMIT,))
    }


@lru_cache(maxsize=1)
def _coco_cache() -> _Cached:
    return _Cached(_coco_curves)


@metric("map", task="detection", unit="%")
class CocoPrecision:
    """The twelve numbers of COCO: average precision and recall of boxes."""

    def observe(self, observation: Observation) -> dict[str, Any]:
        """The found boxes."""
        return record(observation)

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The twelve numbers."""
        curves = _coco_cache()(records, truths)
        steps = range(len(THRESHOLDS))
        precision = {
            name: _table(
                [[coco_precision(c, weights, t) for t in steps] for c in curves[name, LIMIT]], weights
            )
            for name in AREAS
        }
        recall = {
            key: _table([[final_recall(c, weights, t) for t in steps] for c in own], weights)
            for key, own in curves.items()
        }
        everything = precision["all"]
        return {
            "AP": _mean(everything),
            "AP50": _mean(everything[:, :1]),
            "AP75": _mean(everything[:, 5:6]),
            **{f"AP{name}": _mean(precision[name]) for name in "sml"},
            **{f"AR{limit}": _mean(recall["all", limit]) for limit in (1, 10, LIMIT)},
            **{f"AR{name}": _mean(recall[name, LIMIT]) for name in "sml"},
        }


def _table(values: list[list[Array]], weights: Array) -> Array:
    """Classes x thresholds x rows."""
    return np.array(values, np.float64).reshape(-1, len(THRESHOLDS), len(weights))


def _mean(table: Array) -> Array:
    """Over classes and thresholds that have a value; NaN where none has."""
    flat = table.reshape(-1, table.shape[-1])
    known = ~np.isnan(flat)
    count = known.sum(axis=0)
    total = np.where(known, flat, 0.0).sum(axis=0)
    mean: Array = np.divide(total, count, out=np.full(len(total), np.nan), where=count > 0)
    return mean


@metric("voc", unit="%")
@dataclass(frozen=True)
class VocPrecision:
    """Mean average precision of VOC: the area under the curve, or with `points=11` the mean at eleven recalls."""

    points: int = 0
    iou: float = 0.5

    def __post_init__(self) -> None:
        if self.points not in (0, 11) or not 0 < self.iou <= 1:
            raise UsageError("metric 'voc': points is 0 or 11, and iou above 0 and at most 1")

    def observe(self, observation: Observation) -> dict[str, Any]:
        """The found boxes."""
        return record(observation)

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The mean over classes."""
        curves = _voc_cache(self.iou)(records, truths)
        precisions = np.array(
            [voc_precision(curve, weights, self.points == 11) for curve in curves], np.float64
        )
        return {"mAP (11 points)" if self.points else "mAP": _mean(precisions.reshape(-1, 1, len(weights)))}


@lru_cache(maxsize=4)
def _voc_cache(iou: float) -> _Cached:
    def build(records: Sequence[Any], truths: Sequence[Any]) -> list[Curve]:
        parts = []
        for pair in _pairs(records, truths):
            shares = overlaps(pair.detected, pair.true, np.zeros(len(pair.true), bool))
            # A crowd is no single object either.
            difficult: Array = np.any(pair.true[:, 5:7], axis=1)
            parts.append((pair.category, pair.image, match_voc(pair.detected[:, 4], shares, difficult, iou)))
        return [curve_of(class_matches, len(records)) for class_matches in _by_class(parts)]

    return _Cached(build)
