"""One streaming pass over the data: the float engine runs each batch, and each tensor updates its observer.

The inputs and every named float result are observed. Only one batch of results is in memory at a time, so memory use does
not depend on the number of samples.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.limits import ValueLimits
from npuc.calib.observer import Observer
from npuc.calib.samples import Batch, batch_size
from npuc.calib.sources import Data, DataOptions, Source, open_data
from npuc.calib.statistics import ObserverOptions, Statistics, TensorStatistics
from npuc.engine import float_engine
from npuc.ir import Graph, dtype_of, result_names, top, value_name

_LOG = logging.getLogger(__name__)


_SMALL_INTEGERS = ("ui8", "i8", "ui16", "i16")


def observed_tensors(graph: Graph) -> list[str]:
    """The names of the tensors that a calibration observes, in the order of the program."""
    return [*_inputs(graph), *(name for name in _results(graph) if name not in set(_inputs(graph)))]


def _inputs(graph: Graph) -> list[str]:
    return [
        port.name
        for port in graph.inputs
        if dtype_of(port.type).is_float or dtype_of(port.type).name in _SMALL_INTEGERS
    ]


def _results(graph: Graph) -> list[str]:
    names = [
        name
        for op in graph.ops
        if not isinstance(op, top.WeightOp)
        for name, result in zip(result_names(op), op.results, strict=True)
        if name and dtype_of(result.type).is_float
    ]
    return list(dict.fromkeys(names))


def channel_axes(graph: Graph) -> dict[str, int]:
    """The axis of the input channels of every tensor that a convolution or a product with a weight reads."""
    axes: dict[str, int] = {}
    for op in graph.ops:
        if isinstance(op, top.Conv | top.Deconv):
            axes.setdefault(value_name(op.operands[0]), 1)
        elif isinstance(op, top.MatMul) and graph.constant(op.operands[1]) is not None:
            axes.setdefault(value_name(op.operands[0]), -1)
    axes.pop("", None)
    return axes


def collect(
    graph: Graph,
    data: Data | Source,
    data_options: DataOptions | None = None,
    *,
    options: ObserverOptions | None = None,
    channels: Mapping[str, int] | None = None,
    threads: int | None = None,
    strict: bool = False,
    warn: Callable[[str], None] | None = None,
    step: Callable[[], None] | None = None,
    seen: Callable[[Mapping[str, Array]], None] | None = None,
    limits: ValueLimits | Mapping[str, ValueLimits] | None = None,
) -> Statistics:
    """The statistics of every tensor of a network over a data set.

    `channels` maps the tensors that need per-channel extremes to their channel axis (see `channel_axes`). Skipped samples
    and excluded values are reported in the notes of the result, and to `warn` as they occur. `step` is called after every
    sample, `seen` with the inputs of every batch. Values beyond `limits`, of all tensors or by name, are clipped or left out.

    Example: `collect(graph, "images/", DataOptions(max_count=100))["conv1"].max`.
    """
    source = data if isinstance(data, Source) else open_data(graph, data, data_options)
    options = options or ObserverOptions()
    threads = threads or len(os.sched_getaffinity(0))
    notes: list[str] = []

    def note(text: str) -> None:
        notes.append(text)
        if warn is not None:
            warn(text)

    feeder = Feeder(graph, source, strict, note, step or (lambda: None))
    results = [name for name in _results(graph) if name not in set(_inputs(graph))]
    observers = {
        name: Observer(name, options, (channels or {}).get(name)) for name in (*_inputs(graph), *results)
    }
    by_name = dict.fromkeys(observers, limits) if isinstance(limits, ValueLimits) else dict(limits or {})
    engine = float_engine(graph, fetch=results, threads=threads, spin=False)
    size = batch_size(graph)
    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(threads)) if threads > 1 else None
        batches: Iterator[Batch] = feeder.batches()
        for batch in batches:
            if seen is not None:
                seen(batch.inputs)
            values = engine.run(batch.inputs)
            _observe(observers, {**values, **batch.inputs}, batch.keep, size, pool, by_name)
            del values
    tensors = {name: observer.result() for name, observer in observers.items()}
    for name, tensor in tensors.items():
        if text := _left_out(tensor, str(by_name[name]) if name in by_name else f"beyond ±{options.bound:g}"):
            note(text)
    _LOG.info("calibration: %d tensors over %d samples of %s", len(tensors), feeder.used, source.what)
    return Statistics(tensors, options, feeder.used, feeder.skipped, tuple(notes))


def _observe(
    observers: Mapping[str, Observer],
    values: Mapping[str, Array],
    keep: int | None,
    size: int | None,
    pool: Executor | None,
    limits: Mapping[str, ValueLimits],
) -> None:
    def update(name: str) -> None:
        array = np.asarray(values[name])
        if keep is not None and size and array.ndim and array.shape[0] % size == 0:
            array = array[: keep * array.shape[0] // size]
        observers[name].update(limits[name].applied(array) if name in limits else array)

    # The largest first, so that no thread is left with a large one at the end.
    names = sorted(observers, key=lambda name: -values[name].size)
    for _ in pool.map(update, names) if pool is not None else map(update, names):
        pass


def _left_out(tensor: TensorStatistics, beyond: str) -> str | None:
    bad = tensor.nans + tensor.infinite
    if not bad:
        return None
    parts = [f"{tensor.nans} NaN"] * bool(tensor.nans)
    parts += [f"{tensor.infinite} infinite or {beyond}"] * bool(tensor.infinite)
    return f"tensor '{tensor.name}': left out {' and '.join(parts)} of {tensor.count + bad} values"
