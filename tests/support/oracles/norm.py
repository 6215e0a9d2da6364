"""Slow models of the normalizations, from docs/arithmetic-norm.md."""

from __future__ import annotations

from math import isqrt
from typing import Any

from support.oracles.integers import half_even, half_up, rdbp, requantize, srdhm


def row(x: list[int], entries: list[int], p: Any, center: bool, span: int) -> list[int]:
    """One row of integers without their zero point, not yet clamped; `span` is the largest possible N * |q - mean|."""
    n = len(x)
    total = sum(x) if center else 0
    spread = n * sum(q * q for q in x) - total**2 + p.epsilon
    spare = max(span.bit_length() - 31, 0)
    inverse, shift = 0, 1
    if spread:
        up = (64 - spread.bit_length()) // 2 * 2
        scale = isqrt(spread << up)
        inverse = (2**62 + scale // 2) // scale
        shift = 44 - up // 2 - spare
    out = []
    for q, entry in zip(x, entries, strict=True):
        deviation = half_up(n * q - total, spare)
        unit = half_up(deviation * inverse, shift)
        acc = unit * int(p.gain[entry]) + int(p.bias[entry])
        out.append((half_even if p.even else half_up)(acc, p.shift))
    return out


def saturated(x: int) -> int:
    """Clamp to int32."""
    return min(max(x, -(2**31)), 2**31 - 1)


def inverse_root(total: int) -> tuple[int, int]:
    """TFLite's 1 / sqrt as a multiplier and a right shift."""
    if total <= 1:
        return 2**31 - 1, 0
    shift = 11
    while total >= 2**29:
        total //= 4
        shift += 1
    pairs = (32 - total.bit_length() - 1) // 2 - 1
    shift -= pairs
    value = (total << (2 * pairs)) >> 1
    half = rdbp(value, 1)
    x = 2**28
    for _ in range(5):
        cube = saturated(srdhm(srdhm(x, x), x) << 6)
        x = saturated((srdhm(3 * 2**27, x) - srdhm(half, cube)) << 3)
    x = srdhm(x, 1518500250)
    return (x << -shift, 0) if shift < 0 else (x, shift)


def l2_tflite(x: list[int], signed: bool) -> list[int]:
    """One row of TFLite's L2 norm; x without its zero point."""
    multiplier, right = inverse_root(sum(q * q for q in x))
    if signed:
        return [requantize(q, "double_rounding", multiplier, 24 + right, 0, -128, 127) for q in x]
    return [min(max(rdbp(srdhm(128 * q, multiplier), right) + 128, 0), 255) for q in x]
