"""Quantization that looks at its own result: ranges and biases that serve the network's output best.

No range method is best for every network: the squared error of a tensor says little where rare large values do not
matter to the output, and clipping them is fatal where they do. So the network is quantized with the ranges of a few
methods, each result runs some calibration samples, and the one whose outputs are closest to float is kept. Tensors from
which an output is reached without another layer with weights (the tail) are never clipped, and have 16 bits: the output
is what is wanted. Then biases are corrected, unless that makes the outputs worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from npuc.calib.calibration import table_from
from npuc.calib.statistics import Statistics
from npuc.calib.table import CalibrationTable, Entry
from npuc.engine import FloatEngine, IntegerEngine
from npuc.ir import Graph, Value, dtype_of, result_names, top, value_name
from npuc.ir.definition import TopOp
from npuc.quant.bias_correction import correct_biases
from npuc.quant.lower import quantize
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.table_ranges import refined_entries

Array = np.ndarray[Any, Any]
Sample = Mapping[str, Array]
SchemeOf = Callable[[Any], Scheme | None]

METHODS = ("mse", "mean", "percentile")
"""The range methods that compete."""
KEPT = 48
"""Samples that are kept from calibration for all this."""
_JUDGES = 16
_TOLERANCE = 0.25
"""Decibels that a bias correction may seem to lose on the few samples that judge it."""


@dataclass(frozen=True)
class Tuned:
    """A quantized network and the ranges that it was made with."""

    graph: Graph
    table: CalibrationTable
    notes: tuple[str, ...] = ()
    corrected: bool = False


def tune(
    graph: Graph,
    statistics: Statistics,
    samples: Sequence[Sample],
    scheme_of: SchemeOf,
    methods: Sequence[str] = METHODS,
    *,
    correct: bool = True,
    threads: int = 1,
) -> Tuned:
    """The best integer network that the methods give.

    The last third of the samples judges, the others correct biases; without samples the first method is taken.
    """
    overrides = unclipped(graph, scheme_of)
    count = min(_JUDGES, max(1, len(samples) // 3))
    judges, others = list(samples[-count:]), list(samples[:-count]) or list(samples)
    float_engine = FloatEngine(graph, threads=threads)
    reference = [float_engine.run(sample) for sample in judges]
    trials = []
    special: dict[str, Entry] = {}
    for method in methods[: None if judges else 1]:
        table = table_from(statistics, method, overrides=overrides)
        special = special or refined_entries(graph, statistics, table, scheme_of)
        table = CalibrationTable({**table.entries, **special}, table.comments, table.notes)
        made = quantize(graph, table, scheme_of)
        trials.append((output_sqnr(made, judges, reference, threads), method, table, made))
    best, method, table, made = max(trials, key=lambda trial: trial[0])
    notes, corrected = [], False
    if len(trials) > 1:
        figures = ", ".join(f"{name} {figure:.1f} dB" for figure, name, _, _ in trials)
        notes.append(f"ranges by {method}: its outputs are closest to float ({figures})")
    if correct and judges:
        fixed = made.copy()
        names = correct_biases(graph, fixed, others, threads)
        after = output_sqnr(fixed, judges, reference, threads)
        if names and after >= best - _TOLERANCE:
            notes.append(f"corrected the biases of {len(names)} layers: {after:.1f} dB")
            fixed.notes = made.notes
            corrected, made = True, fixed
    made.notes = [*made.notes, *notes]
    return Tuned(made, table, tuple(notes), corrected)


def with_wide_tail(graph: Graph, scheme_of: SchemeOf) -> SchemeOf:
    """The same schemes, but int8 layers from which an output is reached without another layer with weights give 16 bits.

    They are few and small, and nothing after them averages their rounding out.
    """
    tail = _tail(graph)
    usual, wide = SCHEMES["int8"], replace(SCHEMES["int8"], activation="i16", activation_scales="symmetric")

    def choose(op: Any) -> Scheme | None:
        scheme = scheme_of(op)
        return wide if scheme == usual and op.results and result_names(op)[0] in tail else scheme

    return choose


def unclipped(graph: Graph, scheme_of: SchemeOf) -> dict[str, str]:
    """Tensors whose whole range is kept: those of 16 bits, and those next to an output."""
    wide = {
        name: "max"
        for op in graph.ops
        if (scheme := scheme_of(op)) is not None and scheme.activation == "i16"
        for name in result_names(op)
        if name and dtype_of(op.results[0].type).name == "f32"
    }
    return wide | dict.fromkeys(_tail(graph), "max")


def _tail(graph: Graph) -> set[str]:
    """Tensors from which an output is reached without another layer with weights."""
    names: set[str] = set()
    waiting: list[Value] = [port.value for port in graph.outputs]
    seen: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in seen:
            continue
        seen.add(value)
        if dtype_of(value.type).name == "f32":
            names.add(value_name(value))
        op = value.owner
        if isinstance(op, TopOp) and not isinstance(op, top.Conv | top.Deconv | top.MatMul | top.WeightOp):
            waiting += op.operands
    return names


def output_sqnr(
    made: Graph, samples: Sequence[Sample], reference: Sequence[Mapping[str, Array]], threads: int = 1
) -> float:
    """Signal over error of the outputs in decibels, the mean of the outputs."""
    engine = IntegerEngine(made, threads=threads)
    signal: dict[str, float] = {}
    error: dict[str, float] = {}
    for sample, exact in zip(samples, reference, strict=True):
        found = engine.run(sample)
        for name, array in exact.items():
            if array.dtype.kind != "f":
                continue
            wanted = np.nan_to_num(array.astype(np.float64))
            signal[name] = signal.get(name, 0.0) + float(np.square(wanted).sum())
            lost = float(np.square(np.nan_to_num(found[name].astype(np.float64)) - wanted).sum())
            error[name] = error.get(name, 0.0) + lost
    ratios = [10 * np.log10(signal[name] / max(error[name], 1e-30)) for name in signal if signal[name] > 0]
    return float(np.mean(ratios)) if ratios else 0.0
