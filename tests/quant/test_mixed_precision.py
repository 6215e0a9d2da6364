"""Types by layer: the solver is exact, and the one layer that needs 16 bits gets them, at the least cost."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc import lang
from npuc.calib.sources import open_data
from npuc.errors import QuantizationError
from npuc.ir import Graph, npu
from npuc.layer_costs import TargetCostModel
from npuc.quant.adaquant.lowering import LearnedLayer, lower_learned
from npuc.quant.ladder import Candidate, QuantizationContext, run
from npuc.quant.ladder.goal import search_goal
from npuc.quant.ladder.measurements import Goal, GoalCheck, Loss, Measurement, MeasurementLog
from npuc.quant.ladder.run import PipelineOptions, kept_samples, run_pipeline_steps
from npuc.quant.ladder.search import first_that_meets
from npuc.quant.layers import integer_layers
from npuc.quant.mixed_precision import rerounding
from npuc.quant.mixed_precision.cost_model import LayerCost
from npuc.quant.mixed_precision.drawing import frontier_data, frontier_svg
from npuc.quant.mixed_precision.frontier import Option, frontier
from npuc.quant.mixed_precision.mixing import Mixer, Pick, describe
from npuc.quant.mixed_precision.rerounding import Rerounding
from npuc.quant.mixed_precision.step import ALLOWED, MixedPrecision
from npuc.quant.mixed_precision.units import find_units, key
from npuc.quant.mixed_precision.variants import Variant
from npuc.quant.scheme import SCHEMES
from npuc.target import load_target

_OPTION = st.tuples(st.integers(0, 30), st.integers(-5, 30))
_UNITS = st.lists(st.lists(_OPTION, min_size=1, max_size=4), min_size=1, max_size=5)


@given(_UNITS)
@settings(deadline=None, derandomize=True, max_examples=200)
def test_the_frontier_is_that_of_all_combinations(units: list[list[tuple[int, int]]]) -> None:
    options = [
        [Option(float(n), float(c), (k, i)) for i, (n, c) in enumerate(u)] for k, u in enumerate(units)
    ]
    found = frontier(options)
    sums = [(sum(o.cost for o in combo), sum(o.noise for o in combo)) for combo in product(*options)]
    best: list[tuple[float, float]] = []
    for cost, noise in sorted(set(sums)):
        if not best or noise < best[-1][1]:
            best.append((cost, noise))
    assert found.exact
    assert list(zip(found.cost.tolist(), found.noise.tolist(), strict=True)) == best
    for point in range(len(found)):
        chosen = found.options(point)
        assert [option.pick[0] for option in chosen] == list(range(len(units)))
        assert sum(option.cost for option in chosen) == found.cost[point]
        assert sum(option.noise for option in chosen) == found.noise[point]
    for bound in (0.0, 10.0, 200.0):
        cheap, quiet = found.cheapest(bound), found.quietest(bound)
        assert (cheap is None) == all(noise > bound for _, noise in best)
        assert cheap is None or found.cost[cheap] == min(c for c, n in best if n <= bound)
        assert quiet is None or found.noise[quiet] == min(n for c, n in best if c <= bound)


def test_a_frontier_beyond_bounds_is_thinned_and_says_so() -> None:
    units = [[Option(2.0**k, 0.0), Option(0.0, 2.0**k)] for k in range(8)]
    whole, thin = frontier(units), frontier(units, most=20)
    assert whole.exact and len(whole) == 256
    assert not thin.exact and len(thin) <= 20
    assert (thin.cost[0], thin.noise[-1]) == (whole.cost[0], whole.noise[-1])


_SPOILED = "wide"


def planted() -> tuple[Graph, list[dict[str, Any]]]:
    """Six layers; one tensor has a channel a thousand times larger than the others, which the next layer scales down."""
    rng = np.random.default_rng(3)

    def weights(out: int, into: int) -> Any:
        return (rng.standard_normal((out, into, 3, 3)) / np.sqrt(9 * into)).astype(np.float32)

    x = lang.input("x", (1, 4, 12, 12))
    value = lang.conv(x, weights(16, 4), pads=[1, 1, 1, 1], relu=True, name="a")
    value = lang.conv(value, weights(16, 16), pads=[1, 1, 1, 1], relu=True, name="b")
    large, small = weights(16, 16), weights(16, 16)
    large[0] *= 1000
    small[:, 0] /= 1000
    value = lang.conv(value, large, pads=[1, 1, 1, 1], relu=True, name=_SPOILED)
    value = lang.conv(value, small, pads=[1, 1, 1, 1], relu=True, name="c")
    value = lang.conv(value, weights(16, 16), pads=[1, 1, 1, 1], relu=True, name="d")
    graph = lang.build({"y": lang.conv(value, weights(4, 16), pads=[1, 1, 1, 1], name="e")})
    samples = [{"x": rng.standard_normal((1, 4, 12, 12)).astype(np.float32)} for _ in range(16)]
    return graph, samples


def context(target: str = "edge-4t") -> QuantizationContext:
    graph, samples = planted()
    machine = load_target(target)
    return QuantizationContext(
        graph, samples, lambda op: SCHEMES["int8"], methods=("mse",), cost_model=TargetCostModel(machine)
    )


@pytest.fixture(scope="module")
def started() -> tuple[QuantizationContext, Candidate]:
    make_context = context()
    return make_context, make_context.start()


def types(made: Graph) -> dict[str, str]:
    from npuc.quant.prequantized import integer_types

    return {name: kind.dtype.name for name, kind in integer_types(made).items()}


def test_units_are_tensors_with_their_readers(started: Any) -> None:
    _, best = started
    units = find_units(best.source, {})
    assert [unit.name for unit in units] == ["x", "a", "b", _SPOILED, "c", "d"]
    assert [len(unit.weighted) for unit in units] == [1] * 6


def test_mixed_precision_finds_exactly_the_layer_that_needs_it(started: Any) -> None:
    make_context, best = started
    mixer = Mixer(best, make_context, make_context.cost_model)
    point = mixer.frontier.cheapest(10**-3.0)
    assert point is not None
    picks = [pick for pick in mixer.frontier.picks(point) if pick.activation != "own"]
    # The output costs nothing; all else has 8 bits.
    assert [pick.unit.name for pick in picks if pick.unit.readers] == [_SPOILED]
    made = mixer.candidate(mixer.frontier.picks(point))
    assert best.sqnr < 15 and made.sqnr > 25
    kinds = types(made.quantized)
    assert kinds[_SPOILED] == "i16" and kinds["a"] == kinds["b"] == kinds["d"] == "i8"
    # Any other unit alone costs as much and gains next to nothing.
    for index, unit in enumerate(mixer.units):
        other = [
            next(o.pick for o in mixer.frontier.units[k] if o.pick.is_own) for k in range(len(mixer.units))
        ]
        other[index] = replace(other[index], activation="i16")
        if unit.readers and unit.name != _SPOILED:
            assert mixer.candidate(other).sqnr < best.sqnr + 3


def test_the_step_stays_within_its_cycles(started: Any) -> None:
    make_context, best = started
    found = MixedPrecision().propose(best, make_context)
    assert found is None or make_context.cost_model.network(found.quantized) <= (
        1 + ALLOWED
    ) * make_context.cost_model.network(best.quantized)
    assert (
        MixedPrecision().propose(best, QuantizationContext(best.source, make_context.samples, best.scheme_of))
        is None
    )


class Cheap:
    """A machine on which types cost what their bytes are."""

    machine = "scales"

    def __init__(self, target: str = "edge-4t") -> None:
        self._real = TargetCostModel(load_target(target))

    def layers(self, graph: Graph) -> dict[str, LayerCost]:
        return {name: LayerCost(0.0, one.load) for name, one in self._real.layers(graph).items()}

    def network(self, graph: Graph) -> int:
        return round(sum(one.load for one in self.layers(graph).values()))

    def requant(self, elements: int) -> float:
        return 0.0

    def switch(self) -> float:
        return 1e6


def test_four_bits_are_taken_where_loads_are_what_costs(started: Any) -> None:
    make_context, best = started
    mixer = Mixer(best, make_context, Cheap())
    cheapest = mixer.candidate(mixer.frontier.picks(0))
    assert "i4 weights for 6 layers" in describe(mixer.frontier.picks(0))
    assert Cheap().network(cheapest.quantized) < 0.7 * Cheap().network(best.quantized)


def correlated() -> tuple[QuantizationContext, Candidate]:
    """Two products; the 64 inputs of the first are mixtures of eight, so that weights can make up for each other."""
    rng = np.random.default_rng(4)

    def weights(into: int, out: int) -> Any:
        return (rng.standard_normal((into, out)) / np.sqrt(into)).astype(np.float32)

    value = lang.relu(lang.matmul(lang.input("x", (1, 64)), weights(64, 48), name="a"))
    graph = lang.build({"y": lang.matmul(value, weights(48, 10), name="b")})
    mixture = rng.standard_normal((8, 64))
    samples = [
        {"x": (rng.standard_normal((1, 8)) @ mixture + 0.1 * rng.standard_normal((1, 64))).astype(np.float32)}
        for _ in range(48)
    ]
    make_context = QuantizationContext(graph, samples, lambda op: SCHEMES["int8"], methods=("mse",))
    return make_context, make_context.start()


def all_short(mixer: Mixer) -> list[Pick]:
    """Four bits for the weights of all layers."""
    return [Pick(unit, "own", tuple((key(op), "i4") for op in unit.weighted)) for unit in mixer.units]


def test_weights_of_four_bits_are_rounded_together(monkeypatch: pytest.MonkeyPatch) -> None:
    make_context, best = correlated()
    mixer = Mixer(best, make_context, Cheap())
    picks = all_short(mixer)
    together = mixer.candidate(picks)
    assert together.notes[-1] == "i4 weights for 2 layers; 2 rounded together"
    noise = mixer.frontier.noise.max()
    monkeypatch.setattr(Rerounding, "integers", lambda self, layers: {})
    before = Mixer(best, make_context, Cheap())
    alone = before.candidate(picks)
    assert alone.notes[-1] == "i4 weights for 2 layers"
    assert together.sqnr > alone.sqnr + 2
    # The noise that the choice goes by is that of the better integers.
    assert noise < 0.7 * before.frontier.noise.max()


def test_integers_are_found_once_for_all_choices(monkeypatch: pytest.MonkeyPatch) -> None:
    make_context, best = correlated()
    passes = []
    real = rerounding.second_moments
    monkeypatch.setattr(rerounding, "second_moments", lambda *given: passes.append(1) or real(*given))
    mixer = Mixer(best, make_context, Cheap())
    assert len(mixer.frontier) > 1
    for pick in all_short(mixer):
        mixer.candidate([pick])
    assert len(passes) == 1


def test_steps_that_were_learned_are_kept_where_types_stay(started: Any) -> None:
    make_context, best = started
    layers = integer_layers(best.source, best.quantized, best.scheme_of)
    learned = {
        layer.float_op: replace(LearnedLayer.of(layer), scale=0.8 * layer.scale.reshape(-1))
        for layer in layers
    }
    made = lower_learned(best.source, best.table, best.scheme_of, learned)
    own = replace(best, quantized=made, sqnr=make_context.validated_sqnr(made))
    mixer = Mixer(own, make_context, Cheap())
    picks = [Pick(unit, "i16" if unit.name == _SPOILED else "own") for unit in mixer.units]
    short = [key(op) for unit in mixer.units if unit.name == "a" for op in unit.weighted]
    picks = [replace(p, weights=((short[0], "i4"),)) if p.unit.name == "a" else p for p in picks]
    found = mixer.candidate(picks)
    before = {layer.name: layer for layer in integer_layers(own.source, own.quantized, own.scheme_of)}
    after = integer_layers(found.source, found.quantized, found.scheme_of)
    assert [layer.name for layer in after] == list(before)
    for layer in after:
        kept = layer.name not in short
        assert np.array_equal(layer.scale, before[layer.name].scale) == kept
        assert np.array_equal(layer.integers, before[layer.name].integers) == kept


def test_weights_may_change_where_all_tensors_have_16_bits_already() -> None:
    graph, samples = planted()
    make_context = QuantizationContext(graph, samples, lambda op: SCHEMES["int16"], methods=("mse",))
    mixer = Mixer(make_context.start(), make_context, Cheap())
    assert "i4 weights for 6 layers" in describe(mixer.frontier.picks(0))


def test_biases_that_were_corrected_are_kept_where_types_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    # All weights but one round up, so that the sums of positive inputs need another bias.
    weight = np.full((64, 4), 0.503 / 127, np.float32)
    weight[0] = 1.0
    hidden = lang.matmul(lang.input("x", (1, 64)), weight, np.zeros(4, np.float32), name="a")
    last = rng.standard_normal((4, 3)).astype(np.float32)
    graph = lang.build({"y": lang.matmul(hidden, last, np.zeros(3, np.float32), name="b")})
    samples = [{"x": rng.random((1, 64)).astype(np.float32)} for _ in range(16)]
    make_context = QuantizationContext(graph, samples, lambda op: SCHEMES["int8"], methods=("mse",))
    best = make_context.start()
    monkeypatch.setattr(Mixer, "_corrected", lambda self, made, scheme_of: made)
    mixer = Mixer(best, make_context, Cheap())
    found = mixer.candidate([Pick(unit, "i16" if unit.name == "a" else "own") for unit in mixer.units])
    (old, _), (new, _) = (integer_layers(one.source, one.quantized, one.scheme_of) for one in (best, found))
    assert np.abs(old.bias).min() > 100
    np.testing.assert_allclose(new.bias * new.unit, old.bias * old.unit, atol=float(old.unit.max()))


def climb_by(
    make_context: QuantizationContext, best: Candidate, drop: float, names: list[str] | None = None
) -> Any:
    goal = Goal(make_context.validated_sqnr, 40.0, drop, "sqnr", " dB")
    measurements: list[Measurement] = []
    way = search_goal(
        make_context,
        goal,
        make_context.cost_model,
        best,
        names or ["mixed"],
        report=measurements.append,
        points=3,
    )
    assert tuple(measurements) == way.measurements
    return goal, way


def test_a_climb_meets_the_drop_at_the_fewest_cycles_that_it_saw(started: Any) -> None:
    make_context, best = started
    goal, way = climb_by(make_context, best, 15.0)
    assert way.best.met and way.best.sqnr >= 25 and not way.measurements[0].met
    assert way.best.cycles == min(stop.cycles for stop in way.measurements if stop.met)
    kinds = types(way.best.candidate.quantized)
    assert [name for name in ("x", "a", "b", _SPOILED, "c", "d") if kinds.get(name) == "i16"] in (
        [_SPOILED],
        [_SPOILED, "c"],
    )
    svg, data = frontier_svg(way, goal, "edge-4t"), frontier_data(way, goal, "edge-4t")
    assert svg.startswith("<svg") and svg.count("<circle") == len(way.measurements)
    assert sum(point["chosen"] for point in data["points"]) == 1
    assert data["points"][0]["what"] == "default"


def flattered(make_context: QuantizationContext, drop: float) -> Goal:
    """All networks seem 8 dB better where they steer than they are on what is held back."""

    def confirm(made: Graph) -> Loss:
        lost = 40.0 - make_context.validated_sqnr(made)
        return Loss(lost, (lost - 1, lost + 1))

    def measure(made: Graph) -> float:
        return make_context.validated_sqnr(made) + 8

    return Goal(measure, 40.0, drop, "sqnr", " dB", samples=80, confirm=confirm, held_back=20)


def test_a_promise_that_is_not_kept_elsewhere_is_not_believed(started: Any) -> None:
    make_context, best = started
    goal = flattered(make_context, 10.0)
    heard: list[Measurement | GoalCheck] = []
    way = search_goal(make_context, goal, make_context.cost_model, best, ["mixed"], report=heard.append)
    naive = search_goal(make_context, replace(goal, confirm=None), make_context.cost_model, best, ["mixed"])
    # By the samples that steer alone a cheaper network would do, and it loses too much on the others.
    assert naive.best.met and 40.0 - naive.best.sqnr > 10.0
    assert way.best.cycles > naive.best.cycles and 40.0 - way.best.sqnr <= 10.0
    assert not way.checks[0].met and way.checks[-1].met and way.checks[-1].measurement is way.best
    assert [one for one in heard if isinstance(one, GoalCheck)] == list(way.checks)
    assert [one for one in heard if isinstance(one, Measurement)] == list(way.measurements)
    # No network is asked twice, and every next one promises more.
    assert len({id(check.measurement) for check in way.checks}) == len(way.checks)
    lost = goal.shown(way.best.lost)
    words = way.checks[-1].words(goal)
    assert words.startswith(f"drop {lost} dB (steering, 80 samples), ")
    assert words.endswith(" ± 1 on 20 held-back samples")
    points = frontier_data(way, goal, "edge-4t")["points"]
    (chosen,) = [point for point in points if point["chosen"]]
    assert chosen["held_back"]["confirmed"] and chosen["held_back"]["lost"] == way.checks[-1].loss.value


def test_a_promise_that_no_network_keeps_is_refused_with_both_figures(started: Any) -> None:
    make_context, best = started
    goal = replace(flattered(make_context, 30.0), confirm=lambda made: Loss(31.0, (30.5, 31.5)))
    with pytest.raises(QuantizationError, match=r"80 samples that steer, and 31 ± 0\.5 on the 20") as caught:
        search_goal(make_context, goal, make_context.cost_model, best, ["mixed"])
    assert "label more samples" in caught.value.fix


def test_after_a_network_that_fails_only_those_that_promise_more_are_asked(started: Any) -> None:
    _, best = started
    asked: list[float] = []

    def confirm(made: Graph) -> Loss:
        asked.append(1.0)
        return Loss(float(len(asked) < 2), (0.0, 1.0))

    way = MeasurementLog(Goal(lambda made: 0.0, 0.0, 0.5, confirm=confirm), Cheap(), lambda stop: None)
    for words, lost, sqnr, cycles in (("a", 0.3, 20.0, 10), ("b", 0.4, 19.0, 11), ("c", 0.2, 21.0, 12)):
        candidate = replace(best, sqnr=sqnr)
        way.measurements.append(Measurement(words, -lost, lost, True, cycles, 0.0, candidate))
    found = way.best()
    assert found is not None and found.words == "c" and len(asked) == 2
    assert way.best() is found and len(asked) == 2


def test_a_goal_that_is_met_at_once_costs_nothing(started: Any) -> None:
    make_context, best = started
    _, way = climb_by(make_context, best, 40.0)
    assert way.measurements[0].met and way.best.cycles <= way.measurements[0].cycles


def test_what_is_out_of_reach_is_refused_with_a_lesson(started: Any) -> None:
    make_context, best = started
    with pytest.raises(QuantizationError, match=r"loses .* dB at best") as caught:
        climb_by(make_context, best, 1.0, ["gptq"])
    assert "mixed" in caught.value.fix and "cycles on edge-4t" in caught.value.message


def test_the_whole_climb_gives_the_same_bytes_twice() -> None:
    made = []
    for _ in range(2):
        make_context = context()
        found = run_pipeline_steps(
            make_context, PipelineOptions(("mixed",)), make_context.cost_model, widen=False, fixed=False
        )
        made.append(
            (
                str(found.quantized.module),
                [found.quantized.weights.array(r).tobytes() for r in found.quantized.used_weights()],
            )
        )
    assert made[0] == made[1]


def test_the_search_begins_at_the_cheap_end() -> None:
    costs = [0.0, 0.01, 0.05, 0.2, 0.5, 1.0, 3.0, 9.0]
    for first in range(len(costs) + 1):
        seen: list[int] = []

        def met(place: int, first: int = first, seen: list[int] = seen) -> bool:
            seen.append(place)
            return place >= first

        found = first_that_meets(range(len(costs)), lambda place: costs[place], met)
        assert found == (first if first < len(costs) else None)
        assert len(seen) == len(set(seen)) <= 7 and (first > 1 or max(seen) <= 1)


def test_a_rate_of_errors_had_better_be_small() -> None:
    worse = Goal(lambda made: 0.0, 10.0, 1.0, "wer", lower_is_better=True)
    assert worse.met_by(11.0) and worse.met_by(5.0) and not worse.met_by(11.1)
    better = Goal(lambda made: 0.0, 10.0, 1.0)
    assert better.met_by(9.0) and better.met_by(12.0) and not better.met_by(8.9)


@pytest.mark.parametrize(
    "drop, grain, most", [(0.4, 0.5, 0.5), (0.4, 0.1, 0.4), (0.45, 0.2, 0.6), (0.0, 0.5, 0.0)]
)
def test_held_back_samples_are_counted_in_whole_ones(drop: float, grain: float, most: float) -> None:
    goal = Goal(lambda made: 0.0, 90.0, drop, grain=grain)
    assert goal.confirmed_by(most) and not goal.confirmed_by(most + grain)
    assert Goal(lambda made: 0.0, 90.0, drop).confirmed_by(drop)
    assert not Goal(lambda made: 0.0, 90.0, drop).confirmed_by(drop + 0.01)


def test_samples_of_the_ladder_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, samples = planted()
    notes: list[str] = []
    assert len(kept_samples(graph, open_data(graph, samples))) == len(samples)
    monkeypatch.setattr(run, "MOST_SAMPLES", 5)
    assert len(kept_samples(graph, open_data(graph, samples), warn=notes.append)) == 5
    assert "the first 5 samples" in notes[0]
    monkeypatch.setattr(run, "MOST_BYTES", 3 * samples[0]["x"].nbytes)
    assert len(kept_samples(graph, open_data(graph, samples))) == 3


@pytest.fixture(scope="module")
def with_floats() -> tuple[QuantizationContext, Candidate]:
    """The planted network on a machine that has no 16-bit integers, but bf16, f16 and f32."""
    graph, samples = planted()
    machine = load_target("bm1684x-like")
    make_context = QuantizationContext(
        graph,
        samples,
        lambda op: SCHEMES["int8"],
        methods=("mse",),
        cost_model=TargetCostModel(machine),
        target=machine,
    )
    return make_context, make_context.start()


def test_floats_of_the_machine_are_offered_at_their_price(with_floats: Any) -> None:
    make_context, best = with_floats
    mixer = Mixer(best, make_context, make_context.cost_model)
    unit = next(index for index, unit in enumerate(mixer.units) if unit.name == _SPOILED)
    options = {
        option.pick.activation: option for option in mixer.frontier.units[unit] if not option.pick.weights
    }
    assert options.keys() == {"own", "bf16", "f16", "f32"}
    costs, noises = ([getattr(options[kind], what) for kind in options] for what in ("cost", "noise"))
    assert costs == sorted(costs) and noises == sorted(noises, reverse=True)
    # Converting in and out costs cycles, too: without it the layers alone would be cheaper.
    layers = {variant.activation: variant for variant in mixer._floats}
    ops = dict.fromkeys((*mixer.units[unit].makers, *mixer.units[unit].readers))
    assert options["bf16"].cost > sum(mixer._extra(op, layers["bf16"]) for op in ops)
    point = mixer.frontier.cheapest(10**-3.0)
    assert point is not None
    picks = mixer.frontier.picks(point)
    assert {pick.activation for pick in picks if pick.unit.name == _SPOILED} <= {"bf16", "f16"}
    made = mixer.candidate(picks)
    assert best.sqnr < 15 and made.sqnr > 25
    assert any(isinstance(op, npu.FloatConv) for op in made.quantized.ops)
    assert any(isinstance(op, npu.Conv) for op in made.quantized.ops)
    assert make_context.cost_model.network(made.quantized) is not None
    assert "bf16 for" in describe(picks) or "f16 for" in describe(picks)


def test_f16_is_not_offered_for_numbers_that_it_does_not_hold(with_floats: Any) -> None:
    make_context, best = with_floats
    entries = {
        name: replace(entry, max=70_000.0) if name == _SPOILED else entry
        for name, entry in best.table.entries.items()
    }
    large = replace(best, table=replace(best.table, entries=entries))
    mixer = Mixer(large, make_context, make_context.cost_model)
    unit = next(unit for unit in mixer.units if unit.name == _SPOILED)
    assert [mixer._able(unit, Variant(kind)) for kind in ("bf16", "f16", "f32")] == [True, False, True]
