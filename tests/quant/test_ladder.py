"""The ladder keeps a step only if it helps on samples that the step has not seen."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.compare import OutputFigures, Slice
from npuc.errors import MissingExtraError, QuantizationError, UsageError
from npuc.quant.ladder import STEPS, Candidate, QuantizationContext, StepResult, run_steps, sequence
from npuc.quant.ladder.goal import search_goal
from npuc.quant.ladder.measurements import Goal
from npuc.quant.ladder.run import PipelineOptions, run_pipeline_steps
from npuc.quant.ladder.sequence import RegisteredStep, chosen
from npuc.quant.scheme import SCHEMES
from npuc.registries import isolated


def context() -> QuantizationContext:
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 8, 8))
    y = lang.conv(x, rng.standard_normal((4, 3, 3, 3)).astype(np.float32), relu=True)
    graph = lang.build({"y": lang.conv(y, rng.standard_normal((2, 4, 3, 3)).astype(np.float32))})
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(12)]
    return QuantizationContext(graph, samples, lambda op: SCHEMES["int8"])


class Better:
    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        return replace(best, sqnr=best.sqnr + 1, notes=(*best.notes, "better"))


class Worse:
    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        return replace(best, sqnr=best.sqnr - 1, notes=(*best.notes, "worse"))


class Idle:
    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        return None


class Missing:
    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        raise MissingExtraError("this needs PyTorch", fix="pip install it")


@pytest.fixture(autouse=True)
def own_steps() -> Iterator[None]:
    with isolated():
        yield


@pytest.fixture
def planted() -> None:
    for rank, (name, kind) in enumerate(
        {"worse": Worse, "idle": Idle, "better": Better, "missing": Missing}.items(), 100
    ):
        STEPS.add([name], RegisteredStep(name, "a test", rank, kind))


def test_what_helps_is_kept_and_the_rest_left_out(planted: Any) -> None:
    results: list[StepResult] = []
    make_context = context()
    best = run_steps(make_context, ["better", "worse", "idle"], report=results.append)
    assert best.notes == ("better",)
    assert [(step_result.name, step_result.kept) for step_result in results] == [
        ("worse", False),
        ("idle", False),
        ("better", True),
    ]
    assert "no gain" in str(results[0]) and "nothing to do" in str(results[1])


def test_a_step_that_cannot_be_taken_says_why(planted: Any) -> None:
    results: list[StepResult] = []
    assert run_steps(context(), ["missing"], report=results.append).notes == ()
    assert str(results[0]) == "missing: left out: this needs PyTorch. pip install it."


def test_the_default_is_judged_on_samples_that_are_held_back() -> None:
    make_context = context()
    assert len(make_context.fit) == 9 and len(make_context.validation_samples) == 3
    found = make_context.start()
    assert found.sqnr > 25
    assert found.sqnr == make_context.validated_sqnr(found.quantized)


class Lucky:
    """A network of its own, whose gain is that of the squares of validation samples that a test plants."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        made = best.quantized.copy()
        return replace(best, quantized=made, sqnr=context.validated_sqnr(made), notes=(*best.notes, "lucky"))


def context_with_errors(monkeypatch: pytest.MonkeyPatch, errors: list[list[float]]) -> QuantizationContext:
    """A context of four validation samples with a signal of 100, whose networks have these errors, one after the other."""
    make_context = context()
    make_context.validation_samples = [*make_context.validation_samples, make_context.validation_samples[0]]
    left = iter(errors)
    monkeypatch.setattr(
        make_context.validator,
        "figures",
        lambda made: OutputFigures(
            (Slice("y", "y"),), np.array([[[100.0, error]] for error in next(left)], np.float64)
        ),
    )
    STEPS.add(["lucky"], RegisteredStep("lucky", "a test", 100, Lucky))
    return make_context


def test_a_gain_of_one_validation_sample_is_chance(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[StepResult] = []
    make_context = context_with_errors(monkeypatch, [[4.0, 1.0, 1.0, 1.0], [2.0, 1.1, 1.1, 1.1]])
    best = run_steps(make_context, ["lucky"], report=results.append)
    assert best.notes == () and not results[0].kept
    # 1.2 dB on the whole: 2.1 dB with the first sample, -0.4 without it.
    assert results[0].after is not None and results[0].after - results[0].before == pytest.approx(
        1.206, abs=0.01
    )
    assert results[0].standard_error > 1.206
    assert "may be chance (± 1." in str(results[0])


def test_a_gain_of_loud_samples_that_the_others_pay_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[StepResult] = []
    make_context = context_with_errors(monkeypatch, [[40.0, 40.0, 1.0, 1.0], [20.0, 20.0, 2.5, 2.5]])
    best = run_steps(make_context, ["lucky"], report=results.append)
    assert best.notes == () and results[0].gain is not None
    # Two samples make most of the error, and its standard error is small, for both gain; the other two lose more.
    assert results[0].gain > 2.5 > 5 * results[0].standard_error
    assert "but -0.48 dB on the mean of single samples, left out" in str(results[0])


def test_a_gain_of_all_validation_samples_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[StepResult] = []
    make_context = context_with_errors(monkeypatch, [[4.0, 1.0, 2.0, 1.0], [3.6, 0.9, 1.8, 0.9]])
    best = run_steps(make_context, ["lucky"], report=results.append)
    assert best.notes == ("lucky",) and results[0].kept
    # The samples differ much, and the gain is the same for all of them.
    assert results[0].standard_error == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("shared", [True, False])
def test_a_gain_of_nearly_all_samples_is_kept_though_two_large_ones_drown_it(
    monkeypatch: pytest.MonkeyPatch, shared: bool
) -> None:
    """Two of 16 samples have a hundred times the error of the others, and swing by chance."""
    results: list[StepResult] = []
    rng = np.random.default_rng(1)
    before = np.r_[60.0, 50.0, 0.5 * np.exp(rng.normal(0, 0.1, 14))]
    gained = np.exp(rng.normal(-0.3 if shared else 0.0, 0.2, 14))
    after = np.r_[30.0, 60.0, before[2:] * gained]
    make_context = context_with_errors(monkeypatch, [list(before), list(after)])
    make_context.validation_samples = make_context.validation_samples[:1] * 16
    monkeypatch.setattr(sequence, "LOSS", 100.0)
    best = run_steps(make_context, ["lucky"], report=results.append)
    assert results[0].gain is not None and 0.05 < results[0].gain < results[0].standard_error, results
    assert results[0].kept == shared == (best.notes == ("lucky",))
    assert shared or "may be chance" in str(results[0])


class Chosen:
    """The best of twelve networks, by the validation samples."""

    def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
        trials = []
        for _ in range(12):
            made = best.quantized.copy()
            trials.append(replace(best, quantized=made, sqnr=context.validated_sqnr(made), notes=("chosen",)))
        return context.best_of(trials)


@pytest.mark.parametrize("real_gain", [False, True])
def test_the_best_of_many_is_not_believed_for_its_luck(
    monkeypatch: pytest.MonkeyPatch, real_gain: bool
) -> None:
    """Twelve networks that are a little worse than the first, each on other samples: one of them looks much better.

    If all of them are better, the best of them is kept as ever.
    """
    rng = np.random.default_rng(0)
    level = 0.6 if real_gain else 1.05
    noise = np.exp(rng.normal(-0.18, 0.6, (12, 16)))
    make_context = context()
    make_context.validation_samples = make_context.validation_samples[:1] * 16
    left = iter([np.ones(16), *(level * noise)])
    monkeypatch.setattr(
        make_context.validator,
        "figures",
        lambda made: OutputFigures(
            (Slice("y", "y"),), np.stack([np.full(16, 100.0), next(left)], axis=1)[:, None]
        ),
    )
    # Single samples are far apart here, and are not what this is about.
    monkeypatch.setattr(sequence, "LOSS", 100.0)
    STEPS.add(["chosen"], RegisteredStep("chosen", "a test", 100, Chosen))
    results: list[StepResult] = []
    best = run_steps(make_context, ["chosen"], report=results.append)
    found = results[0]
    assert found.after is not None and found.gain is not None
    # By its own figures it gains, and by more than their standard error; by those of samples that did not choose it, not.
    assert found.after - found.before > 1 > found.standard_error
    assert found.gain < found.after - found.before - 0.3
    assert found.kept == real_gain == (best.notes == ("chosen",)), found
    assert real_gain or "cross-validated" in str(found) or "chance" in str(found)


def test_a_gain_that_a_slice_pays_for_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every validation sample gains in the strong slice, and one loses the weak one."""
    results: list[StepResult] = []
    make_context = context()
    strong, weak = Slice("y", "boxes", ((1, 0, 4),)), Slice("y", "scores", ((1, 4, 8),))
    errors = iter([[[1.0, 1.0]] * 3, [[0.1, 1.0], [0.1, 1.0], [0.1, 2.0]]])
    monkeypatch.setattr(
        make_context.validator,
        "figures",
        lambda made: OutputFigures(
            (strong, weak), np.array([[(100.0, e) for e in row] for row in next(errors)])
        ),
    )
    STEPS.add(["lucky"], RegisteredStep("lucky", "a test", 100, Lucky))
    best = run_steps(make_context, ["lucky"], report=results.append)
    assert best.notes == () and not results[0].kept
    assert results[0].after is not None and results[0].after > results[0].before + 4
    assert "but the worst slice 20.00 to 16.99 dB, left out" in str(results[0])


def test_the_standard_error_is_the_spread_of_gains_over_other_samples() -> None:
    rng = np.random.default_rng(5)
    make_context = context()
    first = make_context.start().quantized
    second = first.copy()
    common = rng.gamma(2.0, 1.0, 60)
    squares = [
        np.stack([np.full(60, 100.0), common * f], axis=1)[:, None] for f in (1.0, rng.gamma(9.0, 0.1, 60))
    ]
    figures = [OutputFigures((Slice("y", "y"),), one) for one in squares]
    make_context._figures[first], make_context._figures[second] = figures
    gains = []
    for _ in range(2000):
        picked = rng.integers(0, 60, 60)
        old, new = (one.of_samples(picked).mean for one in figures)
        gains.append(new - old)
    assert make_context.standard_error(second, first) == pytest.approx(np.std(gains), rel=0.15)
    assert make_context.standard_error(first, first) == 0.0


def test_mistakes_are_named(planted: Any) -> None:
    with pytest.raises(UsageError, match="no step 'soar'"):
        chosen(["soar"])
    with pytest.raises(QuantizationError, match="too few"):
        QuantizationContext(context().original, context().samples[:1], lambda op: SCHEMES["int8"])


def test_steps_of_plugins_may_use_the_former_names() -> None:
    make_context = context()
    start = make_context.start()
    with pytest.warns(FutureWarning, match="quantized"):
        assert start.made is start.quantized
    copy = start.quantized.copy()
    with pytest.warns(FutureWarning, match="quantized"):
        changed = replace(start, made=copy, notes=("changed",))  # type: ignore[call-arg]
    assert changed.quantized is copy and changed.table is start.table and changed.notes == ("changed",)
    with pytest.warns(FutureWarning, match="validated_sqnr"):
        assert make_context.judged(copy) == start.sqnr
    with pytest.warns(FutureWarning, match="validator"):
        assert make_context.judge is make_context.validator


def test_a_default_that_is_good_enough_needs_no_steps() -> None:
    heard: list[str] = []
    options = PipelineOptions(("equalize",), enough=10.0, report=lambda event: heard.append(str(event)))
    run_pipeline_steps(context(), options, None, widen=False, fixed=True)  # type: ignore[arg-type]
    assert [words.split(":")[0] for words in heard[:1]] == ["default"] and "dB are enough" in heard[-1]
    assert not any(words.startswith("equalize") for words in heard)


def test_a_step_that_loses_of_the_metric_is_not_built_on() -> None:
    """Closer to float in decibels, but further from the goal: the next step begins where the metric was better."""
    seen: list[tuple[str, ...]] = []

    class Next:
        def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
            seen.append(best.notes)
            return None

    class Closer:
        def propose(self, best: Candidate, context: QuantizationContext) -> Candidate | None:
            made = best.quantized.copy()
            return replace(best, quantized=made, sqnr=best.sqnr + 1, notes=(*best.notes, "closer"))

    class Free:
        machine = "a test"

        def network(self, graph: Any) -> int:
            return 1

    STEPS.add(["closer"], RegisteredStep("closer", "a test", 100, Closer))
    STEPS.add(["next"], RegisteredStep("next", "a test", 101, Next))
    made = context()
    start = made.start()
    for loss, expected in ((3.0, ()), (1.5, ("closer",))):
        figures = {start.quantized: 90.0 - 2.0}
        goal = Goal(lambda graph, known=figures, loss=loss: known.get(graph, 90.0 - loss), 90.0, 1.0)
        with pytest.raises(QuantizationError):
            search_goal(made, goal, Free(), start, ["closer", "next"])  # type: ignore[arg-type]
        assert seen.pop() == expected


@pytest.mark.parametrize("scheme", ["int8", "pow2"])
def test_ranges_are_those_of_all_samples_but_under_powers_of_two(scheme: str) -> None:
    """As those of the default are: of fewer samples they would clip more, and the ladder would end behind it.

    Under powers of two a range that is a little wider may double its scale: there the validation samples widen none.
    """
    plain = context()
    loud = [*plain.samples[:-1], {"x": 40 * plain.samples[-1]["x"]}]
    made = QuantizationContext(plain.original, loud, lambda op: SCHEMES[scheme], methods=("max",))
    assert any(sample is loud[-1] for sample in made.validation_samples)
    counted = loud if scheme == "int8" else made.fit
    largest = max(float(np.abs(sample["x"]).max()) for sample in counted)
    assert made.start().table["x"].threshold == pytest.approx(largest)


@pytest.mark.parametrize("ahead", [True, False])
def test_the_ladder_never_ends_behind_the_default(ahead: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The steps that are kept may lead away from what the default does on its own way, so that takes part in the race."""
    made, heard = context(), []
    start = made.start()
    other = made.requantized(
        made.original, lambda op: SCHEMES["int16-weights" if ahead else "int4-weights"], ("own",)
    )
    monkeypatch.setattr(
        "npuc.quant.ladder.run.default_steps", lambda *given, **more: (other, made.figures(other.quantized))
    )
    options = PipelineOptions(("equalize",), report=lambda event: heard.append(str(event)))
    assert made.cost_model is None
    found = run_pipeline_steps(made, options, None, widen=False, fixed=True)  # type: ignore[arg-type]
    assert any("the default is taken" in words for words in heard) == ahead
    assert found.sqnr >= max(start.sqnr, other.sqnr)
    assert any("the default is taken" in note for note in found.quantized.notes) == ahead
    assert heard[1].startswith(f"default with its quick steps: {other.sqnr:.2f} dB")
