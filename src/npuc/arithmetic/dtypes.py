"""Element types: one table that everything translates through.

A `DType` ties together the names that the field uses for one element type: npuc's own (MLIR's spelling), NumPy's, ONNX's,
safetensors', the one of target files and C, and its code in instructions. The MLIR type itself is `npuc.ir.mlir_type`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from npuc.arithmetic.blocks import BLOCK_FORMATS


@dataclass(frozen=True)
class DType:
    """One element type under all its names."""

    name: str
    numpy: np.dtype[Any]
    onnx: int
    storage: str
    """The safetensors code of its bytes; types that safetensors lacks are stored as raw 8-bit integers."""
    code: int | None = None
    """Its code in instructions and in the native core, `npuc_dtype`; None for a type that no instruction has. Packed weights have
    codes from `PACKED_BASE` on."""

    @property
    def short(self) -> str:
        """Its name in target files and, in capitals, in C.

        >>> dtype_of("ui8").short
        'u8'
        """
        return self.name.replace("ui", "u", 1)

    @property
    def is_float(self) -> bool:
        """True for floating-point types of any width."""
        return self.name.startswith(("f", "bf"))

    @property
    def is_integer(self) -> bool:
        """True for integers of any width, but not for truth values."""
        return self.name.startswith(("i", "ui")) and self.name != "i1"

    @property
    def is_block(self) -> bool:
        """True for block floating point, whose numbers share exponents: rows of them are packed in bytes."""
        return self.name in BLOCK_FORMATS

    @property
    def limits(self) -> tuple[int, int]:
        """The smallest and largest value of an integer type."""
        bits = self.bits
        return (0, 2**bits - 1) if self.name.startswith("u") else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)

    @property
    def bits(self) -> int:
        """Width of a number; sub-byte types have less than they take in memory."""
        digits = re.search(r"[0-9]+", self.name)
        return int(digits[0]) if digits else 8 * self.itemsize

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory; sub-byte types take one byte each."""
        return self.numpy.itemsize

    @property
    def carrier(self) -> DType:
        """The type that elements have where they are not packed: i16 for activations of 9 to 15 bits.

        >>> dtype_of("i12").carrier.name, dtype_of("i5").carrier.name, dtype_of("ui8").carrier.name
        ('i16', 'i8', 'ui8')
        """
        return _BY_NUMPY[self.numpy]


_TABLE: tuple[tuple[str, Any, int, str], ...] = (
    ("f32", np.float32, 1, "F32"),
    ("ui8", np.uint8, 2, "U8"),
    ("i8", np.int8, 3, "I8"),
    ("ui16", np.uint16, 4, "U16"),
    ("i16", np.int16, 5, "I16"),
    ("i32", np.int32, 6, "I32"),
    ("i64", np.int64, 7, "I64"),
    ("string", np.object_, 8, ""),
    ("i1", np.bool_, 9, "BOOL"),
    ("f16", np.float16, 10, "F16"),
    ("f64", np.float64, 11, "F64"),
    ("ui32", np.uint32, 12, "U32"),
    ("ui64", np.uint64, 13, "U64"),
    ("complex64", np.complex64, 14, "C64"),
    ("complex128", np.complex128, 15, ""),
    ("bf16", ml_dtypes.bfloat16, 16, "BF16"),
    ("f8E4M3FN", ml_dtypes.float8_e4m3fn, 17, "F8_E4M3"),
    ("f8E4M3FNUZ", ml_dtypes.float8_e4m3fnuz, 18, "U8"),
    ("f8E5M2", ml_dtypes.float8_e5m2, 19, "F8_E5M2"),
    ("f8E5M2FNUZ", ml_dtypes.float8_e5m2fnuz, 20, "U8"),
    ("ui4", ml_dtypes.uint4, 21, "U8"),
    ("i4", ml_dtypes.int4, 22, "I8"),
    ("f4E2M1FN", ml_dtypes.float4_e2m1fn, 23, "U8"),
    ("f8E8M0FNU", ml_dtypes.float8_e8m0fnu, 24, "U8"),
    ("ui2", ml_dtypes.uint2, 25, "U8"),
    ("i2", ml_dtypes.int2, 26, "I8"),
    ("f6E2M3FN", ml_dtypes.float6_e2m3fn, 27, "U8"),
    ("f6E3M2FN", ml_dtypes.float6_e3m2fn, 28, "U8"),
)

CODES = ("i8", "ui8", "i16", "i32", "i4", "f32", "bf16", "f16", "i64", *BLOCK_FORMATS)
"""The element types of instructions, by their codes."""

PACKED_BASE = 32
"""The code of weights of b bits that lie packed in memory is this number and b."""
_PACKED_BITS = tuple(bits for bits in range(2, 16) if bits not in (4, 8))


def _code(name: str) -> int | None:
    packed = {f"i{bits}": PACKED_BASE + bits for bits in _PACKED_BITS}
    return CODES.index(name) if name in CODES else packed.get(name)


DTYPES: tuple[DType, ...] = tuple(
    DType(name, np.dtype(numpy), onnx, storage, _code(name)) for name, numpy, onnx, storage in _TABLE
)
NARROW: tuple[DType, ...] = tuple(
    DType(f"i{bits}", np.dtype(np.int8), 3, "I8", _code(f"i{bits}"))
    if bits < 8
    else DType(f"i{bits}", np.dtype(np.int16), 5, "I16", _code(f"i{bits}"))
    for bits in _PACKED_BITS
    if bits != 2
)
"""Signed integers of widths that NumPy, ONNX and safetensors lack; there they are elements of the next wider type."""
WEIGHT_INTEGERS = tuple(f"i{bits}" for bits in range(2, 17))
"""Signed integers that weights may be."""
ACTIVATION_INTEGERS = ("i8", "ui8", *(f"i{bits}" for bits in range(9, 17)))
"""Integers that activations of a machine may be; those of 9 to 15 bits are elements of i16 in memory."""
SHORT_ACTIVATIONS = tuple(f"i{bits}" for bits in range(2, 8))
"""Activations of fewer than 8 bits: to every machine they are i8, of which they use a part."""
BLOCK_DTYPES = tuple(DType(name, np.dtype(np.uint8), 0, "U8", CODES.index(name)) for name in BLOCK_FORMATS)
"""Types of numbers in packed blocks, which neither NumPy nor ONNX has."""
MACHINE_TYPES = (
    "i4", "i8", "ui8", "i16", *(name for name in WEIGHT_INTEGERS if name not in ("i4", "i8", "i16")), "bf16", "f16", "f32",
    *BLOCK_FORMATS,
)  # fmt: skip
"""What a machine may compute with: the integer types first."""
_BY_NAME = {dtype.name: dtype for dtype in (*DTYPES, *NARROW, *BLOCK_DTYPES)}
_SHORT_ELEMENTS = {name: DType(name, np.dtype(np.int8), 3, "I8") for name in SHORT_ACTIVATIONS}
_BY_NUMPY = {dtype.numpy: dtype for dtype in DTYPES}
_BY_ONNX = {dtype.onnx: dtype for dtype in DTYPES}

F32 = _BY_NAME["f32"]
I64 = _BY_NAME["i64"]
BOOL = _BY_NAME["i1"]
SHORT = {dtype.short: dtype for dtype in _BY_NAME.values()}
"""Element types by the names of target files."""


def dtype_of(key: Any) -> DType:
    """Find a `DType` by its name, NumPy dtype or ONNX number; `KeyError` if there is none.

    >>> dtype_of("f32").numpy
    dtype('float32')
    """
    if isinstance(key, DType):
        return key
    if isinstance(key, str):
        return _BY_NAME[key]
    if isinstance(key, int):
        return _BY_ONNX[key]
    return _BY_NUMPY[np.dtype(key)]


def activation_dtype(dtype: DType) -> DType:
    """The type of activations that a type of integers is: of fewer than 8 bits, its elements are i8 and not packed.

    >>> activation_dtype(dtype_of("i4")).carrier.name, dtype_of("i4").carrier.name
    ('i8', 'i4')
    """
    return _SHORT_ELEMENTS.get(dtype.name, dtype)


def machine_format(activation: str) -> str:
    """What a target calls the activations of a type, given by any of its names.

    >>> machine_format("i4"), machine_format("i12"), machine_format("ui8")
    ('i8', 'i12', 'u8')
    """
    return "i8" if activation in SHORT_ACTIVATIONS else activation.replace("ui", "u", 1)


TYPE_NAMES: dict[int, str] = {dtype.code: dtype.name for dtype in _BY_NAME.values() if dtype.code is not None}
"""Element types by their codes in instructions."""


def pack_integers(values: Any, bits: int) -> Any:
    """Signed integers of some bits as bytes: a stream of bits from the lowest of each byte up, the last byte filled with zeros.

    >>> pack_integers([1, -1, 2], 4).tolist(), pack_integers([1, -1, 2], 5).tolist()
    ([241, 2], [225, 11])
    """
    flat = np.asarray(values).astype(np.int64).reshape(-1)
    stream = ((flat[:, None] >> np.arange(bits)) & 1).astype(np.uint8)
    return np.packbits(stream.reshape(-1), bitorder="little")
