"""Functions of f32 by piecewise polynomials: tables that the instruction `table` evaluates in f64 and rounds once.

The sign and the magnitude of x choose a binade, the numbers between two powers of two, and with it a word of the directory. The
word says where the segments of the binade begin and into how many, a power of two, it is cut; the highest bits of the fraction
choose one. A segment has a centre and seven coefficients:

    word = directory[binade(x)]
    segment = word / 16 + (fraction(x) >> (23 - word % 16))
    d = x - centre
    y = f32((((((a6 * d + a5) * d + a4) * d + a3) * d + a2) * d + a1) * d + a0)

Every operation is one of f64, none of them fused. Binades may share segments: near 0 one series serves all, and where a function
no longer changes one constant does. A sigmoid has 275 segments, 19 KiB.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from npuc.arrays import Array

SIGN_WORDS = 280
"""Words of the directory for each sign: 0; numbers from 2^-149, ..., 2^-127 on; from 2^-126, ..., 2^127 on; infinity; a spare."""
DIRECTORY = 2 * SIGN_WORDS * 4
"""Bytes of the directory."""
DEGREE = 6
SEGMENT = DEGREE + 2
"""Numbers of a segment: its centre, and the coefficients from the constant on."""
SEGMENT_BYTES = 8 * SEGMENT
MOST_CUTS = 12
"""A binade has 2^12 segments at most."""
MOST_SEGMENTS = 8192
"""Of a table."""
ERROR = 1 / 32
"""What a polynomial may be off, in steps of f32, beside the rounding."""
_FRACTION = 23
_INFINITY = 278
_NORMAL = 24
"""The first binade of normal numbers."""
_SAMPLES = 24
"""Arguments of a segment at which a polynomial is compared with the function."""

Function = Callable[[Array], Array]
"""Values in f64 at arguments in f64."""


class NotSmooth(Exception):
    """No table of a reasonable size follows the function."""


def piecewise_table(function: Function) -> Array:
    """The table of a function: the directory, then its segments, as bytes.

    >>> table = piecewise_table(np.tanh)
    >>> table.nbytes < 8192, evaluate(table, np.float32([0, 0.5, np.inf])).tolist()
    (True, [0.0, 0.46211716532707214, 1.0])
    """
    with np.errstate(all="ignore"):
        return _Maker(function).table()


def pieces_of(table: Array) -> int:
    """How many segments a table has."""
    return (table.nbytes - DIRECTORY) // SEGMENT_BYTES


def evaluate(table: Array, x: Array) -> Array:
    """What the instruction gives for f32: the same operations, in NumPy."""
    directory = table[:DIRECTORY].view("<u4").astype(np.int64)
    segments = table[DIRECTORY:].view("<f8").reshape(-1, SEGMENT)
    bits = x.view(np.uint32).reshape(-1).astype(np.int64)
    magnitude = bits & 0x7FFFFFFF
    with np.errstate(all="ignore"):
        highest = np.frexp(np.maximum(magnitude, 1).astype(np.float64))[1] - 1  # of the bits
        small = magnitude < 1 << _FRACTION
        binade = np.where(small, np.where(magnitude == 0, 0, 1 + highest), 23 + (magnitude >> _FRACTION))
        fraction = np.where(small, magnitude << np.maximum(_FRACTION - highest, 0), magnitude) & 0x7FFFFF
        word = directory[(bits >> 31) * SIGN_WORDS + binade]
        rows = segments[(word >> 4) + (fraction >> (_FRACTION - (word & 15)))]
        wide = x.reshape(-1).astype(np.float64)
        y = np.where(np.isinf(wide), rows[:, 1], evaluate_rows(rows, wide[:, None])[:, 0]).astype(np.float32)
    quiet = np.array([0x7FC00000], np.uint32).view(np.float32)
    return np.where(np.isnan(y) | np.isnan(wide), quiet, y).reshape(x.shape)


def evaluate_rows(rows: Array, x: Array) -> Array:
    """Polynomials of segments, one a row, at arguments of theirs."""
    d = x - rows[:, :1]
    y = np.broadcast_to(rows[:, -1:], x.shape)
    for power in range(DEGREE - 1, -1, -1):
        y = y * d + rows[:, power + 1, None]
    return y


def errors(values: Array, exact: Array) -> Array:
    """How far values in f64 are off, in steps of f32 at the exact ones; 0 where both are the same that is not finite in f32."""
    with np.errstate(all="ignore"):
        near = exact.astype(np.float32)
        step = np.spacing(np.minimum(np.abs(near), np.finfo(np.float32).max)).astype(np.float64)
        same = (values.astype(np.float32) == near) & ~np.isfinite(near) | np.isnan(values) & np.isnan(exact)
        off = np.abs(values - exact) / step
    return np.where(same, 0.0, np.where(np.isnan(off), np.inf, off))


@dataclass
class _Maker:
    """A table in the making."""

    function: Function
    segments: list[Array] = field(default_factory=list)
    known: dict[bytes, int] = field(default_factory=dict)
    """Segments that are there, by their bytes."""

    def table(self) -> Array:
        """All of it."""
        directory = np.zeros((2, SIGN_WORDS), "<u4")
        for sign, words in enumerate(directory):
            words[0] = self._constant(-0.0 if sign else 0.0)
            words[_INFINITY] = self._constant(-np.inf if sign else np.inf)
            series, first = self._series(sign)
            words[1:first] = series
            cuts = 0
            for binade in range(first, _INFINITY):
                words[binade] = self._binade(sign, binade, max(cuts - 2, 0))
                cuts = int(words[binade]) & 15
        segments = np.array(self.segments, "<f8")
        return np.concatenate([directory.reshape(-1).view(np.uint8), segments.reshape(-1).view(np.uint8)])

    def _add(self, rows: Array, cuts: int = 0) -> int:
        """The word for segments that lie one behind the other; those that are there already are used again."""
        key = rows.tobytes()
        if key not in self.known:
            self.known[key] = len(self.segments)
            self.segments += list(rows)
            if len(self.segments) > MOST_SEGMENTS:
                raise NotSmooth
        return self.known[key] << 4 | cuts

    def _constant(self, x: float) -> int:
        return self._add(_constant_row(self.function(np.array([x]))[0]))

    def _series(self, sign: int) -> tuple[int, int]:
        """The word of a series around 0, and the first binade that it does not serve."""
        zero = self.function(np.zeros(1))[0]
        row = _constant_row(zero)
        for binade in range(_NORMAL + 126, _NORMAL + 60, -1):
            reach = 2.0 ** (binade - _NORMAL - 126) * (-1 if sign else 1)
            unit = 0.5 - 0.5 * np.cos(np.pi * (np.arange(DEGREE) + 0.5) / DEGREE)
            slopes = (self.function(reach * unit) - zero) / (reach * unit)
            row[0, 2:] = _coefficients(unit, slopes) / reach ** np.arange(DEGREE)
            if np.isfinite(row).all():
                x = np.concatenate([_arguments(sign, below, 0) for below in range(1, binade)], axis=1)
                if self._fits(row, x):
                    return self._add(row), binade
        return 0, 1

    def _binade(self, sign: int, binade: int, fewest_cuts: int) -> int:
        rounded = self._values(_arguments(sign, binade, 0)).astype(np.float32)
        if (rounded == rounded[0, 0]).all() or np.isnan(rounded).all():
            return self._add(_constant_row(rounded[0, 0]))
        for cuts in range(fewest_cuts, MOST_CUTS + 1):
            x = _arguments(sign, binade, cuts)
            rows = self._rows(x)
            if self._fits(rows, x):
                return self._add(rows, cuts)
        raise NotSmooth

    def _rows(self, x: Array) -> Array:
        """Polynomials through the function at Chebyshev's points of each segment, with both ends."""
        low, high = x[:, 0], x[:, -1]
        middle, half = (low + high) / 2, np.where(low == high, 1.0, (high - low) / 2)
        unit = -np.cos(np.pi * np.arange(DEGREE + 1) / DEGREE)
        y = self._values(middle[:, None] + half[:, None] * unit)
        rows = np.empty((len(x), SEGMENT))
        # Around an end where the function is 0, so that it is 0 there and small beside it.
        for centre, at, chosen in ((middle, unit, y[:, 0] != 0), (low, unit + 1, y[:, 0] == 0)):
            scaled = _coefficients(at, y[chosen]) / half[chosen, None] ** np.arange(DEGREE + 1)
            rows[chosen] = np.concatenate([centre[chosen, None], scaled], axis=1)
        rows[y[:, 0] == 0, 1] = 0
        steady = (y == y[:, :1]).all(axis=1) | np.isnan(y).all(axis=1)
        rows[steady] = 0
        rows[steady, 1] = y[steady, 0]
        return rows

    def _values(self, x: Array) -> Array:
        return self.function(x.reshape(-1)).reshape(x.shape)

    def _fits(self, rows: Array, x: Array) -> bool:
        return bool((errors(evaluate_rows(rows, x), self._values(x)) <= ERROR).all())


def _constant_row(value: float) -> Array:
    row = np.zeros((1, SEGMENT))
    row[0, 1] = value
    return row


def _coefficients(unit: Array, y: Array) -> Array:
    """Of the polynomials through values at some arguments."""
    inverse = np.linalg.inv(np.vander(unit, len(unit), increasing=True))
    coefficients: Array = y @ inverse.T
    return coefficients


def _arguments(sign: int, binade: int, cuts: int) -> Array:
    """For each segment of a binade its first and its last number, and some between them, ascending in magnitude."""
    width = 1 << (_FRACTION - cuts)
    inside = np.linspace(0, width - 1, _SAMPLES).astype(np.int64)
    fraction = (np.arange(1 << cuts, dtype=np.int64) * width)[:, None] + inside
    if binade >= _NORMAL:
        fraction += (binade - _NORMAL + 1) << _FRACTION
    else:
        fraction = (1 << (binade - 1)) + (fraction >> (_NORMAL - binade))
    return (fraction | (sign << 31)).astype(np.uint32).view(np.float32).astype(np.float64)
