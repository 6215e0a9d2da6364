"""Tensors of torch as arrays and back, and whether a tensor was changed since.

NumPy has no bfloat16, and npuc computes in float32: floats of every width cross as float32 and come back in the type, shape,
device and memory format that torch gave them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch

from npuc.arrays import Array


def array_of(tensor: torch.Tensor) -> Array:
    """The values of a tensor; shared with it where its type and place allow that."""
    if tensor.dtype is not torch.float32 and tensor.is_floating_point():
        tensor = tensor.float()
    array: Array
    try:
        array = tensor.numpy()
    except (RuntimeError, TypeError):
        # It has gradients, is on another device, or is a view that negates; `force` is slow where it has nothing to do.
        array = tensor.numpy(force=True)
    return array


def finite(tensor: torch.Tensor) -> bool:
    """Whether a tensor has neither NaN nor infinite values."""
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())


@dataclass(frozen=True)
class TensorForm:
    """How torch gives a result: what npuc's arrays have to look like."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    device: torch.device
    channels_last: bool

    @cached_property
    def is_plain(self) -> bool:
        """Whether an array of float32 is what torch gave, as it is."""
        return self.dtype is torch.float32 and self.device.type == "cpu" and not self.channels_last

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorForm:
        """The form of a result of torch."""
        last = tensor.dim() == 4 and not tensor.is_contiguous()
        return TensorForm(
            tensor.dtype,
            tuple(tensor.shape),
            tensor.device,
            last and tensor.is_contiguous(memory_format=torch.channels_last),
        )

    def tensor(self, array: Array, rows: int | None) -> torch.Tensor:
        """An array of a runner as torch would have given it; `rows` is the number of rows of a batch that may vary."""
        shape = self.shape if rows is None else (rows, *self.shape[1:])
        # A runner has no rank 0.
        tensor = torch.from_numpy(array if array.shape == shape else array.reshape(shape))
        if self.is_plain and array.dtype == np.float32:
            return tensor
        tensor = tensor.to(self.device, self.dtype)
        return tensor.contiguous(memory_format=torch.channels_last) if self.channels_last else tensor


@dataclass(frozen=True)
class WeightStamp:
    """The state of a tensor when it became a constant: the object, how often it was written, and where its memory is.

    A write through `tensor.data` leaves no trace in any of them.
    """

    tensor: torch.Tensor
    version: int
    pointer: int

    @staticmethod
    def of(tensor: torch.Tensor) -> WeightStamp:
        """The state of a tensor now."""
        return WeightStamp(tensor, version_of(tensor), tensor.data_ptr())

    def matches(self, tensor: torch.Tensor) -> bool:
        """Whether this is the same tensor, not written since."""
        return (
            tensor is self.tensor
            and tensor.data_ptr() == self.pointer
            and (self.version < 0 or tensor._version == self.version)
        )


def version_of(tensor: torch.Tensor) -> int:
    """How often a tensor was written; -1 for one of inference mode, which does not count."""
    return -1 if tensor.is_inference() else int(tensor._version)


def same_values(first: Any, second: Any) -> bool:
    """Whether two tensors have the same bits; NaN equals NaN."""
    return bool(torch.equal(torch.nan_to_num(first), torch.nan_to_num(second)))
