"""Quantities: what parses, what prints, and that printing and parsing are inverse."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.target import units

EXACT = settings(deadline=None, derandomize=True)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2MiB", 2 * 1024**2),
        ("512KiB", 512 * 1024),
        ("0.5MiB", 512 * 1024),
        ("64B", 64),
        ("64", 64),
        (64, 64),
        ("4 kB", 4000),
        ("4KB", 4000),
        ("1.5GB", 1_500_000_000),
        (" 1TiB ", 1 << 40),
    ],
)
def test_sizes(text: Any, expected: int) -> None:
    assert units.parse_bytes(text) == expected


@pytest.mark.parametrize(
    "text",
    ["2mib", "2 gigs", "MiB", "-1MiB", "1e6", "0.3B", "1" * 30, True, None, [1], "2Mb", "٣MiB", "1MiB/s", ""],
)
def test_what_is_not_a_size(text: Any) -> None:
    with pytest.raises(ValueError, match="is not"):
        units.parse_bytes(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("1GHz", 10**9), ("1.25GHz", 1_250_000_000), ("800 MHz", 8 * 10**8)]
)
def test_clock_rates(text: str, expected: int) -> None:
    assert units.parse_frequency(text) == expected


def test_bandwidths_are_per_second_or_per_cycle() -> None:
    per_second, per_cycle = units.parse_bandwidth("16GB/s"), units.parse_bandwidth("16 B/cycle")
    assert per_second != per_cycle
    assert per_second.bytes_per_cycle(10**9) == per_cycle.bytes_per_cycle(10**9) == 16
    assert per_cycle.bytes_per_second(2 * 10**9) == 32 * 10**9


@pytest.mark.parametrize("text", [16, "16", "16/s", "16GB", "16GB/h", "16Gb/s", "16GB/s/s", None, 1.5])
def test_a_bandwidth_needs_its_unit(text: Any) -> None:
    with pytest.raises(ValueError, match="is not a bandwidth"):
        units.parse_bandwidth(text)


@pytest.mark.parametrize(
    ("text", "cycles"),
    [(200, 200), ("200cycles", 200), ("1 cycle", 1), ("150ns", 150), ("0.1us", 100), ("0.5ns", 1)],
)
def test_delays(text: Any, cycles: int) -> None:
    assert units.parse_latency(text).cycles(10**9) == cycles


@pytest.mark.parametrize(
    ("text", "rate"), [("1/4", Fraction(1, 4)), (0.1, Fraction(1, 10)), (2, Fraction(2))]
)
def test_rates_are_exact(text: Any, rate: Fraction) -> None:
    assert units.parse_rate(text) == rate


@pytest.mark.parametrize("text", ["1/0", "a", "1/4/2", "-1", True, "1e3", "0x10"])
def test_what_is_not_a_rate(text: Any) -> None:
    with pytest.raises(ValueError):
        units.parse_rate(text)


@EXACT
@given(st.integers(0, 1 << 50))
def test_sizes_print_and_parse(value: int) -> None:
    assert units.parse_bytes(units.print_bytes(value)) == value


@EXACT
@given(st.integers(1, 10**12))
def test_clock_rates_print_and_parse(value: int) -> None:
    assert units.parse_frequency(units.print_frequency(value)) == value


@EXACT
@given(
    st.integers(1, 10**9),
    st.sampled_from(["B", "kB", "MB", "GB", "KiB", "MiB", "GiB"]),
    st.sampled_from(["s", "cycle"]),
)
def test_bandwidths_print_and_parse(amount: int, unit: str, per: str) -> None:
    bandwidth = units.parse_bandwidth(f"{amount}{unit}/{per}")
    assert units.parse_bandwidth(str(bandwidth)) == bandwidth


@EXACT
@given(st.integers(0, 10**9), st.sampled_from(["", "cycles", "ns", "us", "ms", "s"]))
def test_delays_print_and_parse(amount: int, unit: str) -> None:
    latency = units.parse_latency(f"{amount}{unit}")
    assert units.parse_latency(str(latency)) == latency


@EXACT
@given(st.fractions(0, 1000, max_denominator=10**6))
def test_rates_print_and_parse(value: Fraction) -> None:
    assert units.parse_rate(units.print_rate(value)) == value
