"""The ranges of the numbers that an output stage is made of: what a program in a file may state, and no kernel has to doubt.

They are those of docs/arithmetic.md: multipliers are not negative and fit int32, shifts lie in 0 to 62 (kind `pow2`: from -31,
a shift to the left), factors are finite and not negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite

from npuc.arithmetic.kinds import MAX_SHIFT, Kind
from npuc.ir.definition import require

INT32 = (-(1 << 31), (1 << 31) - 1)


def require_between(name: str, values: Iterable[int], least: int, most: int) -> None:
    """Raise `ShapeError` for a number outside of its range."""
    wrong = next((value for value in values if not least <= value <= most), None)
    require(wrong is None, f"a {name} of {wrong} is outside {least} to {most}")


def require_shifts(kind: Kind, values: Iterable[int]) -> None:
    """Shifts of an output stage."""
    require_between("shift", values, kind.least_shift, MAX_SHIFT)


def require_multipliers(values: Iterable[int]) -> None:
    """Multipliers of an output stage."""
    require_between("multiplier", values, 0, INT32[1])


def require_factors(values: Iterable[float]) -> None:
    """Factors of the kind `float_scale`."""
    wrong = next((value for value in values if not isfinite(value) or value < 0), None)
    require(wrong is None, f"a factor of {wrong} is negative or not finite")
