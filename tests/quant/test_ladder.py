"""The ladder keeps a step only if it helps on samples that the step has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.compare import Figures, Slice
from npuc.errors import MissingExtraError, QuantizationError, UsageError
from npuc.quant.ladder import STEPS, Candidate, Rung, Workshop, climb
from npuc.quant.ladder.climb import Entry, chosen
from npuc.quant.scheme import SCHEMES


def shop() -> Workshop:
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 8, 8))
    y = lang.conv(x, rng.standard_normal((4, 3, 3, 3)).astype(np.float32), relu=True)
    graph = lang.build({"y": lang.conv(y, rng.standard_normal((2, 4, 3, 3)).astype(np.float32))})
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(12)]
    return Workshop(graph, samples, lambda op: SCHEMES["int8"])


class Better:
    def propose(self, best: Candidate, shop: Workshop) -> Candidate | None:
        return replace(best, sqnr=best.sqnr + 1, notes=(*best.notes, "better"))


class Worse:
    def propose(self, best: Candidate, shop: Workshop) -> Candidate | None:
        return replace(best, sqnr=best.sqnr - 1, notes=(*best.notes, "worse"))


class Idle:
    def propose(self, best: Candidate, shop: Workshop) -> Candidate | None:
        return None


class Missing:
    def propose(self, best: Candidate, shop: Workshop) -> Candidate | None:
        raise MissingExtraError("this needs PyTorch", fix="pip install it")


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, (name, kind) in enumerate(
        {"worse": Worse, "idle": Idle, "better": Better, "missing": Missing}.items(), 100
    ):
        monkeypatch.setitem(STEPS, name, Entry(name, "a test", rank, kind))


def test_what_helps_is_kept_and_the_rest_left_out(planted: Any) -> None:
    rungs: list[Rung] = []
    workshop = shop()
    best = climb(workshop, ["better", "worse", "idle"], report=rungs.append)
    assert best.notes == ("better",)
    assert [(rung.name, rung.kept) for rung in rungs] == [("worse", False), ("idle", False), ("better", True)]
    assert "no gain" in str(rungs[0]) and "nothing to do" in str(rungs[1])


def test_a_step_that_cannot_be_taken_says_why(planted: Any) -> None:
    rungs: list[Rung] = []
    assert climb(shop(), ["missing"], report=rungs.append).notes == ()
    assert str(rungs[0]) == "missing: left out: this needs PyTorch. pip install it."


def test_the_default_is_judged_on_samples_that_are_held_back() -> None:
    workshop = shop()
    assert len(workshop.fit) == 9 and len(workshop.judges) == 3
    found = workshop.start()
    assert found.sqnr > 25
    assert found.sqnr == workshop.judged(found.made)


class Lucky:
    """A network of its own, whose gain is that of the judges' squares which a test plants."""

    def propose(self, best: Candidate, shop: Workshop) -> Candidate | None:
        made = best.made.copy()
        return replace(best, made=made, sqnr=shop.judged(made), notes=(*best.notes, "lucky"))


def judged_by(monkeypatch: pytest.MonkeyPatch, errors: list[list[float]]) -> Workshop:
    """A workshop of four judges with a signal of 100, whose networks make these errors, one after the other."""
    workshop = shop()
    workshop.judges = [*workshop.judges, workshop.judges[0]]
    left = iter(errors)
    monkeypatch.setattr(
        workshop.judge,
        "figures",
        lambda made: Figures(
            (Slice("y", "y"),), np.array([[[100.0, error]] for error in next(left)], np.float64)
        ),
    )
    monkeypatch.setitem(STEPS, "lucky", Entry("lucky", "a test", 100, Lucky))
    return workshop


def test_what_one_judge_gains_is_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs: list[Rung] = []
    workshop = judged_by(monkeypatch, [[4.0, 1.0, 1.0, 1.0], [2.0, 1.1, 1.1, 1.1]])
    best = climb(workshop, ["lucky"], report=rungs.append)
    assert best.notes == () and not rungs[0].kept
    # 1.2 dB on the whole: 2.1 dB with the first judge's help, -0.4 without it.
    assert rungs[0].after is not None and rungs[0].after - rungs[0].before == pytest.approx(1.206, abs=0.01)
    assert rungs[0].doubt > 1.206
    assert "may be chance (± 1." in str(rungs[0])


def test_what_all_judges_gain_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    rungs: list[Rung] = []
    workshop = judged_by(monkeypatch, [[4.0, 1.0, 2.0, 1.0], [3.6, 0.9, 1.8, 0.9]])
    best = climb(workshop, ["lucky"], report=rungs.append)
    assert best.notes == ("lucky",) and rungs[0].kept
    # The judges differ much, and the gain is the same for all of them.
    assert rungs[0].doubt == pytest.approx(0.0, abs=1e-9)


def test_a_gain_that_a_slice_pays_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every judge gains in the strong slice, and one loses the weak one."""
    rungs: list[Rung] = []
    workshop = shop()
    strong, weak = Slice("y", "boxes", ((1, 0, 4),)), Slice("y", "scores", ((1, 4, 8),))
    errors = iter([[[1.0, 1.0]] * 3, [[0.1, 1.0], [0.1, 1.0], [0.1, 2.0]]])
    monkeypatch.setattr(
        workshop.judge,
        "figures",
        lambda made: Figures((strong, weak), np.array([[(100.0, e) for e in row] for row in next(errors)])),
    )
    monkeypatch.setitem(STEPS, "lucky", Entry("lucky", "a test", 100, Lucky))
    best = climb(workshop, ["lucky"], report=rungs.append)
    assert best.notes == () and not rungs[0].kept
    assert rungs[0].after is not None and rungs[0].after > rungs[0].before + 4
    assert "but the worst slice 20.00 to 16.99 dB, left out" in str(rungs[0])


def test_the_doubt_is_the_spread_of_gains_over_other_judges() -> None:
    rng = np.random.default_rng(5)
    workshop = shop()
    first = workshop.start().made
    second = first.copy()
    common = rng.gamma(2.0, 1.0, 60)
    squares = [
        np.stack([np.full(60, 100.0), common * f], axis=1)[:, None] for f in (1.0, rng.gamma(9.0, 0.1, 60))
    ]
    figures = [Figures((Slice("y", "y"),), one) for one in squares]
    workshop._judgments[first], workshop._judgments[second] = figures
    gains = []
    for _ in range(2000):
        picked = rng.integers(0, 60, 60)
        old, new = (one.of_samples(picked).mean for one in figures)
        gains.append(new - old)
    assert workshop.doubt(second, first) == pytest.approx(np.std(gains), rel=0.15)
    assert workshop.doubt(first, first) == 0.0


def test_mistakes_are_named(planted: Any) -> None:
    with pytest.raises(UsageError, match="no step 'soar'"):
        chosen(["soar"])
    with pytest.raises(QuantizationError, match="too few"):
        Workshop(shop().original, shop().samples[:1], lambda op: SCHEMES["int8"])
