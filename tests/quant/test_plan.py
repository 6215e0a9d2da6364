"""Plans: what steps of the ladder are expected to give, from measured results, and a ladder that ends when that is enough."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.ir import Graph
from npuc.quant.ladder import QuantizationContext, StepResult, run_steps
from npuc.quant.ladder.plan import _most_live, enough_for, expected_loss, falling, kind_of, make_plan
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.scheme import SCHEMES


def network() -> Graph:
    rng = np.random.default_rng(3)
    y = lang.input("x", (1, 3, 12, 12))
    for index, (outputs, inputs) in enumerate([(16, 3), (16, 16), (16, 16)]):
        weight = rng.standard_normal((outputs, inputs, 3, 3)) * np.sqrt(2 / (9 * inputs))
        y = lang.conv(
            y,
            weight.astype(np.float32),
            np.zeros(outputs, np.float32),
            pads=1,
            relu=True,
            name=f"conv{index}",
        )
    pooled = lang.reduce(y, kind="mean", axes=(2, 3), keepdims=False)
    return lang.build(
        {"y": lang.matmul(pooled, rng.standard_normal((16, 5)).astype(np.float32), name="head")}
    )


def samples(count: int = 16) -> list[dict[str, Array]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.standard_normal((1, 3, 12, 12)).astype(np.float32)} for _ in range(count)]


def schemes(graph: Graph, name: str) -> LayerSchemes:
    return LayerSchemes.of(graph, lambda op: SCHEMES[name])


def test_the_curve_falls_and_is_the_nearest_that_does() -> None:
    values, weights = np.array([5.0, 1.0, 3.0, 0.5, 0.7]), np.array([1.0, 3.0, 1.0, 1.0, 1.0])
    curve = falling(values, weights)
    assert np.all(np.diff(curve) <= 0)
    np.testing.assert_allclose(curve, [5.0, 1.5, 1.5, 0.6, 0.6])


def test_more_decibels_are_expected_to_lose_less() -> None:
    losses = [expected_loss(sqnr).points for sqnr in (3.0, 8.0, 12.0, 20.0, 30.0)]
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1] + 1 and losses[-1] >= 0
    assert (
        expected_loss(enough_for(1.0)).points == pytest.approx(1.0)
        and expected_loss(enough_for(1.0) - 0.5).points > 1.0
    )
    assert enough_for(-1.0) == inf


def test_a_plan_measures_the_default_and_adds_what_steps_have_gained() -> None:
    graph = network()
    plan = make_plan(graph, samples(), schemes(graph, "int4-weights"), ("gptq", "adaquant"), total=64)
    assert [step.name for step in plan.steps] == ["default", "gptq", "adaquant"] and plan.kind == "few bits"
    context = QuantizationContext(graph, samples(), schemes(graph, "int4-weights"))
    assert plan.steps[0].sqnr == pytest.approx(context.start().sqnr, abs=1e-6)
    assert plan.steps[1].sqnr > plan.steps[0].sqnr and plan.steps[1].pairs > 0
    # What learns keeps the tensors between blocks of all samples.
    assert plan.steps[2].memory > plan.steps[1].memory + 64 * 16 * 12 * 12 * 4
    assert plan.steps[2].seconds > plan.steps[0].seconds


def test_a_plan_names_the_step_after_which_the_goal_is_expected_to_be_met() -> None:
    graph = network()
    schemes_of = schemes(graph, "int4-weights")
    plan = make_plan(graph, samples(), schemes_of, ("gptq", "adaquant"), total=16)
    for step in plan.steps:
        goal = step.loss.points + 1e-6
        named = make_plan(graph, samples(), schemes_of, ("gptq", "adaquant"), total=16, goal=goal).enough
        assert (
            named is not None
            and expected_loss(next(s.sqnr for s in plan.steps if s.name == named)).points <= goal
        )
    assert make_plan(graph, samples(), schemes_of, ("gptq",), total=16, goal=-1.0).enough is None


def test_kinds_of_schemes() -> None:
    graph = network()
    assert [kind_of(schemes(graph, name)) for name in ("int8", "pow2", "int4-weights")] == [
        "per channel", "per tensor", "few bits",
    ]  # fmt: skip


def test_live_memory_is_that_of_the_tensors_needed_at_once() -> None:
    # The largest sum is that of two maps of 16 channels: 2 * 16 * 144 numbers.
    assert _most_live(network()) == 2 * 16 * 12 * 12 * 4


def test_the_ladder_ends_when_it_is_good_enough() -> None:
    graph = network()
    context = QuantizationContext(graph, samples(24), schemes(graph, "int4-weights"))
    start = context.start()
    heard: list[StepResult] = []
    run_steps(context, ("gptq", "ranges"), start=start, report=heard.append)
    assert [result.name for result in heard] == ["ranges", "gptq"]
    less: list[StepResult] = []
    assert run_steps(context, ("gptq", "ranges"), start=start, report=less.append, enough=start.sqnr) is start
    assert less == []


def test_positions_have_nothing_to_do_without_powers_of_two() -> None:
    graph = network()
    for name, applies in (("int8", False), ("pow2", True)):
        plan = make_plan(graph, samples(), schemes(graph, name), ("positions",), total=16)
        assert plan.steps[1].applies == applies
        assert applies or plan.steps[1].seconds == 0.0
