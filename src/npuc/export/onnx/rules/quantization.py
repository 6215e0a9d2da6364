"""Quantize and dequantize."""

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.ir import dtype_of, top


@exports(top.Quantize)
def quantize(op: top.Quantize, emit: Emitter) -> None:
    """QuantizeLinear; its zero point gives the type, or an attribute does."""
    kind = dtype_of(op.to).onnx if op.zero_point is None else None
    emit("QuantizeLinear", op.x, op.scale, op.zero_point, to=op.y, axis=op.axis, output_dtype=kind)


@exports(top.Dequantize)
def dequantize(op: top.Dequantize, emit: Emitter) -> None:
    """DequantizeLinear."""
    emit("DequantizeLinear", op.x, op.scale, op.zero_point, to=op.y, axis=op.axis)
