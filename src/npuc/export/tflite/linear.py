"""The constants of convolutions and matrix products: weights with their scales, and biases."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.tflite import product, rounded_scaling
from npuc.arrays import Array
from npuc.export.tflite.arithmetic import check_kind, check_multipliers
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.model import TFLiteQuantization, TFLiteTensor
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm
from npuc.ir import Value, dtype_of
from npuc.ir.dtypes import QuantType, quant_of


@dataclass(frozen=True)
class LinearConstants:
    """Weights in the program's order, their scales and zero point (None for floats), and the bias."""

    weight: Array
    scales: tuple[float, ...] | None
    zero_point: int
    bias: TFLiteTensor | None

    def tensor(self, emit: TFLiteEmitter, arrangement: Array, axis: int) -> TFLiteTensor:
        """The weights as TFLite wants them; `axis` is that of the output channels."""
        if self.scales is None:
            return emit.constant(arrangement, what="weight")
        zeros = (self.zero_point,) * len(self.scales)
        return emit.constant(arrangement, TFLiteQuantization(self.scales, zeros, axis), "weight")


def linear(
    op: Any, emit: TFLiteEmitter, weight: Value, axis: int, fully_connected: bool = False
) -> LinearConstants:
    """The constants of an op with an `axis` of output channels; fully connected layers round their sums once."""
    array = emit.array(weight)
    if array is None:
        raise NoTFLiteForm("its weights are computed at run time")
    channels = array.shape[axis]
    if quant_of(op.results[0]) is None:
        bias = emit.array(op.bias)
        if op.bias is not None and bias is None:
            raise NoTFLiteForm("its bias is computed at run time")
        if array.dtype != np.float32:
            raise NoTFLiteForm(f"its weights are {array.dtype.name}")
        filled = np.zeros(channels, np.float32) if bias is None else bias
        return LinearConstants(array, None, 0, emit.constant(filled, what="bias"))
    return _integer(op, emit, array, channels, fully_connected)


def _integer(
    op: Any, emit: TFLiteEmitter, array: Array, channels: int, fully_connected: bool
) -> LinearConstants:
    x, y = quant_of(op.x), op.to
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    wide = x.dtype.name == "i16"
    check_kind(op.kind, Kind.SINGLE_ROUNDING if wide or fully_connected else Kind.DOUBLE_ROUNDING)
    if x.dtype != y.dtype:
        raise NoTFLiteForm(f"its operand is {x.dtype.name} and its result {y.dtype.name}", SCHEME)
    weight_dtype = "uint8" if x.dtype.name == "ui8" else "int8"
    if array.dtype.name == "int8" and weight_dtype == "uint8":
        # The same numbers, counted from 0.
        array, zero = (array.astype(np.int16) + 128).astype(np.uint8), op.weight_zero_point + 128
    else:
        zero = op.weight_zero_point
    if array.dtype.name != weight_dtype:
        raise NoTFLiteForm(f"its weights are {dtype_of(array.dtype).name}, not {weight_dtype}", SCHEME)
    if weight_dtype == "int8" and zero != 0:
        raise NoTFLiteForm("its weights have a zero point, and TFLite's int8 weights have none", SCHEME)
    scales = emit.array(op.weight_scale)
    if scales is None:
        raise NoTFLiteForm("the scales of its weights are not stated", SCHEME)
    real = [float(scale) for scale in scales.astype(np.float32)]
    if weight_dtype == "uint8" and len(real) > 1:
        raise NoTFLiteForm("uint8 weights have one scale per tensor in TFLite, not one per channel", SCHEME)
    factors = [x.scale * scale / y.scale for scale in real]
    if fully_connected:
        expected = rounded_scaling(np.array(factors), 8 * y.dtype.itemsize)
        own = [emit.array(value) for value in (op.multiplier, op.shift)]
        same = all(
            a is not None and b is not None and np.array_equal(a, b)
            for a, b in zip((expected.multiplier, expected.shift), own, strict=True)
        )
        if not same:
            raise NoTFLiteForm("its multipliers are not those that TFLite derives from its scales", SCHEME)
    else:
        if weight_dtype == "uint8":
            factors = [product(x.scale, real[0]) / y.scale]
        check_multipliers(factors, emit.array(op.multiplier), emit.array(op.shift), wide)
    bias = emit.array(op.bias)
    filled = np.zeros(channels, np.int64) if bias is None else bias
    limit = np.iinfo(np.int32)
    if not wide and filled.size and not limit.min <= filled.min() <= filled.max() <= limit.max:
        raise NoTFLiteForm("its bias does not fit 32 bits", SCHEME)
    sums = tuple(float(np.float32(x.scale) * np.float32(scale)) for scale in real)
    tensor = emit.constant(
        filled.astype(np.int64 if wide else np.int32),
        TFLiteQuantization(sums, (0,) * len(sums)),
        "bias",
    )
    return LinearConstants(array, tuple(real), zero, tensor)
