"""The accuracy of a quantized network's outputs per slice, and what helps where a slice is lost.

The worst slice is always named, because a figure over all outputs would hide it. If a slice has fewer than 15 dB, the
remedies available to the user are tried on a few samples, and the warning names one that worked, or says that none did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from npuc.calib.calibration import table_from
from npuc.calib.statistics import Statistics
from npuc.compare import LOST, OutputFigures, Slice
from npuc.errors import NpucError
from npuc.ir import Graph, dtype_of, result_names, value_name
from npuc.quant.from_target import fitted, has_wide_activations, misfit
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.lower import quantize
from npuc.quant.prequantized import integer_types
from npuc.quant.scheme import SCHEMES, Scheme
from npuc.quant.validation import OutputValidator, slice_noise, spread
from npuc.quant.widening import sensitive_tensors
from npuc.registries import renamed
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.target import Target


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Accuracy": OutputAccuracy})


NEEDS_LEARNING = 10.0
"""With fewer decibels on average over the slices, weights of few bits have to be learned."""
_SAMPLES = 8
_NAMED = 4
_MOST_FLOAT = 0.3
"""The share of tensors that a remedy may keep float."""


@dataclass(frozen=True)
class OutputAccuracy:
    """How close the outputs of a quantized network are to float on calibration data."""

    figures: OutputFigures
    warnings: tuple[str, ...] = ()
    """One sentence for each slice that is lost, with a remedy."""

    def __str__(self) -> str:
        lowest, worst = self.figures.worst_slice, self.figures.worst
        if lowest is None or worst is None:
            return "not known: the outputs have no signal on the calibration data"
        slices = len(self.figures.by_slice)
        samples = counted(len(self.figures.squares), "calibration sample")
        if slices == 1:
            return f"{lowest[0]} {lowest[1]:.1f} dB on {samples}, {worst.sqnr:.1f} dB in the worst one"
        return (
            f"worst slice {lowest[0]} {lowest[1]:.1f} dB on {samples}; the worst in one sample {worst.slice} "
            f"{worst.sqnr:.1f} dB; the mean of {slices} slices {self.figures.mean:.1f} dB"
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        worst, least = self.figures.worst, self.figures.worst_slice
        return {
            "samples": len(self.figures.squares),
            "mean_sqnr": self.figures.mean if least is not None else None,
            "slices": [
                {"output": part.tensor, "slice": part.name, "sqnr": value, "lost": value < LOST}
                for part, value in self.figures.by_slice.items()
            ],
            "worst_slice": None if least is None else {"slice": least[0].name, "sqnr": least[1]},
            "worst_sample": None
            if worst is None
            else {"slice": worst.slice.name, "sample": worst.sample, "sqnr": worst.sqnr},
            "warnings": list(self.warnings),
        }


def accuracy_of(
    graph: Graph,
    quantized: Graph,
    scheme_of: LayerSchemes,
    figures: OutputFigures | None,
    validator: OutputValidator | None,
    statistics: Callable[[], Statistics],
    target: Target | None = None,
    *,
    learned: bool = False,
) -> OutputAccuracy | None:
    """The figures of a quantized network with a warning for each slice that is lost; None if there are no figures.

    `learned` says that the steps of the ladder were asked for, so that they need not be recommended.
    """
    if figures is None or validator is None or not figures.has_signal:
        return None
    lost = figures.lost
    unsteady = _unsteady(figures, has_wide_activations(target))
    if not learned:
        unsteady = (*_few_bits(figures, scheme_of), *unsteady)
    if not lost:
        return OutputAccuracy(figures, unsteady)
    remedy = _remedy(_Search(graph, quantized, scheme_of, validator, statistics(), target))
    shown = [f"{_named(part)} is only {value:.1f} dB above its error" for part, value in lost[:_NAMED]]
    if len(lost) > _NAMED:
        names = ", ".join(_named(part) for part, _ in lost[_NAMED:])
        shown.append(f"{names} {'is' if len(lost) == _NAMED + 1 else 'are'} below {LOST:.0f} dB, too")
    return OutputAccuracy(figures, (*(f"{text}: {remedy}" for text in shown), *unsteady))


def _few_bits(figures: OutputFigures, scheme_of: LayerSchemes) -> tuple[str, ...]:
    """A warning that weights of few bits have to be learned: rounding them, even together, is not enough."""
    schemes = [scheme for scheme in scheme_of.by_op.values() if scheme is not None and not scheme.is_float]
    bits = min((dtype_of(scheme.weight).bits for scheme in schemes), default=8)
    if bits >= 8 or figures.mean >= NEEDS_LEARNING:
        return ()
    return (
        f"weights of {bits} bits leave {figures.mean:.1f} dB without learning, too little for most uses: they "
        "need the learned steps, --ladder gptq,adaquant (with PyTorch, npuc[torch]; minutes on a processor)",
    )


def _unsteady(figures: OutputFigures, wide: bool = True) -> tuple[str, ...]:
    """A warning about slices that are lost in single samples only: other data may contain more such samples.

    `wide` says whether 16-bit activations can be recommended.
    """
    lost, lowest = {part for part, _ in figures.lost}, figures.by_sample.min(axis=0)
    weak = [(part, float(low)) for part, low in zip(figures.slices, lowest, strict=True) if low < LOST]
    weak = [(part, low) for part, low in weak if part in figures.by_slice and part not in lost]
    if not weak:
        return ()
    weak.sort(key=lambda pair: pair[1])
    names = ", ".join(f"{_named(part)} ({low:.1f} dB)" for part, low in weak[:_NAMED])
    if len(weak) > _NAMED:
        names += f" and {len(weak) - _NAMED} more"
    advice = "--scheme int16 or --ladder all" if wide else "--ladder all"
    return (
        f"{names} {'is' if len(weak) == 1 else 'are'} below {LOST:.0f} dB in the worst of "
        f"{counted(len(figures.squares), 'sample')}, and may be on other data; {advice} may help",
    )


def _named(part: Slice) -> str:
    return (
        f"the output '{part.tensor}'"
        if part.name == part.tensor
        else f"'{part.name}' of the output '{part.tensor}'"
    )


@dataclass(frozen=True)
class _Search:
    graph: Graph
    quantized: Graph
    scheme_of: LayerSchemes
    validator: OutputValidator
    statistics: Statistics
    target: Target | None

    def worst(self, scheme_of: LayerSchemes) -> float | None:
        """The decibels of the worst slice with other schemes and unclipped ranges; None if that network cannot be built."""
        try:
            candidate = quantize(self.graph, table_from(self.statistics, "max"), scheme_of)
            lowest = self.validator.figures(
                candidate, spread(len(self.validator.samples), _SAMPLES)
            ).worst_slice
        except NpucError:
            return None
        return None if lowest is None else lowest[1]


def _remedy(search: _Search) -> str:
    """A sentence that names a remedy that was tried and worked."""
    tried = []
    for name in ("int16", "int16-weights"):
        schemes = _all_as(SCHEMES[name], search)
        decibels = None if schemes is None else search.worst(schemes)
        if decibels is not None and decibels >= LOST:
            return f"--scheme {name} gives all slices {decibels:.1f} dB or more"
        if decibels is not None:
            tried.append(f"--scheme {name} gives {decibels:.1f} dB")
    layers = _sensitive_layers(search)
    if layers:
        decibels = search.worst(search.scheme_of.as_float(layers))
        names = ",".join(result_names(op)[0] for op in layers)
        if decibels is not None and decibels >= LOST:
            return f"--keep-float {names} gives all slices {decibels:.1f} dB or more, with these layers on the CPU"
        if decibels is not None:
            tried.append(f"float for the {len(layers)} layers that hurt most gives {decibels:.1f} dB")
    known = f" ({'; '.join(tried)})" if tried else ""
    return f"no remedy that was tried reaches {LOST:.0f} dB{known}; 'npuc analyze' says which layers hurt"


def _all_as(scheme: Scheme, search: _Search) -> LayerSchemes | None:
    """The given scheme for all layers that are not float; None if the target does not support it."""
    if search.target is not None:
        scheme = fitted(scheme, search.target)
        if misfit(scheme, search.target) is not None:
            return None
    return search.scheme_of.changed(lambda op, before: scheme)


def _sensitive_layers(search: _Search) -> Sequence[Any]:
    """The layers that write or read the tensors whose rounding costs most, as many as it takes to save every slice."""
    samples = [search.validator.samples[index] for index in spread(len(search.validator.samples), 2)]
    measure = slice_noise(search.graph, search.validator.slices)
    types = integer_types(search.quantized)
    units = sensitive_tensors(
        search.graph, types, samples, LOST + 3, search.validator.threads, measure, most=_MOST_FLOAT, share=0.0
    )
    values = [value for unit in units for value in unit if value_name(value)]
    ops = {value.owner for value in values} | {use.operation for value in values for use in value.uses}
    return [op for op in search.graph.ops if op in ops and op.results and search.scheme_of(op) is not None]
