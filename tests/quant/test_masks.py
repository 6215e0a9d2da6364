"""Attention masks of -inf and of the least float32: hidden scores stay hidden in integers, however masks are written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.calib.sources import open_data
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import quantize_on_data
from npuc.ir import Graph
from npuc.quant import masks, quantize
from npuc.quant.scheme import SCHEMES
from npuc.target import load_target

SIZE = 12
VISIBLE = np.tril(np.ones((SIZE, SIZE), bool))
LEAST = float(np.finfo(np.float32).min)


def _added(scores: Any, shown: Any, low: float) -> Any:
    return lang.add(scores, np.where(VISIBLE, 0.0, low).astype(np.float32), name="masked")


def _sloped(scores: Any, shown: Any, low: float) -> Any:
    """Nearer positions count more, as in ALiBi: what is visible has a bias, too."""
    distance = np.arange(SIZE)[:, None] - np.arange(SIZE)
    return lang.add(scores, np.where(VISIBLE, -0.25 * distance, low).astype(np.float32), name="masked")


def _put(scores: Any, shown: Any, low: float) -> Any:
    return lang.where(VISIBLE, scores, np.float32(low), name="masked")


def _put_by_input(scores: Any, shown: Any, low: float) -> Any:
    return lang.where(
        lang.compare(shown, np.float32(0.5), mode="greater"), scores, np.float32(low), name="masked"
    )


def _added_by_input(scores: Any, shown: Any, low: float) -> Any:
    """(1 - shown) * low, as exporters of language models write it."""
    hidden = lang.mul(lang.sub(np.float32(1.0), shown, name="turned"), np.float32(low), name="bias")
    return lang.add(scores, hidden, name="masked")


def _put_and_added_by_input(scores: Any, shown: Any, low: float) -> Any:
    """A mask of 0 and -inf is made of the input and added, as torch.nn.MultiheadAttention does with padding."""
    hidden = lang.compare(shown, np.float32(0.5), mode="less")
    return lang.add(scores, lang.where(hidden, np.float32(low), np.float32(0.0), name="bias"), name="masked")


FORMS: dict[str, tuple[Callable[..., Any], float]] = {
    "added -inf": (_added, -np.inf),
    "added least": (_added, LEAST),
    "sloped -inf": (_sloped, -np.inf),
    "sloped -1e9": (_sloped, -1e9),
    "put -inf": (_put, -np.inf),
    "put least": (_put, LEAST),
    "put by input -inf": (_put_by_input, -np.inf),
    "put by input least": (_put_by_input, LEAST),
    "put and added by input -inf": (_put_and_added_by_input, -np.inf),
    "added by input least": (_added_by_input, LEAST),
}


def _network(form: str, spread: float) -> Graph:
    mask, low = FORMS[form]
    shown = lang.input("shown", (1, 1, 1, SIZE))
    query = lang.input("query", (1, 2, SIZE, 8))
    key = lang.input("key", (1, 2, 8, SIZE))
    scores = lang.mul(lang.matmul(query, key, name="products"), np.float32(spread), name="scores")
    outputs = {"weights": lang.softmax(mask(scores, shown, low), axis=-1, name="weights")}
    if "input" not in form:
        outputs["shown_again"] = lang.mul(shown, np.float32(2.0), name="shown_again")
    return lang.build(outputs)


def _samples(count: int) -> list[dict[str, Any]]:
    random = np.random.default_rng(3)
    return [
        {
            "query": random.normal(size=(1, 2, SIZE, 8)).astype(np.float32),
            "key": random.normal(size=(1, 2, 8, SIZE)).astype(np.float32),
            "shown": (np.arange(SIZE) < random.integers(4, SIZE + 1))
            .astype(np.float32)
            .reshape(1, 1, 1, SIZE),
        }
        for _ in range(count)
    ]


def _worst(form: str, spread: float, **options: Any) -> float:
    graph = _network(form, spread)
    samples = _samples(12)
    made, _ = quantize_on_data(
        graph, open_data(graph, samples[:8]), target=load_target("edge-1t"), widen=False, threads=1, **options
    )
    exact, ours = FloatEngine(graph), IntegerEngine(made.graph, threads=1)
    errors = [np.abs(ours.run(each)["weights"] - exact.run(each)["weights"]).max() for each in samples[8:]]
    return float(max(errors))


@pytest.mark.parametrize("spread", [0.1, 1.0])
@pytest.mark.parametrize("form", FORMS)
def test_hidden_scores_have_no_weight(form: str, spread: float) -> None:
    assert _worst(form, spread) < 0.08


@pytest.mark.parametrize("form", ["added least", "put least", "put by input least"])
def test_without_room_below_the_visible_scores_hidden_ones_would_have_weight(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(masks, "_REACH", 0.0)
    assert _worst(form, 0.1) > 0.15


@pytest.mark.parametrize("scheme", ["int8", "int16", "pow2"])
def test_masks_work_in_every_scheme(scheme: str) -> None:
    graph = _network("added -inf", 0.3)
    ranges = {"query": (-3.0, 3.0), "key": (-3.0, 3.0), "shown": (0.0, 1.0), "shown_again": (0.0, 2.0)}
    ranges |= dict.fromkeys(("products", "scores", "masked"), (-8.0, 8.0)) | {"weights": (0.0, 1.0)}
    made = quantize(graph, ranges, SCHEMES[scheme])
    assert not made.float_reasons
    for sample in _samples(3):
        weights = IntegerEngine(made, threads=1).run(sample)["weights"]
        assert weights[..., ~VISIBLE].max() <= 1 / 128
        np.testing.assert_allclose(weights, FloatEngine(graph).run(sample)["weights"], atol=0.15)


def test_a_mask_that_others_read_too_keeps_the_range_it_has() -> None:
    scores = lang.input("scores", (1, 1, SIZE, SIZE))
    masked = _put(scores, None, LEAST)
    graph = lang.build(
        {"weights": lang.softmax(masked, axis=-1, name="weights"), "again": lang.relu(masked, name="again")}
    )
    value = next(op for op in graph.ops if op.name == "top.where").results[0]
    assert masks.hidden_end(value, graph, lambda value: (-1.0, 1.0)) is None
