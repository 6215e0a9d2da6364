"""TensorFlow's element types, and constants as `TensorProto` keeps them."""

from __future__ import annotations

from math import prod

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError, ResourceLimitError, UnsupportedTypeError
from npuc.frontend.support import MAX_ELEMENTS
from npuc.frontend.tensorflow.wire import WireMessage, signed
from npuc.ir import DType, Weight, dtype_of
from npuc.ir.weights import FileSlice

Shape = tuple[int, ...] | None
"""Sizes, -1 where one is not known; None if not even the rank is."""
_SPLAT = 1 << 27
"""Bytes that a constant of one repeated value may unfold to."""
STRING, RESOURCE, VARIANT = 7, 20, 21

_TYPES = {
    1: "f32",
    2: "f64",
    3: "i32",
    4: "ui8",
    5: "i16",
    6: "i8",
    9: "i64",
    10: "i1",
    14: "bf16",
    17: "ui16",
    19: "f16",
    22: "ui32",
    23: "ui64",
}
_WORDS = {
    STRING: "string",
    8: "complex64",
    18: "complex128",
    RESOURCE: "resource",
    VARIANT: "variant",
    11: "qint8",
    12: "quint8",
    13: "qint32",
}


def element_type(code: int, what: str) -> DType:
    """The element type of a `DataType` number; references count as what they refer to."""
    name = _TYPES.get(code - 100 if code > 100 else code)
    if name is None:
        raise UnsupportedTypeError(
            f"{what} has the type {_WORDS.get(code, f'number {code}')}, which no tensor has here",
            fix="Cut it off with --inputs and --outputs, if it only prepares or decodes data",
        )
    return dtype_of(name)


def read_shape(message: WireMessage | None) -> Shape:
    """A `TensorShapeProto`; an absent one is unknown."""
    if message is None or message.number(3):
        return None
    sizes = tuple(signed(dim.number(1)) for dim in message.parts(2))
    if len(sizes) > 32 or any(size < -1 for size in sizes):
        raise InvalidModelError(f"a shape is {list(sizes[:40])}")
    return sizes


# field -> (struct format of one value, or "" for varints)
_VALUES = {5: "<f4", 6: "<f8", 7: "", 10: "", 11: "", 13: "", 16: "", 17: ""}


def _values(message: WireMessage, dtype: DType) -> Array:
    for field, layout in _VALUES.items():
        if layout:
            pieces = []
            for number, value in message.fields():
                if number == field:
                    size = int(layout[-1])
                    pieces.append(
                        value.data if isinstance(value, WireMessage) else value.to_bytes(size, "little")
                    )
            data = b"".join(pieces)
            if data:
                if len(data) % int(layout[-1]):
                    raise InvalidModelError("a constant ends in the middle of a number")
                return np.frombuffer(data, layout).astype(dtype.numpy)
            continue
        numbers = list(message.varints(field))
        if numbers:
            if field == 13:  # halves: their bits
                bits = np.array([n & 0xFFFF for n in numbers], np.uint16)
                return bits.view(dtype.numpy if dtype.itemsize == 2 else np.float16)
            if field == 17:
                return np.array(numbers, np.uint64).astype(dtype.numpy)
            return np.array([signed(n) for n in numbers], np.int64).astype(dtype.numpy)
    return np.zeros(1, dtype.numpy)


def read_tensor(message: WireMessage, what: str) -> Weight:
    """A constant of numbers."""
    dtype = element_type(message.number(1), what)
    shape = read_shape(message.part(2)) or ()
    count = prod(shape)
    if any(size < 0 for size in shape) or count > MAX_ELEMENTS:
        raise ResourceLimitError(f"{what} has the impossible shape {list(shape)}")
    content = message.part(4)
    if content is not None and content.size:
        if content.size != count * dtype.itemsize:
            raise InvalidModelError(
                f"{what} has {content.size} bytes for the shape {list(shape)} of {dtype.name}"
            )
        return Weight(dtype, shape, FileSlice(content.file, content.begin, content.size))
    if count * dtype.itemsize > _SPLAT:
        raise ResourceLimitError(f"{what} repeats one value {count} times")
    flat = _values(message, dtype)
    if flat.size > max(count, 1):
        raise InvalidModelError(f"{what} has {flat.size} values for the shape {list(shape)}")
    if flat.size < count:
        # What is left out is the last value again.
        flat = np.concatenate([flat, np.full(count - flat.size, flat[-1], dtype.numpy)])
    return Weight.of(flat[:count].reshape(shape))


def read_strings(message: WireMessage) -> list[str]:
    """The values of a constant of strings."""
    return [part.data.decode("utf-8", "replace") for part in message.parts(8)]
