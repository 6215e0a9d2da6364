"""Metrics of many random samples against a second implementation of each: loops over numbers, without NumPy's shortcuts."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from npuc.datasets.sample import Observation
from npuc.metrics.measuring import parse_metric


def _seen(output: Any, truth: Any = None, **more: Any) -> Observation:
    return Observation("sample", {"y": np.asarray(output)}, truth, **more)


def _figures(text: str, seen: list[Observation], weights: Any = None) -> dict[str, float]:
    chosen = parse_metric(text).metric
    records = [chosen.observe(one) for one in seen]
    table = np.ones((1, len(seen))) if weights is None else np.array([weights], float)
    found = chosen.measure(records, [one.truth for one in seen], table)
    return {name: float(values[0]) for name, values in found.items()}


def _rank(scores: list[float], truth: int) -> int:
    """How many classes come before the true one: better ones, and equal ones with a lower number."""
    return sum(
        score > scores[truth] or (score == scores[truth] and number < truth)
        for number, score in enumerate(scores)
    )


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("rows", [1, 3])
def test_top_k(seed: int, rows: int) -> None:
    """Scores with ties, which are where implementations differ; weights are those of a resampled data set."""
    rng = np.random.default_rng(seed)
    outputs = rng.integers(0, 5, (40, rows, 9)).astype(np.float32)
    truths = [int(truth) for truth in rng.integers(0, 9, 40)]
    weights = [int(weight) for weight in rng.integers(0, 4, 40)]
    seen = [_seen(output, truth) for output, truth in zip(outputs, truths, strict=True)]
    ranks = [
        _rank([sum(float(row[k]) for row in output) / rows for k in range(9)], truth)
        for output, truth in zip(outputs, truths, strict=True)
    ]
    for text, name, k in (
        ("top1", "top1", 1),
        ("top5", "top5", 5),
        ("topk:k=3", "top3", 3),
        ("accuracy", "accuracy", 1),
    ):
        hits = [rank < k for rank in ranks]
        assert _figures(text, seen)[name] == pytest.approx(sum(hits) / 40)
        weighted = sum(weight * hit for weight, hit in zip(weights, hits, strict=True)) / sum(weights)
        assert _figures(text, seen, weights)[name] == pytest.approx(weighted)


def _distance(a: tuple[Any, ...], b: tuple[Any, ...]) -> int:
    """Levenshtein's distance by its definition."""

    @cache
    def ends(i: int, j: int) -> int:
        if not i or not j:
            return i + j
        return min(ends(i - 1, j) + 1, ends(i, j - 1) + 1, ends(i - 1, j - 1) + (a[i - 1] != b[j - 1]))

    return ends(len(a), len(b))


def _heard(ids: list[int], symbols: str, blank: int) -> str:
    """Greedy CTC: runs of a symbol are one, blanks are none."""
    said, last = "", None
    for number in ids:
        if number != last and number != blank:
            said += symbols[number]
        last = number
    return said


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("blank", [0, -1])
@pytest.mark.parametrize("form", ["ids", "scores"])
def test_error_rates(seed: int, blank: int, form: str) -> None:
    rng = np.random.default_rng(seed)
    symbols = "_ab c"
    texts = ["".join(rng.choice(list("ab c"), rng.integers(1, 9))) for _ in range(12)]
    texts = [text if text.strip() else "a" for text in texts]
    ids = [[int(k) for k in rng.integers(0, 5, rng.integers(1, 12))] for _ in texts]
    seen, words, letters = [], [0, 0], [0, 0]
    for numbers, text in zip(ids, texts, strict=True):
        output = np.array([numbers]) if form == "ids" else np.eye(5, dtype=np.float32)[numbers][None]
        seen.append(_seen(output, text, classes=tuple(symbols)))
        said = _heard(numbers, symbols, blank % 5)
        words = [words[0] + _distance(tuple(said.split()), tuple(text.split())), words[1] + len(text.split())]
        letters = [letters[0] + _distance(tuple(said), tuple(text)), letters[1] + len(text)]
    assert _figures(f"wer:blank={blank}", seen)["WER"] == pytest.approx(words[0] / words[1])
    assert _figures(f"cer:blank={blank}", seen)["CER"] == pytest.approx(letters[0] / letters[1])


@pytest.mark.parametrize("seed", range(6))
def test_likeness_of_two_outputs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    seen, cosines = [], []
    energies: dict[str, list[float]] = {"a": [0.0, 0.0], "b": [0.0, 0.0]}
    weights = [float(weight) for weight in rng.integers(1, 4, 5)]
    for weight in weights:
        reference = {"a": rng.normal(size=(1, 6)), "b": rng.normal(3, 2, size=(1, 2, 3))}
        ours = {
            name: (value + rng.normal(0, 0.2, value.shape)).astype(np.float32)
            for name, value in reference.items()
        }
        seen.append(Observation("sample", ours, None, reference=reference))
        per_output = []
        for name, value in reference.items():
            pairs = [(float(x), float(y)) for x, y in zip(ours[name].ravel(), value.ravel(), strict=True)]
            norms = math.sqrt(sum(x * x for x, _ in pairs) * sum(y * y for _, y in pairs))
            per_output.append(sum(x * y for x, y in pairs) / norms)
            energies[name][0] += weight * sum(y * y for _, y in pairs)
            energies[name][1] += weight * sum((x - y) ** 2 for x, y in pairs)
        cosines.append(sum(per_output) / 2)
    mean = sum(w * c for w, c in zip(weights, cosines, strict=True)) / sum(weights)
    assert _figures("cosine", seen, weights)["cosine"] == pytest.approx(mean, abs=1e-6)
    decibels = [10 * math.log10(signal / error) for signal, error in energies.values()]
    assert _figures("sqnr", seen, weights)["sqnr"] == pytest.approx(sum(decibels) / 2)
