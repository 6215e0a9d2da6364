"""Networks that AMD's quantizers wrote (Vitis AI, Quark): quantize and dequantize nodes of their own domains, and FixNeuron.

`VitisQuantizeLinear` and its like are ONNX's nodes with more types. A FixNeuron of `pos` p and `bit_width` b is both in one:
y = clip(round(x * 2^p), -2^(b-1), 2^(b-1) - 1) / 2^p. On an activation it becomes quantize and dequantize; on a constant, the
integers of the weight and a dequantize, as an exporter of quantized ONNX would write it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm, OnnxNode
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.rules.indexing import dequantize, quantize
from npuc.frontend.onnx.scope import NodeContext
from npuc.ir import top
from npuc.kernels.custom import register_kernel

_PYTHON_OPS, _VITIS, _QUARK = "ai.onnx.contrib", "com.vai.quantize", "com.amd.quark"
_LARGEST = 127
"""Positions beyond this are no float32 scales."""

rule("QuantizeLinear", domain="com.microsoft")(quantize)
rule("DequantizeLinear", domain="com.microsoft")(dequantize)
rule("VitisQuantizeLinear", domain=_VITIS)(quantize)
rule("VitisDequantizeLinear", domain=_VITIS)(dequantize)
rule("ExtendedQuantizeLinear", domain=_QUARK)(quantize)
rule("ExtendedDequantizeLinear", domain=_QUARK)(dequantize)


def fix_neuron(ctx: NodeContext) -> Outcome:
    """A power-of-two scale and 2 to 16 bits."""
    bits, position = _whole(ctx.node, "bit_width", 8), _position(ctx.node)
    if not 2 <= bits <= 16 or abs(position) > _LARGEST:
        raise NoTopForm(f"it quantizes to {bits} bits at position {position}")
    kind = np.dtype(np.int16 if bits > 8 else np.int8)
    scale = np.float32(2.0**-position)
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    steps = ctx.literal(np.array(scale), "scale"), ctx.literal(np.zeros((), kind), "zero_point")
    array = ctx.constant(0)
    if array is not None:
        if array.dtype != np.float32:
            raise NoTopForm(f"it quantizes constants of type {array.dtype}")
        integers = np.clip(np.rint(array / scale), low, high).astype(kind)
        return ctx.emit(top.Dequantize, ctx.literal(integers, "integers"), *steps).y
    x = ctx.operand(0)
    if bits < 8:
        x = ctx.emit(top.Clip, x, min=float(low * scale), max=float(high * scale)).y
    quantized = ctx.emit(top.Quantize, x, *steps, to=f"i{max(bits, 8)}").y
    return ctx.emit(top.Dequantize, quantized, *steps).y


def _whole(node: OnnxNode, name: str, default: int) -> int:
    """An attribute that some writers store as an integer and some as text."""
    if not node.has(name):
        return default
    try:
        return int(
            node.string(name)
            if node.attributes[name].type == node.attributes[name].STRING
            else node.int(name)
        )
    except ValueError as error:
        raise InvalidModelError(f"{node.label}: the attribute '{name}' is no whole number") from error


def _position(node: OnnxNode) -> int:
    return _whole(node, "quant_pos" if node.has("quant_pos") else "pos", 0)


def _fixed(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """FixNeuron on an array, for the check of an import: ONNX Runtime does not know the op."""
    bits = int(attributes.get("bit_width", 8))
    step = np.float32(2.0 ** -int(attributes.get("quant_pos", attributes.get("pos", 0))))
    grid = np.clip(np.rint(arrays[0] / step), -(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    return [(grid * step).astype(np.float32)]


def _extended_quantize(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """QuantizeLinear on an array, per tensor or per channel."""
    x, scale, zero = arrays
    shape = [1] * x.ndim
    if scale.ndim:
        shape[int(attributes.get("axis", 1))] = scale.size
    limits = np.iinfo(zero.dtype)
    grid = np.rint(x / scale.reshape(shape)) + zero.reshape(shape).astype(np.float64)
    return [np.clip(grid, limits.min, limits.max).astype(zero.dtype)]


def _extended_dequantize(arrays: Sequence[Array], attributes: Mapping[str, Any]) -> list[Array]:
    """DequantizeLinear on an array."""
    x, scale, zero = arrays
    shape = [1] * x.ndim
    if scale.ndim:
        shape[int(attributes.get("axis", 1))] = scale.size
    return [((x.astype(np.int64) - zero.reshape(shape)) * scale.reshape(shape)).astype(np.float32)]


for _domain in (_PYTHON_OPS, _VITIS, _QUARK):
    rule("FixNeuron", domain=_domain)(fix_neuron)
    register_kernel(_domain, "FixNeuron", _fixed)
for _domain, _prefix in ((_VITIS, "Vitis"), (_QUARK, "Extended")):
    register_kernel(_domain, f"{_prefix}QuantizeLinear", _extended_quantize)
    register_kernel(_domain, f"{_prefix}DequantizeLinear", _extended_dequantize)
