"""The way into integers and out of them."""

from __future__ import annotations

from npuc.export.qdq.form import QdqForm
from npuc.export.qdq.registry import expresses
from npuc.ir import npu
from npuc.ir.dtypes import quant_of


@expresses(npu.Quantize)
def quantize(op: npu.Quantize, form: QdqForm) -> None:
    """QuantizeLinear, whose ties go to the even integer, whatever `rounding` says."""
    form.quantize(op.y, form.plain(op.x), loc=op.location)


@expresses(npu.Dequantize)
def dequantize(op: npu.Dequantize, form: QdqForm) -> None:
    """DequantizeLinear."""
    kind = quant_of(op.x)
    assert kind is not None
    form.become(op.y, form.dequantized(form.plain(op.x), kind, loc=op.location))


@expresses(npu.Reinterpret)
def reinterpret(op: npu.Reinterpret, form: QdqForm) -> None:
    """The same integers."""
    form.become(op.y, form.plain(op.x))


@expresses(npu.Requant)
def requant(op: npu.Requant, form: QdqForm) -> None:
    """Dequantized with one type and quantized with the other."""
    form.finish(op, form.real(op.x))
