"""Accuracy over cycles: what each compiled program of a project costs, and how good its outputs are.

Where samples have labels, that is what `npuc eval` measures on them, beside the float network; always, it is how far the outputs
are from the float network's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.sources import DataOptions, open_data, random_data
from npuc.compare.figures import sqnr
from npuc.errors import EvaluationDataError, UsageError
from npuc.evaluate.evaluation import evaluate
from npuc.evaluate.report import Confidence
from npuc.evaluate.subject import ModelFile, Subject, open_subject, settle_preprocessing
from npuc.ir import Graph
from npuc.metrics.measuring import parse_metric
from npuc.studio.maps import plain

SAMPLES = 8
"""For decibels, of a file with more: enough to order programs by, in seconds."""
LABELLED = 500
"""For metrics, which need more: 500 samples tell 1 % from 3 %."""


def point(program: Path, reference: Path, sample: Path | None, cycles: int, target: str) -> dict[str, Any]:
    """A program as a point: its cycles, and the decibels of its worst output, over all samples and in the worst one."""
    exact, ours = (open_subject(ModelFile(path)) for path in (reference, program))
    settle_preprocessing([exact, ours], {})
    squares = _squares(exact, ours, sample)
    decibels = {name: float(sqnr(rows.sum(axis=0))) for name, rows in squares.items()}
    worst = min(decibels, key=lambda name: decibels[name])
    return {
        "cycles": cycles,
        "target": target,
        "sqnr": plain(round(decibels[worst], 2)),
        "worst": worst,
        "least": plain(round(min(float(sqnr(rows).min()) for rows in squares.values()), 2)),
        "samples": len(squares[worst]),
        "figures": _figures(program, reference, sample),
    }


def _figures(program: Path, reference: Path, sample: Path | None) -> list[dict[str, Any]]:
    """The metrics of labelled samples, for the program and the float network; nothing of samples without labels."""
    if sample is None or sample.suffix.lower() != ".npz":
        return []
    try:
        report = evaluate([reference, program], sample, max_count=LABELLED, confidence=Confidence(draws=0))
    except (EvaluationDataError, UsageError):
        return []
    figures = []
    for figure in report.figures:
        if (
            "reference" in parse_metric(figure.metric).kind.tasks
        ):  # likeness to the float network, which decibels tell, too
            continue
        exact, ours = figure.models
        interval = ours.interval
        figures.append(
            {
                "name": figure.name,
                "unit": figure.unit,
                "value": plain(ours.value),
                "float": plain(exact.value),
                "interval": None if interval is None else [plain(end) for end in interval],
                "lower_is_better": figure.lower_is_better,
                "samples": report.samples,
            }
        )
    return figures


def _squares(exact: Subject, ours: Subject, sample: Path | None) -> dict[str, Array]:
    """For each output, the squares of signal and error of each sample."""
    batches = [_batches(subject, sample) for subject in (exact, ours)]
    reference, outputs = (
        subject.engine().run_samples(samples) for subject, samples in zip((exact, ours), batches, strict=True)
    )
    squares: dict[str, list[tuple[float, float]]] = {}
    for expected, actual in zip(reference, outputs, strict=True):
        common = [n for n in actual if n in expected and np.shape(expected[n]) == np.shape(actual[n])]
        for name in common:
            signal, other = (np.asarray(value, np.float64) for value in (expected[name], actual[name]))
            error = float(np.square(other - signal).sum())
            squares.setdefault(name, []).append((float(np.square(signal).sum()), error))
    if not squares:
        raise UsageError("it has no output in common with the float network")
    return {name: np.array(rows) for name, rows in squares.items()}


def _batches(subject: Subject, sample: Path | None) -> Sequence[Mapping[str, Array]]:
    """The same samples for each model, prepared as its inputs want them."""
    graph: Graph = subject.reader().graph
    graph.states = subject.graph.states
    source = (
        random_data(graph, 1, 0)
        if sample is None
        else open_data(graph, sample, DataOptions(max_count=SAMPLES))
    )
    return [dict(batch.inputs) for batch in Feeder(graph, source, strict=True).batches()]
