"""Quantities with units, as target files write them: `2MiB`, `16GB/s`, `256B/cycle`, `1GHz`, `200cycles`, `1/4`.

Everything is exact: integers and fractions, never floats, so that two spellings of one quantity are one quantity.
Sizes are decimal (`MB`) or binary (`MiB`); bare numbers are bytes, hertz and cycles. A bandwidth always says what it is
per, because `16` could be bytes a cycle as well as gigabytes a second.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from npuc.arrays import ceil_div

# 18 digits hold any real machine, and a number of a million digits never reaches the arithmetic.
_QUANTITY = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*([A-Za-z]*(?:/[A-Za-z]+)?)\s*", re.ASCII)
_FRACTION = re.compile(r"\s*(\d{1,18})\s*/\s*(\d{1,18})\s*", re.ASCII)

_BYTES = {"": 1, "B": 1} | {
    f"{prefix}{suffix}": base**power
    for suffix, base in (("B", 1000), ("iB", 1024))
    for power, prefix in enumerate("KMGT", start=1)
}
_BYTES["kB"] = 1000
_HERTZ = {"": 1, "Hz": 1, "kHz": 10**3, "KHz": 10**3, "MHz": 10**6, "GHz": 10**9}
_SECONDS = {"s": Fraction(1), "ms": Fraction(1, 10**3), "us": Fraction(1, 10**6), "ns": Fraction(1, 10**9)}
_CYCLES = ("", "cycle", "cycles")


@dataclass(frozen=True)
class Bandwidth:
    """Bytes a second, or bytes a cycle of the machine's clock."""

    amount: Fraction
    per: Literal["s", "cycle"]

    def bytes_per_cycle(self, clock: int) -> Fraction:
        """Bytes that move in one cycle.

        >>> parse_bandwidth("16GB/s").bytes_per_cycle(10**9)
        Fraction(16, 1)
        """
        return self.amount if self.per == "cycle" else self.amount / clock

    def bytes_per_second(self, clock: int) -> Fraction:
        """Bytes that move in one second."""
        return self.amount if self.per == "s" else self.amount * clock

    def __str__(self) -> str:
        return f"{_spell(self.amount, _decimal_bytes())}/{self.per}"


@dataclass(frozen=True)
class Latency:
    """A delay in cycles of the machine's clock, or in seconds."""

    amount: Fraction
    unit: Literal["s", "cycle"]

    def cycles(self, clock: int) -> int:
        """The delay in whole cycles, rounded up.

        >>> parse_latency("150ns").cycles(10**9)
        150
        """
        exact = self.amount if self.unit == "cycle" else self.amount * clock
        return ceil_div(exact.numerator, exact.denominator)

    def __str__(self) -> str:
        if self.unit == "cycle":
            return f"{_decimal(self.amount)}cycles"
        return _spell(self.amount, _SECONDS)


def parse_bytes(value: Any) -> int:
    """A size in bytes.

    >>> parse_bytes("2MiB"), parse_bytes("64B"), parse_bytes(4096)
    (2097152, 64, 4096)
    """
    amount = _parse(value, _BYTES, "a size", "512KiB, 2MiB or a number of bytes")
    if amount.denominator != 1:
        raise ValueError(f"{_quoted(value)} is not a whole number of bytes")
    return amount.numerator


def parse_frequency(value: Any) -> int:
    """A clock rate in hertz.

    >>> parse_frequency("1.2GHz")
    1200000000
    """
    amount = _parse(value, _HERTZ, "a clock rate", "1GHz, 800MHz or a number of hertz")
    if amount.denominator != 1:
        raise ValueError(f"{_quoted(value)} is not a whole number of hertz")
    return amount.numerator


def parse_bandwidth(value: Any) -> Bandwidth:
    """A bandwidth, per second or per cycle.

    >>> str(parse_bandwidth("256 B/cycle")), str(parse_bandwidth("16000MB/s"))
    ('256B/cycle', '16GB/s')
    """
    if isinstance(value, Bandwidth):
        return value
    example = "16GB/s or 256B/cycle"
    text = str(value)
    size, slash, per = text.rpartition("/")
    per = per.strip()
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not slash:
        raise ValueError(f"{_quoted(value)} is not a bandwidth; write it with its unit, like {example}")
    if per not in ("s", "cycle") or not size.strip()[-1:].isalpha():
        raise ValueError(f"{_quoted(value)} is not a bandwidth; write it like {example}")
    amount = _parse(size, _BYTES, "a bandwidth", example, shown=value)
    return Bandwidth(amount, "s" if per == "s" else "cycle")


def parse_latency(value: Any) -> Latency:
    """A delay; a bare number is cycles.

    >>> str(parse_latency(200)), str(parse_latency("0.1us"))
    ('200cycles', '100ns')
    """
    if isinstance(value, Latency):
        return value
    units: dict[str, Fraction] = dict.fromkeys(_CYCLES, Fraction(1)) | _SECONDS
    amount, unit = _split(value, units, "a delay", "200cycles or 150ns")
    return Latency(amount * units[unit], "cycle" if unit in _CYCLES else "s")


def parse_rate(value: Any) -> Fraction:
    """A ratio, written as a number or as a fraction.

    >>> parse_rate("1/4"), parse_rate(0.25), parse_rate(1)
    (Fraction(1, 4), Fraction(1, 4), Fraction(1, 1))
    """
    if isinstance(value, Fraction):
        return value
    match = _FRACTION.fullmatch(value) if isinstance(value, str) else None
    if match:
        if int(match[2]) == 0:
            raise ValueError(f"{_quoted(value)} divides by zero")
        return Fraction(int(match[1]), int(match[2]))
    return _parse(value, {"": 1}, "a ratio", "1/4, 0.25 or 2")


def print_bytes(value: int) -> str:
    """A size, in the largest unit that holds it exactly.

    >>> print_bytes(2097152), print_bytes(1000), print_bytes(48)
    ('2MiB', '1000B', '48B')
    """
    for prefix, power in (("T", 4), ("G", 3), ("M", 2), ("K", 1)):
        if value and value % 1024**power == 0:
            return f"{value // 1024**power}{prefix}iB"
    return f"{value}B"


def print_frequency(value: int) -> str:
    """A clock rate.

    >>> print_frequency(1_200_000_000), print_frequency(10**9)
    ('1.2GHz', '1GHz')
    """
    return _spell(
        Fraction(value), {name: Fraction(scale) for name, scale in _HERTZ.items() if name[:1] != "K"}
    )


def print_rate(value: Fraction) -> str | int:
    """A ratio: a whole number, or a fraction as text."""
    return value.numerator if value.denominator == 1 else f"{value.numerator}/{value.denominator}"


def _decimal_bytes() -> dict[str, Fraction]:
    return {name: Fraction(_BYTES[name]) for name in ("B", "kB", "MB", "GB", "TB")}


def _parse(value: Any, units: Mapping[str, int], what: str, example: str, shown: Any = None) -> Fraction:
    amount, unit = _split(value, units, what, example, shown)
    return amount * units[unit]


def _split(
    value: Any, units: Mapping[str, Any], what: str, example: str, shown: Any = None
) -> tuple[Fraction, str]:
    shown = value if shown is None else shown
    # A float is read as the decimal that the user wrote, not as the binary fraction nearest to it.
    usable = isinstance(value, str | int | float) and not isinstance(value, bool)
    match = _QUANTITY.fullmatch(str(value)) if usable else None
    if match is None:
        raise ValueError(f"{_quoted(shown)} is not {what}; write it like {example}")
    if match[2] not in units:
        known = ", ".join(unit for unit in units if unit)
        extra = f"; its unit has to be one of {known}" if known else ""
        raise ValueError(f"{_quoted(shown)} is not {what}{extra}; write it like {example}")
    return Fraction(match[1]), match[2]


def _spell(amount: Fraction, units: Mapping[str, Fraction]) -> str:
    """The amount in the largest unit in which it is at least 1, if its decimal there is short; else in the smallest."""
    for name, scale in sorted(units.items(), key=lambda unit: -unit[1]):
        if amount >= scale and name and _terminates(amount / scale):
            return f"{_decimal(amount / scale)}{name}"
    name, scale = min(units.items(), key=lambda unit: (unit[1], not unit[0]))
    return f"{_decimal(amount / scale)}{name or ''}"


def _terminates(value: Fraction) -> bool:
    return (value * 10**6).denominator == 1


def _decimal(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    digits = 18
    scaled = round(value * 10**digits)
    return f"{scaled // 10**digits}.{scaled % 10**digits:0{digits}d}".rstrip("0").rstrip(".")


def _quoted(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
