"""DRAM as a compiled model sees it: segments of bytes, and tensors in them."""

from __future__ import annotations

import numpy as np

from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.errors import InputDataError
from npuc.program.model import CompiledModel, Tensor


def segments_of(compiled: CompiledModel) -> list[Array]:
    """All segments: the constants as they are, the others zero."""
    constants = np.ascontiguousarray(compiled.weights).view(np.uint8).reshape(-1)
    return [constants, *(np.zeros(segment.size, np.uint8) for segment in compiled.segments[1:])]


def write(segments: list[Array], tensor: Tensor, value: Array) -> None:
    """Put a raw array of a tensor's logical shape into its place."""
    kind = dtype_of(tensor.dtype).numpy
    if value.shape != tensor.shape or value.dtype != kind:
        raise InputDataError(
            f"tensor '{tensor.name}' is {kind.name} of shape {tensor.shape}, not {value.dtype.name} of {value.shape}"
        )
    _place(segments, tensor)[...] = value.transpose(tensor.order)


def read(segments: list[Array], tensor: Tensor) -> Array:
    """A tensor as a raw array of its logical shape: a copy, which later runs leave alone."""
    back = np.argsort(tensor.order) if tensor.order else ()
    return np.array(_place(segments, tensor).transpose(tuple(back)), order="C")


def _place(segments: list[Array], tensor: Tensor) -> Array:
    kind = dtype_of(tensor.dtype).numpy
    shape = tuple(tensor.shape[axis] for axis in tensor.order)
    bytes_ = segments[tensor.segment][tensor.offset : tensor.offset + tensor.size]
    if bytes_.size != int(np.prod(shape)) * kind.itemsize:
        raise InputDataError(
            f"tensor '{tensor.name}' of shape {tensor.shape} does not have {tensor.size} bytes"
        )
    return bytes_.view(kind).reshape(shape)
