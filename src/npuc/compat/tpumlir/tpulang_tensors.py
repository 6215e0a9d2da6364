"""Tensors of TpuLang: what is being built, and how an operator of `npuc.lang` becomes one of TpuLang's.

`npuc.compat.tpumlir.tpulang` is the module that users import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.errors import NetworkError, UsageError

_Operator = TypeVar("_Operator", bound=Callable[..., Any])
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


_QUANTIZED = ("int8", "uint8", "int16", "uint16")
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
        self.scale: Any = None
        self.zero_point: Any = None
        self.data = None if data is None else self._shaped(np.asarray(data))
        self._preprocess: Any = None
        self._lang: lang.Tensor | None = None
        self.quantization(scale, zero_point)
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
        """State the scale and the zero point of its integers; what was stated before stays."""
        if scale is None and zero_point is None:
            return
        if self.dtype not in _QUANTIZED:
            raise NetworkError(
                f"tensor '{self.name}' is {self.dtype}, which has no scale and zero point",
                fix=f"Types with them are {', '.join(_QUANTIZED)}",
            )
        for field, value in (("scale", scale), ("zero_point", zero_point)):
            before = getattr(self, field)
            if value is not None and before is not None and np.any(np.not_equal(before, value)):
                raise NetworkError(f"tensor '{self.name}' has the {field} {before}, and is given {value}")
            setattr(self, field, before if value is None else value)

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
        """The tensor of `npuc.lang`; an operator that computes with scales takes `integers`."""
        if self.scale is not None:
            raise NetworkError(
                f"tensor '{self.name}' has a scale, which this operator does not compute with",
                fix="dequant_int_to_fp makes it real first; add, mul, tanh, conv_quant and others take scales",
            )
        return self.integers

    @property
    def integers(self) -> lang.Tensor:
        """The tensor of `npuc.lang`, whatever its integers stand for."""
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


def reals(tensor: Tensor, name: str) -> lang.Tensor:
    """What the integers of a tensor stand for: (x - zero_point) * scale; a tensor of reals is itself."""
    if tensor.scale is None:
        return tensor.integers
    return lang.dequantize(
        tensor.integers, *_parameters(tensor.scale, tensor.zero_point, tensor.dtype), name=name
    )


def integers(built: lang.Tensor, scale: Any, zero_point: Any, dtype: str, name: str) -> Tensor:
    """Reals as integers of a scale; halves go to the even one."""
    rounded = lang.quantize(built, *_parameters(scale, zero_point, dtype), to=TYPES[dtype], name=name)
    tensor = result(rounded, name)
    tensor.quantization(scale, 0 if zero_point is None else zero_point)
    return tensor


def _parameters(scale: Any, zero_point: Any, dtype: str) -> tuple[Array, Array]:
    scales = np.asarray(scale, np.float32)
    zeros = np.asarray(0 if zero_point is None else zero_point, dtype)
    if not np.isfinite(scales).all() or (scales <= 0).any():
        raise NetworkError(f"the scale {scale} is no number above 0")
    return scales, np.broadcast_to(zeros, scales.shape).copy()


def apply_scaled(
    operator: str,
    function: Callable[..., lang.Tensor],
    operands: Sequence[Any],
    scale: Any,
    zero_point: Any,
    out_name: str | None,
    round_mode: str = "half_away_from_zero",
    out_dtype: str | None = None,
    **properties: Any,
) -> Tensor:
    """The result of an operator on integers: `scale` and `zero_point` list those of its operands, then the result's."""
    tensors = [operand for operand in operands if isinstance(operand, Tensor)]
    quantized = scale is not None or any(tensor.scale is not None for tensor in tensors)
    if not quantized and zero_point is None:
        return apply(function, operands, out_name, **properties)
    if scale is None:
        raise NetworkError(
            "its operand has a scale, and its result has none",
            where=operator,
            fix="Give scale=[...], the result's last",
        )
    zeros = [0] * len(scale) if zero_point is None else list(zero_point)
    if len(scale) != len(operands) + 1 or len(zeros) != len(scale):
        raise NetworkError(
            f"{len(scale)} scales and {len(zeros)} zero points for {len(operands)} operands and a result",
            where=operator,
        )
    only_even(operator, round_mode)
    for operand, own, zero in zip(operands, scale, zeros, strict=False):
        if isinstance(operand, Tensor):
            operand.quantization(own, zero)
    name = out_name or SESSION.next_name()
    given = [
        reals(operand, f"{name}/{index}")
        if isinstance(operand, Tensor)
        else np.float32((operand - zeros[index]) * scale[index])
        for index, operand in enumerate(operands)
    ]
    built = function(*given, name=f"{name}/real", **properties)
    return integers(built, scale[-1], zeros[-1], out_dtype or tensors[0].dtype, name)


def only_even(operator: str, round_mode: str) -> None:
    """An error for a rounding that differs from ours by more than ties."""
    if round_mode not in ("half_away_from_zero", "half_to_even"):
        raise NetworkError(
            f"round_mode '{round_mode}' is not supported",
            where=operator,
            fix="half_away_from_zero, or half_to_even",
        )


def moved(
    function: Callable[..., lang.Tensor], tensor: Tensor, out_name: str | None, **properties: Any
) -> Tensor:
    """The result of an operator that only moves elements: integers keep their scale."""
    name = out_name or SESSION.next_name()
    built = result(function(tensor.integers, name=name, **properties), name)
    built.quantization(tensor.scale, tensor.zero_point)
    return built


def spelled(**other: str) -> Callable[[_Operator], _Operator]:
    """An operator whose arguments have other names in other releases: `other` name = ours."""

    def decorate(function: _Operator) -> _Operator:
        @wraps(function)
        def operator(*given: Any, **named: Any) -> Any:
            for theirs, ours in other.items():
                if theirs in named:
                    named[ours] = named.pop(theirs)
            return function(*given, **named)

        operator.other_names = other  # type: ignore[attr-defined]
        return operator  # type: ignore[return-value]

    return decorate


def refuse_scales(operator: str, *given: Any) -> None:
    """An error if an operator is given scales or zero points: it would have to compute with integers of these scales."""
    if any(value is not None for value in given):
        raise UsageError(
            f"scale= and zero_point= of {operator} are not supported: it gives float32",
            fix="dequant_int_to_fp, then compute in float32",
        )


def pads(pad: Sequence[int] | None) -> tuple[int, int, int, int]:
    """[up, down, left, right] as npuc has it: up, left, down, right."""
    if pad is None:
        return 0, 0, 0, 0
    if len(pad) != 4:
        raise NetworkError(f"pad {list(pad)} is not [up, down, left, right]")
    up, down, left, right = pad
    return up, left, down, right
