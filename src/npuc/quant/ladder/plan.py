"""What the steps of the ladder can be expected to give, before they run: accuracy, time and memory.

The default is quantized on a few samples and measured by slice. What a step adds to that, and what so many decibels lose of
top-1, are taken from results that were measured (`measured.json`, made of benchmarks/results/accuracy): the median gain of a
step under schemes of the kind, and a falling curve through the pairs of decibels and points lost. Time is that of the default
here, times what a step took of it there; memory is counted from the shapes of the network. For example, 12 dB by default with
a median gain of 8 dB by `adaquant` is expected to give 20 dB; the curve says what networks have lost there.

These are expectations: networks lose more or less at the same decibels, which the spread around the curve shows.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from math import inf, prod
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph, Value, shape_of, top
from npuc.quant.ladder.context import QuantizationContext, Sample
from npuc.quant.ladder.goal import MIXED
from npuc.quant.ladder.sequence import chosen
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.tuning import METHODS

LOOKED_AT = 16
"""The number of samples that the default is measured on for a plan."""
_NEAR = 6
"""The number of pairs whose distance from the curve is the spread of an expectation."""
_LEAST_ERROR = 0.3
"""Added to the standard error of each pair, in points: networks differ by more than their samples."""
_LEARNED = ("adaquant", "round", "positions")
"""Steps that keep the tensors between blocks of all samples, float and rounded."""


@dataclass(frozen=True)
class ExpectedLoss:
    """Points of top-1 that networks have lost at some decibels."""

    points: float
    spread: float
    """The standard deviation of measured networks around it."""


@dataclass(frozen=True)
class PlannedStep:
    """What a step is expected to leave and to take."""

    name: str
    sqnr: float
    loss: ExpectedLoss
    seconds: float
    memory: int
    """Bytes beside those of the program itself."""
    pairs: int
    """The number of results behind the gain; 0 for the default, which was measured, and for steps not known of."""
    applies: bool = True
    """Whether there is anything for the step to do: `positions` are those of powers of two."""


@dataclass(frozen=True)
class Plan:
    """The default as it was measured, and the steps after it."""

    steps: tuple[PlannedStep, ...]
    worst_slice: tuple[str, float] | None
    samples: int
    kind: str
    enough: str | None = None
    """The step after which the goal is expected to be met; None without a goal, or if none is expected to meet it."""


def kind_of(scheme_of: LayerSchemes) -> str:
    """The kind of scheme that results are sorted by: `few bits`, `per tensor` or `per channel`."""
    schemes = [scheme for scheme in scheme_of.by_op.values() if scheme is not None and not scheme.is_float]
    if any(scheme.has_few_bit_weights for scheme in schemes):
        return "few bits"
    return "per channel" if all(scheme.per_channel for scheme in schemes) else "per tensor"


@cache
def _measured() -> dict[str, Any]:
    text = files("npuc.quant.ladder").joinpath("measured.json").read_text()
    content: dict[str, Any] = json.loads(text)
    return content


@cache
def _curve() -> tuple[Array, Array, Array]:
    """The pairs' decibels in order, their losses, and the losses of the curve there."""
    pairs = sorted((pair["sqnr"], pair["lost"], pair["standard_error"]) for pair in _measured()["pairs"])
    decibels, lost, error = (np.array(column, np.float64) for column in zip(*pairs, strict=True))
    return decibels, lost, falling(np.maximum(lost, 0.0), 1.0 / (error**2 + _LEAST_ERROR**2))


def falling(values: Array, weights: Array) -> Array:
    """The nearest sequence that never rises, by weighted squares (isotonic regression by pooling neighbours).

    >>> falling(np.array([3.0, 1.0, 2.0, 0.0]), np.ones(4)).tolist()
    [3.0, 1.5, 1.5, 0.0]
    """
    pools: list[tuple[float, float, int]] = []
    for value, weight in zip(values, weights, strict=True):
        pools.append((float(value), float(weight), 1))
        while len(pools) > 1 and pools[-2][0] < pools[-1][0]:
            (a, wa, na), (b, wb, nb) = pools[-2:]
            pools[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    return np.array([value for value, _, count in pools for _ in range(count)])


def expected_loss(sqnr: float) -> ExpectedLoss:
    """The points of top-1 that networks have lost at so many decibels (the mean over the slices of the outputs)."""
    decibels, lost, curve = _curve()
    points = float(np.interp(sqnr, decibels, curve))
    near = np.argsort(np.abs(decibels - sqnr))[:_NEAR]
    return ExpectedLoss(points, float(np.sqrt(np.mean(np.square(lost[near] - curve[near])))))


def enough_for(points: float) -> float:
    """The fewest decibels at which no more than so many points are expected to be lost; infinite if no pair is so good."""
    decibels, _, curve = _curve()
    good = np.flatnonzero(curve <= points)
    if not len(good):
        return inf
    first = int(good[0])
    if first == 0:
        return float(decibels[0])
    part = (curve[first - 1] - points) / (curve[first - 1] - curve[first])
    return float(decibels[first - 1] + part * (decibels[first] - decibels[first - 1]))


def make_plan(
    graph: Graph,
    samples: Sequence[Sample],
    scheme_of: LayerSchemes,
    names: Sequence[str] | None = None,
    *,
    total: int,
    threads: int = 1,
    methods: Sequence[str] = METHODS,
    device: str = "cpu",
    fixed: bool = False,
    goal: float | None = None,
) -> Plan:
    """Measure the default on some samples, and say what the steps are expected to add with `total` samples.

    `goal` are the points that may be lost: with it, the plan names the step after which that is expected. If the types are
    `fixed`, mixed precision is left out unless it is named, as the ladder does.
    """
    begun = time.perf_counter()
    context = QuantizationContext(graph, samples, scheme_of, methods, threads)
    start = context.start()
    seconds = (time.perf_counter() - begun) * total / len(samples)
    figures = context.figures(start.quantized)
    kind, sqnr = kind_of(start.scheme_of), start.sqnr
    memory = _Memory(graph, samples, total)
    steps = [PlannedStep("default", sqnr, expected_loss(sqnr), seconds, memory.of("default"), 0)]
    for entry in chosen(names):
        if names is None and fixed and entry.name == MIXED:
            continue
        if entry.name == "positions" and not start.scheme_of.has_powers_of_two:
            steps.append(PlannedStep(entry.name, sqnr, expected_loss(sqnr), 0.0, 0, 0, applies=False))
            continue
        known = _known(entry.name, kind, device)
        gains, shares = [step["gain"] for step in known], [step["time"] for step in known]
        sqnr += float(np.median(gains)) if gains else 0.0
        took = seconds * float(np.median(shares)) if shares else float("nan")
        steps.append(
            PlannedStep(entry.name, sqnr, expected_loss(sqnr), took, memory.of(entry.name), len(known))
        )
    least = inf if goal is None else enough_for(goal)
    enough = next((step.name for step in steps if step.sqnr >= least), None)
    worst = figures.worst_slice
    named = None if worst is None else (worst[0].name, worst[1])
    return Plan(tuple(steps), named, len(samples), kind, enough)


def _known(name: str, kind: str, device: str) -> list[Mapping[str, Any]]:
    """What was measured of a step under schemes of a kind, on the kind of device."""
    on = device.split(":")[0]
    alike = [step for step in _measured()["steps"] if (step["step"], step["kind"]) == (name, kind)]
    return [step for step in alike if step["device"] == on or name not in _LEARNED] or alike


class _Memory:
    """Bytes that steps take, from the shapes of a network."""

    def __init__(self, graph: Graph, samples: Sequence[Sample], total: int) -> None:
        self._inputs = total * sum(array.nbytes for array in samples[0].values())
        self._constants = sum(weight.nbytes for weight in graph.weights.values())
        self._live = _most_live(graph)
        widths = [
            prod(shape_of(op.weight)[1:])
            for op in graph.ops
            if isinstance(op, top.Conv) and op.weight is not None
        ]
        self._moments = 8 * max(widths, default=0) ** 2
        self._total = total

    def of(self, name: str) -> int:
        """The most that is held at once beside the program: samples, constants of two networks, and a step's own."""
        base = self._inputs + 2 * self._constants + self._live
        if name in _LEARNED:
            return base + 2 * self._total * self._live
        return base + (self._moments if name == "gptq" else 2 * self._constants if name == MIXED else 0)


def _most_live(graph: Graph) -> int:
    """The bytes of the tensors that are needed at the same time, at most, for one sample."""
    ops = [op for op in graph.ops if not isinstance(op, top.WeightOp)]
    last: dict[Value, int] = {}
    for index, op in enumerate(ops):
        for value in op.operands:
            if not isinstance(value.owner, top.WeightOp):
                last[value] = index
    most, live = 0, {value: _bytes(value) for value in last if value.owner not in ops}
    for index, op in enumerate(ops):
        live.update({value: _bytes(value) for value in op.results})
        most = max(most, sum(live.values()))
        live = {value: size for value, size in live.items() if last.get(value, -1) > index}
    return most


def _bytes(value: Value) -> int:
    return 4 * prod(max(1, size) for size in shape_of(value))
