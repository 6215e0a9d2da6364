"""Exact integer arithmetic in nodes that ONNX Runtime computes exactly: int64, and float32 below 2^24.

A floor division by a power of two is `(x - x mod d) / d` (`Mod` has the sign of its divisor, `Div` truncates what is
already whole). All names here are of int64 tensors unless a function says otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.kinds import Kind, Rounding
from npuc.arrays import Array
from npuc.export.onnx.emitter import Emitter
from npuc.ir import Value, dtype_of
from npuc.ir.dtypes import quant_of

I64 = dtype_of("i64")
F32 = dtype_of("f32")
F64 = dtype_of("f64")


@dataclass(frozen=True)
class HostScaling:
    """The parameters of a requantization; arrays that broadcast over the accumulator."""

    kind: Kind
    multiplier: Array | None = None
    shift: Array | None = None
    factor: Array | None = None

    def shaped(self, *shape: int) -> HostScaling:
        """The same with parameters of several entries under another shape."""

        def reshaped(array: Array | None) -> Array | None:
            return array if array is None or array.size == 1 else array.reshape(shape)

        return HostScaling(self.kind, reshaped(self.multiplier), reshaped(self.shift), reshaped(self.factor))


def number(value: int | Array) -> Array:
    """An int64 constant."""
    return np.asarray(value, np.int64)


def reach(value: Any) -> int:
    """The largest |q - z| of a quantized value."""
    kind = quant_of(value)
    assert kind is not None
    least, most = kind.dtype.limits
    return max(most - kind.zero_point, kind.zero_point - least)


def power(shift: Array) -> Array:
    """2^shift as an int64 constant, 1 where the shift is below zero."""
    return np.asarray(np.int64(1) << np.maximum(shift, 0))


def _half(shift: Array) -> Array:
    """2^(shift - 1), 0 where nothing is shifted out."""
    return np.asarray(np.where(shift > 0, power(shift - 1), 0))


def integers(emit: Emitter, value: Value, zero_point: bool = True) -> str:
    """The integers of a quantized value, less its zero point."""
    kind = quant_of(value)
    wide = emit.cast(value, I64)
    if kind is None or not zero_point or kind.zero_point == 0:
        return wide
    return emit("Sub", wide, number(kind.zero_point))


def floor_shift(emit: Emitter, x: str, shift: Array) -> str:
    """x >> shift."""
    if not shift.any():
        return x
    divisor = power(shift)
    return emit("Div", emit("Sub", x, emit("Mod", x, divisor)), divisor)


def half_up(emit: Emitter, x: str, shift: Array) -> str:
    """x / 2^shift, ties towards +infinity; a negative shift is to the left."""
    if (shift < 0).any():
        x = emit("Mul", x, power(-shift))
    half = _half(shift)
    return floor_shift(emit, emit("Add", x, half) if half.any() else x, np.asarray(np.maximum(shift, 0)))


def half_even(emit: Emitter, x: str, shift: Array) -> str:
    """x / 2^shift, ties to even; shift >= 0."""
    half = _half(shift)
    if not half.any():
        return x
    return _evened(emit, *_divided(emit, emit("Add", x, half), shift), shift)


def _divided(emit: Emitter, x: str, shift: Array) -> tuple[str, str]:
    """x >> shift, and what is left."""
    rest = emit("Mod", x, power(shift))
    return emit("Div", emit("Sub", x, rest), power(shift)), rest


def _evened(emit: Emitter, up: str, rest: str, shift: Array) -> str:
    """A quotient that was rounded up at ties, to even: a tie left no rest."""
    odd = emit("Equal", emit("Mod", up, number(2)), number(1))
    wrong = emit.cast(emit("And", emit("Equal", rest, number(0)), odd), I64)
    return emit("Sub", up, wrong if (shift > 0).all() else emit("Mul", wrong, number(shift > 0)))


def _wide(emit: Emitter, x: str, multiplier: Array, shift: Array, even: bool) -> str:
    """x * multiplier / 2^shift where the product may need more than 63 bits.

    What is at least 2^18 after the shift saturates every output, so that x can be cut there; where the shift is so large
    that this does not keep the product small, x is multiplied in two parts of 20 bits and the rest.
    """
    least = np.maximum(multiplier, 1)
    most = np.minimum(np.ldexp(1.0, shift + 18) / least, 2.0**61).astype(np.int64) + 1
    top, bottom = np.asarray(most), np.asarray(-most)
    x = emit("Where", emit("Greater", x, top), top, x)
    x = emit("Where", emit("Less", x, bottom), bottom, x)
    cut = np.asarray(np.where(shift > 43, 20, 0))
    high, low = _divided(emit, x, cut)
    # (high * m * 2^cut + low * m + half) >> shift, by the cut first.
    rounding = emit("Add", emit("Mul", low, multiplier), _half(shift))
    more, rest = _divided(emit, rounding, cut)
    total = emit("Add", emit("Mul", high, multiplier), more)
    if (shift < 0).any():
        total = emit("Mul", total, power(-shift))
    up, left = _divided(emit, total, np.asarray(np.maximum(shift - cut, 0)))
    return _evened(emit, up, emit("Add", left, rest), shift) if even else up


def double(emit: Emitter, x: str, multiplier: Array, shift: Array) -> str:
    """TFLite's two roundings of a 32-bit accumulator."""
    left, right = np.asarray(np.maximum(31 - shift, 0)), np.asarray(np.maximum(shift - 31, 0))
    if left.any():
        shifted = emit("Mul", x, power(left))
        wrapped = emit("Mod", emit("Add", shifted, number(1 << 31)), number(1 << 32))
        x = emit("Sub", wrapped, number(1 << 31))
    high = half_up(emit, emit("Mul", x, multiplier), number(31))
    return half_away(emit, high, right) if right.any() else high


def half_away(emit: Emitter, x: str, shift: Array) -> str:
    """x / 2^shift, ties away from zero; shift >= 0."""
    # Below zero, what is added is one less.
    below = emit.cast(emit("Less", x, number(0)), I64)
    less = emit("Mul", below, number(shift > 0)) if not shift.all() else below
    return floor_shift(emit, emit("Sub", emit("Add", x, _half(shift)), less), shift)


def rounded_shift(emit: Emitter, x: str, shift: Array, rounding: Rounding) -> str:
    """x / 2^shift under a rounding."""
    forms = {Rounding.HALF_AWAY: half_away, Rounding.HALF_EVEN: half_even, Rounding.HALF_UP: half_up}
    return forms.get(rounding, floor_shift)(emit, x, shift)


def rounded(emit: Emitter, reals: str) -> str:
    """A float32 tensor to the nearest integers, ties to even, within 32 bits."""
    limits = np.float32(-(2.0**31)), np.float32(2.0**31 - 128)
    clipped = emit("Clip", reals, np.asarray(limits[0]), np.asarray(limits[1]))
    return emit.cast(emit("Round", clipped), I64)


def rescaled(emit: Emitter, x: str, by: HostScaling, bound: int) -> str:
    """rq(x) for |x| <= bound."""
    if by.kind.has_scale:
        assert by.factor is not None
        return rounded(emit, emit("Mul", emit.cast(x, F32), by.factor.astype(np.float32)))
    assert by.shift is not None
    shift = by.shift.astype(np.int64)
    multiplier = number(1) if by.multiplier is None else by.multiplier.astype(np.int64)
    if by.kind is Kind.DOUBLE_ROUNDING:
        return double(emit, x, multiplier, shift)
    largest = bound * int(multiplier.max()) * 2 ** max(0, -int(shift.min()))
    if largest >= 1 << 62:
        return _wide(emit, x, multiplier, shift, by.kind.rounding is Rounding.HALF_EVEN)
    product = emit("Mul", x, multiplier) if by.kind.has_multiplier else x
    return rounded_shift(emit, product, shift, by.kind.rounding)


def stored(emit: Emitter, x: str, to: Value, lo: int, hi: int, zero_point: int) -> None:
    """sat(x + zero_point, lo, hi) as the result of the op."""
    if zero_point:
        x = emit("Add", x, number(zero_point))
    # Clip, Max and Min of int64 are wrong in ONNX Runtime 1.31 for numbers beyond 32 bits; float64 keeps their order.
    limits = (np.asarray(np.float64(limit)) for limit in (lo, hi))
    emit.cast(emit("Clip", emit.cast(x, F64), *limits), dtype_of(to.type), to=to)


def finished(emit: Emitter, x: str, op: Any, by: HostScaling, bound: int) -> None:
    """The output stage of an op: its accumulator, of at most `bound`, to its result `y`."""
    stored(emit, rescaled(emit, x, by, bound), op.y, op.lo, op.hi, op.to.zero_point)


def scaling_of(op: Any) -> HostScaling:
    """The parameters of an op that states its numbers as properties."""
    numbers = np.array(op.parameters, np.int64)
    if op.kind.has_scale:
        return HostScaling(op.kind, factor=np.array(op.factors, np.float32))
    if not op.kind.has_multiplier:
        return HostScaling(op.kind, shift=numbers)
    return HostScaling(op.kind, numbers[0::2], numbers[1::2])
