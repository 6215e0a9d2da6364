"""A short soak: faults, stalls, short memory, cancels and impatient clients, and every job ends once."""

from __future__ import annotations

from pathlib import Path

import pytest

import soak
from npuc.program.file import save_compiled
from npuc.program.model import CompiledModel


def test_every_job_ends_once(model: CompiledModel, tmp_path: Path) -> None:
    save_compiled(model, tmp_path / "digits.npu")
    outcome = soak.process(str(tmp_path / "digits.npu"), seed=3, threads=4, jobs=1200)
    assert outcome.wrong == [] and outcome.open == 0
    assert sum(outcome.ended.values()) == 1200 and set(outcome.ended) == {
        "done",
        "cancelled",
        "device failed",
    }
    assert outcome.injected["failed"] > 0 and outcome.injected["short"] > 0


@pytest.mark.slow
def test_memory_is_flat(model: CompiledModel, tmp_path: Path) -> None:
    save_compiled(model, tmp_path / "digits.npu")
    outcomes = soak.soak(tmp_path / "digits.npu", jobs=100_000)
    assert [one.wrong for one in outcomes] == [[], []] and sum(one.open for one in outcomes) == 0
    assert sum(sum(one.ended.values()) for one in outcomes) == 100_000
    assert max(soak.slope(one.samples) for one in outcomes) < 4 * soak.FLAT


def test_growth_is_seen() -> None:
    """The slope of what grows by 10 bytes a job is 10 bytes a job, whatever came in the first quarter."""
    samples = [(0, 50 << 20), *((k, (80 << 20) + 10 * k) for k in range(1000, 50_000, 500))]
    assert soak.slope(samples) == pytest.approx(10 * 100_000 / (1 << 20), rel=1e-6)
