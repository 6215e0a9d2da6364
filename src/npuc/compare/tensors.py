"""How much two tensors differ, and which tensors of two sets differ most.

For a tensor `a` and its reference `b`, both as float64:

- cosine = a·b / (|a| |b|): 1 if they point the same way, whatever their lengths;
- euclid = 1 - |a - b| / |b|, not below 0: 1 if they are equal, also sensitive to the length;
- SQNR = 20 log10(|b| / |a - b|) in decibels: 20 dB means that the error is a tenth of the signal.

NaN equals NaN and an infinity equals itself; if one of these meets any other value, all figures are the worst possible.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np

from npuc.arrays import Array
from npuc.errors import CompareError, UsageError
from npuc.registries import renamed


def __getattr__(name: str) -> Any:
    return renamed(__name__, name, {"Statistics": TensorSummary, "statistics": summarize})


SortKey = Literal["cosine", "euclid", "sqnr", "max_error", "relative_error", "name", "order"]

_CHUNK = 1 << 20


@dataclass(frozen=True)
class Tolerance:
    """The least similarity that passes."""

    cosine: float = 0.99
    euclid: float = 0.99

    @staticmethod
    def parse(text: str) -> Tolerance:
        """Read `cosine,euclid`, or one number for both.

        >>> Tolerance.parse("0.999,0.98").euclid
        0.98
        """
        try:
            numbers = [float(part) for part in text.split(",")]
        except ValueError:
            numbers = []
        if len(numbers) not in (1, 2) or not all(number <= 1 for number in numbers):
            raise UsageError(
                f"--tolerance '{text}' is not a cosine and a euclid similarity",
                fix="Write it like 0.99,0.95 (at most 1)",
            )
        return Tolerance(numbers[0], numbers[-1])


@dataclass(frozen=True)
class Difference:
    """The figures of one tensor against its reference."""

    name: str
    shape: tuple[int, ...]
    cosine: float
    euclid: float
    sqnr: float
    max_error: float
    relative_error: float
    """Largest |a - b| / |b| among elements where |b| is at least a thousandth of the largest |b|."""
    note: str = ""
    close: bool = False
    """All elements are equal up to rounding. The other figures are unreliable near zero, so this overrules them."""
    part: tuple[int, ...] = ()
    """Where in the tensor the figures are from, along its first axes; empty if they are those of the whole."""

    def passes(self, tolerance: Tolerance) -> bool:
        """True if it is within the tolerance."""
        return self.close or (
            not self.note and self.cosine >= tolerance.cosine and self.euclid >= tolerance.euclid
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values; an infinite figure is a string, because JSON has none."""
        return {
            key: str(value) if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in asdict(self).items()
            if key != "part" or value
        }


def difference(name: str, a: Array, b: Array) -> Difference:
    """Compare a tensor with its reference `b`.

    >>> difference("x", np.array([1.0, 0.0]), np.array([1.0, 0.0])).cosine
    1.0
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape:
        return _hopeless(name, a.shape, f"shape {list(a.shape)} against {list(b.shape)}")
    if a.dtype.kind in "OSU" or a.dtype.type is np.void:
        same = bool(np.array_equal(a, b))
        return _equal(name, a.shape) if same else _hopeless(name, a.shape, "different contents")
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    peak = max((float(np.max(np.abs(part), initial=0.0)) for part in _finite_chunks(flat_b)), default=0.0)
    dot = aa = bb = dd = 0.0
    largest = relative = 0.0
    for start in range(0, flat_a.size, _CHUNK):
        x, y = _wide(flat_a[start : start + _CHUNK]), _wide(flat_b[start : start + _CHUNK])
        finite = np.isfinite(x) & np.isfinite(y)
        if not finite.all():
            odd_x, odd_y = x[~finite], y[~finite]
            if not ((odd_x == odd_y) | (np.isnan(odd_x) & np.isnan(odd_y))).all():
                return _hopeless(name, a.shape, "NaN or infinity against a number")
            x, y = x[finite], y[finite]
        delta = np.abs(x - y)
        dot += float(np.real(np.vdot(y, x)))
        aa += float(np.real(np.vdot(x, x)))
        bb += float(np.real(np.vdot(y, y)))
        dd += float(np.dot(delta, delta))
        largest = max(largest, float(delta.max(initial=0.0)))
        magnitude = np.abs(y)
        counted = magnitude >= max(peak * 1e-3, 1e-30)
        relative = max(relative, float((delta[counted] / magnitude[counted]).max(initial=0.0)))
    if dd == 0:
        return _equal(name, a.shape)
    if aa == 0 or bb == 0:
        return Difference(name, a.shape, 0.0, 0.0, -math.inf if bb == 0 else 0.0, largest, relative)
    return Difference(
        name,
        a.shape,
        cosine=max(-1.0, min(1.0, dot / math.sqrt(aa) / math.sqrt(bb))),
        euclid=max(0.0, 1 - math.sqrt(dd / bb)),
        sqnr=10 * math.log10(bb / dd),
        max_error=largest,
        relative_error=relative,
    )


def _wide(values: Array) -> Array:
    return values.astype(np.complex128 if values.dtype.kind == "c" else np.float64)


def _finite_chunks(flat: Array) -> Iterable[Array]:
    for start in range(0, flat.size, _CHUNK):
        chunk = _wide(flat[start : start + _CHUNK])
        yield chunk[np.isfinite(chunk)]


def _equal(name: str, shape: tuple[int, ...]) -> Difference:
    return Difference(name, shape, 1.0, 1.0, math.inf, 0.0, 0.0)


def _hopeless(name: str, shape: tuple[int, ...], note: str) -> Difference:
    return Difference(name, shape, 0.0, 0.0, -math.inf, math.inf, math.inf, note)


def worst_part(name: str, a: Array, b: Array, axis: int) -> Difference:
    """The figures of the part that differs most from the reference, of one part for each place along the axes up to `axis`.

    With axis 1 of N x C x H x W that is the worst channel of the worst sample. A part whose elements are within a thousandth of
    the reference is close: near zero the other figures say nothing. A tensor that has no such axis is compared whole.

    >>> worst_part("x", np.array([[3.0, 1.0], [9.0, 9.0]]), np.array([[3.0, 0.0], [9.0, 9.0]]), 0).part
    (0,)
    """
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or not 0 <= axis < a.ndim or not a.size:
        return difference(name, a, b)
    parts = [
        replace(
            difference(name, a[at], b[at]),
            shape=a.shape,
            part=at,
            close=a.dtype.kind in "fiub" and np.allclose(a[at], b[at], rtol=1e-3, atol=1e-8, equal_nan=True),
        )
        for at in np.ndindex(a.shape[: axis + 1])
    ]
    return min(parts, key=lambda part: (part.close, part.cosine, part.euclid))


def compare_sets(
    ours: Mapping[str, Array],
    reference: Mapping[str, Array],
    leave_out: Collection[str] = (),
    axis: int | None = None,
) -> list[Difference]:
    """Compare the tensors that two sets have in common, in the order of the reference; with `axis`, by their worst parts."""
    names = [name for name in reference if name in ours and name not in leave_out]
    if not names:
        raise CompareError(
            "the two files have no tensor name in common",
            fix=f"One has {_some(ours)}, the other {_some(reference)}",
        )
    if axis is None:
        return [difference(name, ours[name], reference[name]) for name in names]
    return [worst_part(name, ours[name], reference[name], axis) for name in names]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(f"'{name}'" for name in names[:4]) + (
        f" and {len(names) - 4} more" if len(names) > 4 else ""
    )


_KEYS: dict[str, Callable[[Difference], Any]] = {
    "cosine": lambda d: (d.cosine, d.euclid),
    "euclid": lambda d: (d.euclid, d.cosine),
    "sqnr": lambda d: d.sqnr,
    "max_error": lambda d: -d.max_error,
    "relative_error": lambda d: -d.relative_error,
    "name": lambda d: d.name,
    "order": lambda d: 0,
}


def worst_first(differences: Iterable[Difference], key: SortKey = "cosine") -> list[Difference]:
    """Sorted with the largest difference first; `name` sorts by name, `order` keeps the order."""
    return sorted(differences, key=_KEYS[key])


@dataclass(frozen=True)
class TensorSummary:
    """Statistics of the values of one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    minimum: float
    maximum: float
    mean: float
    deviation: float
    zeros: float
    """The share of zeros."""
    not_finite: int
    """How many values are NaN or infinite; they are left out of the other figures."""


def summarize(name: str, array: Array) -> TensorSummary:
    """The statistics of a tensor.

    >>> summarize("x", np.array([0.0, 2.0])).mean
    1.0
    """
    low, high, total, squares, zeros, count = math.inf, -math.inf, 0.0, 0.0, 0, 0
    flat = array.reshape(-1)
    if array.dtype.kind in "OSU" or array.dtype.type is np.void:
        return TensorSummary(
            name, array.shape, str(array.dtype), math.nan, math.nan, math.nan, math.nan, 0.0, 0
        )
    for values in _finite_chunks(np.abs(flat) if array.dtype.kind == "c" else flat):
        if values.size:
            low, high = min(low, float(values.min())), max(high, float(values.max()))
            total += float(values.sum())
            count += values.size
            zeros += int((values == 0).sum())
    mean = total / count if count else math.nan
    for values in _finite_chunks(np.abs(flat) if array.dtype.kind == "c" else flat):
        squares += float(np.square(values - mean).sum())
    deviation = math.sqrt(squares / count) if count else math.nan
    if not count:
        low = high = math.nan
    share = zeros / count if count else 0.0
    return TensorSummary(
        name, array.shape, str(array.dtype), low, high, mean, deviation, share, flat.size - count
    )
