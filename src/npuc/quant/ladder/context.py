"""The context that all steps share: the float network, its samples, how it is quantized, and how results are validated.

The samples are split once: steps learn from `fit`, and `validation_samples` are held back to decide whether a step is kept.
A step that changes the float network (without changing what it computes) calibrates and quantizes it again with
`requantized`; a step that changes the integer network works on a copy, and measures it with `validated_sqnr`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from npuc.arrays import Array
from npuc.calib.collection import collect
from npuc.calib.ranges import observer_options
from npuc.calib.statistics import Statistics
from npuc.calib.table import CalibrationTable
from npuc.compare import NOTHING, OutputFigures
from npuc.errors import QuantizationError
from npuc.ir import Graph, result_names
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.bias_correction import correct_biases
from npuc.quant.layer_schemes import LayerSchemes, SchemeOf
from npuc.quant.lower import quantize
from npuc.quant.tuning import METHODS, tune
from npuc.quant.validation import OutputValidator

if TYPE_CHECKING:
    from npuc.quant.mixed_precision.cost_model import CostModel
    from npuc.target import Target

Sample = Mapping[str, Array]

_VALIDATION_SHARE = 4
"""One of this many samples is held back for validation."""
_MAX_VALIDATION_SAMPLES = 64
_FOLDS = 4
"""The parts of the validation samples, to cross-validate a choice that they made."""
_FEWEST_COUNTED = 8
"""Fewer samples are not enough for the spread of what each of them gains."""
_CORRECTED = 32
"""The number of samples that are used to correct biases."""


@dataclass(frozen=True, init=False)
class Candidate:
    """A proposed integer network, and the float network that it was made of, which computes the same as the original."""

    source: Graph
    quantized: Graph
    table: CalibrationTable
    scheme_of: LayerSchemes
    sqnr: float
    """The mean over the slices of the outputs on the validation samples, in decibels."""
    notes: tuple[str, ...] = ()
    """What the steps did, one line per step."""

    def __init__(
        self,
        source: Graph,
        quantized: Graph,
        table: CalibrationTable,
        scheme_of: LayerSchemes | SchemeOf,
        sqnr: float,
        notes: tuple[str, ...] = (),
        *,
        made: Graph | None = None,
    ) -> None:
        """`made` is the former name of `quantized`: steps of plugins write `replace(best, made=...)`."""
        if made is not None:
            warnings.warn("Candidate.made is now Candidate.quantized", FutureWarning, stacklevel=3)
            quantized = made
        schemes = LayerSchemes.of(source, scheme_of)
        fields = {"source": source, "quantized": quantized, "table": table, "scheme_of": schemes}
        for name, value in {**fields, "sqnr": sqnr, "notes": notes}.items():
            object.__setattr__(self, name, value)

    @property
    def made(self) -> Graph:
        """The former name of `quantized`, for the steps of plugins."""
        warnings.warn("Candidate.made is now Candidate.quantized", FutureWarning, stacklevel=2)
        return self.quantized


@dataclass
class QuantizationContext:
    """One float network to be quantized, with its samples and options."""

    original: Graph
    samples: Sequence[Sample]
    scheme_of: LayerSchemes
    """The schemes of the layers of the original; a function of an op is accepted, too."""
    methods: Sequence[str] = METHODS
    threads: int = 1
    device: str = "cpu"
    """The torch device of the steps that need torch."""
    seed: int = 0
    target: Target | None = None
    cost_model: CostModel | None = None
    """The cost model of the target, for the steps that trade accuracy for cycles."""
    adaquant: AdaQuantOptions = field(default_factory=AdaQuantOptions)
    """The options of the step of this name."""
    output_method: str | None = None
    """The range method of the network's outputs."""
    patient: bool = True
    """Whether steps may take many minutes, because they were asked for; the default is not."""
    fit: list[Sample] = field(init=False)
    validation_samples: list[Sample] = field(init=False)
    validator: OutputValidator = field(init=False)
    _figures: WeakKeyDictionary[Graph, OutputFigures] = field(init=False, default_factory=WeakKeyDictionary)
    _rivals: WeakKeyDictionary[Graph, list[OutputFigures]] = field(
        init=False, default_factory=WeakKeyDictionary
    )
    """For a network that was chosen by the validation samples, the figures of all that it was chosen from."""

    def __post_init__(self) -> None:
        if len(self.samples) < 2:
            raise QuantizationError(
                f"{len(self.samples)} sample is too few: some are learned from, others validate",
                fix="Give 32 samples or more",
            )
        self.scheme_of = LayerSchemes.of(self.original, self.scheme_of)
        count = min(_MAX_VALIDATION_SAMPLES, max(1, len(self.samples) // _VALIDATION_SHARE))
        self.fit, self.validation_samples = list(self.samples[:-count]), list(self.samples[-count:])
        self.validator = OutputValidator(self.original, self.validation_samples, self.threads)

    def validated_sqnr(self, quantized: Graph) -> float:
        """The SQNR of an integer network on the validation samples: the mean over the slices of its outputs, in decibels."""
        self._figures[quantized] = self.validator.figures(quantized)
        return self._figures[quantized].mean

    def figures(self, quantized: Graph) -> OutputFigures:
        """The figures of an integer network on the validation samples, per slice and per sample."""
        if quantized not in self._figures:
            self._figures[quantized] = self.validator.figures(quantized)
        return self._figures[quantized]

    def worst(self, candidate: Candidate) -> float:
        """The worst slice of the worst validation sample, in decibels; 0 where its error is larger than its signal."""
        worst = self.figures(candidate.quantized).worst
        return candidate.sqnr if worst is None else max(worst.sqnr, NOTHING)

    def score(self, candidate: Candidate) -> float:
        """The score that candidates are compared by: halfway between the mean and the worst."""
        return self.figures(candidate.quantized).score

    def best_of(self, candidates: Sequence[Candidate]) -> Candidate:
        """The candidate with the best score; its gain will be cross-validated, because it was chosen by these samples."""
        best = max(candidates, key=self.score)
        self._rivals[best.quantized] = [
            rival
            for candidate in candidates
            for rival in self._rivals.get(candidate.quantized) or [self.figures(candidate.quantized)]
        ]
        return best

    def validated_figures(self, quantized: Graph) -> OutputFigures:
        """The figures that a network can be expected to have on samples by which it was not chosen.

        The best of several candidates looks better on the validation samples than it is: they chose it. So for each part of the
        samples the candidate is taken that is best on the other parts. Without rivals they are the figures themselves.
        """
        rivals = self._rivals.get(quantized, [])
        count = len(self.validation_samples)
        if len(rivals) < 2 or count < 2:
            return self.figures(quantized)
        squares = self.figures(quantized).squares.copy()
        for part in range(min(_FOLDS, count)):
            inside = [i for i in range(count) if i % _FOLDS == part]
            outside = [i for i in range(count) if i % _FOLDS != part]
            chosen = max(rivals, key=lambda figures: figures.of_samples(outside).score)
            squares[inside] = chosen.squares[inside]
        return OutputFigures(self.figures(quantized).slices, squares)

    def gain(self, candidate: Candidate, baseline: Candidate) -> float:
        """The gain of a candidate over a baseline in decibels, cross-validated if it was chosen among several."""
        if candidate.quantized not in self._rivals:
            return candidate.sqnr - baseline.sqnr
        return self.validated_figures(candidate.quantized).mean - baseline.sqnr

    def standard_error(self, candidate: Graph, baseline: Graph) -> float:
        """The standard error of a candidate's gain over a baseline, in decibels: how much it depends on the choice of samples.

        It is a jackknife estimate: each validation sample is left out in turn, for both networks.
        """
        if len(self.validation_samples) < 2:
            return 0.0
        gains = self._without_each(self.validated_figures(candidate)) - self._without_each(
            self.figures(baseline)
        )
        return float(np.sqrt((len(gains) - 1) * np.var(gains)))

    def sample_gains(self, candidate: Graph, baseline: Graph) -> Array:
        """The gain of each validation sample in decibels, on the mean over the slices."""
        after, before = self.validated_figures(candidate).by_sample, self.figures(baseline).by_sample
        gains: Array = (after - before).mean(axis=1)
        return gains

    def gains_in_most_samples(self, candidate: Graph, baseline: Graph) -> bool:
        """Whether the decibels of single samples gain by more than twice the standard error of their mean.

        A few samples with large errors make most of the error of all together, and most of its standard error: a gain that nearly
        all samples share can look like chance there. Here every sample counts the same.
        """
        if len(self.validation_samples) < _FEWEST_COUNTED:
            return False
        gains = self.sample_gains(candidate, baseline)
        return bool(gains.mean() >= 2 * gains.std(ddof=1) / np.sqrt(len(gains)) > 0)

    def _without_each(self, figures: OutputFigures) -> Array:
        count = len(figures.squares)
        return np.array(
            [figures.of_samples([i for i in range(count) if i != out]).mean for out in range(count)]
        )

    def statistics(self, source: Graph) -> Statistics:
        """The statistics of every tensor of a float network over all samples; over those in `fit` under powers of two.

        A range of a few more samples clips less, and costs next to nothing where scales are any numbers. A range that passes
        a power of two doubles its scale: with the ranges of all 40 samples, FastestDet came out at 10.8 dB, and with those of
        30 at 15.4.
        """
        samples = self.fit if self.scheme_of.has_powers_of_two else self.samples
        return collect(source, samples, options=observer_options(self.methods), threads=self.threads)

    def start(self) -> Candidate:
        """The original network quantized by default: ranges by the best method, corrected biases."""
        return self.requantized(self.original, self.scheme_of, ())

    def requantized(
        self, source: Graph, scheme_of: LayerSchemes | SchemeOf, notes: tuple[str, ...]
    ) -> Candidate:
        """Another form of the float network, or other schemes, calibrated and quantized by default."""
        tuned = tune(
            source,
            self.statistics(source),
            self.fit,
            scheme_of,
            self.methods,
            widen=False,
            threads=self.threads,
            output_method=self.output_method,
        )
        return Candidate(
            source, tuned.graph, tuned.table, tuned.scheme_of, self.validated_sqnr(tuned.graph), notes
        )

    def from_table(
        self,
        source: Graph,
        table: CalibrationTable,
        scheme_of: LayerSchemes | SchemeOf,
        notes: tuple[str, ...],
    ) -> Candidate:
        """The integer network with given ranges, with corrected biases unless they make it worse."""
        scheme_of = LayerSchemes.of(source, scheme_of)
        quantized = quantize(source, table, scheme_of)
        plain = Candidate(source, quantized, table, scheme_of, self.validated_sqnr(quantized), notes)
        fixed = quantized.copy()
        fixed.notes = list(quantized.notes)
        if not correct_biases(source, fixed, self.fit[:_CORRECTED], self.threads, scheme_of):
            return plain
        return self.best_of([plain, replace(plain, quantized=fixed, sqnr=self.validated_sqnr(fixed))])

    @property
    def judges(self) -> list[Sample]:
        """The former name of `validation_samples`, for the steps of plugins."""
        warnings.warn("judges is now validation_samples", FutureWarning, stacklevel=2)
        return self.validation_samples

    @property
    def judge(self) -> OutputValidator:
        """The former name of `validator`, for the steps of plugins."""
        warnings.warn("judge is now validator", FutureWarning, stacklevel=2)
        return self.validator

    def judged(self, quantized: Graph) -> float:
        """The former name of `validated_sqnr`, for the steps of plugins."""
        warnings.warn("judged is now validated_sqnr", FutureWarning, stacklevel=2)
        return self.validated_sqnr(quantized)


def carried(scheme_of: LayerSchemes, old: Graph, new: Graph) -> LayerSchemes:
    """The schemes of a network, for another form of it whose layers have the same names."""
    by_name = {result_names(op): scheme_of(op) for op in old.ops}
    return LayerSchemes({op: by_name.get(result_names(op)) for op in new.ops})
