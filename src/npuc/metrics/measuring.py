"""Metrics: what makes a record of every sample, and figures of all records.

The simple form is a function of an `Observation` whose mean over the samples is the figure:

    @metric("brightness", unit="")
    def brightness(seen: Observation) -> float:
        return float(seen.outputs["y"].mean())

The full form is a frozen dataclass (its fields are the options, `--metric topk:k=3`) with `observe`, which makes a record
of plain values, and `measure`, which makes figures of records under weights: one row of weights a figure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, Protocol

import numpy as np

from npuc.arrays import Array
from npuc.datasets.registry import check_name
from npuc.datasets.sample import Observation
from npuc.errors import EvaluationDataError, UsageError
from npuc.registries import Lenient, Registry


class Metric(Protocol):
    """What a run asks of a metric."""

    def observe(self, observation: Observation) -> Any:
        """The record of one sample: plain values, as JSON has them."""

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> Mapping[str, Array]:
        """Figures by name, each with one value for every row of `weights` (rows x samples)."""


@dataclass(frozen=True)
class MetricKind:
    """A metric that can be asked for."""

    name: str
    make: Callable[..., Metric]
    tasks: tuple[str, ...]
    """The tasks of data sets that it belongs to; the first metrics of a task are its default."""
    unit: str
    """How a figure is shown: `%` is times 100."""
    proportion: bool
    """Records are 0 or 1, and the figure is their mean."""
    words: str
    lower_is_better: bool = False
    """A rate of errors: of two models, the one with the smaller figure is the better."""


METRICS: Registry[str, MetricKind] = Registry(
    "a metric", provider="npuc.metrics.builtin", lenient=Lenient.ALL
)
"""By name."""


@dataclass(frozen=True)
class MeanOf:
    """The mean of a function over samples."""

    name: str
    function: Callable[[Observation], float]

    def observe(self, observation: Observation) -> float:
        """The value of one sample."""
        return float(self.function(observation))

    def measure(self, records: Sequence[Any], truths: Sequence[Any], weights: Array) -> dict[str, Array]:
        """The mean."""
        return {self.name: weighted_mean(np.array(records, np.float64), weights)}


def metric(
    name: str,
    *,
    task: str | tuple[str, ...] = (),
    unit: str = "",
    proportion: bool = False,
    lower_is_better: bool = False,
    replace: bool = False,
) -> Callable[[Any], Any]:
    """Register a function or a class as a metric; `lower_is_better` for rates of errors."""

    def register(thing: Any) -> Any:
        if isinstance(thing, type):
            make: Callable[..., Metric] = thing
        else:

            def make(**options: Any) -> Metric:
                if options:
                    raise UsageError(f"metric '{name}' has no option '{next(iter(options))}'")
                return MeanOf(name, thing)

        words = " ".join((thing.__doc__ or "").strip().split("\n\n")[0].split())
        tasks = (task,) if isinstance(task, str) else task
        kind = MetricKind(name, make, tasks, unit, proportion, words, lower_is_better)
        check_name(name, "metric")
        METRICS.add([name], kind, replace=replace, module=thing.__module__)
        return thing

    return register


@dataclass(frozen=True)
class Chosen:
    """A metric of a run."""

    text: str
    """As it was asked for."""
    kind: MetricKind
    metric: Metric


def parse_metric(text: str) -> Chosen:
    """Read `name` or `name:option=value:option=value`.

    >>> parse_metric("topk:k=3").metric.k
    3
    """
    name, *parts = text.split(":")
    kind = METRICS.named(name)
    known: dict[str, Any] = (
        {option.name: option for option in fields(kind.make)} if is_dataclass(kind.make) else {}
    )
    options: dict[str, Any] = {}
    for part in parts:
        key, separator, value = part.partition("=")
        field = known.get(key.replace("-", "_"))
        if field is None or not separator:
            offer = f"Its options: {', '.join(known)}" if known else "It has none"
            raise UsageError(f"metric '{name}' has no option '{part}'", fix=f"Write NAME=VALUE. {offer}")
        try:
            options[field.name] = type(field.default)(value)
        except ValueError as error:
            raise UsageError(f"metric '{name}': {key} cannot be '{value}'") from error
    return Chosen(text, kind, kind.make(**options))


def default_metrics(task: str) -> list[str]:
    """The metrics that a task has if none is asked for."""
    names = [name for name, kind in METRICS.items() if task in kind.tasks]
    if not names:
        raise UsageError("the data set does not say what is to be measured", fix="Give --metric")
    return names


def weighted_mean(values: Array, weights: Array) -> Array:
    """The mean for every row of weights."""
    means: Array = (weights @ values) / weights.sum(axis=1)
    return means


def only_output(observation: Observation, what: str) -> Array:
    """The output, where a metric needs a single one."""
    if len(observation.outputs) != 1:
        raise EvaluationDataError(
            f"{what} is of one output, and the model has {len(observation.outputs)}: {', '.join(observation.outputs)}",
            where=observation.name,
            fix="Import the model with --outputs NAME to keep one",
        )
    return np.asarray(next(iter(observation.outputs.values())))


def of_type(observation: Observation, kind: type | tuple[type, ...], what: str) -> Any:
    """The truth, where a metric needs one of a kind."""
    if not isinstance(observation.truth, kind) or isinstance(observation.truth, bool):
        raise EvaluationDataError(
            f"the data set has no {what} for it",
            where=observation.name,
            fix="Choose a metric of the data set's task",
        )
    return observation.truth
