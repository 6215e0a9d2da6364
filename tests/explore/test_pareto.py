"""Fronts against the definition, on all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.explore.estimates import estimated
from npuc.explore.pareto import dominated, front, pick


def _dominates(a: np.ndarray, b: np.ndarray) -> bool:
    return bool((a <= b).all() and (a < b).any())


@pytest.mark.parametrize("seed", range(6))
def test_the_front_is_what_no_other_point_dominates(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = rng.integers(1, 9, (80, 1 + seed % 4)).astype(float)
    wanted = [not any(_dominates(other, point) for other in points) for point in points]
    assert front(points).tolist() == wanted
    others = rng.integers(1, 9, (5, points.shape[1])).astype(float)
    assert dominated(points, others).tolist() == [any(_dominates(o, p) for o in others) for p in points]


def test_of_a_front_the_ends_and_distant_points_are_picked_first() -> None:
    points = np.array([[2.0**i, 2.0 ** (20 - i)] for i in range(21)] + [[2.0**21, 2.0**21]])
    chosen = pick(points, np.arange(22), np.zeros(0, np.int64), 3)
    assert sorted(chosen) == [0, 10, 20]
    assert pick(points, np.arange(22), np.array([0, 20]), 22)[-1] == 21
    assert sorted(pick(points, np.arange(22), np.zeros(0, np.int64), 50)) == list(range(22))


def test_estimates_learn_the_effect_of_a_value() -> None:
    """The second value of the first parameter costs twice its bound, whatever the second parameter is."""
    choices = np.array([(a, b) for a in range(2) for b in range(50)])
    bounds = 1.0 + np.arange(100, dtype=float).reshape(100, 1)
    truth = bounds * np.where(choices[:, :1] == 1, 2.0, 1.0)
    known = {machine: truth[machine] for machine in (*range(0, 20), *range(50, 70))}
    guessed = estimated(bounds, choices, known)
    assert np.abs(guessed / truth - 1).max() < 0.05
    assert estimated(bounds, choices, {}) is bounds


def test_nothing_has_no_front() -> None:
    assert front(np.empty((0, 3))).tolist() == []
