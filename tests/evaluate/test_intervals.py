"""Intervals: against published figures, against simulation, and against each other."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.evaluate.intervals import mcnemar, paired_difference, percentiles, resamples, wilson


@pytest.mark.parametrize(
    ("hits", "count", "low", "high"),
    [(81, 263, 0.2553, 0.3662), (15, 148, 0.0624, 0.1605), (0, 20, 0.0, 0.1611), (1, 29, 0.0061, 0.1718)],
)
def test_wilson_is_as_newcombe_publishes_it(hits: int, count: int, low: float, high: float) -> None:
    """Newcombe 1998, table I, method 3."""
    assert wilson(hits, count) == pytest.approx((low, high), abs=5e-5)


def test_nothing_is_known_of_no_samples() -> None:
    assert wilson(0, 0) == (0.0, 1.0)
    assert paired_difference(np.zeros(0), np.zeros(0)) == (-1.0, 1.0)


def test_wilson_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = rng.binomial(200, 0.93, 2000)
    inside = [low <= 0.93 <= high for low, high in (wilson(int(h), 200) for h in hits)]
    assert 0.93 < np.mean(inside) < 0.975


def test_paired_difference_covers_as_often_as_it_says() -> None:
    """Two models that agree on most samples: the paired interval is much narrower than an unpaired one, and still true."""
    rng = np.random.default_rng(1)
    inside, widths, apart = [], [], []
    for _ in range(500):
        kind = rng.choice(4, 300, p=[0.85, 0.04, 0.02, 0.09])
        a, b = np.isin(kind, (0, 1)).astype(float), np.isin(kind, (0, 2)).astype(float)
        low, high = paired_difference(a, b)
        inside.append(low <= 0.02 <= high)
        widths.append(high - low)
        one, two = wilson(a.sum(), 300), wilson(b.sum(), 300)
        apart.append(np.hypot(one[1] - one[0], two[1] - two[0]))
    assert 0.93 < np.mean(inside) <= 0.995
    assert np.mean(widths) < 0.8 * np.mean(apart)


def test_equal_models_have_no_difference() -> None:
    a = np.array([1, 0, 1, 1.0])
    low, high = paired_difference(a, a)
    assert low <= 0 <= high and mcnemar(a, a) == 1.0


def test_mcnemar_is_the_binomial_test() -> None:
    from scipy.stats import binomtest

    rng = np.random.default_rng(2)
    for _ in range(20):
        a, b = (rng.random(60) < 0.7).astype(float), (rng.random(60) < 0.5).astype(float)
        first, second = int((a > b).sum()), int((b > a).sum())
        assert mcnemar(a, b) == pytest.approx(binomtest(first, first + second).pvalue)
    big = np.concatenate([np.ones(3000), np.zeros(2800)])
    assert mcnemar(big, 1 - big) == pytest.approx(binomtest(3000, 5800).pvalue)


def test_draws_are_seeded_and_independent_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = np.concatenate(list(resamples(50, 40, 7)))
    assert (whole.sum(axis=1) == 50).all() and whole.shape == (40, 50)
    monkeypatch.setattr("npuc.evaluate.intervals._AT_ONCE", 150)
    assert np.array_equal(whole, np.concatenate(list(resamples(50, 40, 7))))
    assert not np.array_equal(whole, np.concatenate(list(resamples(50, 40, 8))))


def test_the_bootstrap_of_a_mean_is_its_standard_error() -> None:
    values = np.random.default_rng(3).normal(0, 1, 400)
    weights = np.concatenate(list(resamples(400, 2000, 0)))
    low, high = percentiles(weights @ values / 400)
    assert (high - low) == pytest.approx(2 * 1.96 * values.std() / 20, rel=0.08)


def test_draws_without_a_figure_do_not_count() -> None:
    assert percentiles(np.array([np.nan, 1.0, 1.0])) == (1.0, 1.0)
    assert all(np.isnan(percentiles(np.array([np.nan]))))
    assert percentiles(np.array([np.inf, np.inf])) == (np.inf, np.inf)
