"""Types and tensors of torch in npuc's terms.

A network is computed in float32, whatever float type its weights have: float16 and bfloat16 are how a file saves space
or a GPU saves time, and the NPU has its own types, which quantization chooses.
"""

from __future__ import annotations

from math import prod
from typing import Any

import torch

from npuc.arrays import Array
from npuc.errors import ResourceLimitError
from npuc.frontend.support import MAX_ELEMENTS
from npuc.ir import DYNAMIC, DType, Weight, dtype_of, tensor_type

_NAMES = {
    torch.float32: "f32",
    torch.float16: "f32",
    torch.bfloat16: "f32",
    torch.float64: "f32",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "ui8",
    torch.bool: "i1",
    torch.complex64: "complex64",
    torch.complex128: "complex128",
}


def dtype_from(dtype: Any) -> DType | None:
    """The element type that stands for one of torch; None if there is none."""
    name = _NAMES.get(dtype)
    return None if name is None else dtype_of(name)


def shape_from(value: Any) -> tuple[int, ...]:
    """The shape of a tensor, real or fake; what depends on data is `DYNAMIC`."""
    return tuple(n if isinstance(n, int) else _static(n) for n in value.shape)


def _static(size: Any) -> int:
    known = getattr(getattr(size, "node", None), "expr", None)
    return int(known) if known is not None and known.is_number else DYNAMIC


def type_from(value: Any, what: str) -> Any:
    """The IR type of a tensor, real or fake."""
    dtype = dtype_from(value.dtype)
    shape = shape_from(value)
    if prod(n for n in shape if n != DYNAMIC) > MAX_ELEMENTS:
        raise ResourceLimitError(f"{what} has the impossible shape {list(shape)}")
    return tensor_type(shape, dtype if dtype is not None else dtype_of("string"))


def to_array(tensor: Any) -> Array:
    """The values of a real tensor, all floats as float32; the memory is shared where it can be."""
    tensor = tensor.detach().cpu()
    if tensor.is_floating_point():
        tensor = tensor.to(torch.float32)
    array: Array = tensor.contiguous().resolve_conj().resolve_neg().numpy()
    return array


def to_weight(tensor: Any) -> Weight:
    """A constant of the values of a real tensor."""
    return Weight.of(to_array(tensor))
