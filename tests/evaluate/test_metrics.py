"""Metrics of single samples and of many, against other implementations and by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.datasets.geometry import ImageView
from npuc.datasets.sample import Boxes, Observation
from npuc.errors import EvaluationDataError, UsageError
from npuc.images.preprocess import Preprocess
from npuc.metrics.builtin.text import edits
from npuc.metrics.measuring import METRICS, default_metrics, metric, parse_metric
from npuc.runtime.postprocess import Detections, mean_iou


def _seen(output: Any, truth: Any = None, **more: Any) -> Observation:
    return Observation("sample", {"y": np.asarray(output)}, truth, **more)


def _figure(text: str, seen: list[Observation], weights: Array | None = None) -> Any:
    chosen = parse_metric(text).metric
    records = [chosen.observe(one) for one in seen]
    weights = np.ones((1, len(seen))) if weights is None else weights
    found = chosen.measure(records, [one.truth for one in seen], weights)
    return {name: values[0] for name, values in found.items()}


def test_top_k_takes_the_lower_class_of_equal_scores() -> None:
    tied = np.float32([[0.5, 0.5, 0.1, 0.1, 0.1, 0.1, 0.1]])
    assert _figure("top1", [_seen(tied, 0)]) == {"top1": 1.0}
    assert _figure("top1", [_seen(tied, 1)]) == {"top1": 0.0}
    assert _figure("top5", [_seen(tied, 4), _seen(tied, 5)]) == {"top5": 0.5}
    assert _figure("topk:k=2", [_seen(tied, 1)]) == {"top2": 1.0}


def test_top_k_of_scores_without_a_batch_axis() -> None:
    """A vector is one sample, not a batch of single scores."""
    scores = np.float32([0.1, 0.7, 0.2, 0.6])
    assert _figure("top1", [_seen(scores, 1), _seen(scores, 3)]) == {"top1": 0.5}
    assert _figure("topk:k=2", [_seen(scores, 3), _seen(scores, 2)]) == {"top2": 0.5}
    # Several rows are views of one sample: their mean counts.
    rows = np.float32([[0.9, 0.1, 0.0], [0.0, 0.5, 0.6], [0.0, 0.8, 0.1]])
    assert _figure("top1", [_seen(rows, 1)]) == {"top1": 1.0}


def test_accuracy_of_one_score() -> None:
    assert _figure("accuracy", [_seen([[0.7]], 1), _seen([[0.3]], 1)]) == {"accuracy": 0.5}
    assert _figure("accuracy:threshold=0.2", [_seen([[0.3]], 1)]) == {"accuracy": 1.0}


@pytest.mark.parametrize("truth", [3, -1])
def test_an_unknown_class_is_named(truth: int) -> None:
    with pytest.raises(
        EvaluationDataError, match=r"sample: its class is .*3 classes \(0 to 2\).*label-offset"
    ):
        _figure("top1", [_seen([[0.1, 0.2, 0.3]], truth)])


def test_a_missing_class_is_named() -> None:
    with pytest.raises(EvaluationDataError, match="no class for it"):
        _figure("top1", [_seen([[0.1, 0.2]])])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rounded", [False, True])
def test_areas_under_curves_are_those_of_scikit_learn(seed: int, rounded: bool) -> None:
    from sklearn.metrics import roc_auc_score

    rng = np.random.default_rng(seed)
    truth = rng.integers(0, 2, 60)
    scores = rng.normal(truth * 0.8, 1)
    scores = np.round(scores) if rounded else scores
    seen = [_seen([[score]], int(t)) for score, t in zip(scores, truth, strict=True)]
    assert _figure("auc", seen)["auc"] == pytest.approx(roc_auc_score(truth, scores))
    for limit in (0.05, 0.1, 0.5):
        wanted = roc_auc_score(truth, scores, max_fpr=limit)
        assert _figure(f"pauc:max-fpr={limit}", seen)["pauc"] == pytest.approx(wanted)
    weights = rng.integers(0, 3, 60).astype(float)
    wanted = roc_auc_score(truth, scores, sample_weight=weights)
    assert _figure("auc", seen, weights[None])["auc"] == pytest.approx(wanted)


def test_an_autoencoder_is_judged_by_its_error() -> None:
    x = np.float32([[1, 2, 3]])
    seen = [_seen(x, 0, inputs={"x": x}), _seen(x + 1, 1, inputs={"x": x})]
    assert parse_metric("auc").metric.observe(seen[1]) == [1, 1.0]
    assert _figure("auc", seen) == {"auc": 1.0}
    with pytest.raises(EvaluationDataError, match="two classes, 0 and 1"):
        _figure("auc", [_seen([[1.0]], 2)])


def test_one_class_alone_has_no_area() -> None:
    assert np.isnan(_figure("auc", [_seen([[1.0]], 1)])["auc"])


def test_likeness_is_of_the_reference() -> None:
    y = np.float32([[3, 4]])
    seen = [_seen(y * 1.1, reference={"other name": y}), _seen([[4.0, -3.0]], reference={"y": y})]
    assert _figure("cosine", seen)["cosine"] == pytest.approx(0.5)
    # Signal 25 + 25, error 0.25 + 50.
    assert _figure("sqnr", seen)["sqnr"] == pytest.approx(10 * np.log10(50 / 50.25), abs=1e-6)
    assert _figure("sqnr", [_seen(y, reference={"y": y})])["sqnr"] == np.inf
    near = _seen(np.array([[1, 2, 2 + 1e-3]]), reference={"y": np.array([[1.0, 2, 2]])})
    assert _figure("sqnr", [near])["sqnr"] == pytest.approx(10 * np.log10(9 / 1e-6), abs=1e-3)
    with pytest.raises(EvaluationDataError, match=r"shape \[1, 2\], and its reference \[1, 3\]"):
        _figure("cosine", [_seen(y, reference={"y": np.zeros((1, 3))})])


def test_agreement_needs_no_labels() -> None:
    first = {"y": np.float32([[0, 1]])}
    seen = [_seen([[0.0, 2.0]], reference=first), _seen([[2.0, 0.0]], reference=first)]
    assert _figure("agreement", seen) == {"agreement": 0.5}


def test_mean_iou_is_that_of_the_runtime() -> None:
    rng = np.random.default_rng(0)
    view = ImageView(6, 8, (1, 3, 6, 8), Preprocess())
    scores = rng.normal(size=(3, 1, 4, 6, 8)).astype(np.float32)
    truths = rng.choice([0, 1, 2, 3, 255], (3, 6, 8)).astype(np.int32)
    seen = [_seen(s, t, view=view) for s, t in zip(scores, truths, strict=True)]
    wanted, _ = mean_iou(scores[:, 0].argmax(1), truths, 4)
    assert _figure("miou", seen)["mIoU"] == pytest.approx(wanted)
    last = [_seen(s.transpose(0, 2, 3, 1), t, view=view) for s, t in zip(scores, truths, strict=True)]
    assert _figure("miou", last) == _figure("miou", seen)
    twice = _figure("miou", seen, np.array([[2.0, 0, 1]]))
    assert twice == _figure("miou", [seen[0], seen[0], seen[2]])


def plain_miou(found: Array, truth: Array, ignored: int = 255) -> tuple[float, float]:
    """Mean intersection over union pixel by pixel, and the share of right pixels."""
    pixels = [(int(a), int(b)) for a, b in zip(found.ravel(), truth.ravel(), strict=True) if b != ignored]
    ratios = []
    for number in {k for pair in pixels for k in pair}:
        both = sum(a == number and b == number for a, b in pixels)
        ratios.append(both / sum(number in pair for pair in pixels))
    return sum(ratios) / len(ratios), sum(a == b for a, b in pixels) / len(pixels)


def test_a_class_that_is_only_predicted_counts_as_missed() -> None:
    view = ImageView(2, 4, (1, 3, 2, 4), Preprocess())
    truth = np.int32([[0, 0, 1, 1], [0, 0, 1, 255]])
    found = np.int32([[0, 3, 1, 1], [0, 0, 1, 2]])  # class 3 is nowhere, class 2 only where nobody looks
    assert plain_miou(found, truth) == (pytest.approx((3 / 4 + 1 + 0) / 3), pytest.approx(6 / 7))
    figures = _figure("miou", [_seen(found[None], truth, view=view)])
    assert (figures["mIoU"], figures["pixel accuracy"]) == pytest.approx(plain_miou(found, truth))


@pytest.mark.parametrize("seed", range(6))
def test_mean_iou_is_the_plain_one(seed: int) -> None:
    """Images with classes that only the prediction has, only the truth has, or neither."""
    rng = np.random.default_rng(seed)
    view = ImageView(5, 7, (1, 3, 5, 7), Preprocess())
    truths = rng.choice([0, 1, 4, 255], (3, 5, 7)).astype(np.int32)
    found = rng.choice([0, 2, 4, 6], (3, 5, 7)).astype(np.int32)
    figures = _figure("miou", [_seen(f[None], t, view=view) for f, t in zip(found, truths, strict=True)])
    assert (figures["mIoU"], figures["pixel accuracy"]) == pytest.approx(plain_miou(found, truths))


def test_a_mask_of_another_size_is_named() -> None:
    view = ImageView(6, 8, (1, 3, 6, 8), Preprocess())
    with pytest.raises(EvaluationDataError, match="its mask is 5 x 8, and the image 6 x 8"):
        _figure("miou", [_seen(np.zeros((1, 2, 6, 8), np.float32), np.zeros((5, 8), np.int32), view=view)])


def test_an_image_without_boxes_in_the_data_set_is_named() -> None:
    with pytest.raises(EvaluationDataError, match="sample: the data set has no boxes for it"):
        _figure("map", [_seen(np.zeros((1, 4), np.float32))])


def test_edits() -> None:
    assert [edits(a, b) for a, b in (("", ""), ("abc", ""), ("", "ab"), ("abc", "axc"), ("flaw", "lawn"))] == [
        0, 3, 2, 1, 2,
    ]  # fmt: skip
    assert edits(["a", "cat"], ["the", "cat", "sat"]) == 2


def test_word_errors_of_steps_of_symbols() -> None:
    symbols = ("-", "a", "b", " ")
    steps = np.eye(4, dtype=np.float32)[[1, 1, 0, 1, 3, 2, 2, 0]][None]
    seen = [_seen(steps, "aa b", classes=symbols), _seen(steps, "aa a b", classes=symbols)]
    assert _figure("wer", seen[:1]) == {"WER": 0.0}
    assert _figure("wer", seen) == {"WER": pytest.approx(1 / 5)}
    assert _figure("cer", seen) == {"CER": pytest.approx(2 / 10)}
    with pytest.raises(EvaluationDataError, match="Give --classes FILE"):
        _figure("wer", [_seen(steps, "a")])


def test_an_empty_output_misses_every_word() -> None:
    symbols = ("-", "a", "b", " ")
    silent = np.eye(4, dtype=np.float32)[[0, 0, 0]][None]
    for output in (silent, np.zeros((1, 0, 4), np.float32), np.zeros((1, 0), np.int64)):
        seen = [_seen(output, "a b", classes=symbols)]
        assert _figure("wer", seen) == {"WER": 1.0} and _figure("cer", seen) == {"CER": 1.0}
    # Nothing was said and nothing heard: no rate; beside another sample, no error and no word.
    nothing = _seen(silent, "", classes=symbols)
    assert np.isnan(_figure("wer", [nothing])["WER"])
    assert _figure("wer", [nothing, _seen(silent, "a", classes=symbols)]) == {"WER": 1.0}


def test_metrics_are_found_by_name_and_by_task() -> None:
    assert default_metrics("classification") == ["top1", "top5"]
    assert default_metrics("detection") == ["map"] and default_metrics("segmentation") == ["miou"]
    with pytest.raises(UsageError, match=r"no metric 'tpo1'.*Did you mean 'top1'"):
        parse_metric("tpo1")
    with pytest.raises(UsageError, match=r"'topk' has no option 'n=3'.*Its options: k"):
        parse_metric("topk:n=3")
    with pytest.raises(UsageError, match="k cannot be 'three'"):
        parse_metric("topk:k=three")
    with pytest.raises(UsageError, match="score cannot be 'x'"):
        parse_metric("auc:score=x")


def test_a_program_brings_a_metric() -> None:
    @metric("largest", unit="")
    def largest(seen: Observation) -> float:
        """The largest output."""
        return float(np.max(seen.outputs["y"]))

    assert _figure("largest", [_seen([[1, 5]]), _seen([[3, 2]])]) == {"largest": 4.0}
    assert METRICS["largest"].words == "The largest output."
    with pytest.raises(UsageError, match="cannot be the name"):
        metric("a,b")(largest)


@pytest.mark.parametrize("missing", ["detections", "view"])
def test_boxes_need_a_decoder_and_an_image(missing: str) -> None:
    given = {
        "detections": lambda: Detections(np.zeros((0, 4)), np.zeros(0), np.zeros(0, np.int64)),
        "view": ImageView(10, 20, (1, 3, 8, 8), Preprocess()),
    }
    truth = Boxes(())
    assert parse_metric("map").metric.observe(_seen([0.0], truth, **given)) == {"size": [10, 20], "found": []}
    with pytest.raises(EvaluationDataError, match="its outputs are not boxes of an image"):
        parse_metric("map").metric.observe(_seen([0.0], truth, **given | {missing: None}))
