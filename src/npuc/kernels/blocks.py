"""Block floating point, packed in bytes, as docs/arithmetic-float.md defines it."""

from __future__ import annotations

import numpy as np

from npuc.arithmetic.blocks import block_bytes
from npuc.arithmetic.dtypes import dtype_of
from npuc.arrays import Array
from npuc.kernels.calls import call, contiguous, empty
from npuc.kernels.floats import float_code


def pack(x: Array, format_: str, *, threads: int = 1) -> Array:
    """Rows of floats along the last axis as packed blocks: bytes.

    >>> pack(np.float32([[1.0, -0.5]]), "mx9")[0, :4].tolist()
    [127, 254, 64, 160]
    """
    x = contiguous(x)
    width = x.shape[-1]
    y = empty((*x.shape[:-1], block_bytes(format_, width)), np.uint8)
    rows = x.size // width if width else 0
    call("npuc_block_pack", "pillipi", x, float_code(x.dtype), rows, width, code_of(format_), y, threads)
    return y


def unpack(x: Array, format_: str, width: int, *, threads: int = 1) -> Array:
    """Packed rows of `width` numbers as float32.

    >>> unpack(pack(np.float32([[1.0, -0.5]]), "mx6"), "mx6", 2).tolist()
    [[1.0, -0.5]]
    """
    x = contiguous(x)
    y = empty((*x.shape[:-1], width), np.float32)
    rows = x.size // x.shape[-1]
    call("npuc_block_unpack", "plllpi", x, rows, width, code_of(format_), y, threads)
    return y


def code_of(format_: str) -> int:
    """The code of a format in instructions and in the native core."""
    code = dtype_of(format_).code
    assert code is not None
    return code
