"""What all steps share: the float network, its samples, how integers are made of it, and how they are judged.

The samples are split once. Steps fit on `fit`; `validation_samples` are held back, and decide. A step that changes the float
network (without changing what it computes) has it calibrated and quantized anew with `requantized`; a step that changes the
integer network does so on a copy, and has it judged with `judged`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np

from npuc.arrays import Array
from npuc.calib.collection import collect
from npuc.calib.statistics import Statistics
from npuc.calib.table import CalibrationTable
from npuc.compare import OutputFigures
from npuc.errors import QuantizationError
from npuc.ir import Graph, result_names
from npuc.quant.adaquant.options import AdaQuantOptions
from npuc.quant.bias_correction import correct_biases
from npuc.quant.judging import OutputJudge
from npuc.quant.lower import quantize
from npuc.quant.scheme import Scheme
from npuc.quant.tuning import METHODS, tune

if TYPE_CHECKING:
    from npuc.quant.mixed_precision.cost_model import CostModel
    from npuc.target import Target

Sample = Mapping[str, Array]
SchemeOf = Callable[[Any], Scheme | None]

_JUDGED = 4
"""One sample of so many is held back."""
_MAX_VALIDATION_SAMPLES = 64
_CORRECTED = 32
"""Samples that correct biases."""


@dataclass(frozen=True)
class Candidate:
    """An integer network, and the float one that it was made of: a form of the original that computes the same."""

    source: Graph
    made: Graph
    table: CalibrationTable
    scheme_of: SchemeOf
    sqnr: float
    """Of the outputs on the validation samples, in decibels: the mean of their slices."""
    notes: tuple[str, ...] = ()
    """What the steps did, a line each."""


@dataclass
class QuantizationContext:
    """One float network on its way to integers."""

    original: Graph
    samples: Sequence[Sample]
    scheme_of: SchemeOf
    """Of the layers of the original."""
    methods: Sequence[str] = METHODS
    threads: int = 1
    device: str = "cpu"
    """Where torch computes, for the steps that need it."""
    seed: int = 0
    target: Target | None = None
    cost_model: CostModel | None = None
    """What a machine asks for layers, for the steps that trade accuracy for time."""
    adaquant: AdaQuantOptions = field(default_factory=AdaQuantOptions)
    """How the step of this name learns."""
    fit: list[Sample] = field(init=False)
    validation_samples: list[Sample] = field(init=False)
    judge: OutputJudge = field(init=False)
    _judgments: WeakKeyDictionary[Graph, OutputFigures] = field(init=False, default_factory=WeakKeyDictionary)

    def __post_init__(self) -> None:
        if len(self.samples) < 2:
            raise QuantizationError(
                f"{len(self.samples)} sample is too few: some fit, others judge",
                fix="Give 32 samples or more",
            )
        count = min(_MAX_VALIDATION_SAMPLES, max(1, len(self.samples) // _JUDGED))
        self.fit, self.validation_samples = list(self.samples[:-count]), list(self.samples[-count:])
        self.judge = OutputJudge(self.original, self.validation_samples, self.threads)

    def judged(self, made: Graph) -> float:
        """How close the outputs of an integer network are to float, in decibels: the mean of their slices."""
        self._judgments[made] = self.judge.figures(made)
        return self._judgments[made].mean

    def figures(self, made: Graph) -> OutputFigures:
        """The same by slice and by judge."""
        if made not in self._judgments:
            self._judgments[made] = self.judge.figures(made)
        return self._judgments[made]

    def worst(self, candidate: Candidate) -> float:
        """The worst slice of the worst validation sample, in decibels."""
        found = self.figures(candidate.made).worst
        return candidate.sqnr if found is None else found.sqnr

    def score(self, candidate: Candidate) -> float:
        """What candidates are compared by: the middle between the mean and the worst."""
        return (candidate.sqnr + self.worst(candidate)) / 2

    def standard_error(self, one: Graph, other: Graph) -> float:
        """The standard error of what one network gains over another, in decibels: how far the choice of samples matters.

        Validation samples are left out in turn (the jackknife), the same for both: what they have in common does not count.
        """
        if len(self.validation_samples) < 2:
            return 0.0
        gains = self._without_each(one) - self._without_each(other)
        return float(np.sqrt((len(gains) - 1) * np.var(gains)))

    def _without_each(self, made: Graph) -> Array:
        found = self.figures(made)
        count = len(found.squares)
        return np.array(
            [found.of_samples([i for i in range(count) if i != out]).mean for out in range(count)]
        )

    def statistics(self, source: Graph) -> Statistics:
        """Of every tensor of a form of the network, over the samples that may be looked at."""
        return collect(source, self.fit, threads=self.threads)

    def start(self) -> Candidate:
        """The original with the default: ranges by the best method, corrected biases."""
        return self.requantized(self.original, self.scheme_of, ())

    def requantized(self, source: Graph, scheme_of: SchemeOf, notes: tuple[str, ...]) -> Candidate:
        """Another float form, or other schemes, calibrated and quantized with the default."""
        found = tune(
            source,
            self.statistics(source),
            self.fit,
            scheme_of,
            self.methods,
            widen=False,
            threads=self.threads,
        )
        return Candidate(source, found.graph, found.table, found.scheme_of, self.judged(found.graph), notes)

    def from_table(
        self, source: Graph, table: CalibrationTable, scheme_of: SchemeOf, notes: tuple[str, ...]
    ) -> Candidate:
        """The integer network of given ranges, with corrected biases unless those make it worse."""
        made = quantize(source, table, scheme_of)
        plain = Candidate(source, made, table, scheme_of, self.judged(made), notes)
        fixed = made.copy()
        fixed.notes = list(made.notes)
        if not correct_biases(source, fixed, self.fit[:_CORRECTED], self.threads, scheme_of):
            return plain
        return max(plain, replace(plain, made=fixed, sqnr=self.judged(fixed)), key=self.score)

    @property
    def judges(self) -> list[Sample]:
        """The old name of `validation_samples`, for the steps of plugins."""
        warnings.warn("judges is now validation_samples", FutureWarning, stacklevel=2)
        return self.validation_samples


def carried(scheme_of: SchemeOf, old: Graph, new: Graph) -> SchemeOf:
    """The schemes of a network for another form of it, whose layers have the same names."""
    by_name = {result_names(op): scheme_of(op) for op in old.ops}
    by_op = {op: by_name.get(result_names(op)) for op in new.ops}
    return by_op.get
