"""Tensors between NumPy and ONNX Runtime, for every element type.

ONNX Runtime's binding takes NumPy's own types without a copy. Types that only ml_dtypes has (bfloat16, the 8-bit
floats, the packed 4- and 2-bit types) pass through memory that ONNX Runtime allocates, bit for bit.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from npuc.arrays import Array, ceil_div
from npuc.ir import DType

_BITS = {"i4": 4, "ui4": 4, "f4E2M1FN": 4, "i2": 2, "ui2": 2}


def is_native(dtype: DType) -> bool:
    """True if NumPy itself has the type, so that ONNX Runtime's binding takes and gives arrays of it."""
    return dtype.numpy.kind in "fiubO" and dtype.numpy.isbuiltin == 1


def to_ort(array: Array, dtype: DType) -> Any:
    """An `OrtValue` with the elements of an array; it shares the memory of a native type, so keep the array alive."""
    import onnxruntime as ort

    array = np.ascontiguousarray(array).reshape(array.shape)
    if not array.flags.aligned:
        array = array.copy()
    if is_native(dtype):
        return ort.OrtValue.ortvalue_from_numpy(array)
    value = ort.OrtValue.ortvalue_from_shape_and_type(list(array.shape), dtype.onnx)
    raw = _pack(array.reshape(-1).view(np.uint8), dtype)
    if raw.size:
        ctypes.memmove(value.data_ptr(), raw.ctypes.data, raw.size)
    return value


def from_ort(value: Any, dtype: DType) -> Array:
    """The elements of an `OrtValue` as an array of its own."""
    if is_native(dtype):
        return np.asarray(value.numpy())
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    bits = _BITS.get(dtype.name, 8 * dtype.itemsize)
    size = (count * bits + 7) // 8
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), size) if size else b"", np.uint8)
    return _unpack(raw, dtype, count).reshape(shape)


def _pack(raw: Array, dtype: DType) -> Array:
    """Bytes as ONNX has them: sub-byte elements share a byte, the first in the low bits."""
    bits = _BITS.get(dtype.name)
    if bits is None:
        return np.ascontiguousarray(raw)
    each = 8 // bits
    padded = np.zeros(ceil_div(raw.size, each) * each, np.uint8)
    padded[: raw.size] = raw & ((1 << bits) - 1)
    packed = np.zeros(padded.size // each, np.uint8)
    for index in range(each):
        packed |= padded[index::each] << np.uint8(index * bits)
    return packed


def _unpack(raw: Array, dtype: DType, count: int) -> Array:
    bits = _BITS.get(dtype.name)
    if bits is None:
        return raw.view(dtype.numpy).copy()
    each = 8 // bits
    mask = np.uint8((1 << bits) - 1)
    elements = np.stack([(raw >> np.uint8(index * bits)) & mask for index in range(each)], axis=-1)
    elements = elements.reshape(-1)[:count]
    if dtype.name in ("i4", "i2"):
        sign = 1 << (bits - 1)
        return ((elements.astype(np.int8) ^ sign) - sign).astype(dtype.numpy)
    return elements.astype(dtype.numpy) if dtype.name.startswith("ui") else elements.view(dtype.numpy)
