"""Tuning: ranges, types and biases are chosen by measuring the outputs of the quantized network.

No range method is best for every network: the squared error of a tensor says little if rare large values do not matter to
the output, and clipping them is fatal if they do. So the network is quantized with the ranges of a few methods, including
`max` (no clipping), and the one whose outputs are closest to float is kept. Tensors from which an output is reached without
another layer with weights (the tail) are never clipped, because they are the output. If few values of such a tensor were
observed, its range is extended (`npuc.quant.headroom`). Then biases are corrected, unless that makes the outputs worse;
outputs that concatenate parts of very different magnitudes are concatenated in float; and the tail and a few sensitive
tensors get 16 bits, where that is allowed and worth its cost (`npuc.quant.widening`). The methods are then compared again with
these types.

Every network is measured per slice on every kept sample, by the mean and the worst (`npuc.quant.validation`). At the end the
result is compared with the plain network (`max` ranges and nothing else) on all calibration data; if it is worse, the plain
network is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npuc.arrays import Array, ceil_div
from npuc.calib.calibration import table_from
from npuc.calib.statistics import Statistics
from npuc.calib.table import CalibrationTable, Entry
from npuc.compare import OutputFigures
from npuc.ir import Graph, Value, dtype_of, result_names, top, value_name
from npuc.ir.definition import TopOp
from npuc.quant.bias_correction import correct_biases
from npuc.quant.headroom import with_room
from npuc.quant.inserted import tensors_with_chosen_constants
from npuc.quant.joining import joining_ops, with_joins_in_float
from npuc.quant.layer_schemes import LayerSchemes, SchemeOf
from npuc.quant.lower import quantize
from npuc.quant.output_aware import output_aware_entries
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.silent import silent_entries
from npuc.quant.table_ranges import refined_entries, softmax_floors
from npuc.quant.validation import SLACK, OutputValidator, is_no_worse, shortfalls, slice_noise, spread
from npuc.quant.widening import (
    GAIN,
    MOST,
    MOST_CYCLES,
    CycleChange,
    Widening,
    sensitive_tensors,
    widened,
    wider,
)
from npuc.words import counted

Sample = Mapping[str, Array]

PLAIN = "max"
"""The method that clips nothing: it is always tried, and no result may be worse than its ranges alone."""
METHODS = ("mse", "mean", "percentile", PLAIN)
"""The range methods that are tried. `auto`, which considers the layers that read a tensor, was never best and is slow."""
KEPT = 48
"""The number of calibration samples that are kept to measure the outputs."""
_TRIED = 8
"""The number of samples that `auto` uses."""
_TOLERANCE = 0.25
"""The decibels that a bias correction may seem to lose on the few samples that are measured."""


GOOD = 20.0
"""If the worst slice has this many decibels, 8 bits are good enough."""
FINE = 45.0
"""If the worst slice has this many decibels, concats are left as they are."""
_WORTH = 0.5
"""The decibels that 16 bits have to gain if they cost nothing."""
_SEARCHES = 3
"""How often tensors for 16 bits are searched if they cost nothing, each time with the types found before."""
_MOST_COUNTED = 0.3
"""The share of tensors that may get 16 bits if cycles are counted."""
_JOINED = "it joins parts of very different sizes to an output"
_PROBED = 2
"""The number of samples that are used to find sensitive tensors."""


@dataclass(frozen=True)
class Tuned:
    """A quantized network, the schemes of its layers, and the ranges that it was made with."""

    graph: Graph
    table: CalibrationTable
    scheme_of: LayerSchemes
    corrected: bool = False
    figures: OutputFigures | None = None
    """The figures of the outputs on the kept samples; None without samples, or if no output has a signal."""
    validator: OutputValidator | None = None
    """The validator that measured them."""
    plain: OutputFigures | None = None
    """The figures of the plain network on all calibration data, which no result may be behind; None if it was not tried."""

    @property
    def sqnr(self) -> float | None:
        """The mean of the slices in decibels."""
        return None if self.figures is None else self.figures.mean


@dataclass(frozen=True, eq=False)
class _Trial:
    figures: OutputFigures
    method: str
    table: CalibrationTable
    graph: Graph
    scheme_of: LayerSchemes
    corrected: int = 0

    @property
    def worst_slice(self) -> float:
        """The decibels of the worst slice over all samples."""
        lowest = self.figures.worst_slice
        return self.figures.mean if lowest is None else lowest[1]

    @property
    def words(self) -> str:
        """The figures in words."""
        worst = self.figures.worst
        beside = f", at worst {worst.sqnr:.1f}" if worst is not None else ""
        return f"{self.figures.mean:.1f} dB{beside}"


def tune(
    graph: Graph,
    statistics: Statistics,
    samples: Sequence[Sample],
    scheme_of: LayerSchemes | SchemeOf,
    methods: Sequence[str] = METHODS,
    *,
    correct: bool = True,
    widen: Widening | bool = True,
    threads: int = 1,
    others: Callable[[], Iterable[Sample]] = tuple,
    plain_of: LayerSchemes | None = None,
    output_method: str | None = None,
) -> Tuned:
    """The best integer network that the methods give; its notes say how it was chosen.

    Outputs are measured on all samples; two thirds of them are used to correct biases. Without samples the first method is
    used. `widen` allows 16 bits, and concats in float, where 8 bits are not enough; their cycles are ignored if it is True.
    `others` returns the calibration data that was not kept, on which the result is also compared with the plain network;
    `plain_of` are the schemes of that network, if they differ. `output_method` is the range method of the outputs.
    """
    scheme_of = LayerSchemes.of(graph, scheme_of)
    tuner = _Tuner(graph, statistics, samples, threads, output_method)
    widening = Widening() if widen is True else widen or None
    if not tuner.validator.samples:
        trial = tuner.trial(methods[0], scheme_of)
        return Tuned(trial.graph, trial.table, scheme_of)
    notes: list[str] = []
    raw = tuner.race(methods, scheme_of, notes)
    best = tuner.corrected(raw) if correct else raw
    if widening is not None and best.figures.has_signal:
        # Types are compared with uncorrected biases, because correction is slow; the result is corrected afterwards.
        other = tuner.joined(raw, widening, notes) if best.worst_slice < FINE else raw
        good = other is raw and best.worst_slice >= GOOD
        other = tuner.widened(other, widening, notes, good=good) if widening.is_allowed else other
        if other is not raw:
            other = tuner.raced_again(other, methods, notes)
            best = tuner.corrected(other) if correct else other
    if best.corrected:
        many = "s" * (best.corrected != 1)
        notes.append(f"corrected the biases of {best.corrected} layer{many}: {best.words}")
    if PLAIN in methods:
        best = tuner.no_worse(best, plain_of or scheme_of, others, notes)
    joins = [op for op in joining_ops(graph, scheme_of) if best.scheme_of(op) is None]
    best.graph.float_reasons.update({result_names(op)[0]: _JOINED for op in joins})
    best.graph.notes = [*best.graph.notes, *notes]
    figures = best.figures if best.figures.has_signal else None
    return Tuned(
        best.graph,
        best.table,
        best.scheme_of,
        bool(best.corrected),
        figures,
        tuner.validator,
        tuner.plain_figures,
    )


class _Tuner:
    """Quantizes one float network in several ways and measures their outputs."""

    def __init__(
        self,
        graph: Graph,
        statistics: Statistics,
        samples: Sequence[Sample],
        threads: int,
        output_method: str | None = None,
    ) -> None:
        self.graph, self.statistics, self.threads = graph, statistics, threads
        self.outputs = output_overrides(graph, output_method)
        self.validator = OutputValidator(graph, samples, threads)
        count = max(1, len(samples) // 3)
        self.fit = list(samples[:-count]) or list(samples)
        self._refined: dict[tuple[str, tuple[float, float]], tuple[float, float]] = {}
        self._floors = softmax_floors(graph, samples[:_TRIED], threads)
        self.plain_figures: OutputFigures | None = None

    def race(self, methods: Sequence[str], scheme_of: LayerSchemes, notes: list[str]) -> _Trial:
        """The network of the best method.

        Weights of few bits make most of the error, and would have chance choose the ranges, though they may be rounded better
        later. So the methods compete with weights of 8 bits, and the best one is taken with those of the scheme.
        """
        judged_of = with_weights_of_a_byte(scheme_of)
        is_own = judged_of == scheme_of
        trials = [self.trial(method, judged_of) for method in methods]
        best = max(trials, key=lambda trial: trial.figures.score)
        if len(trials) > 1:
            figures = "; ".join(f"{trial.method} {trial.words}" for trial in trials)
            beside = "" if is_own else " beside weights of 8 bits"
            notes.append(f"ranges by {best.method}: its outputs are closest to float{beside} ({figures})")
        return best if is_own else self.again(best, scheme_of)

    def raced_again(self, best: _Trial, methods: Sequence[str], notes: list[str]) -> _Trial:
        """The network of the best method with the types of `best`, which were chosen after the first race.

        Where a few tensors of 8 bits spoil the outputs, their errors hide those of the ranges, and chance decides the first race.
        """
        others = [self.trial(method, best.scheme_of) for method in methods if method != best.method]
        other = max(others, key=lambda trial: trial.figures.score, default=best)
        if other.figures.score <= best.figures.score + SLACK:
            return best
        notes.append(
            f"with these types the ranges of {other.method} are closer to float than those of {best.method} "
            f"({other.words}, not {best.words}), so they are taken"
        )
        return other

    def trial(self, method: str, scheme_of: LayerSchemes) -> _Trial:
        """The network with the ranges of one method."""
        quantized, table = self.lowered(method, scheme_of)
        return _Trial(self.validator.figures(quantized), method, table, quantized, scheme_of)

    def lowered(self, method: str, scheme_of: LayerSchemes) -> tuple[Graph, CalibrationTable]:
        """The network with the ranges of one method, and the table of ranges; `max` gives the observed ranges, except in the
        tail."""
        overrides = unclipped(self.graph, scheme_of) | self.outputs
        table = table_from(self.statistics, method, overrides=overrides)
        entries = {**table.entries, **silent_entries(self.graph, table)}
        if method == "auto":
            chosen = output_aware_entries(
                self.graph, self.statistics, self.fit[:_TRIED], scheme_of, self.threads
            )
            entries.update({name: entry for name, entry in chosen.items() if name not in overrides})
        if method != PLAIN:
            entries.update(
                refined_entries(self.graph, self.statistics, entries, scheme_of, self._refined, self._floors)
            )
        last = tail(self.graph) - self.outputs.keys()
        wide = wide_tensors(self.graph, scheme_of) & last & entries.keys()
        for name in wide:
            entries[name] = with_headroom(entries[name])
        entries.update(with_room(self.graph, self.statistics, entries, last - wide))
        table = CalibrationTable(entries, table.comments, table.notes)
        return quantize(self.graph, table, scheme_of), table

    def corrected(self, trial: _Trial) -> _Trial:
        """The trial with corrected biases, if that is no worse."""
        fixed = trial.graph.copy()
        names = correct_biases(self.graph, fixed, self.fit, self.threads, trial.scheme_of)
        fixed.notes = trial.graph.notes
        after = self.validator.figures(fixed)
        if not names or after.score < trial.figures.score - _TOLERANCE:
            return trial
        return replace(trial, figures=after, graph=fixed, corrected=len(names))

    def again(self, trial: _Trial, scheme_of: LayerSchemes) -> _Trial:
        """A trial of the same method with other schemes."""
        return self.trial(trial.method, scheme_of)

    def joined(self, best: _Trial, widening: Widening, notes: list[str]) -> _Trial:
        """The trial with outputs concatenated in float, if their parts differ too much for a common scale."""
        joins = joining_ops(self.graph, best.scheme_of, self.statistics)
        if not joins:
            return best
        apart = self.again(best, with_joins_in_float(best.scheme_of, joins))
        if apart.worst_slice - best.worst_slice < GAIN:
            return best
        concats = [op for op in joins if isinstance(op, top.Concat)]
        names = ", ".join(f"'{value_name(op.results[0])}'" for op in concats)
        subject = f"{names} {'join' if len(concats) > 1 else 'joins'} parts"
        before = f"the worst slice goes from {best.worst_slice:.1f} to"
        if widening.is_allowed and not widening.is_free:
            wide = self.again(best, with_wide_tail(self.graph, best.scheme_of, widening.wide))
            near = apart.worst_slice - wide.worst_slice < GAIN <= wide.worst_slice - best.worst_slice
            change = widening.cycle_change(best.graph, wide.graph) if near else None
            if change is not None and change.share <= MOST_CYCLES:
                notes.append(
                    f"{subject} that differ too much for 8 bits, so the tail has 16: {before} {wide.worst_slice:.1f} dB, "
                    f"for {change}"
                )
                return wide
        notes.append(
            f"{subject} that differ too much for one scale, so they are joined in float on the CPU: {before} "
            f"{apart.worst_slice:.1f} dB"
        )
        return apart

    def widened(self, best: _Trial, widening: Widening, notes: list[str], *, good: bool) -> _Trial:
        """The trial with 16 bits for the tail and for sensitive tensors, where that is worth its cycles.

        If the outputs are `good`, no sensitive tensors are searched.
        """
        good = good or best.worst_slice >= GOOD
        if widening.is_free:
            return best if good else self._widened_freely(best, notes)
        forms = self._wide_forms(best, widening.wide, good)
        if all(not self._changes(best.scheme_of, scheme_of) for _, scheme_of in forms):
            # The target has no 16-bit activations: tell the user what they would gain.
            lost = [
                form
                for form in (self.again(best, schemes) for _, schemes in self._wide_forms(best, wider, good))
                if form.worst_slice - best.worst_slice >= GAIN
            ]
            if lost:
                most = max(lost, key=lambda form: form.worst_slice)
                notes.append(
                    f"{widening.machine} has no activations of 16 bits, with which the worst slice would have "
                    f"{most.worst_slice:.1f} dB instead of {best.worst_slice:.1f}"
                )
            return best
        tried = [(words, self.again(best, scheme_of)) for words, scheme_of in forms]
        worth = [(words, trial) for words, trial in tried if trial.worst_slice - best.worst_slice >= GAIN]
        too_costly: tuple[str, _Trial, CycleChange] | None = None
        for words, trial in sorted(worth, key=lambda pair: -pair[1].worst_slice):
            change = widening.cycle_change(best.graph, trial.graph)
            if change is None:
                continue
            if change.share <= MOST_CYCLES:
                notes.append(
                    f"16 bits for {words}: the worst slice goes from {best.worst_slice:.1f} to {trial.worst_slice:.1f} dB, "
                    f"for {change}; --no-widen leaves them out"
                )
                return trial
            too_costly = too_costly or (words, trial, change)
        if too_costly is not None:
            words, trial, change = too_costly
            notes.append(
                f"16 bits for {words} would take the worst slice from {best.worst_slice:.1f} to {trial.worst_slice:.1f} dB, but "
                f"for {change}: they are left out. --config can ask for them"
            )
        return best

    def _changes(self, first: LayerSchemes, second: LayerSchemes) -> bool:
        return any(first(op) != second(op) for op in self.graph.ops)

    def _wide_forms(
        self, best: _Trial, wide: Callable[[Scheme], Scheme], good: bool
    ) -> list[tuple[str, LayerSchemes]]:
        """Schemes with 16 bits for the tail, for the tail and sensitive tensors, and for the most sensitive tensors alone."""
        tail_of = with_wide_tail(self.graph, best.scheme_of, wide)
        forms: list[tuple[str, LayerSchemes]] = [("the tail", tail_of)]
        if good:
            return forms
        units = self._sensitive_tensors(best, most=_MOST_COUNTED)
        for count in dict.fromkeys((len(units), ceil_div(len(units), 2), ceil_div(len(units), 4))):
            tensors = [value for unit in units[:count] for value in unit]
            if not tensors:
                continue
            names = _listed([value_name(value) for value in tensors])
            forms.append((f"the tail and {names}", widened(tail_of, tensors, wide)))
        if len(forms) > 1:
            forms.append((names, widened(best.scheme_of, tensors, wide)))
        return forms

    def _sensitive_tensors(self, best: _Trial, most: float = MOST) -> list[tuple[Value, ...]]:
        measure = slice_noise(self.graph, self.validator.slices)
        samples = [self.validator.samples[index] for index in spread(len(self.validator.samples), _PROBED)]
        return sensitive_tensors(
            self.graph, integer_types(best.graph), samples, GOOD, self.threads, measure, most=most
        )

    def _widened_freely(self, best: _Trial, notes: list[str]) -> _Trial:
        """The trial with 16 bits for sensitive tensors, which are searched again with the types that were found.

        The noise of the most sensitive ones hides that of others: those are found once the first have 16 bits. All searches
        together find a tenth of the tensors, but each at least one.
        """
        room = int(MOST * sum(kind.dtype.itemsize == 1 for kind in integer_types(best.graph).values()))
        for search in range(_SEARCHES):
            units = self._sensitive_tensors(best)[: max(1, room) if search else None]
            tensors = [value for unit in units for value in unit]
            wide = self.again(best, widened(best.scheme_of, tensors, wider)) if tensors else best
            if wide.figures.score < best.figures.score + _WORTH:
                break
            names = ", ".join(value_name(value) for value in tensors)
            notes.append(f"16 bits for what rounding hurts most ({names}): {best.words} to {wide.words}")
            best, room = wide, room - len(units)
            if best.worst_slice >= GOOD:
                break
        return best

    def no_worse(
        self, best: _Trial, scheme_of: LayerSchemes, others: Callable[[], Iterable[Sample]], notes: list[str]
    ) -> _Trial:
        """The best trial, or the plain network (`max` ranges and nothing else) if that is better on the calibration data."""
        quantized, table = self.plain(scheme_of)
        plain = _Trial(self.validator.figures(quantized), PLAIN, table, quantized, scheme_of)
        best_more, plain_more = self.validator.figures_of([best.graph, plain.graph], others())
        best_all, plain_all = best.figures.plus(best_more), plain.figures.plus(plain_more)
        self.plain_figures = plain_all
        if is_no_worse(best_all, plain_all):
            return self._without_room(best, best_all, plain, scheme_of, others, notes)
        quantized, table = self.plain(best.scheme_of)
        wide = _Trial(self.validator.figures(quantized), PLAIN, table, quantized, best.scheme_of)
        (wide_more,) = self.validator.figures_of([wide.graph], others())
        wide_all = wide.figures.plus(wide_more)
        keeps_types = is_no_worse(wide_all, plain_all) and not is_no_worse(best_all, wide_all)
        taken, taken_all = (wide, wide_all) if keeps_types else (plain, plain_all)
        notes.append(
            f"the ranges of max and nothing else are closer to float on {_decision(taken_all, best_all)}, so they are taken"
        )
        return self._without_room(taken, taken_all, plain, scheme_of, others, notes)

    def _without_room(
        self,
        best: _Trial,
        best_all: OutputFigures,
        plain: _Trial,
        scheme_of: LayerSchemes,
        others: Callable[[], Iterable[Sample]],
        notes: list[str],
    ) -> _Trial:
        """The best trial, or the observed ranges without headroom if they are better and outputs are poor anyway.

        Headroom costs steps of the outputs, for data that reaches further. Where other errors are larger than those steps, it
        buys nothing, and a change of the outputs' ranges is chance.
        """
        if best_all.mean >= GOOD:
            return best
        table = table_from(self.statistics, PLAIN, overrides=self.outputs)
        if all(table.entries[name] == plain.table.entries[name] for name in table.entries):
            return best
        quantized = quantize(self.graph, table, scheme_of)
        bare = _Trial(self.validator.figures(quantized), PLAIN, table, quantized, scheme_of)
        (more,) = self.validator.figures_of([quantized], others())
        bare_all = bare.figures.plus(more)
        if is_no_worse(best_all, bare_all):
            return best
        notes.append(
            "the ranges of max without headroom at the outputs are closer to float on "
            f"{_decision(bare_all, best_all)}, so they are taken"
        )
        return bare

    def plain(self, scheme_of: LayerSchemes) -> tuple[Graph, CalibrationTable]:
        """The network with the observed ranges, with headroom for outputs of which few values were observed."""
        table = table_from(self.statistics, PLAIN, overrides=self.outputs)
        room = with_room(self.graph, self.statistics, table, tail(self.graph) - self.outputs.keys())
        silent = silent_entries(self.graph, table)
        table = CalibrationTable({**table, **silent, **room}, table.comments, table.notes)
        return quantize(self.graph, table, scheme_of), table


def _decision(taken: OutputFigures, dropped: OutputFigures) -> str:
    """The samples, and the figures by which `dropped` is worse than `taken`, in words."""
    decided = [
        f"{name} {now:.1f} dB, not {before:.1f}" for name, (before, now) in shortfalls(dropped, taken).items()
    ]
    return f"{counted(len(taken.squares), 'calibration sample')} ({'; '.join(decided)})"


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def with_wide_tail(
    graph: Graph, scheme_of: LayerSchemes, wide: Callable[[Scheme], Scheme] | None = None
) -> LayerSchemes:
    """The same schemes, but with 16 bits for the 8-bit layers of the tail: from which an output is reached without another
    layer with weights.

    They are few and small, and no later layer averages out their rounding. Without `wide`, only int8 layers are changed.
    """
    last = tail(graph)

    def choose(op: Any, scheme: Scheme) -> Scheme:
        if not op.results or result_names(op)[0] not in last:
            return scheme
        if wide is None:
            return wider(scheme) if scheme == SCHEMES["int8"] else scheme
        return wide(scheme) if scheme.activation in ("i8", "ui8") else scheme

    return scheme_of.changed(choose)


def with_weights_of_a_byte(scheme_of: LayerSchemes) -> LayerSchemes:
    """The same schemes, but 8 bits for weights of fewer."""
    return scheme_of.changed(
        lambda op, scheme: replace(scheme, weight="i8") if scheme.has_few_bit_weights else scheme
    )


def unclipped(graph: Graph, scheme_of: LayerSchemes) -> dict[str, str]:
    """Tensors whose full range is kept: those of 16 bits, those of the tail, and those with inserted constants."""
    names = wide_tensors(graph, scheme_of) | tail(graph) | tensors_with_chosen_constants(graph)
    return dict.fromkeys(names, "max")


def output_overrides(graph: Graph, method: str | None) -> dict[str, str]:
    """The range method of outputs, for them and for the tensors that they are only moved copies of."""
    names: dict[str, str] = {}
    waiting = [port.value for port in graph.outputs] if method else []
    while waiting:
        value = waiting.pop()
        if method and dtype_of(value.type).name == "f32" and value_name(value):
            names[value_name(value)] = method
        if isinstance(value.owner, top.Reshape | top.Permute | top.Slice | top.Concat | top.Split):
            waiting += value.owner.operands
    return names


def wide_tensors(graph: Graph, scheme_of: LayerSchemes) -> set[str]:
    """The tensors that get 16 bits."""
    return {
        name
        for op in graph.ops
        if (scheme := scheme_of(op)) is not None and scheme.has_wide_activations
        for name in result_names(op)
        if name and dtype_of(op.results[0].type).name == "f32"
    }


def with_headroom(entry: Entry) -> Entry:
    """Twice the observed range: an output of 16 bits has steps to spare, and other samples may exceed the range."""
    return replace(entry, threshold=2 * entry.threshold, min=2 * entry.min, max=2 * entry.max)


def tail(graph: Graph) -> set[str]:
    """The tensors from which an output is reached without another layer with weights."""
    names: set[str] = set()
    waiting: list[Value] = [port.value for port in graph.outputs]
    visited: set[Value] = set()
    while waiting:
        value = waiting.pop()
        if value in visited:
            continue
        visited.add(value)
        if dtype_of(value.type).name == "f32":
            names.add(value_name(value))
        op = value.owner
        if isinstance(op, TopOp) and not isinstance(op, top.Conv | top.Deconv | top.MatMul | top.WeightOp):
            waiting += op.operands
    return names
