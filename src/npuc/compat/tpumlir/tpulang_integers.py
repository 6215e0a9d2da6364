"""Operators of TpuLang on integers that have scales: products and requantization.

A network of them states its own quantization, as a quantized TFLite model does: `compile(..., mode="int8")` and `model_deploy.py
--quantize INT8` compile it without a calibration table. Halves are rounded to the even integer.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.compat.tpumlir.tpulang_tensors import (
    SESSION,
    TYPES,
    Tensor,
    integers,
    only_even,
    pads,
    reals,
    result,
)
from npuc.errors import NetworkError

__all__ = ["conv_quant", "dequant_int_to_fp", "matmul_quant", "requant_fp_to_int"]

_BYTES = ("int8", "uint8")


def _factor(operator: str, *stated: tuple[Tensor, Any, Any]) -> list[Array]:
    """The scales of operands of 8 bits, after what the call states of them; with zero points they are the tensors' own."""
    for tensor, scale, zero_point in stated:
        if tensor.dtype not in _BYTES:
            raise NetworkError(
                f"'{tensor.name}' is {tensor.dtype}, not int8 or uint8",
                where=operator,
                fix="Requantize it first",
            )
        tensor.quantization(scale, zero_point)
        if tensor.scale is None:
            raise NetworkError(
                f"'{tensor.name}' has no scale", where=operator, fix="State it here or with quantization()"
            )
    return [np.asarray(tensor.scale, np.float64) for tensor, *_ in stated]


def _weight(weight: Tensor, operator: str, axis: int) -> lang.Tensor:
    if weight.data is None:
        raise NetworkError("the weight has to be constant", where=operator)
    scale = np.asarray(weight.scale, np.float32)
    zeros = np.broadcast_to(np.asarray(weight.zero_point or 0), scale.shape)
    return lang.constant(
        weight.data, scale=scale.tolist(), zero_point=zeros.tolist(), axis=axis, name=weight.name
    )


def _bias(bias: Tensor | None, factor: Array) -> Array | None:
    """The reals of a bias of int32, which counts products of both operands' steps."""
    if bias is None or bias.data is None:
        return None
    return (bias.data.astype(np.float64).reshape(-1) * factor.reshape(-1)).astype(np.float32)


def _stated(operator: str, scale: Any) -> Any:
    if scale is None:
        raise NetworkError("output_scale= is missing", where=operator)
    return scale


def conv_quant(input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Sequence[int] | None = None,
               dilation: Sequence[int] | None = None, pad: Sequence[int] | None = None, group: int = 1,
               input_scale: Any = None, weight_scale: Any = None, output_scale: Any = None, input_zp: int | None = None,
               weight_zp: Any = None, output_zp: int | None = None, out_dtype: str | None = None,
               out_name: str | None = None) -> Tensor:  # fmt: skip
    """A convolution of 8-bit integers with an 8-bit result; the weight may have a scale for each output channel."""
    x, w = _factor("conv_quant", (input, input_scale, input_zp), (weight, weight_scale, weight_zp))
    name = out_name or SESSION.next_name()
    sums = lang.conv(
        reals(input, f"{name}/input"), _weight(weight, "conv_quant", 0), _bias(bias, x * w), name=f"{name}/real",
        strides=tuple(stride or (1, 1)), dilations=tuple(dilation or (1, 1)), pads=pads(pad), group=group,
    )  # fmt: skip
    return integers(sums, _stated("conv_quant", output_scale), output_zp, out_dtype or input.dtype, name)


def matmul_quant(input: Tensor, right: Tensor, bias: Tensor | None = None, right_transpose: bool = False,
                 keep_dims: bool = True, input_scale: Any = None, right_scale: Any = None, output_scale: Any = None,
                 input_zp: int | None = None, right_zp: int | None = None, output_zp: int | None = None,
                 out_dtype: str = "int8", out_name: str | None = None) -> Tensor:  # fmt: skip
    """The product of matrices of 8-bit integers, with an 8-bit result."""
    if not keep_dims:
        raise NetworkError("keep_dims=False is not supported", where="matmul_quant", fix="squeeze the result")
    x, w = _factor("matmul_quant", (input, input_scale, input_zp), (right, right_scale, right_zp))
    name = out_name or SESSION.next_name()
    other = reals(right, f"{name}/right") if right.data is None else _weight(right, "matmul_quant", 0)
    left = reals(input, f"{name}/input")
    product = lang.matmul(left, other, _bias(bias, x * w), transpose_b=right_transpose, name=f"{name}/real")
    return integers(product, _stated("matmul_quant", output_scale), output_zp, out_dtype, name)


def requant_fp_to_int(tensor_i: Tensor, scale: float, offset: int, requant_mode: int, out_dtype: str,
                      out_name: str | None = None, round_mode: str = "half_away_from_zero") -> Tensor:  # fmt: skip
    """Reals as integers: x / scale + offset, rounded and limited; `requant_mode` changes nothing, as in TPU-MLIR."""
    _one("requant_fp_to_int", scale, offset)
    only_even("requant_fp_to_int", round_mode)
    return integers(tensor_i.value, scale, offset, out_dtype, out_name or SESSION.next_name())


def dequant_int_to_fp(tensor_i: Tensor, scale: float, offset: int, out_dtype: str = "float32", out_name: str | None = None,
                      round_mode: str = "half_away_from_zero") -> Tensor:  # fmt: skip
    """Integers as reals: (x - offset) * scale."""
    _one("dequant_int_to_fp", scale, offset)
    only_even("dequant_int_to_fp", round_mode)
    tensor_i.quantization(scale, offset)
    name = out_name or SESSION.next_name()
    if out_dtype == "float32":
        return result(reals(tensor_i, name), name)
    return result(lang.cast(reals(tensor_i, f"{name}/real"), to=TYPES[out_dtype], name=name), name)


def _one(operator: str, *values: Any) -> None:
    if any(np.size(value) != 1 for value in values):
        raise NetworkError("a scale for each channel is not supported", where=operator, fix="Give one number")
