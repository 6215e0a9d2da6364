"""The tensor operations that the exact integer arithmetic is written with, and that every framework has.

A rule of `rules/` says what an op of the `npu` dialect computes, once, as operations of an `Algebra`; ONNX and torch each have
one. A tensor `T` is whatever the framework works with: the name of an ONNX value, a torch tensor. Integers are int64 on the
way, so that no product of the arithmetic wraps; results go back to their storage type at the end of an op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array

T = Any
"""A tensor of the framework."""


@dataclass(frozen=True)
class Integers:
    """An int64 tensor with the least and the largest value that it can have, and the one that stands for zero."""

    tensor: T
    low: int
    high: int
    zero: int = 0

    @property
    def reach(self) -> int:
        """The largest distance from zero."""
        return max(self.high - self.zero, self.zero - self.low)


@dataclass(frozen=True)
class Window:
    """Where a convolution reads; pads are the begins, then the ends."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]
    group: int = 1


class Algebra(ABC):
    """Operations on tensors; a NumPy array, or a Python integer, is a constant wherever a tensor is."""

    @abstractmethod
    def constant(self, array: Array) -> T:
        """A constant of the array's own type."""

    @abstractmethod
    def cast(self, x: T, dtype: str) -> T:
        """Another element type: i8, ui8, i16, i64, f32, f64. Floats that become integers are whole numbers."""

    @abstractmethod
    def apply(self, name: str, *operands: T) -> T:
        """An elementwise operation with broadcasting.

        Of two: add, sub, mul, div (floats), floor_div (integers, divisors above 0), minimum, maximum; less and equal give truth
        values. Of three: where. Of one: round_even, floor, sqrt, abs, is_nan.
        """

    @abstractmethod
    def take(self, x: T, index: T, axis: int = 0) -> T:
        """Slices of x along an axis, chosen by an index tensor of int64."""

    @abstractmethod
    def reshape(self, x: T, shape: Sequence[int]) -> T:
        """The same elements under another shape."""

    @abstractmethod
    def transpose(self, x: T, order: Sequence[int]) -> T:
        """Axes in another order."""

    @abstractmethod
    def pad(self, x: T, before: Sequence[int], after: Sequence[int], value: int) -> T:
        """An int64 tensor with a border; a negative width cuts."""

    @abstractmethod
    def concat(self, parts: Sequence[T], axis: int) -> T:
        """Tensors end to end."""

    @abstractmethod
    def reduce(self, name: str, x: T, axes: Sequence[int]) -> T:
        """sum or max over axes of an int64 tensor, which stay with size 1."""

    @abstractmethod
    def conv(self, x: Integers, weight: Array, window: Window) -> T:
        """The int64 sums of (x - zero) * weight; padded positions hold zero. Weights are integers of at most 17 bits."""

    @abstractmethod
    def matmul(self, a: Integers, b: Integers) -> T:
        """The int64 sums of (a - zero) * (b - zero) over the last axis of a and the one before last of b."""

    # What follows is made of the above.

    def add(self, x: T, y: T) -> T:
        """x + y"""
        return self.apply("add", x, y)

    def sub(self, x: T, y: T) -> T:
        """x - y"""
        return self.apply("sub", x, y)

    def mul(self, x: T, y: T) -> T:
        """x * y"""
        return self.apply("mul", x, y)

    def floor_div(self, x: T, y: T) -> T:
        """x / y, rounded down"""
        return self.apply("floor_div", x, y)

    def where(self, condition: T, x: T, y: T) -> T:
        """x where the condition holds, else y"""
        return self.apply("where", condition, x, y)

    def clip(self, x: T, low: Any, high: Any) -> T:
        """x between two bounds"""
        return self.apply("minimum", self.apply("maximum", x, low), high)


def int64(values: Any) -> Array:
    """Values as an int64 array."""
    return np.asarray(values, np.int64)
