"""A metric on labelled data as the goal of a climb: what the float network reaches, and what an integer one does."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.calib.sources import prepared_by
from npuc.errors import UsageError
from npuc.evaluate.data import Place, find_dataset
from npuc.evaluate.evaluation import evaluate
from npuc.evaluate.report import Confidence, Figure
from npuc.evaluate.subject import Feeding, ModelFile, Subject
from npuc.ir import Graph
from npuc.quant.ladder.goal import POINTS, Goal

Array = np.ndarray[Any, Any]

_LOWER = ("wer", "cer")
"""Rates of errors: figures that had better be small."""


def accuracy_goal(
    graph: Graph,
    data: Place,
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

    def figures(models: list[Graph], note: Callable[[str], None]) -> tuple[list[float], Figure, int]:
        report = evaluate(
            models,
            data,
            [metric] if metric else (),
            max_count=max_count,
            seed=seed,
            preprocess=preprocess,
            postprocess=postprocess,
            confidence=Confidence(draws=0),
            workers=workers,
            warn=note,
        )
        first = report.figures[0]
        shown = 100.0 if first.unit == "%" else 1.0
        return [shown * one.value for one in first.models], first, report.samples

    # The network is in a file of its own while it is measured, whose name says nothing to anyone.
    (exact,), figure, samples = figures([graph], lambda text: warn(text.split(".mlir: ", 1)[-1]))
    if not math.isfinite(exact):
        raise UsageError(
            f"{figure.name} of the float network is {exact}, so nothing can be lost of it",
            fix="Choose another --metric",
        )
    if figure.unit == "%" and 100 / samples > drop > 0:
        warn(
            f"one of {samples} samples is {100 / samples:.2g} points, more than the {drop:g} that may be lost"
        )
    return Goal(
        # The float network runs along: some metrics compare with it.
        lambda made: figures([graph, made], lambda text: None)[0][1],
        exact,
        drop,
        figure.name,
        POINTS if figure.unit == "%" else f" {figure.unit}".rstrip(),
        figure.metric.split(":")[0] in _LOWER,
    )


def unlabelled(graph: Graph, data: Place, preprocess: str | None = None) -> Iterator[Mapping[str, Array]]:
    """The inputs of a network from labelled data, evenly spread over it: what it can be calibrated with."""
    opened = find_dataset(data).open(data)
    subject = Subject(ModelFile(Path("network")), "float", graph)
    if preprocess is not None:
        subject.prepare, subject.takes_any = prepared_by(preprocess)
    feeding = Feeding(subject)
    # Files of one class often follow each other.
    every = max(1, math.isqrt(len(opened.entries)))
    for first in range(every):
        for entry in opened.entries[first::every]:
            yield feeding.inputs(opened.read(entry), entry.name)
