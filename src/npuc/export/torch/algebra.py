"""The exact arithmetic on torch tensors.

Integers are int64. Sums of products are computed in float64, which holds every integer below 2^53, and no accumulator has more
than 48 bits: they are exact in any order. Algorithms that compute more than sums of products (Winograd, FFT) come close, and what
they give is rounded to the integer that it stands for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, Integers, T, Window
from npuc.ir import dtype_of

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "div": torch.true_divide,
    "floor_div": lambda x, y: torch.div(x, y, rounding_mode="floor"),
    "minimum": torch.minimum,
    "maximum": torch.maximum,
    "less": torch.lt,
    "equal": torch.eq,
    "where": torch.where,
    "round_even": torch.round,
    "floor": torch.floor,
    "sqrt": torch.sqrt,
    "abs": torch.abs,
    "is_nan": torch.isnan,
}
_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_DTYPES = {
    "i8": torch.int8,
    "ui8": torch.uint8,
    "i16": torch.int16,
    "i32": torch.int32,
    "i64": torch.int64,
    "f32": torch.float32,
    "f64": torch.float64,
}


class TorchAlgebra(Algebra):
    """Operations on tensors; `hold` gives the tensor of a constant, the same one for equal arrays."""

    def __init__(self, hold: Callable[[Array], Any]) -> None:
        self._hold = hold

    def constant(self, array: Array) -> T:
        """A buffer of the module."""
        return self._hold(array)

    def _tensor(self, x: T) -> T:
        return x if isinstance(x, torch.Tensor) else self._hold(np.asarray(x))

    def cast(self, x: T, dtype: str) -> T:
        """Another type."""
        return self._tensor(x).to(_DTYPES[dtype_of(dtype).carrier.name])

    def apply(self, name: str, *operands: T) -> T:
        """An operation of torch."""
        return _FUNCTIONS[name](*(self._tensor(x) for x in operands))

    def take(self, x: T, index: T, axis: int = 0) -> T:
        """A look-up, or slices along an axis."""
        x, index = self._tensor(x), self._tensor(index)
        return x[index] if axis == 0 else torch.index_select(x, axis, index)

    def reshape(self, x: T, shape: Sequence[int]) -> T:
        """Another shape."""
        return x.reshape(tuple(shape))

    def transpose(self, x: T, order: Sequence[int]) -> T:
        """Another order of axes."""
        return x.permute(tuple(order))

    def pad(self, x: T, before: Sequence[int], after: Sequence[int], value: int) -> T:
        """A border."""
        widths = [width for pair in zip(reversed(before), reversed(after), strict=True) for width in pair]
        return F.pad(x, widths, value=value) if any(widths) else x

    def concat(self, parts: Sequence[T], axis: int) -> T:
        """End to end."""
        return torch.cat(list(parts), axis)

    def reduce(self, name: str, x: T, axes: Sequence[int]) -> T:
        """A sum, or the largest."""
        return x.sum(tuple(axes), keepdim=True) if name == "sum" else x.amax(tuple(axes), keepdim=True)

    def conv(self, x: Integers, weight: Array, window: Window) -> T:
        """In float64, which is exact."""
        rank = len(window.strides)
        centred = self._centred(x)
        centred = self.pad(centred, [0, 0, *window.pads[:rank]], [0, 0, *window.pads[rank:]], 0)
        kernel = self._hold(_narrowed(weight)).to(torch.float64)
        sums = _CONVOLUTIONS[rank](centred, kernel, None, window.strides, 0, window.dilations, window.group)
        return torch.round(sums).to(torch.int64)

    def matmul(self, a: Integers, b: Integers) -> T:
        """In float64, which is exact."""
        return torch.round(torch.matmul(self._centred(a), self._centred(b))).to(torch.int64)

    def _centred(self, x: Integers) -> T:
        if isinstance(x.tensor, np.ndarray):
            return self._hold(_narrowed(x.tensor - x.zero)).to(torch.float64)
        return (x.tensor - x.zero if x.zero else x.tensor).to(torch.float64)


def _narrowed(integers: Array) -> Array:
    """The same integers in the narrowest type that holds them: files are small then."""
    low, high = int(integers.min(initial=0)), int(integers.max(initial=0))
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return integers.astype(kind)
    return integers
