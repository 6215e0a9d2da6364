"""16 bits for few layers, where a scheme leaves a network of little use and channels cannot be equalized."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.sources import open_data
from npuc.flow import quantize_on_data
from npuc.ir import Graph
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder import Candidate, QuantizationContext, fallback, sequence, wide_layers
from npuc.quant.ladder.wide_layers import MOST_LAYERS
from npuc.quant.scheme import SCHEMES
from npuc.target import load_target

RNG = np.random.default_rng(5)
SIZES = 2.0 ** -(np.arange(16) / 2)
"""The magnitudes of the channels between the first two layers, all of which matter."""


def weights(*shape: int) -> Array:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def network(reach: float = 4.0) -> Graph:
    """A silu between layers whose channels differ, then many layers without trouble.

    No factor can be moved through the silu where its values `reach` the bend around 1.
    """
    x = lang.input("x", (1, 4, 8, 8))
    first = (reach * weights(16, 4, 3, 3) * SIZES[:, None, None, None]).astype(np.float32)
    second = (weights(8, 16, 1, 1) / SIZES[None, :, None, None]).astype(np.float32)
    hidden = lang.silu(lang.conv(x, first, pads=1, name="first"))
    y = lang.conv(hidden, second, name="second")
    for index in range(17):
        y = lang.conv(y, 2 * weights(8, 8, 1, 1), relu=True, name=f"layer{index}")
    return lang.build({"y": lang.conv(y, weights(3, 8, 1, 1), name="last")})


@pytest.fixture(scope="module")
def graph() -> Graph:
    return network()


def detector() -> Graph:
    """The same trunk with boxes and small scores in one output: powers of two leave the scores no steps beside the boxes."""
    x = lang.input("x", (1, 4, 8, 8))
    rng = np.random.default_rng(5)

    def drawn(*shape: int) -> Array:
        return (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)

    first = (4 * drawn(16, 4, 3, 3) * SIZES[:, None, None, None]).astype(np.float32)
    second = (drawn(8, 16, 1, 1) / SIZES[None, :, None, None]).astype(np.float32)
    y = lang.conv(lang.silu(lang.conv(x, first, pads=1, name="first")), second, name="second")
    for index in range(17):
        y = lang.conv(y, 2 * drawn(8, 8, 1, 1), relu=True, name=f"layer{index}")
    boxes = lang.conv(y, 8 * drawn(4, 8, 1, 1), name="boxes")
    scores = lang.sigmoid(lang.conv(y, drawn(3, 8, 1, 1), np.full(3, -3, np.float32), name="scores"))
    return lang.build({"y": lang.concat([boxes, scores], axis=1, name="both")})


def samples(count: int, seed: int = 1) -> list[Array]:
    return list(np.random.default_rng(seed).standard_normal((count, 1, 4, 8, 8)).astype(np.float32))


def default(graph: Graph, *, widen: bool = True) -> tuple[float, list[str], float]:
    """The decibels of the default on other samples, its notes, and the share of layers with 16 bits."""
    source = open_data(graph, samples(16))
    done, _ = quantize_on_data(graph, source, QuantizationConfig(scheme="pow2"), threads=1, widen=widen)
    others = [{"x": sample} for sample in samples(32, 2)]
    context = QuantizationContext(graph, others, lambda op: SCHEMES["pow2"])
    schemes = [scheme for scheme in done.scheme_of.by_op.values() if scheme is not None]
    share = sum(scheme.has_wide_activations for scheme in schemes) / len(schemes)
    return context.validated_sqnr(done.graph), done.graph.notes, share


def test_a_network_of_little_use_gets_16_bits_where_they_help_and_says_what_they_cost(graph: Graph) -> None:
    helped, words, share = default(graph)
    alone, silent, none = default(graph, widen=False)
    assert alone < 10 and helped > alone + 6, (alone, helped)
    assert 0 < share <= MOST_LAYERS and none == 0
    said = [word for word in words if "would be of little use" in word]
    assert said and "first" in said[0] and "more cycles on edge-4t" in said[0], words
    assert not any("16 bits" in word for word in silent)


def test_parts_without_steps_are_joined_in_float_before_16_bits_are_given_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """16 bits for any layers gain nothing for scores that a common scale rounds to zero."""
    graph = detector()
    helped, words, share = default(graph)
    assert helped > 6 and 0 < share <= MOST_LAYERS, (helped, words)
    assert any("joined in float" in word and "'both'" in word for word in words), words
    monkeypatch.setattr(wide_layers, "joining_ops", lambda source, scheme_of: [])
    alone, silent, none = default(graph)
    assert alone < 2 and none == 0 and not any("joined" in word for word in silent), (alone, silent)


def test_a_machine_without_16_bits_gets_what_it_can_and_a_warning(graph: Graph) -> None:
    target = load_target("dpuczdx8g-b4096-like")
    done, _ = quantize_on_data(graph, open_data(graph, samples(16)), target=target, threads=1)
    schemes = [scheme for scheme in done.scheme_of.by_op.values() if scheme is not None]
    assert schemes and not any(scheme.has_wide_activations for scheme in schemes)
    assert not any("would be of little use" in word for word in done.graph.notes)
    assert done.accuracy is not None and any("above its error" in word for word in done.accuracy.warnings)


@pytest.mark.parametrize(
    ("hopeless", "order"),
    [
        (-100.0, ["equalize,smooth", "ranges,positions", "wide"]),
        (100.0, ["equalize,smooth", "wide", "ranges,positions"]),
    ],
)
def test_ranges_come_before_16_bits_unless_they_cannot_be_enough(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, hopeless: float, order: list[str]
) -> None:
    done: list[str] = []

    def run_steps(context: Any, names: Sequence[str], *, start: Candidate, report: Any) -> Candidate:
        done.append(",".join(names))
        return sequence.run_steps(context, names, start=start, report=report)

    def with_wide_layers(best: Candidate, context: Any) -> Candidate | None:
        done.append("wide")
        return wide_layers.with_wide_layers(best, context)

    monkeypatch.setattr(fallback, "HOPELESS", hopeless)
    monkeypatch.setattr(fallback, "run_steps", run_steps)
    monkeypatch.setattr(fallback, "with_wide_layers", with_wide_layers)
    decibels, words, share = default(graph)
    assert done == order and decibels > 6 and 0 < share <= MOST_LAYERS, (done, decibels, words)


@pytest.mark.parametrize(("from_start", "chosen"), [(9.0, "start"), (5.0, "steps")])
def test_16_bits_go_to_the_network_before_the_quick_steps_where_those_are_in_the_way(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, from_start: float, chosen: str
) -> None:
    """Equalization that is only nearly exact leaves an error which no number of bits makes up for."""
    inputs = [{"x": sample} for sample in samples(8)]
    context = QuantizationContext(graph, inputs, lambda op: SCHEMES["pow2"])
    start = replace(context.start(), sqnr=1.0, notes=("start",))
    stepped = replace(start, sqnr=3.0, notes=("steps",))
    monkeypatch.setattr(
        fallback,
        "with_wide_layers",
        lambda best, context: replace(best, sqnr=from_start if best is start else 6.5),
    )
    wide = fallback.wide_if_useless(stepped, context, start)
    assert wide is not None and wide.notes == (chosen,)
    better = replace(stepped, sqnr=7.0)  # not hopeless: the steps are built upon
    found = fallback.wide_if_useless(better, context, start)
    assert found is not None and found.notes == ("steps",)
