"""N:M sparsity: of every M consecutive input channels of a weight, at most N are not zero.

A machine that knows a pattern reads only the N values of each block of M, and where they belong; the format of both in memory is
docs/weight-sparsity.md. Weights are arrays of outputs x inputs x kernel, and blocks lie along the inputs, the axis that a
product sums over.

>>> pattern = SparsityPattern.parse("2:4")
>>> weight = np.array([[0, 3, 0, -1], [5, 0, 0, 0]], np.int8)[:, :, None, None]
>>> pattern.holds(weight)
True
>>> values, positions = pattern.compress(weight)
>>> values[:, :, 0, 0].tolist(), positions[:, :, 0, 0].tolist()
([[3, -1], [5, 0]], [[1, 3], [0, 1]])
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

BLOCK_SIZES = (2, 4, 8, 16)
"""What M may be: positions have 1 to 4 bits."""


@dataclass(frozen=True, order=True)
class SparsityPattern:
    """A pattern `kept`:`block`, such as 2:4."""

    kept: int
    """N: values that are stored of a block, at least 1."""
    block: int
    """M: consecutive input channels of a block, more than N."""

    def __post_init__(self) -> None:
        if self.block not in BLOCK_SIZES or not 1 <= self.kept < self.block:
            sizes = ", ".join(map(str, BLOCK_SIZES))
            raise ValueError(
                f"{self.kept}:{self.block} is no pattern N:M with M one of {sizes} and N from 1 to M - 1"
            )

    @staticmethod
    def parse(text: Any) -> SparsityPattern:
        """The pattern that a text states.

        >>> SparsityPattern.parse("2 of 4")
        Traceback (most recent call last):
        ValueError: '2 of 4' is no sparsity pattern N:M, such as 2:4
        """
        if isinstance(text, SparsityPattern):
            return text
        match = re.fullmatch(r"([0-9]{1,2}):([0-9]{1,2})", text) if isinstance(text, str) else None
        if match is None:
            raise ValueError(f"{text!r} is no sparsity pattern N:M, such as 2:4")
        return SparsityPattern(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.kept}:{self.block}"

    @property
    def density(self) -> Fraction:
        """The share of the multiplications that is left."""
        return Fraction(self.kept, self.block)

    @property
    def position_bits(self) -> int:
        """Bits that say where in its block a value belongs."""
        return self.block.bit_length() - 1

    def holds(self, weight: Any) -> bool:
        """Whether a weight, outputs x inputs x kernel, has the pattern; its inputs have to be whole blocks."""
        if weight.ndim < 2 or not weight.size or weight.shape[1] % self.block:
            return False
        return bool((np.count_nonzero(self._blocks(weight), axis=2) <= self.kept).all())

    def compress(self, weight: Any) -> tuple[Any, Any]:
        """The values that are kept and their positions, both outputs x inputs / M * N x kernel, positions ascending.

        A block with fewer values than N is filled up with zeros, at its first positions that are free.
        """
        blocks = self._blocks(weight)
        # Those that are not zero first, each kind in its own order; then the ones kept by their positions.
        order = np.argsort(blocks == 0, axis=2, kind="stable")[:, :, : self.kept]
        order.sort(axis=2)
        values = np.take_along_axis(blocks, order, axis=2)
        shape = weight.shape[0], -1, *weight.shape[2:]
        return values.reshape(shape), order.astype(np.uint8).reshape(shape)

    def expand(self, values: Any, positions: Any) -> Any:
        """The weight of some values and positions: what `compress` was given."""
        outputs, stored, *kernel = values.shape
        split = outputs, stored // self.kept, self.kept, *kernel
        weight = np.zeros((outputs, stored // self.kept, self.block, *kernel), values.dtype)
        np.put_along_axis(weight, positions.reshape(split).astype(np.int64), values.reshape(split), axis=2)
        return weight.reshape(outputs, -1, *kernel)

    def _blocks(self, weight: Any) -> Any:
        return weight.reshape(weight.shape[0], -1, self.block, *weight.shape[2:])
