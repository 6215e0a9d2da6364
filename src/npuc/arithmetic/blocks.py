"""Block floating point: how many numbers share an exponent, and how many bytes a row of them takes (docs/arithmetic-float.md)."""

from __future__ import annotations

from npuc.arrays import ceil_div

BLOCK = 16
"""Numbers that share an exponent."""
MAGNITUDE_BITS = {"mx6": 4, "mx9": 7}
"""Bits of a magnitude; the sign is one more."""
BLOCK_FORMATS = tuple(MAGNITUDE_BITS)


def block_bytes(format_: str, numbers: int) -> int:
    """Bytes of a row of numbers: of each block its exponent, the bits of its pairs, and its numbers.

    >>> block_bytes("mx9", 16), block_bytes("mx6", 17)
    (18, 24)
    """
    return ceil_div(numbers, BLOCK) * (1 + 1 + BLOCK * (MAGNITUDE_BITS[format_] + 1) // 8)
