"""Quantization that looks at its own result: ranges, types and biases that serve the network's outputs best.

No range method is best for every network: the squared error of a tensor says little where rare large values do not
matter to the output, and clipping them is fatal where they do. So the network is quantized with the ranges of a few
methods, `max` (no clipping) among them, and the one whose outputs are closest to float is kept. Tensors from which an output
is reached without another layer with weights (the tail) are never clipped: the output is what is wanted. Where few values of
one were seen, its range goes further (`npuc.quant.headroom`). Then biases are corrected, unless that makes the outputs worse;
outputs that were joined of parts of very different sizes are joined in float; and 16 bits go to the tail and to the few
tensors that spoil the outputs, where that is allowed and worth it (`npuc.quant.widening`).

Every network is judged by slice in every sample that is kept, the worst beside the mean (`npuc.quant.judging`). At the end the
result is held against the plain one (`max` ranges, nothing else) on all calibration data: if it is behind there, it goes.
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
from npuc.quant.judging import OutputJudge, is_no_worse, slice_noise, spread
from npuc.quant.lower import quantize
from npuc.quant.output_aware import output_aware_entries
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.silent import silent_entries
from npuc.quant.table_ranges import refined_entries, softmax_floors
from npuc.quant.widening import GAIN, MOST, MOST_CYCLES, Price, Widening, sensitive_tensors, widened, wider

Sample = Mapping[str, Array]
SchemeOf = Callable[[Any], Scheme | None]

PLAIN = "max"
"""The method that clips nothing: it always competes, and nothing may be worse than its ranges alone."""
METHODS = ("mse", "mean", "percentile", PLAIN)
"""The range methods that compete. `auto`, which looks at the layers that read a tensor, has never won and is slow."""
KEPT = 48
"""Samples that are kept from calibration for all this, and judge."""
_TRIED = 8
"""Samples that `auto` looks at."""
_TOLERANCE = 0.25
"""Decibels that a bias correction may seem to lose on the few samples that judge it."""


GOOD = 20.0
"""Decibels of the worst slice from which 8 bits are good enough."""
FINE = 45.0
"""Decibels of the worst slice from which a join needs no help."""
_WORTH = 0.5
"""Decibels that 16 bits have to gain where they cost nothing."""
_PRICED = 0.3
"""The part of the tensors that may get 16 bits where cycles decide."""
_JOINED = "it joins parts of very different sizes to an output"
_PROBED = 2
"""Samples that show which tensors spoil the outputs."""


@dataclass(frozen=True)
class Tuned:
    """A quantized network, what its layers got, and the ranges that it was made with."""

    graph: Graph
    table: CalibrationTable
    scheme_of: SchemeOf
    corrected: bool = False
    figures: OutputFigures | None = None
    """Of the outputs on the samples that were kept; None without samples, or if no output tells."""
    judge: OutputJudge | None = None
    """Who made them."""

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
    scheme_of: SchemeOf
    corrected: int = 0

    @property
    def worst_slice(self) -> float:
        """In decibels, over all samples."""
        found = self.figures.worst_slice
        return self.figures.mean if found is None else found[1]

    @property
    def words(self) -> str:
        """Its figures."""
        worst = self.figures.worst
        beside = f", at worst {worst.sqnr:.1f}" if worst is not None else ""
        return f"{self.figures.mean:.1f} dB{beside}"


def tune(
    graph: Graph,
    statistics: Statistics,
    samples: Sequence[Sample],
    scheme_of: SchemeOf,
    methods: Sequence[str] = METHODS,
    *,
    correct: bool = True,
    widen: Widening | bool = True,
    threads: int = 1,
    others: Callable[[], Iterable[Sample]] = tuple,
    plain_of: SchemeOf | None = None,
) -> Tuned:
    """The best integer network that the methods give; its notes say how it came about.

    All samples judge; two thirds of them correct biases. Without samples the first method is taken. `widen` allows 16 bits, and
    a join in float, where 8 bits do not serve: at no price if it is True. `others` gives the calibration data that was not kept:
    the result is held against the plain one there, too, whose schemes are `plain_of` if they are others.
    """
    tuner = _Tuner(graph, statistics, samples, threads)
    widening = Widening() if widen is True else widen or None
    if not tuner.judge.samples:
        found = tuner.trial(methods[0], scheme_of)
        return Tuned(found.graph, found.table, scheme_of)
    notes: list[str] = []
    raw = tuner.race(methods, scheme_of, notes)
    best = tuner.corrected(raw) if correct else raw
    if widening is not None and best.figures.has_signal:
        # Types are compared before biases are corrected, which takes its time: the result is corrected again.
        other = tuner.joined(raw, widening, notes) if best.worst_slice < FINE else raw
        good = other is raw and best.worst_slice >= GOOD
        other = tuner.widened(other, widening, notes, good=good) if widening.is_allowed else other
        if other is not raw:
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
    return Tuned(best.graph, best.table, best.scheme_of, bool(best.corrected), figures, tuner.judge)


class _Tuner:
    """Makes integer networks of one float network and judges their outputs."""

    def __init__(self, graph: Graph, statistics: Statistics, samples: Sequence[Sample], threads: int) -> None:
        self.graph, self.statistics, self.threads = graph, statistics, threads
        self.judge = OutputJudge(graph, samples, threads)
        count = max(1, len(samples) // 3)
        self.fit = list(samples[:-count]) or list(samples)
        self._refined: dict[tuple[str, tuple[float, float]], tuple[float, float]] = {}
        self._floors = softmax_floors(graph, samples[:_TRIED], threads)

    def race(self, methods: Sequence[str], scheme_of: SchemeOf, notes: list[str]) -> _Trial:
        """The network of the best method."""
        trials = [self.trial(method, scheme_of) for method in methods]
        best = max(trials, key=lambda trial: trial.figures.score)
        if len(trials) > 1:
            figures = "; ".join(f"{trial.method} {trial.words}" for trial in trials)
            notes.append(f"ranges by {best.method}: its outputs are closest to float ({figures})")
        return best

    def trial(self, method: str, scheme_of: SchemeOf) -> _Trial:
        """The network with the ranges of one method."""
        made, table = self.lowered(method, scheme_of)
        return _Trial(self.judge.figures(made), method, table, made, scheme_of)

    def lowered(self, method: str, scheme_of: SchemeOf) -> tuple[Graph, CalibrationTable]:
        """The network with the ranges of one method, and these; those of `max` are what was seen, but for the tail."""
        overrides = unclipped(self.graph, scheme_of)
        table = table_from(self.statistics, method, overrides=overrides)
        entries = {**table.entries, **silent_entries(self.graph, table)}
        if method == "auto":
            found = output_aware_entries(
                self.graph, self.statistics, self.fit[:_TRIED], scheme_of, self.threads
            )
            entries.update({name: entry for name, entry in found.items() if name not in overrides})
        if method != PLAIN:
            entries.update(
                refined_entries(self.graph, self.statistics, entries, scheme_of, self._refined, self._floors)
            )
        last = tail(self.graph)
        wide = wide_tensors(self.graph, scheme_of) & last & entries.keys()
        for name in wide:
            entries[name] = with_headroom(entries[name])
        entries.update(with_room(self.graph, self.statistics, entries, last - wide))
        table = CalibrationTable(entries, table.comments, table.notes)
        return quantize(self.graph, table, scheme_of), table

    def corrected(self, trial: _Trial) -> _Trial:
        """The same with corrected biases, if that is no worse."""
        fixed = trial.graph.copy()
        names = correct_biases(self.graph, fixed, self.fit, self.threads, trial.scheme_of)
        fixed.notes = trial.graph.notes
        after = self.judge.figures(fixed)
        if not names or after.score < trial.figures.score - _TOLERANCE:
            return trial
        return replace(trial, figures=after, graph=fixed, corrected=len(names))

    def again(self, trial: _Trial, scheme_of: SchemeOf) -> _Trial:
        """The network of the same method with other schemes."""
        return self.trial(trial.method, scheme_of)

    def joined(self, best: _Trial, widening: Widening, notes: list[str]) -> _Trial:
        """The same, its outputs joined in float where their parts differ too much for the bits that they share."""
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
            price = widening.price(best.graph, wide.graph) if near else None
            if price is not None and price.share <= MOST_CYCLES:
                notes.append(
                    f"{subject} that differ too much for 8 bits, so the tail has 16: {before} {wide.worst_slice:.1f} dB, "
                    f"for {price}"
                )
                return wide
        notes.append(
            f"{subject} that differ too much for one scale, so they are joined in float on the CPU: {before} "
            f"{apart.worst_slice:.1f} dB"
        )
        return apart

    def widened(self, best: _Trial, widening: Widening, notes: list[str], *, good: bool) -> _Trial:
        """The same with 16 bits for the tail and for tensors that spoil the outputs, where they are worth their price.

        Outputs that are `good` have none that spoil them.
        """
        good = good or best.worst_slice >= GOOD
        if widening.is_free:
            return best if good else self._widened_freely(best, notes)
        forms = self._wide_forms(best, widening.wide, good)
        if all(not self._changes(best.scheme_of, scheme_of) for _, scheme_of in forms):
            # The machine has no 16 bits: what would they give?
            lost = [
                form
                for form in (self.again(best, one) for _, one in self._wide_forms(best, wider, good))
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
        worth = [one for one in tried if one[1].worst_slice - best.worst_slice >= GAIN]
        dear: tuple[str, _Trial, Price] | None = None
        for words, trial in sorted(worth, key=lambda one: -one[1].worst_slice):
            price = widening.price(best.graph, trial.graph)
            if price is None:
                continue
            if price.share <= MOST_CYCLES:
                notes.append(
                    f"16 bits for {words}: the worst slice goes from {best.worst_slice:.1f} to {trial.worst_slice:.1f} dB, "
                    f"for {price}; --no-widen leaves them out"
                )
                return trial
            dear = dear or (words, trial, price)
        if dear is not None:
            words, trial, price = dear
            notes.append(
                f"16 bits for {words} would take the worst slice from {best.worst_slice:.1f} to {trial.worst_slice:.1f} dB, but "
                f"for {price}: they are left out. --config can ask for them"
            )
        return best

    def _changes(self, one: SchemeOf, other: SchemeOf) -> bool:
        return any(one(op) != other(op) for op in self.graph.ops)

    def _wide_forms(
        self, best: _Trial, wide: Callable[[Scheme], Scheme], good: bool
    ) -> list[tuple[str, SchemeOf]]:
        """Schemes with 16 bits for the tail, for it and tensors that spoil the outputs, and for the worst of these alone."""
        tail_of = with_wide_tail(self.graph, best.scheme_of, wide)
        forms: list[tuple[str, SchemeOf]] = [("the tail", tail_of)]
        if good:
            return forms
        found = self._sensitive_tensors(best, most=_PRICED)
        for count in dict.fromkeys((len(found), ceil_div(len(found), 2), ceil_div(len(found), 4))):
            tensors = [value for unit in found[:count] for value in unit]
            if not tensors:
                continue
            names = _listed([value_name(value) for value in tensors])
            forms.append((f"the tail and {names}", widened(tail_of, tensors, wide)))
        if len(forms) > 1:
            forms.append((names, widened(best.scheme_of, tensors, wide)))
        return forms

    def _sensitive_tensors(self, best: _Trial, most: float = MOST) -> list[tuple[Value, ...]]:
        measure = slice_noise(self.graph, self.judge.slices)
        samples = [self.judge.samples[index] for index in spread(len(self.judge.samples), _PROBED)]
        return sensitive_tensors(
            self.graph, integer_types(best.graph), samples, GOOD, self.threads, measure, most=most
        )

    def _widened_freely(self, best: _Trial, notes: list[str]) -> _Trial:
        tensors = [value for unit in self._sensitive_tensors(best) for value in unit]
        if not tensors:
            return best
        found = self.again(best, widened(best.scheme_of, tensors, wider))
        if found.figures.score < best.figures.score + _WORTH:
            return best
        names = ", ".join(value_name(value) for value in tensors)
        notes.append(f"16 bits for what rounding hurts most ({names}): {best.words} to {found.words}")
        return found

    def no_worse(
        self, best: _Trial, scheme_of: SchemeOf, others: Callable[[], Iterable[Sample]], notes: list[str]
    ) -> _Trial:
        """The same, unless the ranges of `max` and nothing else are better on the calibration data: then those."""
        made, table = self.plain(scheme_of)
        plain = _Trial(self.judge.figures(made), PLAIN, table, made, scheme_of)
        found, held = self.judge.figures_of([best.graph, plain.graph], others())
        whole, bar = best.figures.plus(found), plain.figures.plus(held)
        if is_no_worse(whole, bar):
            return best
        made, table = self.plain(best.scheme_of)
        wide = _Trial(self.judge.figures(made), PLAIN, table, made, best.scheme_of)
        (more,) = self.judge.figures_of([wide.graph], others())
        taken = wide if is_no_worse(wide.figures.plus(more), bar) else plain
        notes.append(
            f"the ranges of max and nothing else are closer to float on the calibration data ({taken.words}, "
            f"not {best.words}), so they are taken"
        )
        return taken

    def plain(self, scheme_of: SchemeOf) -> tuple[Graph, CalibrationTable]:
        """The network with the ranges that were seen, outputs of which little was seen with room, and nothing else."""
        table = table_from(self.statistics, PLAIN)
        room = with_room(self.graph, self.statistics, table, tail(self.graph))
        silent = silent_entries(self.graph, table)
        table = CalibrationTable({**table, **silent, **room}, table.comments, table.notes)
        return quantize(self.graph, table, scheme_of), table


def _listed(names: Sequence[str], most: int = 4) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def with_wide_tail(
    graph: Graph, scheme_of: SchemeOf, wide: Callable[[Scheme], Scheme] | None = None
) -> SchemeOf:
    """The same schemes, but 8-bit layers from which an output is reached without another layer with weights give 16 bits.

    They are few and small, and nothing after them averages their rounding out. Without `wide`, layers of int8 alone.
    """
    last = tail(graph)

    def choose(op: Any) -> Scheme | None:
        scheme = scheme_of(op)
        if scheme is None or not op.results or result_names(op)[0] not in last:
            return scheme
        if wide is None:
            return wider(scheme) if scheme == SCHEMES["int8"] else scheme
        return wide(scheme) if scheme.activation in ("i8", "ui8") else scheme

    return choose


def unclipped(graph: Graph, scheme_of: SchemeOf) -> dict[str, str]:
    """Tensors whose whole range is kept: those of 16 bits, those next to an output, and those with constants put in."""
    whole = wide_tensors(graph, scheme_of) | tail(graph) | tensors_with_chosen_constants(graph)
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


def tail(graph: Graph) -> set[str]:
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
