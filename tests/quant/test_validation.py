"""Choices by slice and by sample: what is strong must not hide what is lost, and nothing is worse than no cleverness."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.compare import LOST, OutputFigures, Slice, find_slices, measure_outputs
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import Quantized, compile_network, quantize_network, quantize_on_data
from npuc.ir import Graph
from npuc.quant import tuning
from npuc.quant.accuracy import _unsteady
from npuc.quant.analysis import analyze
from npuc.quant.config import QuantizationConfig
from npuc.quant.prequantized import integer_types
from npuc.quant.validation import OutputValidator, is_no_worse
from npuc.sim import run
from npuc.target import load_target
from support.networks.detector import data, detector

EIGHT_BITS = "bm1684x-like"
"""A machine without activations of 16 bits."""


def figures_of(graph: Graph, made: Graph, samples: list[dict[str, Array]]) -> OutputFigures:
    """Measured by hand, on samples that the network has not seen."""
    exact = [FloatEngine(graph, threads=1).run(sample) for sample in samples]
    return measure_outputs(IntegerEngine(made).run, samples, exact, find_slices(graph, exact))


def quantized(
    graph: Graph, samples: list[dict[str, Array]], target: str | None = None, **more: Any
) -> Quantized:
    machine = load_target(target) if target else None
    return quantize_on_data(graph, open_data(graph, samples), target=machine, threads=1, **more)[0]


@pytest.mark.parametrize("target", [None, "edge-4t", EIGHT_BITS])
def test_boxes_and_scores_in_one_output_both_come_out_well(target: str | None) -> None:
    graph = detector()
    done = quantized(graph, data(12), target)
    by_slice = {one.name: value for one, value in figures_of(graph, done.graph, data(6, 9)).by_slice.items()}
    assert set(by_slice) == {"flat_boxes", "scores"}
    assert min(by_slice.values()) > 25, by_slice
    (joined,) = [layer for layer in done.outcome.layers if layer.name == "joined"]
    assert joined.is_float and joined.reason == "it joins parts of very different sizes to an output"
    assert any("'joined' joins parts that differ too much" in note for note in done.outcome.notes)
    assert done.accuracy is not None and not done.accuracy.warnings and not done.crowded


def test_the_compiled_program_of_such_outputs_has_the_bits_of_graph_mode() -> None:
    graph = detector()
    done = quantized(graph, data(12), "edge-4t")
    program = compile_network(done.graph, load_target("edge-4t")).model
    engine = IntegerEngine(done.graph)
    for sample in data(2, 9):
        np.testing.assert_array_equal(run(program, sample)["y"], engine.run(sample)["y"])


def test_without_sixteen_bits_such_outputs_are_still_joined_in_float() -> None:
    graph = detector()
    done = quantized(graph, data(12), "edge-4t", widen=False)
    assert {kind.dtype.name for kind in integer_types(done.graph).values()} == {"i8"}
    assert min(figures_of(graph, done.graph, data(6, 9)).by_slice.values()) > 25


def test_a_lost_slice_is_named_with_a_remedy_that_works() -> None:
    graph = detector()
    done = quantized(graph, data(12), config=QuantizationConfig(scheme="int8"))
    assert done.accuracy is not None
    (warning,) = done.accuracy.warnings
    assert warning.startswith("'scores' of the output 'y' is only 0.")
    assert "--scheme int16 gives all slices" in warning
    again = quantized(graph, data(12), config=QuantizationConfig(scheme="int16"))
    assert not figures_of(graph, again.graph, data(6, 9)).lost
    found = done.accuracy.as_json()
    assert found["worst_slice"]["slice"] == "scores" and found["worst_slice"]["sqnr"] < LOST
    assert [one["lost"] for one in found["slices"]] == [False, True]
    assert "worst slice scores (in y) 0." in str(done.accuracy)


def test_parts_of_very_different_sizes_are_reported_with_the_remedy() -> None:
    graph, config = detector(), QuantizationConfig(scheme="int8")
    done = quantized(graph, data(12), config=config)
    (text,) = done.crowded
    assert (
        text.startswith("'joined' has one scale, which leaves 'scores' (0") and "--keep-float joined" in text
    )
    ranges = {name: (entry.min, entry.max) for name, entry in _table(graph).items()}
    assert quantize_network(graph, ranges, config).crowded == done.crowded
    assert any(
        "--keep-float joined" in line for line in analyze(graph, done.graph, data(6), threads=1).summary()
    )
    helped = quantized(graph, data(12), config=config.with_layers(("joined",), "float"))
    assert not helped.crowded and not figures_of(graph, helped.graph, data(6, 9)).lost


def test_a_concat_inside_the_network_is_reported_too() -> None:
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 8, 8))
    parts = [
        lang.conv(
            x, (rng.normal(size=(4, 3, 1, 1)) * size).astype(np.float32), np.zeros(4, np.float32), name=name
        )
        for name, size in (("large", 300.0), ("small", 0.3))
    ]
    joined = lang.concat(parts, axis=1, name="inside")
    weight = np.concatenate(
        [rng.normal(size=(5, 4, 1, 1)) / 300, rng.normal(size=(5, 4, 1, 1)) / 0.3], axis=1
    )
    graph = lang.build(
        {"y": lang.conv(joined, weight.astype(np.float32), np.zeros(5, np.float32), name="last")}
    )
    samples = [{"x": s["x"][:, :, :8, :8]} for s in data(12)]
    config = QuantizationConfig(scheme="int8")
    done = quantized(graph, samples, config=config)
    (text,) = done.crowded
    assert "'small'" in text and "layers: {inside: int16, last: int16}" in text
    wide = config.with_layers(("inside", "last"), "int16")
    assert figures_of(graph, quantized(graph, samples, config=wide).graph, samples).mean > (
        figures_of(graph, done.graph, samples).mean + 10
    )


def _table(graph: Graph) -> Any:
    from npuc.calib.calibration import calibrate

    return calibrate(graph, data(12), "max", threads=1)


def rare() -> tuple[Graph, list[dict[str, Array]]]:
    """Values that occur in one sample of many and are all that matters there: methods that clip lose that sample."""
    rng = np.random.default_rng(3)
    x = lang.input("x", (1, 2, 16, 16))
    first = lang.conv(
        x, rng.normal(size=(8, 2, 1, 1)).astype(np.float32), np.zeros(8, np.float32), relu=True, name="a"
    )
    second = lang.conv(
        first, rng.normal(size=(8, 8, 1, 1)).astype(np.float32), np.zeros(8, np.float32), relu=True, name="b"
    )
    graph = lang.build(
        {
            "y": lang.conv(
                second, rng.normal(size=(4, 8, 1, 1)).astype(np.float32), np.zeros(4, np.float32), name="c"
            )
        }
    )
    samples = []
    for index in range(24):
        image = rng.normal(size=(1, 2, 16, 16))
        if index == 5:
            image[..., 3:5, 3:5] *= 60
        samples.append({"x": image.astype(np.float32)})
    return graph, samples


def test_no_clipping_competes_and_every_sample_is_judged() -> None:
    graph, samples = rare()
    done = quantized(graph, samples, config=QuantizationConfig(scheme="int8"))
    (race,) = [note for note in done.outcome.notes if note.startswith("ranges by")]
    assert all(f"{method} " in race for method in tuning.METHODS) and "at worst" in race
    assert done.accuracy is not None and len(done.accuracy.figures.squares) == len(samples)


def test_the_default_is_never_worse_than_plain_ranges_on_the_calibration_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also on samples that nothing else looks at: only two of 24 are kept, and one of the others is wrecked by clipping."""
    monkeypatch.setattr(tuning, "KEPT", 2)
    graph, samples = rare()
    done = quantized(graph, samples, config=QuantizationConfig(scheme="int8"))
    from npuc.calib.calibration import calibrate
    from npuc.quant import SCHEMES, quantize

    plain = quantize(graph, calibrate(graph, samples, "max", threads=1), SCHEMES["int8"])
    mine, bar = (OutputValidator(graph, samples).figures(made) for made in (done.graph, plain))
    assert mine.worst is not None and bar.worst is not None
    assert mine.mean >= bar.mean - 0.1 and mine.worst.sqnr >= bar.worst.sqnr - 0.1, (mine.worst, bar.worst)
    (note,) = [note for note in done.outcome.notes if "and nothing else are closer to float" in note]
    # The figures are those of all samples, not of the two that are kept, and each of them favours what is taken.
    figures = {"the mean of the slices": mine.mean, "the worst slice of the worst sample": mine.worst.sqnr}
    named = re.findall(r"(the [a-z ]+) (-?[\d.]+) dB, not (-?[\d.]+)", note.split("(")[1])
    assert " on 24 calibration samples (" in note and named and note.endswith("), so they are taken")
    for name, now, before in named:
        assert now == f"{figures[name]:.1f}" and float(before) < float(now), note


@pytest.mark.parametrize(
    ("taken", "dropped", "words"),
    [
        # The signal of a sample is 100; these are the errors of two samples.
        (
            (1.0, 1.0), (2.0, 2.0),
            "the mean of the slices 20.0 dB, not 17.0; the worst slice of the worst sample 20.0 dB, not 17.0",
        ),
        ((1.0, 1.0), (0.1, 1.5), "the worst slice of the worst sample 20.0 dB, not 18.2"),
        ((0.1, 2.0), (2.0, 2.0), "the mean of the slices 19.8 dB, not 17.0"),
        ((0.1, 2000.0), (1.0, 9000.0), "the mean of the slices -10.0 dB, not -16.5"),
        ((1.0, 1.0), (1.0, 1.0), ""),
    ],
)  # fmt: skip
def test_the_figures_that_decided_are_named_and_no_others(
    taken: tuple[float, float], dropped: tuple[float, float], words: str
) -> None:
    def figures(errors: tuple[float, float]) -> OutputFigures:
        return OutputFigures((Slice("y", "y"),), np.array([[[100.0, error]] for error in errors]))

    now, before = figures(taken), figures(dropped)
    assert is_no_worse(before, now) == (not words)
    assert tuning._decision(now, before) == f"2 calibration samples ({words})"


def spoiled() -> tuple[Graph, list[dict[str, Array]]]:
    """A tensor with one channel of 3,000 times the size of the others, which all depend on; and rare values behind it."""
    rng = np.random.default_rng(6)
    shapes = {"first": (8, 4, 1, 1), "second": (8, 8, 1, 1), "last": (6, 8, 3, 3)}
    weights = {name: rng.normal(size=shape) / 2 for name, shape in shapes.items()}
    weights["first"][0] *= 3000
    weights["second"] /= 1.5
    weights["second"][:, 0] /= 3000
    weights["last"] /= 4
    y = lang.silu(_plain(lang.input("x", (1, 4, 12, 12)), weights, "first"), name="spoiled")
    y = _plain(_plain(y, weights, "second", relu=True), weights, "last", pads=(1, 1, 1, 1))
    samples = []
    for _ in range(24):
        image = rng.normal(size=(1, 4, 12, 12))
        image[:, :, rng.integers(12), rng.integers(12)] *= 25
        samples.append({"x": image.astype(np.float32)})
    return lang.build({"y": y}), samples


def _plain(x: Any, weights: dict[str, Array], name: str, **more: Any) -> Any:
    weight = weights[name].astype(np.float32)
    return lang.conv(x, weight, np.zeros(len(weight), np.float32), name=name, **more)


def test_ranges_are_compared_again_once_a_tensor_that_spoils_all_outputs_has_sixteen_bits() -> None:
    """Before that no method leaves anything of the outputs; a network of zeros is no better than one that is lost in a sample."""
    graph, samples = spoiled()
    done = quantized(graph, samples)
    first, *later = [note for note in done.outcome.notes if "ranges" in note]
    assert first.startswith("ranges by mse") and first.count("0.0 dB") == 4
    (again,) = later
    assert again.startswith("with these types the ranges of mean are closer to float than those of mse")
    assert done.accuracy is not None and done.accuracy.figures.mean > 3.5


def test_how_far_below_nothing_a_lost_slice_lies_decides_nothing() -> None:
    slices = tuple(Slice("y", name) for name in ("boxes", "scores"))
    better, worse = (
        OutputFigures(slices, np.array([[[100.0, error], [1.0, lost]]]))
        for error, lost in ((1.0, 9.0), (10.0, 3.0))
    )
    assert better.worst is not None and worse.worst is not None and better.worst.sqnr < worse.worst.sqnr < 0
    assert better.score > worse.score and is_no_worse(better, worse)
    assert not is_no_worse(worse, better)


def keywords() -> tuple[Graph, list[dict[str, Array]]]:
    """A DS-CNN: depthwise and pointwise layers, a mean, a product; one channel of the last block is far larger than the rest."""
    rng = np.random.default_rng(7)
    y = lang.input("x", (1, 1, 32, 16))
    shapes: list[tuple[str, tuple[int, ...], int]] = [("stem", (32, 1, 3, 3), 1)]
    shapes += [(f"dense{i}", (32, 32, 3, 3), 1) for i in range(3)]
    shapes += [("depth", (32, 1, 3, 3), 32), ("point", (32, 32, 1, 1), 1)]
    for name, shape, group in shapes:
        weight = rng.normal(0, (2 / np.prod(shape[1:])) ** 0.5, shape)
        weight[0] *= 3000 if name == "depth" else 1
        if name == "point":
            weight[:, 0] /= 3000
        pads = (1, 1, 1, 1) if shape[-1] == 3 else (0, 0, 0, 0)
        zeros = np.zeros(32, np.float32)
        y = lang.conv(y, weight.astype(np.float32), zeros, pads=pads, group=group, relu=True, name=name)
    y = lang.reshape(lang.reduce(y, axes=(2, 3), kind="mean", name="pooled"), shape=(1, 32), name="flat")
    graph = lang.build({"y": lang.matmul(y, rng.normal(size=(32, 8)).astype(np.float32), name="logits")})
    samples = [{"x": rng.normal(size=(1, 1, 32, 16)).astype(np.float32)} for _ in range(20)]
    return graph, samples


def test_a_target_with_sixteen_bits_uses_them_where_they_are_worth_their_cycles() -> None:
    graph, samples = keywords()
    free, named, narrow = (
        quantized(graph, samples[:14], target, **more)
        for target, more in ((None, {}), ("edge-4t", {}), ("edge-4t", {"widen": False}))
    )
    worst = [figures_of(graph, one.graph, samples[14:]).worst_slice for one in (free, named, narrow)]
    values = [found[1] for found in worst if found is not None]
    assert values[1] > values[2] + 3 and values[1] > values[0] - 3, values
    (note,) = [text for text in named.outcome.notes if text.startswith("16 bits for")]
    assert "the worst slice goes from" in note and "cycles on edge-4t" in note and "--no-widen" in note
    assert not any("16 bits" in text for text in narrow.outcome.notes)
    assert {kind.dtype.name for kind in integer_types(narrow.graph).values()} == {"i8"}
    asked = quantized(graph, samples[:14], "edge-4t", config=QuantizationConfig(widen=False))
    assert {kind.dtype.name for kind in integer_types(asked.graph).values()} == {"i8"}


def test_a_target_without_sixteen_bits_says_what_is_lost() -> None:
    graph, samples = keywords()
    done = quantized(graph, samples[:14], EIGHT_BITS)
    assert any(
        text.startswith(f"{EIGHT_BITS} has no activations of 16 bits, with which the worst slice would have")
        for text in done.outcome.notes
    ), done.outcome.notes


def test_sixteen_bits_that_cost_too_much_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "MOST_CYCLES", -1.0)
    graph, samples = keywords()
    done = quantized(graph, samples[:14], "edge-4t")
    assert {kind.dtype.name for kind in integer_types(done.graph).values()} == {"i8"}
    assert any("they are left out" in text for text in done.outcome.notes)


def test_a_slice_that_is_lost_in_one_sample_alone_is_named() -> None:
    slices = tuple(Slice("y", name) for name in ("boxes", "scores"))
    # Over all samples both have 20 dB and more; the scores of the last sample have 10.
    figures = OutputFigures(
        slices, np.array([[[1e4, 1.0], [1000.0, 1.0]]] * 7 + [[[1e4, 1.0], [100.0, 10.0]]])
    )
    assert not figures.lost
    assert _unsteady(figures) == (
        "'scores' of the output 'y' (10.0 dB) is below 15 dB in the worst of 8 samples, and may be on other data; "
        "--scheme int16 or --ladder all may help",
    )
    assert not _unsteady(figures.of_samples(slice(0, 7)))
    (narrow,) = _unsteady(figures, wide=False)
    assert narrow.endswith("; --ladder all may help"), "a machine without 16 bits is not advised to use them"
