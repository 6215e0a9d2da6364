"""`evaluate`: models, data and metrics in, a report out."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

from npuc import plugins
from npuc.calib.sources import choose
from npuc.datasets.data import DATASETS, DataLocation, find_dataset
from npuc.datasets.registry import origin
from npuc.datasets.sample import SampleEntry
from npuc.distribute.cluster import run_on_cluster
from npuc.distribute.journal import open_journal
from npuc.distribute.processes import run_in_processes
from npuc.errors import EvaluationDataError, UsageError
from npuc.evaluate.fingerprint import fingerprints
from npuc.evaluate.plan import Plan, SampleWorker, absolute, chunks_of
from npuc.evaluate.report import Confidence, EvaluationReport, Figure, measure
from npuc.evaluate.subject import ModelFile
from npuc.ir import Graph, save_graph
from npuc.metrics.measuring import METRICS, Chosen, default_metrics, parse_metric

_WORTH = 20.0
"""Seconds of work that is left, from which on starting processes pays."""
_TRIED = 3
"""Chunks that are run here to find out."""


def evaluate(
    models: Sequence[Path | str | ModelFile | Graph] | Path | str | ModelFile | Graph,
    data: Path | str | DataLocation,
    metrics: Sequence[str] = (),
    *,
    dataset: str | None = None,
    max_count: int | None = None,
    seed: int | None = None,
    only: Collection[str] | None = None,
    preprocess: str | Mapping[str, Any] | None = None,
    postprocess: str | None = None,
    skip_unreadable: bool = False,
    stream: bool = False,
    confidence: Confidence | None = None,
    workers: int | None = 1,
    cluster: str | None = None,
    resume: Path | str | None = None,
    warn: Callable[[str], None] = lambda text: None,
    begin: Callable[[int], Callable[[], None]] = lambda total: lambda: None,
) -> EvaluationReport:
    """Measure models of any form on the same samples; of those that `max_count` leaves, `only` names some.

    `preprocess` is a recipe or function by name, or fields of `Preprocess`. With `workers` other than 1 the samples are run by
    processes (None: as many as there are processors, if it pays); a program that does so needs Python's usual
    `if __name__ == "__main__":`. A model with states runs each sample as a sequence of its own; with `stream`, all samples
    are one sequence in their order. `begin` is told how many samples are to run and gives a function that is called after each.

        report = evaluate(["net.onnx", "net.npu"], "imagenet/val.txt", ["top1"])
        report.value("top1", model=1)
    """
    start = time.perf_counter()
    if stream:
        _require_order(workers, cluster, resume, seed)
        workers = 1
    given = [models] if isinstance(models, Path | str | ModelFile | Graph) else list(models)
    if not given:
        raise UsageError("there is no model to evaluate")
    place = data if isinstance(data, DataLocation) else DataLocation(Path(data))
    kind = find_dataset(place, dataset)
    opened = kind.open(place)
    entries = choose(list(opened.entries), max_count, seed)
    if only is not None:
        entries = [entry for entry in entries if entry.name in only]
    chosen = [parse_metric(text) for text in metrics or default_metrics(opened.task)]
    confidence = confidence or Confidence()
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        warn(text)

    with ExitStack() as stack:
        files = _files(given, stack)
        plan = Plan(
            models=tuple(files),
            metrics=tuple(metric.text for metric in chosen),
            read=(opened.read.__module__, opened.read.__name__),
            classes=opened.classes,
            preprocess=dict(preprocess) if isinstance(preprocess, Mapping) else {},
            prepare=preprocess if isinstance(preprocess, str) else None,
            postprocess=postprocess,
            skip_unreadable=skip_unreadable,
            stream=stream,
            plugins=tuple(plugin.source for plugin in plugins.loaded()),
            origins=(origin(DATASETS, kind.name), *(origin(METRICS, metric.kind.name) for metric in chosen)),
        )
        work = SampleWorker(plan)
        for text in (*work.notes, *(work.remarks(entries[0]) if entries else ())):
            note(text)
        parts = fingerprints(plan, entries)
        plan = replace(plan, key="".join(parts.values()))
        chunks = chunks_of(entries, work.chunk)
        lines: dict[int, str] = {}
        if resume is not None:
            journal = open_journal(Path(resume), parts, len(entries))
            stack.callback(journal.close)
            lines.update(journal.done)
        left = [chunk for chunk in chunks if any(chunk[0] + at not in lines for at in range(len(chunk[1])))]
        resumed = len(entries) - sum(len(chunk[1]) for chunk in left)
        step = begin(sum(len(chunk[1]) for chunk in left))
        for first, records in _run(plan, work, left, workers, cluster):
            lines.update({first + at: line for at, line in enumerate(records)})
            if resume is not None:
                journal.add(first, records)
            for _ in records:
                step()
        return _report(
            [str(file.path) for file in files],
            work,
            kind.name,
            place,
            entries,
            lines,
            chosen,
            confidence,
            notes,
            resumed,
            start,
        )


def _require_order(workers: int | None, cluster: str | None, resume: Any, seed: int | None) -> None:
    """One sequence is run in its order, by one process, from its beginning."""
    chosen = {
        "--workers": workers not in (None, 1),
        "--cluster": cluster is not None,
        "--resume": resume is not None,
        "--seed": seed is not None,
    }
    for option, is_given in chosen.items():
        if is_given:
            raise UsageError(
                f"--stream runs the samples in their order from the first on, and {option} does not",
                fix=f"Leave out {option}",
            )


def _run(
    plan: Plan,
    work: SampleWorker,
    chunks: list[tuple[int, list[SampleEntry]]],
    workers: int | None,
    cluster: str | None,
) -> Iterator[tuple[int, list[str]]]:
    if not chunks:
        return
    if cluster is not None:
        remote_plan = replace(
            plan,
            models=tuple(replace(file, path=Path(file.path).absolute()) for file in plan.models),
            prepare=None if plan.prepare is None else _absolute_function(plan.prepare),
            plugins=tuple(str(Path(p).absolute()) if p.endswith(".py") else p for p in plan.plugins),
        )
        yield from run_on_cluster(remote_plan, [(first, absolute(part)) for first, part in chunks], cluster)
        return
    if workers is not None and workers > 1:
        yield from run_in_processes(plan, chunks, workers)
        return
    start = time.perf_counter()
    for number, (first, part) in enumerate(chunks):
        if workers is None and number == _TRIED:
            left = (time.perf_counter() - start) / _TRIED * (len(chunks) - number)
            if left > _WORTH and (count := len(os.sched_getaffinity(0))) > 1:
                yield from run_in_processes(plan, chunks[number:], count)
                return
        yield first, work.run(part)


def _absolute_function(text: str) -> str:
    place, separator, name = text.rpartition(":")
    file = place if separator and place.endswith(".py") else text
    return (
        f"{Path(file).absolute()}:{name}"
        if file != text
        else str(Path(text).absolute())
        if Path(text).exists()
        else text
    )


def _files(given: Sequence[Any], stack: ExitStack) -> list[ModelFile]:
    """The models as files; a network in memory is written to a folder that is gone afterwards."""
    files: list[ModelFile] = []
    for number, model in enumerate(given):
        if isinstance(model, Graph):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="npuc-evaluate-"))
            path = Path(folder) / f"network {number}.mlir"
            save_graph(model, path)
            files.append(ModelFile(path))
        else:
            files.append(model if isinstance(model, ModelFile) else ModelFile(Path(model)))
    return files


def _report(
    names: list[str],
    work: SampleWorker,
    dataset: str,
    place: DataLocation,
    entries: Sequence[SampleEntry],
    lines: Mapping[int, str],
    chosen: Sequence[Chosen],
    confidence: Confidence,
    notes: Sequence[str],
    resumed: int,
    start: float,
) -> EvaluationReport:
    results, truths, skipped = [], [], []
    for index, entry in enumerate(entries):
        line = json.loads(lines[index])
        if "skipped" in line:
            skipped.append(str(line["skipped"]))
        else:
            results.append(line["results"])
            truths.append(entry.truth)
    if not results:
        raise EvaluationDataError(
            f"none of the {len(entries)} samples can be used; the first: {skipped[0] if skipped else 'there is none'}",
            where=str(place.path),
        )
    figures: list[Figure] = []
    for position, metric in enumerate(chosen):
        figures += measure(metric, position, results, truths, len(names), confidence)
    return EvaluationReport(
        models=tuple(names),
        kinds=tuple(subject.kind for subject in work.subjects),
        data=str(place.path),
        dataset=dataset,
        samples=len(results),
        skipped=tuple(skipped),
        resumed=resumed,
        seconds=time.perf_counter() - start,
        confidence=confidence,
        figures=tuple(figures),
        notes=tuple(notes),
    )
