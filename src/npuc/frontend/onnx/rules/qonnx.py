"""Networks in QONNX, as Brevitas and QKeras write them: `Quant` rounds a float to integers of any width and back in one op.

    Quant(x, scale, zero_point, bit_width) = (clip(round(x / scale + zero_point), low, high) - zero_point) * scale

On an activation it becomes quantize and dequantize, of 8 or 16 bits and with a clip before if its own are fewer; on a constant,
integers of its width and a dequantize, per tensor or per channel. `BipolarQuant` of a constant has the integers -1 and 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from npuc.arrays import Array
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.quantization import quantized_in
from npuc.ir import Value, top
from npuc.kernels.custom import register_kernel

DOMAINS = ("qonnx.custom_op.general", "onnx.brevitas", "finn.custom_op.general")
"""The domain of the specification, and those of files from before it."""

_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "ROUND": np.rint,
    "HALF_EVEN": np.rint,
    "FLOOR": np.floor,
    "CEIL": np.ceil,
    "DOWN": np.trunc,
    "ROUND_TO_ZERO": np.trunc,
}
_NEAREST = ("ROUND", "HALF_EVEN")
_MOST_BITS, _MOST_CONSTANT_BITS = 16, 32


def _limits(bits: int, signed: bool, narrow: bool) -> tuple[int, int]:
    """The least and the largest integer; a narrow range has one less, at the low end if it is signed.

    >>> _limits(4, True, False), _limits(4, True, True), _limits(4, False, True)
    ((-8, 7), (-7, 7), (0, 14))
    """
    if signed:
        return narrow - (1 << (bits - 1)), (1 << (bits - 1)) - 1
    return 0, (1 << bits) - 1 - narrow


def _integer_type(low: int, high: int) -> Any:
    """The smallest type for integers between two limits; 4 bits are those of weights."""
    for kind in (np.int8, np.uint8, np.int16, np.uint16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return np.dtype(kind)
    raise NoTopForm(f"its integers reach from {low} to {high}")


def _scalar(ctx: NodeContext, index: int, what: str) -> float:
    array = ctx.known(index, what)
    if array.size != 1:
        raise NoTopForm(f"its {what} is not one number")
    return float(array.reshape(-1)[0])


def _axis(parameters: Array, rank: int) -> int:
    """The only axis along which scales differ."""
    axes = [axis for axis, size in enumerate(parameters.shape) if size > 1]
    if len(axes) != 1:
        raise NoTopForm("its scale is neither per tensor nor per channel")
    return axes[0] + rank - parameters.ndim


def _dequantized(ctx: NodeContext, integers: Array, scale: Array, zero: Array) -> Value:
    """A constant as the integers that it is stored as, and what makes them real."""
    per_tensor = scale.size == 1
    axis = 1 if per_tensor else _axis(scale, integers.ndim)
    flat: Array = scale.reshape(() if per_tensor else (-1,))
    zeros: Array = np.broadcast_to(zero, scale.shape).reshape(flat.shape)
    return ctx.emit(
        top.Dequantize,
        ctx.literal(integers, "integers"),
        ctx.literal(flat.astype(np.float32), "scale"),
        ctx.literal(zeros.astype(integers.dtype), "zero_point"),
        axis=axis,
    ).y


def quant(ctx: NodeContext) -> Outcome:
    """Activations per tensor with 2 to 16 bits, rounded to the nearest; constants also per channel, with up to 32 bits."""
    node = ctx.node
    scale, zero = ctx.known(1, "scale"), ctx.known(2, "zero point")
    bits = _scalar(ctx, 3, "bit width")
    mode = node.string("rounding_mode", "ROUND").upper()
    constant = ctx.constant(0)
    most = _MOST_BITS if constant is None else _MOST_CONSTANT_BITS
    if bits != int(bits) or not 2 <= bits <= most:
        raise NoTopForm(f"it quantizes to {bits:g} bits")
    if (zero != np.rint(zero)).any() or not (np.isfinite(scale).all() and (scale > 0).all()):
        raise NoTopForm("its zero point is no whole number, or its scale not positive")
    low, high = _limits(int(bits), node.flag("signed", True), node.flag("narrow"))
    kind = _integer_type(min(low, int(zero.min())), max(high, int(zero.max())))
    if constant is not None:
        if mode not in _ROUNDINGS or constant.dtype != np.float32:
            raise NoTopForm(f"it rounds constants of type {constant.dtype} by '{mode[:40]}'")
        integers = np.clip(_ROUNDINGS[mode](constant / scale + zero), low, high)
        if kind == np.int8 and bits <= 4 and min(low, zero.min()) >= -8 and max(high, zero.max()) <= 7:
            kind = np.dtype(ml_dtypes.int4)
        return _dequantized(ctx, integers.astype(np.int32).astype(kind), scale, zero)
    if scale.size != 1 or zero.size != 1 or mode not in _NEAREST:
        raise NoTopForm("activations are quantized per tensor, to the nearest")
    step, middle = np.float32(scale.reshape(())), int(zero.reshape(()))
    steps = ctx.literal(np.array(step), "scale"), ctx.literal(np.array(middle, kind), "zero_point")
    to = {"int8": "i8", "uint8": "ui8", "int16": "i16", "uint16": "ui16"}[kind.name]
    if (low, high) == (np.iinfo(kind).min, np.iinfo(kind).max):
        quantized = ctx.emit(top.Quantize, ctx.operand(0), *steps, to=to).y
    else:
        limits = float((low - middle) * step), float((high - middle) * step)
        quantized = quantized_in(ctx, ctx.operand(0), steps, to, limits)
    return ctx.emit(top.Dequantize, quantized, *steps).y


def bipolar_quant(ctx: NodeContext) -> Outcome:
    """Constants."""
    constant, scale = ctx.constant(0), ctx.known(1, "scale")
    if constant is None or constant.dtype != np.float32:
        raise NoTopForm("it makes signs of activations")
    signs = np.where(constant >= 0, 1, -1).astype(ml_dtypes.int4)
    return _dequantized(ctx, signs, scale, np.zeros((), np.float32))


def _quant(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """Quant on an array, for the check of an import: ONNX Runtime does not know the op."""
    x, scale, zero, bits = arrays
    low, high = _limits(
        int(bits.reshape(-1)[0]), bool(attributes.get("signed", 1)), bool(attributes.get("narrow", 0))
    )
    mode = attributes.get("rounding_mode", "ROUND")
    rounding = _ROUNDINGS[(mode.decode() if isinstance(mode, bytes) else str(mode)).upper()]
    return [((np.clip(rounding(x / scale + zero), low, high) - zero) * scale).astype(np.float32)]


def _bipolar(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """BipolarQuant on an array."""
    x, scale = arrays
    return [(np.where(x >= 0, 1, -1) * scale).astype(np.float32)]


for _domain in DOMAINS:
    rule("Quant", domain=_domain)(quant)
    rule("BipolarQuant", domain=_domain)(bipolar_quant)
    register_kernel(_domain, "Quant", _quant)
    register_kernel(_domain, "BipolarQuant", _bipolar)
