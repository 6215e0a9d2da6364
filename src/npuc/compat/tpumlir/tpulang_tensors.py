"""Tensors of TpuLang: what is being built, and how an operator of `npuc.lang` becomes one of TpuLang's.

`npuc.compat.tpumlir.tpulang` is the module that users import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.errors import NetworkError, UsageError

TYPES = {
    "float32": "f32", "float16": "f16", "int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16", "int32": "i32",
    "uint32": "ui32",
}  # fmt: skip


class Session:
    """The network that is being built: a device, and how many tensors there are."""

    def __init__(self) -> None:
        self.device = ""
        self.tensors = 0

    def begin(self, device: str) -> None:
        """Begin a network for a device."""
        self.device, self.tensors = device, 0

    def next_name(self) -> str:
        """The name of a tensor that has none."""
        name = f"BMTensor{self.tensors}"
        self.tensors += 1
        return name


SESSION = Session()
"""The module has one network at a time, as the vendor's has."""


class Tensor:
    """An input, a constant (`ttype="coeff"` or `is_const=True`), or the result of an operator."""

    def __init__(
        self,
        shape: Sequence[int] | int = (),
        name: str | None = None,
        ttype: str = "neuron",
        data: Any = None,
        dtype: str = "float32",
        scale: Any = None,
        zero_point: Any = None,
        is_const: bool = False,
    ) -> None:
        if dtype not in TYPES:
            raise UsageError(f"'{dtype}' is no type of TpuLang", fix=f"There are: {', '.join(TYPES)}")
        self.shape = [shape] if isinstance(shape, int) else list(shape)
        self.name = name or SESSION.next_name()
        self.dtype = dtype
        self.ttype = "coeff" if is_const else ttype
        self.scale, self.zero_point = scale, zero_point
        self.data = None if data is None else self._shaped(np.asarray(data))
        self._preprocess: Any = None
        self._lang: lang.Tensor | None = None
        if self.ttype == "coeff" and self.data is None:
            raise NetworkError(f"the constant '{self.name}' has no data", fix="Give data=")

    def _shaped(self, data: Array) -> Array:
        size = int(np.prod(self.shape, dtype=object))
        if self.shape and size != data.size:
            raise NetworkError(
                f"tensor '{self.name}' has shape {self.shape}, and its data {list(data.shape)}"
            )
        self.shape = self.shape or list(data.shape)
        return data.reshape(self.shape).astype(self.dtype)

    def quantization(self, scale: Any = None, zero_point: Any = None) -> None:
        """State the scale and the zero point of its integers."""
        self.scale, self.zero_point = scale, zero_point

    def preprocess(
        self,
        mean: Sequence[float] = (0.0, 0.0, 0.0),
        scale: Sequence[float] = (1.0, 1.0, 1.0),
        pixel_format: str = "bgr",
        channel_format: str = "nchw",
        resize_dims: Sequence[int] | None = None,
        keep_aspect_ratio: bool = False,
        keep_ratio_mode: str = "letterbox",
        pad_value: int = 0,
        pad_type: str = "center",
    ) -> None:
        """How an image becomes this input."""
        from npuc.images.preprocess import Preprocess

        if keep_ratio_mode != "letterbox":
            raise UsageError(f"keep_ratio_mode '{keep_ratio_mode}' is not supported")
        self._preprocess = Preprocess.from_dict(
            {
                "mean": tuple(mean),
                "scale": tuple(scale),
                "pixel_format": pixel_format,
                "layout": channel_format,
                "keep_aspect_ratio": keep_aspect_ratio,
                "pad_value": pad_value,
                "pad_type": pad_type,
                "interpolation": "opencv-linear",
                **({"resize": tuple(resize_dims)} if resize_dims else {}),
            }
        )

    @property
    def is_constant(self) -> bool:
        """Whether its values are known."""
        return self.ttype == "coeff"

    @property
    def value(self) -> lang.Tensor:
        """The tensor of `npuc.lang`."""
        if self._lang is None:
            if self.is_constant:
                assert self.data is not None
                self._lang = lang.constant(self.data, name=self.name)
            else:
                self._lang = lang.input(self.name, self.shape, TYPES[self.dtype], preprocess=self._preprocess)
        return self._lang

    def __repr__(self) -> str:
        return f"Tensor({self.name}, {self.shape}, {self.dtype})"


def result(built: lang.Tensor, name: str) -> Tensor:
    """The tensor of TpuLang that stands for one of `npuc.lang`."""
    types = {short: long for long, short in TYPES.items()}
    tensor = Tensor(list(built.shape), name, dtype=types.get(built.dtype, "float32"))
    tensor._lang = built
    return tensor


def apply(
    function: Callable[..., lang.Tensor], operands: Sequence[Any], out_name: str | None, **properties: Any
) -> Tensor:
    """The result of an operator of `npuc.lang`, under its name here."""
    name = out_name or SESSION.next_name()
    given = [operand.value if isinstance(operand, Tensor) else operand for operand in operands]
    return result(function(*given, name=name, **properties), name)


def refuse_scales(operator: str, *given: Any) -> None:
    """An error if an operator is given scales or zero points: it would have to compute with integers of these scales."""
    if any(value is not None for value in given):
        raise UsageError(f"scale= and zero_point= of {operator} are not supported", fix="Compute in float32")


def pads(pad: Sequence[int] | None) -> tuple[int, int, int, int]:
    """[up, down, left, right] as npuc has it: up, left, down, right."""
    if pad is None:
        return 0, 0, 0, 0
    if len(pad) != 4:
        raise NetworkError(f"pad {list(pad)} is not [up, down, left, right]")
    up, down, left, right = pad
    return up, left, down, right
