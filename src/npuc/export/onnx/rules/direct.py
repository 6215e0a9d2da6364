"""What ONNX has a node or an initializer for: weights, quantization, and nodes that were kept as they came."""

import numpy as np

from npuc.export.onnx.emitter import Emitter
from npuc.export.onnx.registry import exports
from npuc.export.onnx.subgraphs import rename_captures
from npuc.ir import dtype_of, top
from npuc.ir.onnx_attributes import decode_attribute


@exports(top.WeightOp)
def weight(op: top.WeightOp, emit: Emitter) -> None:
    """An initializer."""
    if not emit.bound(op.output):
        emit.bind(op.output, emit.weight(op.ref))


@exports(top.Quantize)
def quantize(op: top.Quantize, emit: Emitter) -> None:
    """QuantizeLinear; its zero point gives the type, or an attribute does."""
    integer = dtype_of(op.to)
    kind = integer.carrier.onnx if op.zero_point is None else None
    whole = integer == integer.carrier
    q = emit(
        "QuantizeLinear",
        op.x,
        op.scale,
        op.zero_point,
        to=op.y if whole else None,
        axis=op.axis,
        output_dtype=kind,
    )
    if not whole:  # integers of 9 to 15 bits are elements of 16; ONNX Runtime has no Clip for these
        limits = (np.array(limit, np.int32) for limit in integer.limits)
        emit.cast(emit("Clip", emit.cast(q, dtype_of("i32")), *limits), integer.carrier, to=op.y)


@exports(top.Dequantize)
def dequantize(op: top.Dequantize, emit: Emitter) -> None:
    """DequantizeLinear."""
    emit("DequantizeLinear", op.x, op.scale, op.zero_point, to=op.y, axis=op.axis)


@exports(top.Onnx)
def onnx_node(op: top.Onnx, emit: Emitter) -> None:
    """Attributes decoded; graphs among them refer to the outer values they capture by the exported names."""
    values = list(op.operands)
    inputs = [values[index] if index >= 0 else None for index in op.arguments]
    captured = values[len(values) - len(op.captures) :]
    outer = {inner: emit.name(value) for inner, value in zip(op.captures, captured, strict=True)}
    attributes = {}
    for name, value in op.onnx_attributes.items():
        attribute = decode_attribute(name, value)
        rename_captures(attribute, outer, emit.names)
        attributes[name] = attribute
    outputs = [""] * (max(op.outputs_used, default=-1) + 1)
    for position, result in zip(op.outputs_used, op.results, strict=True):
        outputs[position] = emit.name(result)
    emit.node(op.op_type, inputs, outputs, attributes, domain=op.domain)
