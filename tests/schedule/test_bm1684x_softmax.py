"""The reciprocal of a softmax on the BM1684X: 32-bit steps that divide exactly, at the corners of what sums can be."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.schedule.bm1684x.softmax import reciprocals
from npuc.schedule.bm1684x.straight_line import Step, StraightLine
from npuc.schedule.bm1684x.work import (
    ADD,
    ADD_WITHIN,
    AND,
    HALF_UP,
    MAXIMUM,
    MINIMUM,
    MULTIPLY,
    SHIFT,
    SUBTRACT,
)


def wrapped(value: int) -> int:
    return (value + 2**31) % 2**32 - 2**31


def shifted(value: int, left: int, rounding: int) -> int:
    if left >= 0:
        return value << left
    return (value + (1 << (-left - 1) if rounding == HALF_UP else 0)) >> -left


def computed(step: Step, numbers: dict[str, int]) -> int:
    """What the chip does in a step, as docs/bm1684x.md has it."""
    a, b = (numbers[each] if isinstance(each, str) else each for each in (step.first, step.second))
    assert -(2**31) <= a < 2**31 and -(2**31) <= b < 2**31
    match step.operation:
        case operation if operation == MULTIPLY:
            return wrapped(shifted(a * b, -step.right, step.rounding))
        case operation if operation == SHIFT:
            return wrapped(shifted(a, b, step.rounding))
        case operation if operation == ADD_WITHIN:
            return min(max(a + b, -(2**31)), 2**31 - 1)
    plain = {ADD: a + b, SUBTRACT: a - b, AND: a & b, MAXIMUM: max(a, b), MINIMUM: min(a, b)}
    return wrapped(plain[step.operation])


def run(line: StraightLine, **given: int) -> dict[str, int]:
    """All steps in the planes that they are given: a plane that is taken too early shows."""
    held = {line.places[name]: value for name, value in given.items()}
    for step in line.steps:
        numbers = {
            name: held[line.places[name]] for name in (step.first, step.second) if isinstance(name, str)
        }
        assert line.places[step.target] not in {line.places[name] for name in numbers}
        held[line.places[step.target]] = computed(step, numbers)
    return {name: held[line.places[name]] for name in line.read_after}


def wanted(total: int, multiplier: int) -> tuple[int, int]:
    """Factor and shift as docs/arithmetic-softmax.md has them."""
    bits = total.bit_length()
    divisor = total << (32 - bits) if bits <= 32 else (total + (1 << (bits - 33))) >> (bits - 32)
    inverse = (2**62 + divisor // 2) // divisor
    return (inverse * multiplier + 2**30) >> 31, -1 - (bits - 31)


def sums(rng: np.random.Generator, width: int) -> list[int]:
    """Sums of rows: the least, the greatest, powers of two and their neighbours, and any."""
    most = width << 30
    edges = [1 << 30, most, *(2**b + d for b in range(30, most.bit_length() + 1) for d in range(-3, 4))]
    edges += [2**b - 2 ** max(b - 33, 0) + d for b in range(33, most.bit_length() + 1) for d in (-1, 0, 1)]
    random = rng.integers(1 << 30, most + 1, 400).tolist()
    return [each for each in (*edges, *random, *near_halves(rng)) if 1 << 30 <= each <= most]


def near_halves(rng: np.random.Generator) -> list[int]:
    """Divisors whose inverse lies just beside the middle of two numbers."""
    divisors = rng.integers(1 << 31, 1 << 32, 400_000).astype(np.uint64)
    rest = np.uint64(1 << 62) % divisors
    off = np.abs(rest.astype(np.float64) / divisors.astype(np.float64) - 0.5)
    found: list[int] = divisors[off < 2.0**-13].tolist()
    return found


@pytest.mark.parametrize("width", [1, 2, 3, 7, 8, 1000, 8192])
def test_the_division_is_exact(width: int) -> None:
    rng = np.random.default_rng(width)
    for multiplier in (1 << 30, (1 << 31) - 1, int(rng.integers(1 << 30, 1 << 31))):
        line = reciprocals(width, multiplier)
        for total in sums(rng, width):
            low = total % 2**15 + 2**15 * int(
                rng.integers(0, width)
            )  # lower parts may add up to more than 15 bits
            found = run(line, high=(total - low) >> 15, low=low)
            assert (found["factor"], found["shift"]) == wanted(total, multiplier), (width, total)


def test_few_planes_are_needed() -> None:
    assert reciprocals(1000, 1 << 30).planes <= 8
