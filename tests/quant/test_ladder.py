"""The ladder keeps a step only if it helps on samples that the step has not seen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc import lang
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


def test_mistakes_are_named(planted: Any) -> None:
    with pytest.raises(UsageError, match="no step 'soar'"):
        chosen(["soar"])
    with pytest.raises(QuantizationError, match="too few"):
        Workshop(shop().original, shop().samples[:1], lambda op: SCHEMES["int8"])
