"""Ops on bf16, f16 and f32: the float op in f32 between casts. Sums have no order in ONNX, so the last bit may differ."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.export.qdq.form import QdqForm, no_form
from npuc.export.qdq.registry import expresses
from npuc.export.qdq.rules.rows import normalized
from npuc.ir import Value, npu, top, value_name
from npuc.ir.definition import TOP_OPS
from npuc.ir.dtypes import dtype_of
from npuc.ir.top.functions import FUNCTIONS

_FLOAT: dict[type[npu.FloatOp], tuple[type[Any], tuple[str, ...]]] = {
    npu.FloatConv: (top.Conv, ("relu", "relu_limit", "strides", "pads", "dilations", "group")),
    npu.FloatDeconv: (
        top.Deconv,
        ("relu", "relu_limit", "strides", "pads", "dilations", "group", "output_padding"),
    ),
    npu.FloatMatMul: (top.MatMul, ("relu", "relu_limit", "transpose_b")),
    npu.FloatAdd: (top.Add, ("relu", "relu_limit")),
    npu.FloatSub: (top.Sub, ("relu", "relu_limit")),
    npu.FloatMul: (top.Mul, ("relu", "relu_limit")),
    npu.FloatMax: (top.Max, ()),
    npu.FloatMin: (top.Min, ()),
    npu.FloatAvgPool: (
        top.AvgPool,
        ("kernel", "strides", "pads", "dilations", "ceil_mode", "count_include_pad"),
    ),
    npu.FloatMaxPool: (top.MaxPool, ("kernel", "strides", "pads", "dilations", "ceil_mode")),
    npu.FloatSoftmax: (top.Softmax, ("axis",)),
    npu.FloatReduce: (top.Reduce, ("kind", "axes", "keepdims")),
}
"""The `top` op of each, and the properties that both have."""


def _wide(form: QdqForm, value: Value) -> Value:
    if dtype_of(value.type).name == "f32":
        return form.plain(value)
    wide: Value = form.emit(top.Cast, form.plain(value), to="f32", name=f"{value_name(value)}/f32").y
    return wide


def _narrow(op: Any, form: QdqForm, wide: Value) -> None:
    """The result in the op's own type."""
    kind = dtype_of(op.to).name
    form.become(op.y, wide if kind == "f32" else form.emit(top.Cast, wide, to=kind, loc=op.location).y)


@expresses(*_FLOAT)
def same(op: Any, form: QdqForm) -> None:
    """Operands widened, the op of the same name, the result rounded."""
    kind, names = _FLOAT[type(op)]
    operands = [_wide(form, value) for value in op.operands]
    properties = {name: getattr(op, name) for name in names}
    _narrow(op, form, form.emit(kind, *operands, loc=op.location, **properties).results[0])


@expresses(npu.FloatNorm)
def norm(op: npu.FloatNorm, form: QdqForm) -> None:
    """With its own gain and bias."""
    gain, bias = form.constant(op.gain), form.constant(op.bias)
    assert gain is not None and bias is not None
    x = _wide(form, op.x)
    _narrow(op, form, normalized(op, form, gain.astype(np.float64), bias.astype(np.float64), op.epsilon, x))


@expresses(npu.FloatTable)
def table(op: npu.FloatTable, form: QdqForm) -> None:
    """The function by its name and parameters."""
    kind = TOP_OPS.get(f"top.{op.function}")
    if kind is None or kind not in FUNCTIONS or (kind is top.Clip and not op.parameters):
        raise no_form(
            op,
            f"its table stands for no function of one value with a name, only '{op.function}'",
            "Quantize the layer to integers (--scheme int8), whose tables are written as they are",
        )
    wide = form.emit(kind, _wide(form, op.x), loc=op.location, **op.parameters).results[0]
    _narrow(op, form, wide)


@expresses(npu.Cast)
def cast(op: npu.Cast, form: QdqForm) -> None:
    """Cast."""
    form.become(op.y, form.emit(top.Cast, form.plain(op.x), to=dtype_of(op.to).name, loc=op.location).y)


@expresses(npu.BlockPack, npu.BlockConv, npu.BlockMatMul)
def block(op: Any, form: QdqForm) -> None:
    """Refused: ONNX has no type for block floating point."""
    raise no_form(
        op,
        f"ONNX has no type for the block floating point {op.format}",
        "Quantize the layer to integers (--scheme int8) or to bf16",
    )
