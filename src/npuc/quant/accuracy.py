"""What a quantized network's outputs are worth, by slice, and what to do where a slice is lost.

The worst slice is always named: a figure over all outputs hides it. Where a slice has fewer than 15 dB, the remedies that a
user has are tried on a few samples, and the sentence names one that was seen to work, or says that none was.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.calib.calibration import table_from
from npuc.calib.statistics import Statistics
from npuc.compare import LOST, OutputFigures, Slice
from npuc.errors import NpucError
from npuc.ir import Graph, result_names, value_name
from npuc.quant.from_target import fitted, has_wide_activations, misfit
from npuc.quant.judging import OutputJudge, slice_noise, spread
from npuc.quant.lower import quantize
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.widening import sensitive_tensors
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.target import Target

SchemeOf = Callable[[Any], Scheme | None]

_SAMPLES = 8
_NAMED = 4
_MOST_FLOAT = 0.3
"""Part of the tensors that a remedy may keep float."""


@dataclass(frozen=True)
class Accuracy:
    """How close the outputs of a quantized network are to float on calibration data."""

    figures: OutputFigures
    warnings: tuple[str, ...] = ()
    """A sentence for each slice that is lost, with what helps."""

    def __str__(self) -> str:
        found, worst = self.figures.worst_slice, self.figures.worst
        if found is None or worst is None:
            return "not known: the outputs have no signal on the calibration data"
        slices = len(self.figures.by_slice)
        samples = counted(len(self.figures.squares), "calibration sample")
        if slices == 1:
            return f"{found[0]} {found[1]:.1f} dB on {samples}, {worst.sqnr:.1f} dB in the worst one"
        return (
            f"worst slice {found[0]} {found[1]:.1f} dB on {samples}; the worst in one sample {worst.slice} "
            f"{worst.sqnr:.1f} dB; the mean of {slices} slices {self.figures.mean:.1f} dB"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        worst, least = self.figures.worst, self.figures.worst_slice
        return {
            "samples": len(self.figures.squares),
            "mean_sqnr": self.figures.mean if least is not None else None,
            "slices": [
                {"output": one.tensor, "slice": one.name, "sqnr": value, "lost": value < LOST}
                for one, value in self.figures.by_slice.items()
            ],
            "worst_slice": None if least is None else {"slice": least[0].name, "sqnr": least[1]},
            "worst_sample": None
            if worst is None
            else {"slice": worst.slice.name, "sample": worst.sample, "sqnr": worst.sqnr},
            "warnings": list(self.warnings),
        }


def accuracy_of(
    graph: Graph,
    made: Graph,
    scheme_of: SchemeOf,
    figures: OutputFigures | None,
    judge: OutputJudge | None,
    statistics: Callable[[], Statistics],
    target: Target | None = None,
) -> Accuracy | None:
    """The figures of a quantized network with a warning for each slice that is lost; None if there are no figures."""
    if figures is None or judge is None or not figures.has_signal:
        return None
    lost = figures.lost
    unsteady = _unsteady(figures, has_wide_activations(target))
    if not lost:
        return Accuracy(figures, unsteady)
    remedy = _remedy(_Search(graph, made, scheme_of, judge, statistics(), target))
    shown = [f"{_named(one)} is only {value:.1f} dB above its error" for one, value in lost[:_NAMED]]
    if len(lost) > _NAMED:
        names = ", ".join(_named(one) for one, _ in lost[_NAMED:])
        shown.append(f"{names} {'is' if len(lost) == _NAMED + 1 else 'are'} below {LOST:.0f} dB, too")
    return Accuracy(figures, (*(f"{text}: {remedy}" for text in shown), *unsteady))


def _unsteady(figures: OutputFigures, wide: bool = True) -> tuple[str, ...]:
    """A sentence on slices that are lost in a sample, though not over all: other data may be like that sample.

    `wide` says whether there are activations of 16 bits to advise.
    """
    lost, lowest = {one for one, _ in figures.lost}, figures.by_sample.min(axis=0)
    weak = [(one, float(low)) for one, low in zip(figures.slices, lowest, strict=True) if low < LOST]
    weak = [(one, low) for one, low in weak if one in figures.by_slice and one not in lost]
    if not weak:
        return ()
    weak.sort(key=lambda pair: pair[1])
    names = ", ".join(f"{_named(one)} ({low:.1f} dB)" for one, low in weak[:_NAMED])
    if len(weak) > _NAMED:
        names += f" and {len(weak) - _NAMED} more"
    advice = "--scheme int16 or --ladder all" if wide else "--ladder all"
    return (
        f"{names} {'is' if len(weak) == 1 else 'are'} below {LOST:.0f} dB in the worst of "
        f"{counted(len(figures.squares), 'sample')}, and may be on other data; {advice} may help",
    )


def _named(one: Slice) -> str:
    return (
        f"the output '{one.tensor}'"
        if one.name == one.tensor
        else f"'{one.name}' of the output '{one.tensor}'"
    )


@dataclass(frozen=True)
class _Search:
    graph: Graph
    made: Graph
    scheme_of: SchemeOf
    judge: OutputJudge
    statistics: Statistics
    target: Target | None

    def worst(self, scheme_of: SchemeOf) -> float | None:
        """Of the worst slice with other schemes and the whole ranges; None if that cannot be made."""
        try:
            made = quantize(self.graph, table_from(self.statistics, "max"), scheme_of)
            found = self.judge.figures(made, spread(len(self.judge.samples), _SAMPLES)).worst_slice
        except NpucError:
            return None
        return None if found is None else found[1]


def _remedy(search: _Search) -> str:
    """A sentence that names what was seen to help."""
    tried = []
    for name in ("int16", "int16-weights"):
        schemes = _all_as(SCHEMES[name], search)
        found = None if schemes is None else search.worst(schemes)
        if found is not None and found >= LOST:
            return f"--scheme {name} gives all slices {found:.1f} dB or more"
        if found is not None:
            tried.append(f"--scheme {name} gives {found:.1f} dB")
    layers = _hurting(search)
    if layers:
        real = set(layers)
        found = search.worst(lambda op: None if op in real else search.scheme_of(op))
        names = ",".join(result_names(op)[0] for op in layers)
        if found is not None and found >= LOST:
            return (
                f"--keep-float {names} gives all slices {found:.1f} dB or more, with these layers on the CPU"
            )
        if found is not None:
            tried.append(f"float for the {len(layers)} layers that hurt most gives {found:.1f} dB")
    known = f" ({'; '.join(tried)})" if tried else ""
    return f"no remedy that was tried reaches {LOST:.0f} dB{known}; 'npuc analyze' says which layers hurt"


def _all_as(scheme: Scheme, search: _Search) -> SchemeOf | None:
    """The scheme for all layers that are not float; None if the machine does not have it."""
    if search.target is not None:
        scheme = fitted(scheme, search.target)
        if misfit(scheme, search.target) is not None:
            return None
    return lambda op: None if search.scheme_of(op) is None else scheme


def _hurting(search: _Search) -> Sequence[Any]:
    """The layers that make, or read, the tensors whose rounding hurts most: enough of them for every slice."""
    samples = [search.judge.samples[index] for index in spread(len(search.judge.samples), 2)]
    measure = slice_noise(search.graph, search.judge.slices)
    types = integer_types(search.made)
    found = sensitive_tensors(
        search.graph, types, samples, LOST + 3, search.judge.threads, measure, most=_MOST_FLOAT, share=0.0
    )
    values = [value for unit in found for value in unit if value_name(value)]
    ops = {value.owner for value in values} | {use.operation for value in values for use in value.uses}
    return [op for op in search.graph.ops if op in ops and op.results and search.scheme_of(op) is not None]
