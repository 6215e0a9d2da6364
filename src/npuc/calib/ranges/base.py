"""Range methods by name: from the statistics of a tensor to the range that the integers represent.

A method is a function `(statistics, bits, symmetric, **options) -> Range`, registered under the name that users write;
`percentile:ratio=0.999` sets an option. A symmetric range is (-t, t) for a threshold t; an affine one is (min, max)
and holds 0, so that zero, which padding and relu produce, is represented exactly.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from npuc.calib.statistics import TensorStatistics
from npuc.errors import CalibrationDataError, UsageError
from npuc.registries import Lenient, Registry


@dataclass(frozen=True)
class Range:
    """The real values that the smallest and the largest integer represent."""

    min: float
    max: float

    @property
    def threshold(self) -> float:
        """The larger magnitude of the two ends."""
        return max(abs(self.min), abs(self.max))


METHODS: Registry[str, Callable[..., Range]] = Registry("a range method", lenient=Lenient.ALL)
"""Name to method."""
method = METHODS.register
"""Register a range method; its keyword parameters are its options."""


@dataclass(frozen=True)
class MethodSpec:
    """A method with the options that the user set."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        words = ",".join(f"{key}={value}" for key, value in self.options.items())
        return f"{self.name}:{words}" if words else self.name


def parse_method(
    text: str | MethodSpec, methods: Mapping[str, Callable[..., Any]] = METHODS, what: str = "range method"
) -> MethodSpec:
    """Parse `name` or `name:option=value,option=value`; `UsageError` lists the valid names.

    `methods` are those of another registry, such as the methods for weights, and `what` is what messages call them.

    >>> parse_method("percentile:ratio=0.99").options
    {'ratio': 0.99}
    """
    if isinstance(text, MethodSpec):
        return text
    name, _, rest = text.strip().partition(":")
    known = options_of(name, methods, what)
    options: dict[str, Any] = {}
    for part in filter(None, (word.strip() for word in rest.split(","))):
        key, separator, value = part.partition("=")
        if key not in known or not separator:
            words = ", ".join(f"{k}={v}" for k, v in known.items()) or "none"
            raise UsageError(
                f"{what} '{name}' has no option '{key}'" if separator else f"'{part}' is not OPTION=VALUE",
                fix=f"Its options are: {words}",
            )
        optional = "None" in str(inspect.signature(methods[name]).parameters[key].annotation)
        options[key] = None if optional and value == "none" else _value(value, known[key], f"{name}:{key}")
    return MethodSpec(name, options)


def options_of(
    name: str, methods: Mapping[str, Callable[..., Any]] = METHODS, what: str = "range method"
) -> dict[str, Any]:
    """The options of a method with their defaults."""
    if name not in methods:
        near = get_close_matches(name, methods, n=1)
        hint = f"Did you mean '{near[0]}'? " if near else ""
        raise UsageError(f"there is no {what} '{name}'", fix=f"{hint}The methods are: {', '.join(methods)}")
    parameters = inspect.signature(methods[name]).parameters.values()
    return {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}


def _value(text: str, default: Any, label: str) -> Any:
    if isinstance(default, str):
        return text
    try:
        return int(text) if isinstance(default, int) else float(text)
    except ValueError as error:
        raise UsageError(f"{label}: '{text}' is not a number") from error


def find_range(
    statistics: TensorStatistics, method: str | MethodSpec, bits: int = 8, symmetric: bool = True
) -> Range:
    """The range that a method gives for a tensor.

    A tensor that was always zero has the range (0, 0); one without a single finite value has none, which is an error.
    """
    spec = parse_method(method)
    if not 2 <= bits <= 16:
        raise UsageError(f"{bits} bits: ranges are for 2 to 16 bits")
    if statistics.count == 0:
        raise CalibrationDataError(
            f"tensor '{statistics.name}' never had a finite value"
            + (f" ({statistics.nans} NaN, {statistics.infinite} infinite)" if statistics.nans else ""),
            fix="Check the preprocessing, or keep the layer in float",
        )
    if statistics.magnitude == 0.0:
        return Range(0.0, 0.0)
    chosen = METHODS[spec.name](statistics, bits, symmetric, **spec.options)
    if not (math.isfinite(chosen.min) and math.isfinite(chosen.max) and chosen.min <= chosen.max):
        raise ValueError(f"range method {spec} gave {chosen} for tensor '{statistics.name}'")
    return Range(float(chosen.min), float(chosen.max))


def symmetric_range(statistics: TensorStatistics, threshold: float) -> Range:
    """(-threshold, threshold), clipped to the largest magnitude of the values."""
    threshold = min(threshold, statistics.magnitude)
    return Range(-threshold, threshold)


def affine_range(statistics: TensorStatistics, low: float, high: float) -> Range:
    """(low, high), clipped to the extremes of the values and extended to contain zero."""
    return Range(min(0.0, max(low, statistics.min)), max(0.0, min(high, statistics.max)))


def levels(bits: int, symmetric: bool) -> int:
    """Steps from one end of a range to the other (affine), or from 0 to one end (symmetric)."""
    return (1 << (bits - 1)) - 1 if symmetric else (1 << bits) - 1


def option_error(name: str, option: str, value: object, words: str) -> UsageError:
    """The error for an option value that is out of range."""
    return UsageError(f"range method '{name}': {option}={value} {words}")
