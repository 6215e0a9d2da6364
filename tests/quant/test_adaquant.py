"""AdaQuant: scales that the largest weights and values set badly, and that no choice of roundings makes up for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_program
from npuc.engine import IntegerEngine
from npuc.ir import Graph, value_name
from npuc.quant.adaquant.options import AdaQuantOptions, LayerRates
from npuc.quant.ladder import Candidate, QuantizationContext, run_steps
from npuc.quant.ladder.sequence import StepResult
from npuc.quant.layers import integer_layers
from npuc.quant.parameters import largest_sum
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.sim import Simulator
from npuc.target import load_target

pytest.importorskip("torch", reason="needs the extra npuc[torch]")

EAGER = AdaQuantOptions(iterations=120, weight_scale_rate=0.03, activation_scale_rate=0.03)
"""The cases are small and far off, so that scales have to move far in little time."""


def network(loud: float, quiet: float) -> Graph:
    """The weights of input 0, which is almost nothing, are `loud`; so is channel 0 of what `a` makes, read `quiet`-ly."""
    rng = np.random.default_rng(0)
    first = rng.standard_normal((12, 8, 3, 3)).astype(np.float32)
    first[:, 0] *= loud
    first[0] *= loud
    second = rng.standard_normal((4, 12, 1, 1)).astype(np.float32)
    second[:, 0] *= quiet
    x = lang.input("x", (1, 8, 6, 6))
    hidden = lang.conv(x, first, np.zeros(12, np.float32), relu=True, name="a")
    return lang.build({"y": lang.conv(hidden, second, np.zeros(4, np.float32), name="b")})


def make_context(graph: Graph, scheme: Scheme) -> QuantizationContext:
    data = np.random.default_rng(1).standard_normal((32, 1, 8, 6, 6)).astype(np.float32)
    data[:, :, 0] *= 1e-3
    return QuantizationContext(graph, [{"x": sample} for sample in data], lambda op: scheme, methods=("max",))


@pytest.fixture(scope="module")
def context() -> QuantizationContext:
    return make_context(network(12.0, 1e-4), SCHEMES["int4-weights"])


@pytest.fixture(scope="module")
def start(context: QuantizationContext) -> Candidate:
    return context.start()


def learned(start: Candidate, context: QuantizationContext, options: AdaQuantOptions) -> Candidate:
    from npuc.quant.adaquant.step import AdaQuant

    found = AdaQuant(options).propose(start, context)
    assert found is not None
    return found


def integers(found: Candidate) -> list[list[int]]:
    layers = integer_layers(found.source, found.quantized, found.scheme_of)
    return [layer.integers.astype(int).ravel().tolist() for layer in layers]


def scales(found: Candidate) -> list[Array]:
    layers = integer_layers(found.source, found.quantized, found.scheme_of)
    return [layer.scale.ravel() for layer in layers]


def test_weights_that_matter_get_finer_steps_where_rounding_finds_none(
    context: QuantizationContext, start: Candidate
) -> None:
    from npuc.quant.rounding.step import LearnRounding

    rounded = LearnRounding(iterations=120).propose(start, context)
    found = learned(start, context, EAGER)
    assert rounded is not None
    assert found.sqnr > max(start.sqnr, rounded.sqnr) + 5, (start.sqnr, rounded.sqnr, found.sqnr)
    assert (scales(found)[0][1:] < 0.6 * scales(start)[0][1:]).all()
    assert found.sqnr == context.validated_sqnr(found.quantized)
    assert all(-7 <= least <= most <= 7 for least, most in ((min(i), max(i)) for i in integers(found)))
    inputs = random_inputs(found.quantized, 1)
    wanted = IntegerEngine(found.quantized, raw=True).run(inputs)
    got = Simulator(compile_program(found.quantized, load_target("edge-4t")).model).run(inputs)
    assert all(np.array_equal(got[name], array) for name, array in wanted.items())


def test_values_that_nobody_reads_lose_their_range() -> None:
    context = make_context(network(60.0, 1e-5), SCHEMES["int8"])
    start = context.start()
    found = learned(start, context, EAGER)
    assert found.sqnr > start.sqnr + 3, (start.sqnr, found.sqnr)
    assert found.table["a"].max < 0.5 * start.table["a"].max and found.table["a"].method == "learned"
    assert found.table["x"] == start.table["x"]
    before, after = integer_types(start.quantized)["a"], integer_types(found.quantized)["a"]
    assert after.scale < 0.5 * before.scale and after.zero_point == before.zero_point


def test_the_same_samples_teach_the_same(context: QuantizationContext, start: Candidate) -> None:
    one, two = (learned(start, context, AdaQuantOptions(iterations=10)) for _ in range(2))
    assert integers(one) == integers(two) and one.table == two.table and one.sqnr == two.sqnr


def test_a_layer_with_rates_of_nothing_stays(context: QuantizationContext, start: Candidate) -> None:
    still = LayerRates(weight_rate=0, bias_rate=0, weight_scale_rate=0, activation_scale_rate=0)
    found = learned(start, context, EAGER.model_copy(update={"iterations": 20, "layers": {"a*": still}}))
    assert integers(found)[0] == integers(start)[0] and integers(found)[1] != integers(start)[1]
    assert np.array_equal(scales(found)[0], scales(start)[0]) and found.table["a"] == start.table["a"]
    assert learned(start, context, EAGER.model_copy(update={"layers": {"*": still}})).sqnr >= start.sqnr


def test_rates_may_be_in_the_units_of_weights(context: QuantizationContext, start: Candidate) -> None:
    only_weights = {"weight_scale_rate": 0, "activation_scale_rate": 0, "bias_rate": 0, "iterations": 20}
    tiny, large = (
        learned(start, context, AdaQuantOptions(weight_rate=rate, real_rates=True, **only_weights))
        for rate in (1e-9, 0.2)
    )
    assert integers(tiny) == integers(start) and integers(large) != integers(start)


def test_positions_of_powers_of_two_move_where_the_outputs_gain() -> None:
    """The largest weights and values, which do not matter, set the positions; no choice of integers makes up for that."""
    context = make_context(network(12.0, 1e-4), SCHEMES["pow2"])
    start = context.start()
    still = EAGER.model_copy(update={"weight_scale_rate": 0.0, "activation_scale_rate": 0.0})
    fixed, found = learned(start, context, still), learned(start, context, EAGER)
    assert found.sqnr > max(fixed.sqnr, start.sqnr) + 5, (start.sqnr, fixed.sqnr, found.sqnr)
    assert all(np.array_equal(new, old) for new, old in zip(scales(fixed), scales(start), strict=True))
    assert fixed.table == start.table and found.table != start.table
    types = integer_types(found.quantized)
    steps = [
        *(float(scale) for row in scales(found) for scale in row),
        *(kind.scale for kind in types.values()),
    ]
    assert all(np.log2(step) == round(np.log2(step)) for step in steps), steps


def test_positions_alone_are_searched_without_learning() -> None:
    """The step `positions`: tensors and weights of a block move together, and no weight is learned."""
    from npuc.quant.adaquant.step import Positions

    context = make_context(network(12.0, 1e-4), SCHEMES["pow2"])
    start = context.start()
    found = Positions().propose(start, context)
    assert found is not None and found.sqnr > start.sqnr + 5, (start.sqnr, found and found.sqnr)
    assert found.table != start.table and found.notes[-1].startswith("moved the positions of ")
    for layer in integer_layers(found.source, found.quantized, found.scheme_of):
        nearest = np.rint(layer.weight / layer.scale).clip(layer.lowest, layer.highest)
        np.testing.assert_array_equal(layer.integers, nearest)
    context = make_context(network(12.0, 1e-4), SCHEMES["int8"])
    assert Positions().propose(context.start(), context) is None


def test_positions_that_are_right_stay() -> None:
    context = make_context(network(1.0, 1.0), SCHEMES["pow2"])
    start = context.start()
    found = learned(start, context, EAGER)
    assert all(np.array_equal(new, old) for new, old in zip(scales(found), scales(start), strict=True))
    assert found.table == start.table


def test_an_early_output_and_a_sum_of_two_are_learned_with_powers_of_two() -> None:
    """The network in torch is the integer one bit for bit, ties included: what helps in the one does in the other."""
    import torch

    from npuc.engine.torch import TopModule
    from npuc.quant.reconstruction.student import Student

    rng = np.random.default_rng(5)
    x = lang.input("x", (1, 8, 6, 6))
    a = lang.conv(x, rng.standard_normal((8, 8, 3, 3)).astype(np.float32), pads=1, relu=True, name="a")
    b = lang.conv(a, rng.standard_normal((8, 8, 3, 3)).astype(np.float32) / 8, pads=1, name="b")
    total = lang.relu(a + b, name="total")
    graph = lang.build({"early": a, "y": lang.conv(total, rng.standard_normal((2, 8, 1, 1)), name="y")})
    context = make_context(graph, SCHEMES["pow2"])
    found = learned(context.start(), context, EAGER.model_copy(update={"iterations": 20}))
    module = TopModule(found.source)
    student = Student(module, integer_types(found.quantized))
    weights = {
        module.refs[layer.float_op.operands[1]]: torch.tensor(
            layer.integers * layer.scale, dtype=torch.float32
        )
        for layer in integer_layers(found.source, found.quantized, found.scheme_of)
    }
    entry = found.source.inputs[0].value
    given = {entry: student.after(entry, torch.from_numpy(context.validation_samples[0]["x"]))}
    outputs = {port.name: port.value for port in found.source.outputs}
    got = module.run(module.steps, given, outputs.values(), weights=weights, after=student.after)
    wanted = IntegerEngine(found.quantized).run(context.validation_samples[0])
    assert all(np.array_equal(got[value].numpy(), wanted[name]) for name, value in outputs.items())


def test_sums_stay_within_narrow_accumulators(start: Candidate, monkeypatch: pytest.MonkeyPatch) -> None:
    from npuc.quant.adaquant import lowering

    layers = integer_layers(start.source, start.quantized, start.scheme_of)
    most = max(largest_sum(layer.integers, layer.bias, layer.x, layer.axis) for layer in layers)
    narrow = replace(SCHEMES["int4-weights"], sum_bits=most.bit_length() + 1, wide_sum_bits=0)
    context = make_context(network(12.0, 1e-4), narrow)
    start = context.start()
    lowered: list[int] = []
    lower = lowering.lower_learned

    def counted(*given: Any) -> Graph:
        made = lower(*given)
        lowered.append(len(integer_layers(start.source, made, start.scheme_of)))
        return made

    monkeypatch.setattr(lowering, "lower_learned", counted)
    # A rate that is stated is tried once.
    eager = EAGER.model_copy(update={"weight_scale_rate": 0.1, "weight_rate": EAGER.weight_rate})
    found = learned(start, context, eager)
    # The finer steps of the first layer make sums that do not fit: it has its old weights, and integers still.
    assert lowered == [1, 2]
    assert integers(found)[0] == integers(start)[0] and integers(found)[1] != integers(start)[1]


@pytest.mark.parametrize("name", ["adaquant", "round"])
@pytest.mark.parametrize("mixes", ["shapes", "values"])
def test_samples_that_are_not_along_the_first_axis_teach_nothing(name: str, mixes: str) -> None:
    rng = np.random.default_rng(4)
    wide = lang.matmul(lang.input("x", (6, 8)), rng.standard_normal((8, 8)).astype(np.float32), name="a")
    hidden = lang.permute(wide, order=(1, 0)) if mixes == "shapes" else lang.softmax(wide, axis=0)
    last = rng.standard_normal((6 if mixes == "shapes" else 8, 3)).astype(np.float32)
    graph = lang.build({"y": lang.matmul(hidden, last, name="b")})
    samples = [{"x": rng.standard_normal((6, 8)).astype(np.float32)} for _ in range(8)]
    results: list[StepResult] = []
    run_steps(
        QuantizationContext(graph, samples, lambda op: SCHEMES["int4-weights"]), [name], report=results.append
    )
    assert not results[0].kept and "those beside it" in results[0].reason, results[0]


def head(*, single: bool) -> Graph:
    """A network that may be one of single samples: a mean over the first axis is that of all samples that run together."""
    rng = np.random.default_rng(6)
    x = lang.input("x", (1, 4, 8, 8))
    y = lang.conv(x, rng.standard_normal((8, 4, 3, 3)).astype(np.float32) / 6, pads=1, relu=True, name="a")
    y = lang.conv(y, rng.standard_normal((6, 8, 1, 1)).astype(np.float32), name="b")
    return lang.build({"y": lang.reduce(y, kind="mean", axes=(0,), keepdims=True) if single else y})


def test_a_network_of_one_sample_learns_from_one_after_the_other() -> None:
    rng = np.random.default_rng(7)
    samples = [{"x": rng.standard_normal((1, 4, 8, 8)).astype(np.float32)} for _ in range(24)]
    alone, together = (
        QuantizationContext(head(single=single), samples, lambda op: SCHEMES["int4-weights"])
        for single in (True, False)
    )
    # Without masks, which the mean would draw one more of.
    options = AdaQuantOptions(iterations=20, dropped=0.0)
    one, other = (learned(context.start(), context, options) for context in (alone, together))
    assert one.sqnr == pytest.approx(other.sqnr, abs=0.1)
    context, start = alone, alone.start()
    assert integers(one) != integers(start)
    context.patient = False
    results: list[StepResult] = []
    run_steps(context, ["adaquant"], start=start, report=results.append)
    assert not results[0].kept and "one sample at a time" in results[0].reason


def test_a_scale_that_several_blocks_share_is_left_alone() -> None:
    from npuc.quant.adaquant.learn import free_scales, power_scales
    from npuc.quant.adaquant.lowering import type_origins

    rng = np.random.default_rng(3)
    x = lang.input("x", (1, 4, 8, 8))
    one = lang.conv(x, rng.standard_normal((4, 4, 1, 1)).astype(np.float32), name="one")
    two = lang.conv(x, rng.standard_normal((4, 4, 1, 1)).astype(np.float32), name="two")
    pooled = lang.max_pool(
        lang.conv(one, rng.standard_normal((4, 4, 1, 1)).astype(np.float32), name="c"), kernel=2
    )
    joined = lang.concat([one, two], axis=1, name="joined")
    graph = lang.build({"y": joined, "z": pooled})
    names = [value_name(value) for op in graph.ops for value in op.results]
    ranges = {name: (-1.0 - i, 1.0 + i) for i, name in enumerate(["x", *names])}
    origins = type_origins(graph, ranges, lambda op: SCHEMES["int8"])
    by_name = {value_name(value): name for value, name in origins.items()}
    assert by_name["two"] == "joined" and by_name["one"] == "one"
    assert by_name[value_name(graph.outputs[1].value)] == "c"
    named = {value_name(value): value for value in origins}
    kinds = dict.fromkeys(
        by_name, integer_types(make_context(network(1, 1), SCHEMES["int8"]).start().quantized)["a"]
    )
    free = free_scales(origins, named, kinds, lambda op: SCHEMES["int8"])
    assert sorted(free) == ["c", "one"] and len(free["c"]) == 2
    powers = free_scales(origins, named, kinds, lambda op: SCHEMES["pow2"])
    assert powers == free and power_scales(powers, lambda op: SCHEMES["pow2"]) == set(free)
    assert not power_scales(free, lambda op: SCHEMES["int8"])


def test_what_is_learned_does_not_depend_on_threads_and_parts_of_batches(
    context: QuantizationContext, start: Candidate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A processor takes parts of a batch that fit its cache, CUDA whole batches; threads change the order of sums."""
    options = AdaQuantOptions(iterations=60)
    found = []
    for cached, threads in ((1 << 20, 1), (1, 1), (1 << 20, 2)):
        monkeypatch.setattr("npuc.quant.reconstruction.learning._CACHED", cached)
        monkeypatch.setattr(context, "threads", threads)
        found.append(learned(start, context, options))
    assert integers(found[0]) != integers(start)
    for one in found[1:]:
        assert integers(one) == integers(found[0])
        assert all(map(np.array_equal, scales(one), scales(found[0])))


def test_a_conversion_in_the_network_is_no_obstacle_to_learning_in_double() -> None:
    rng = np.random.default_rng(3)
    x = lang.input("x", (1, 4, 6, 6))
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((8, 4, 3, 3), (4, 8, 1, 1))]
    hidden = lang.conv(x, weights[0], relu=True, name="a")
    whole = lang.cast(lang.cast(hidden, to="i32"), to="f32")
    graph = lang.build({"y": lang.conv(whole, weights[1], name="b")})
    samples = [{"x": rng.standard_normal((1, 4, 6, 6)).astype(np.float32)} for _ in range(8)]
    context = QuantizationContext(graph, samples, lambda op: SCHEMES["int4-weights"], methods=("max",))
    learned(context.start(), context, AdaQuantOptions(iterations=2))
