"""A network over many samples: results to a file, statistics of the outputs to the caller.

No more than one batch is in memory; with a file, each batch goes there at once.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from npuc.arrays import Array
from npuc.calib.samples import Samples
from npuc.compare.tensors import TensorSummary, summarize
from npuc.engine import ALL_TENSORS, IntegerEngine, float_engine
from npuc.ir import Graph
from npuc.ir.dtypes import quant_of
from npuc.ir.states import initial_states
from npuc.quant.report import is_integer
from npuc.runtime.states import StreamStates
from npuc.tensors import TensorSpool


@dataclass
class RunResults:
    """What is known after a run."""

    seconds: float = 0.0
    statistics: list[TensorSummary] = field(default_factory=list)
    """Of the outputs, over all samples."""
    top: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    """For outputs that look like scores of classes: the five best of the first sample."""
    written: dict[str, tuple[int, ...]] = field(default_factory=dict)


OnRun = Callable[[Mapping[str, Array], Mapping[str, Array]], None]
"""Gets the inputs and the outputs of a run."""


class Engine(Protocol):
    """What runs a network."""

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """One batch."""


def run_batches(
    graph: Graph,
    samples: Samples,
    output: Path | None,
    *,
    fetch: Any = (),
    with_inputs: bool = False,
    step: Callable[[], None] = lambda: None,
    threads: int | None = None,
    raw: bool = False,
    on_run: OnRun = lambda inputs, values: None,
) -> RunResults:
    """Run all samples through the engine that a program needs; `step` is called after each run.

    With `raw`, tensors of an integer program are written as integers, not as the reals that they stand for.
    """
    outputs = [port.name for port in graph.outputs]
    engine: Engine
    if is_integer(graph):
        cores = threads or len(os.sched_getaffinity(0))
        if raw and fetch != ALL_TENSORS:
            # An output is reals; the integers behind it have its name, if the network's author gave it one.
            fetch = [*fetch, *(name for name in outputs if graph.find(name) is not None)]
        engine = IntegerEngine(graph, fetch=fetch, threads=cores, raw=raw)
    else:
        engine = float_engine(graph, fetch, threads)
    states = StreamStates(graph.states, initial_states(graph), output_scales(graph) if raw else {})
    return run_engine(
        engine, outputs, samples, output, with_inputs=with_inputs, step=step, on_run=on_run, states=states
    )


def output_scales(graph: Graph) -> dict[str, tuple[float, int]]:
    """Scale and zero point of the outputs of an integer program that are integers under their own names."""
    scales = {}
    for port in graph.outputs:
        value = graph.find(port.name)
        kind = quant_of(value) if value is not None else None
        if kind is not None:
            scales[port.name] = kind.scale, kind.zero_point
    return scales


def run_engine(
    engine: Engine,
    outputs: Sequence[str],
    samples: Samples,
    output: Path | None,
    *,
    with_inputs: bool = False,
    step: Callable[[], None] = lambda: None,
    on_run: OnRun = lambda inputs, values: None,
    states: StreamStates | None = None,
) -> RunResults:
    """Run all samples through an engine whose results include `outputs`; `on_run` gets what goes in and comes out.

    With `states` the samples are one stream: what a run gives is what the next one begins with. A state that the samples
    have once is what the first run begins with; one that they have for every run is taken instead.
    """
    results = RunResults()
    first_states = {
        name: array[0]
        for name, array in samples.arrays.items()
        if states is not None and name in states.pairs and len(array) == 1
    }
    first: dict[str, Array] = {}
    parts: dict[str, list[TensorSummary]] = {name: [] for name in outputs}
    with ExitStack() as stack:
        spool = stack.enter_context(TensorSpool(output, samples.batch)) if output is not None else None
        for index, batch in enumerate(samples):
            inputs = batch.inputs
            if states is not None:
                given = {
                    name: array for name, array in inputs.items() if index == 0 or name not in first_states
                }
                inputs = states.completed(given)
            start = time.perf_counter()
            values = engine.run(inputs)
            results.seconds += time.perf_counter() - start
            if states is not None:
                states.keep(values)
            on_run(inputs, {name: np.asarray(values[name]) for name in outputs})
            if spool is not None:
                spool.append({**inputs, **values} if with_inputs else values, batch.keep)
            for name in outputs:
                value = np.asarray(values[name])
                joins = value.ndim and samples.batch is not None and value.shape[0] == samples.batch
                real = value[: batch.keep] if batch.keep is not None and joins else value
                parts[name].append(summarize(name, real))
                if index == 0:
                    first[name] = real
            if index == 0:
                results.top = {
                    name: best
                    for name, value in first.items()
                    if not _beside(name, first) and (best := top_classes(value))
                }
            step()
        if spool is not None:
            results.written = spool.finish()
    results.statistics = [_joined(batches, samples.batch) for batches in parts.values()]
    return results


def top_classes(value: Array, number: int = 5) -> list[tuple[int, float]]:
    """The best classes of the first sample, if a tensor looks like scores: one vector of 3 to 100,000 floats a sample, of the
    shape N x classes or N x classes x 1 x 1.

    >>> top_classes(np.array([[0.1, 0.7, 0.2]]), 1)
    [(1, 0.7)]
    """
    if value.ndim not in (2, 4) or value.dtype.kind != "f" or not value.size:
        return []
    length = value.shape[1]
    if value.size != value.shape[0] * length or not 3 <= length <= 100_000:
        return []
    first = value[0].reshape(-1)
    order = np.argsort(-first, kind="stable")[:number]
    return [(int(index), float(first[index])) for index in order]


def _beside(name: str, values: Mapping[str, Array]) -> bool:
    """True if other outputs tell of the same places, as the boxes and labels of a detector do beside its scores: the places
    of such an output are no classes."""
    shape = values[name].shape
    return any(
        other != name and value.ndim >= 2 and value.shape[:2] == shape[:2] for other, value in values.items()
    )


def _joined(parts: list[TensorSummary], batch: int | None) -> TensorSummary:
    """The statistics of all batches together; the deviation is that of the whole."""
    if len(parts) == 1:
        return parts[0]
    first = parts[0]
    counts = [math.prod(part.shape) - part.not_finite for part in parts]
    total = sum(counts)
    joins = batch is not None and first.shape and first.shape[0] == batch
    rows = sum(part.shape[0] for part in parts if part.shape)
    shape = (rows, *first.shape[1:]) if joins else (len(parts), *first.shape)
    if not total:
        return first
    used = [(part, number) for part, number in zip(parts, counts, strict=True) if number]
    mean = sum(part.mean * number for part, number in used) / total
    square = sum((part.deviation**2 + (part.mean - mean) ** 2) * number for part, number in used) / total
    return TensorSummary(
        first.name,
        shape,
        first.dtype,
        min(part.minimum for part, _ in used),
        max(part.maximum for part, _ in used),
        mean,
        math.sqrt(square),
        sum(part.zeros * number for part, number in used) / total,
        sum(part.not_finite for part in parts),
    )
