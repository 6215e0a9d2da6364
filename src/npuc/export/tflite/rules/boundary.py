"""From reals to integers, between integer types, and back: QUANTIZE, DEQUANTIZE, CAST."""

from __future__ import annotations

from npuc.arithmetic.requantization import quantize_multiplier
from npuc.export.tflite.arithmetic import check_kind
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending, limit
from npuc.export.tflite.model import TYPES
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.ir import dtype_of, npu, top
from npuc.ir.dtypes import QuantType, quant_of


@exports(npu.Quantize)
def quantize(op: npu.Quantize, emit: TFLiteEmitter) -> None:
    """Ties away from zero, as TFLite has it."""
    if dtype_of(op.x.type).name != "f32":
        raise NoTFLiteForm(f"it quantizes {dtype_of(op.x.type).name}, and TFLite quantizes f32")
    if op.rounding != "half_away":
        raise NoTFLiteForm("it rounds ties to even, and TFLite away from zero", SCHEME)
    order = emit.common_order(op.x)
    emit.operator("QUANTIZE", [emit.tensor(op.x, order)], [emit.result(op.y, order)], "QuantizeOptions")


@exports(npu.Dequantize)
def dequantize(op: npu.Dequantize, emit: TFLiteEmitter) -> None:
    """To float32."""
    order = emit.common_order(op.x)
    emit.operator("DEQUANTIZE", [emit.tensor(op.x, order)], [emit.result(op.y, order)], "DequantizeOptions")


@exports(npu.Requant)
def requant(op: npu.Requant, emit: TFLiteEmitter) -> None:
    """QUANTIZE from integers to integers."""
    x, y = quant_of(op.x), op.to
    assert isinstance(x, QuantType) and isinstance(y, QuantType)
    check_kind(op.kind)
    if tuple(op.parameters) != quantize_multiplier(x.scale / y.scale):
        raise NoTFLiteForm("its multiplier is not the one that TFLite derives from its scales", SCHEME)
    order = emit.common_order(op.x)
    least, most = y.dtype.limits
    bounds = [("MAXIMUM", float(op.lo))] if op.lo > least else []
    bounds += [("MINIMUM", float(op.hi))] if op.hi < most else []
    if x == y and bounds:
        limit(emit, emit.tensor(op.x, order), op.y, order, bounds)
        return
    end = ending(emit, op, order, fuses=False)
    emit.operator("QUANTIZE", [emit.tensor(op.x, order)], [end.out], "QuantizeOptions")
    end.finish()


@exports(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, emit: TFLiteEmitter) -> None:
    """A copy; at the ends of a program the port itself has the quantized type."""
    order = emit.common_order(op.x)
    emit.reshape(emit.tensor(op.x, order), emit.result(op.y, order))


@exports(top.Cast)
def cast(op: top.Cast, emit: TFLiteEmitter) -> None:
    """Between plain types."""
    order = emit.common_order(op.x)
    out = emit.result(op.y, order)
    source = emit.tensor(op.x, order)
    emit.operator(
        "CAST", [source], [out], "CastOptions", InDataType=TYPES[source.dtype], OutDataType=TYPES[out.dtype]
    )
