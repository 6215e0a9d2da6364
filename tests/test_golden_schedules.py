"""Schedules do not get worse: cycles, DRAM bytes and instructions of network and target pairs against kept figures."""

from __future__ import annotations

import pytest

import golden_schedules

KEPT = golden_schedules.load()
_TOLERANCE = 1.01
"""A figure may be this many times the kept one."""


@pytest.mark.parametrize(("network", "target"), golden_schedules.PAIRS)
def test_a_schedule_is_no_worse_than_the_kept_one(network: str, target: str) -> None:
    kept, now = KEPT[network][target], golden_schedules.measured(network, target)
    worse = {
        name: (kept[name], now[name])
        for name in golden_schedules.FIGURES
        if now[name] > _TOLERANCE * kept[name]
    }
    assert not worse, "if that is meant: python tests/golden_schedules.py --write"


def test_the_kept_pairs_are_those_that_are_measured() -> None:
    pairs = {(network, target) for network, targets in KEPT.items() for target in targets}
    assert pairs == set(golden_schedules.PAIRS) and len(pairs) >= 20
