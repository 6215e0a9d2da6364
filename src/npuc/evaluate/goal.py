"""A metric on labelled data as the goal of a climb: what the float network reaches, and what an integer one does.

The best of many networks has luck in its figure. So a part of the samples is held back while the others steer, and tells
what the network is worth that was chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256

import numpy as np

from npuc.arrays import Array
from npuc.calib.sources import choose
from npuc.datasets.data import DataLocation, find_dataset
from npuc.datasets.sample import SampleEntry
from npuc.errors import UsageError
from npuc.evaluate.evaluation import evaluate
from npuc.evaluate.report import Confidence, Figure
from npuc.evaluate.unlabelled import feeding_of
from npuc.ir import Graph
from npuc.metrics.measuring import parse_metric
from npuc.quant.ladder.measurements import POINTS, Goal, Loss

FEWEST = 100
"""Samples of which some can be held back; a fifth of less confirms nothing."""
_HELD_BACK = 5
"""One sample of so many."""
_NO_DRAWS = Confidence(draws=0)


def held_back(entries: Sequence[SampleEntry]) -> frozenset[str]:
    """The names of the samples that do not steer: a fifth, the same for the same data, in whatever order it is.

    Where samples have classes it is a fifth of each, by the hash of their names.
    """
    if len(entries) < FEWEST:
        return frozenset()

    def rank(entry: SampleEntry) -> tuple[int, bytes]:
        label = int(entry.truth) if isinstance(entry.truth, int | np.integer) else -1
        return label, sha256(entry.name.encode()).digest()

    ranked = sorted(entries, key=rank)
    return frozenset(entry.name for entry in ranked[_HELD_BACK // 2 :: _HELD_BACK])


def accuracy_goal(
    graph: Graph,
    data: DataLocation,
    drop: float,
    metric: str | None = None,
    *,
    max_count: int | None = None,
    seed: int | None = None,
    preprocess: str | None = None,
    postprocess: str | None = None,
    workers: int | None = 1,
    warn: Callable[[str], None] = lambda text: None,
) -> Goal:
    """The first figure of a metric, of which `drop` (of shares, points) may be lost.

    Without a metric, that of the data set's task counts.
    """
    entries = choose(list(find_dataset(data).open(data).entries), max_count, seed)
    held = held_back(entries)
    why = f"{len(entries)} labelled samples are too few to hold some back (from {FEWEST} on, a fifth is)"

    def figure(
        models: list[Graph],
        names: Collection[str],
        confidence: Confidence = _NO_DRAWS,
        note: Callable[[str], None] = lambda text: None,
    ) -> Figure:
        report = evaluate(
            models,
            data,
            [metric] if metric else (),
            max_count=max_count,
            seed=seed,
            only=names,
            preprocess=preprocess,
            postprocess=postprocess,
            confidence=confidence,
            workers=workers,
            warn=note,
        )
        return report.figures[0]

    if held and not math.isfinite(figure([graph], held).models[0].value):
        held = frozenset()
        why = "a fifth of the samples has no figure of its own, so none are held back"
    steering = frozenset(entry.name for entry in entries) - held
    # The network is in a file of its own while it is measured, whose name says nothing to anyone.
    own = figure([graph], steering, note=lambda text: warn(text.split(".mlir: ", 1)[-1]))
    share = own.unit == "%"
    shown = 100.0 if share else 1.0
    exact = shown * own.models[0].value
    if not math.isfinite(exact):
        raise UsageError(
            f"{own.name} of the float network is {exact}, so nothing can be lost of it",
            fix="Choose another --metric",
        )
    if not held:
        warn(f"{why}: those that choose the network also measure it, which flatters it")
    grain = 100 / len(held or steering) if parse_metric(own.metric).kind.proportion else 0.0
    if grain > drop > 0:
        which, so = ("held-back samples", ": one is let pass") if held else ("samples", "")
        warn(
            f"one of {len(held or steering)} {which} is {grain:.2g} points, more than the {drop:g} that may be lost{so}"
        )

    def confirm(quantized: Graph) -> Loss:
        less = figure([graph, quantized], held, Confidence()).models[1].difference
        assert less is not None and less.interval is not None
        worse = shown if own.lower_is_better else -shown
        low, high = sorted(worse * end for end in less.interval)
        return Loss(worse * less.value + 0.0, (low + 0.0, high + 0.0))

    return Goal(
        # The float network runs along: some metrics compare with it.
        lambda quantized: shown * figure([graph, quantized], steering).models[1].value,
        exact,
        drop,
        own.name,
        POINTS if share else f" {own.unit}".rstrip(),
        own.lower_is_better,
        len(steering),
        confirm if held else None,
        len(held),
        grain if held else 0.0,
    )


def unlabelled(
    graph: Graph, data: DataLocation, preprocess: str | None = None, *, max_count: int | None = None
) -> Iterator[Mapping[str, Array]]:
    """The inputs of a network from labelled data, evenly spread over it: what it can be calibrated with.

    The samples that `accuracy_goal` holds back, with the same `max_count`, are left out.
    """
    opened = find_dataset(data).open(data)
    held = held_back(choose(list(opened.entries), max_count, None))
    entries = [entry for entry in opened.entries if entry.name not in held]
    feeding = feeding_of(graph, preprocess)
    # Files of one class often follow each other.
    every = max(1, math.isqrt(len(entries)))
    for first in range(every):
        for entry in entries[first::every]:
            yield feeding.inputs(opened.read(entry), entry.name)
