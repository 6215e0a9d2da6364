"""Quantization that looks at its own result: ranges and biases that serve the network's output best.

No range method is best for every network: the squared error of a tensor says little where rare large values do not
matter to the output, and clipping them is fatal where they do. So the network is quantized with the ranges of a few
methods, each result runs some calibration samples, and the one whose outputs are closest to float is kept. Tensors from
which an output is reached without another layer with weights (the tail) are never clipped, and have 16 bits: the output
is what is wanted. Then biases are corrected, unless that makes the outputs worse. If the outputs are still far from float,
the few tensors that spoil them get 16 bits.
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
from npuc.quant.inserted import tensors_with_chosen_constants
from npuc.quant.lower import quantize
from npuc.quant.output_aware import output_aware_entries
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scales, Scheme
from npuc.quant.table_ranges import refined_entries
from npuc.quant.widening import spoilers, widened

Array = np.ndarray[Any, Any]
Sample = Mapping[str, Array]
SchemeOf = Callable[[Any], Scheme | None]

METHODS = ("mse", "mean", "percentile")
"""The range methods that compete. `auto`, which looks at the layers that read a tensor, has never won and is slow."""
KEPT = 48
"""Samples that are kept from calibration for all this."""
_JUDGES = 16
_TRIED = 8
"""Samples that `auto` looks at."""
_TOLERANCE = 0.25
"""Decibels that a bias correction may seem to lose on the few samples that judge it."""


GOOD = 20.0
"""Decibels of the outputs from which 8 bits are good enough."""
POOR = 10.0
"""Decibels below which a user should know."""
_WORTH = 0.5
"""Decibels that 16 bits have to gain."""
_PROBED = 2
"""Samples that show which tensors spoil the outputs."""


@dataclass(frozen=True)
class Tuned:
    """A quantized network, what its layers got, and the ranges that it was made with."""

    graph: Graph
    table: CalibrationTable
    scheme_of: SchemeOf
    corrected: bool = False
    sqnr: float | None = None
    """Of the outputs on the samples that judge, in decibels; None without samples, or if no output tells."""


@dataclass(frozen=True)
class _Trial:
    sqnr: float
    method: str
    table: CalibrationTable
    graph: Graph
    corrected: int = 0


def tune(
    graph: Graph,
    statistics: Statistics,
    samples: Sequence[Sample],
    scheme_of: SchemeOf,
    methods: Sequence[str] = METHODS,
    *,
    correct: bool = True,
    widen: bool = True,
    threads: int = 1,
) -> Tuned:
    """The best integer network that the methods give; its notes say how it came about.

    The last third of the samples judges, the others correct biases; without samples the first method is taken.
    `widen` allows 16 bits where 8 do not serve.
    """
    tuner = _Tuner(graph, statistics, samples, threads)
    trials = [tuner.trial(method, scheme_of) for method in methods[: None if tuner.judges else 1]]
    best = max(trials, key=lambda trial: trial.sqnr)
    notes = []
    if len(trials) > 1:
        figures = ", ".join(f"{trial.method} {trial.sqnr:.1f} dB" for trial in trials)
        notes.append(f"ranges by {best.method}: its outputs are closest to float ({figures})")
    if correct and tuner.judges:
        best = tuner.corrected(best, scheme_of)
    if widen and tuner.judges and best.sqnr < GOOD:
        tensors = spoilers(graph, integer_types(best.graph), tuner.others[:_PROBED], GOOD, threads)
        schemes = widened(scheme_of, tensors, wider)
        wide = tuner.trial(best.method, schemes)
        wide = tuner.corrected(wide, schemes) if correct else wide
        if tensors and wide.sqnr >= best.sqnr + _WORTH:
            names = ", ".join(value_name(value) for value in tensors)
            notes.append(
                f"16 bits for what rounding hurts most ({names}): {best.sqnr:.1f} to {wide.sqnr:.1f} dB"
            )
            best, scheme_of = wide, schemes
    if best.corrected:
        notes.append(f"corrected the biases of {best.corrected} layers: {best.sqnr:.1f} dB")
    best.graph.notes = [*best.graph.notes, *notes]
    sqnr = best.sqnr if tuner.hears else None
    return Tuned(best.graph, best.table, scheme_of, bool(best.corrected), sqnr)


class _Tuner:
    """Makes integer networks of one float network and judges their outputs."""

    def __init__(self, graph: Graph, statistics: Statistics, samples: Sequence[Sample], threads: int) -> None:
        self.graph, self.statistics, self.threads = graph, statistics, threads
        count = min(_JUDGES, max(1, len(samples) // 3))
        self.judges, self.others = list(samples[-count:]), list(samples[:-count]) or list(samples)
        engine = FloatEngine(graph, threads=threads)
        self._reference = [engine.run(sample) for sample in self.judges]

    @property
    def hears(self) -> bool:
        """Whether an output shows how far the network is from float: classes alone do not, nor does nothing but zeros."""
        arrays = (array for outputs in self._reference for array in outputs.values())
        return any(array.dtype.kind == "f" and bool(np.any(array)) for array in arrays)

    def trial(self, method: str, scheme_of: SchemeOf) -> _Trial:
        """The network with the ranges of one method."""
        overrides = unclipped(self.graph, scheme_of)
        table = table_from(self.statistics, method, overrides=overrides)
        entries = dict(table.entries)
        if method == "auto":
            found = output_aware_entries(
                self.graph, self.statistics, self.others[:_TRIED], scheme_of, self.threads
            )
            entries.update({name: entry for name, entry in found.items() if name not in overrides})
        entries.update(refined_entries(self.graph, self.statistics, entries, scheme_of))
        for name in wide_tensors(self.graph, scheme_of) & _tail(self.graph) & entries.keys():
            entries[name] = with_headroom(entries[name])
        table = CalibrationTable(entries, table.comments, table.notes)
        made = quantize(self.graph, table, scheme_of)
        return _Trial(self._sqnr(made), method, table, made)

    def corrected(self, trial: _Trial, scheme_of: SchemeOf) -> _Trial:
        """The same with corrected biases, if that is no worse."""
        fixed = trial.graph.copy()
        names = correct_biases(self.graph, fixed, self.others, self.threads, scheme_of)
        fixed.notes = trial.graph.notes
        after = self._sqnr(fixed)
        if not names or after < trial.sqnr - _TOLERANCE:
            return trial
        return replace(trial, sqnr=after, graph=fixed, corrected=len(names))

    def _sqnr(self, made: Graph) -> float:
        return output_sqnr(made, self.judges, self._reference, self.threads)


def wider(scheme: Scheme) -> Scheme:
    """The same scheme with activations of 16 bits."""
    scales: Scales = "pow2" if scheme.activation_scales == "pow2" else "symmetric"
    return replace(scheme, activation="i16", activation_scales=scales)


def with_wide_tail(graph: Graph, scheme_of: SchemeOf) -> SchemeOf:
    """The same schemes, but int8 layers from which an output is reached without another layer with weights give 16 bits.

    They are few and small, and nothing after them averages their rounding out.
    """
    tail = _tail(graph)

    def choose(op: Any) -> Scheme | None:
        scheme = scheme_of(op)
        last = scheme == SCHEMES["int8"] and op.results and result_names(op)[0] in tail
        return wider(scheme) if scheme is not None and last else scheme

    return choose


def unclipped(graph: Graph, scheme_of: SchemeOf) -> dict[str, str]:
    """Tensors whose whole range is kept: those of 16 bits, those next to an output, and those with constants put in."""
    whole = wide_tensors(graph, scheme_of) | _tail(graph) | tensors_with_chosen_constants(graph)
    return dict.fromkeys(whole, "max")


def wide_tensors(graph: Graph, scheme_of: SchemeOf) -> set[str]:
    """The tensors that get 16 bits."""
    return {
        name
        for op in graph.ops
        if (scheme := scheme_of(op)) is not None and scheme.activation == "i16"
        for name in result_names(op)
        if name and dtype_of(op.results[0].type).name == "f32"
    }


def with_headroom(entry: Entry) -> Entry:
    """Twice the range that was seen: an output of 16 bits has steps to spare, and other samples may go further."""
    return replace(entry, threshold=2 * entry.threshold, min=2 * entry.min, max=2 * entry.max)


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
    return float(decibels(output_squares(made, samples, reference, threads).sum(axis=0)))


def output_squares(
    made: Graph, samples: Sequence[Sample], reference: Sequence[Mapping[str, Array]], threads: int = 1
) -> Array:
    """Squares of signal and error of every sample: samples x outputs x 2."""
    engine = IntegerEngine(made, threads=threads)
    rows = []
    for sample, exact in zip(samples, reference, strict=True):
        found = engine.run(sample)
        row = []
        for name, array in exact.items():
            if array.dtype.kind != "f":
                continue
            wanted = np.nan_to_num(array.astype(np.float64))
            error = np.nan_to_num(found[name].astype(np.float64)) - wanted
            row.append((float(np.square(wanted).sum()), float(np.square(error).sum())))
        rows.append(row)
    return np.array(rows, np.float64).reshape(len(rows), len(rows[0]) if rows else 0, 2)


def decibels(squares: Array) -> Array:
    """Signal over error (... x outputs x 2) in decibels, the mean of the outputs that have a signal.

    >>> float(decibels(np.array([[100.0, 1.0], [0.0, 1.0]])))
    20.0
    """
    signal, error = squares[..., 0], np.maximum(squares[..., 1], 1e-30)
    ratios = 10 * np.log10(np.where(signal > 0, signal, 1.0) / error)
    known = (signal > 0).sum(axis=-1)
    total: Array = np.where(signal > 0, ratios, 0.0).sum(axis=-1)
    return np.asarray(total / np.maximum(known, 1))
