"""Matrix product: FULLY_CONNECTED with constant weights, BATCH_MATMUL otherwise."""

from __future__ import annotations

from typing import Any

from npuc.arithmetic.kinds import Kind
from npuc.arithmetic.tflite import product
from npuc.export.tflite.arithmetic import NONE, check_kind, check_multipliers
from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import ending
from npuc.export.tflite.flatten import flattened
from npuc.export.tflite.layout import Order, natural
from npuc.export.tflite.linear import linear
from npuc.export.tflite.registry import SCHEME, NoTFLiteForm, exports
from npuc.ir import Value, npu, shape_of, top
from npuc.ir.dtypes import QuantType, quant_of


@exports(top.MatMul, npu.MatMul)
def matmul(op: Any, emit: TFLiteEmitter) -> None:
    """A fully connected layer, or the product of two activations."""
    a, b = op.operands[0], op.operands[1]
    weight = emit.array(b)
    constant = weight is not None and quant_of(b) is None
    if constant and weight.ndim == 2:  # type: ignore[union-attr]
        _fully_connected(op, emit, a, b)
    else:
        _batch_matmul(op, emit, a, b)


def _order(emit: TFLiteEmitter, value: Value) -> Order:
    """An order that ends with the axis of the products."""
    last = len(shape_of(value)) - 1
    return next((o for o in emit.orders(value) if o[-1] == last), natural(last + 1))


def _fully_connected(op: Any, emit: TFLiteEmitter, a: Value, b: Value) -> None:
    axis = 0 if op.transpose_b else 1
    layer = linear(op, emit, b, axis, fully_connected=True)
    weight = layer.weight if op.transpose_b else layer.weight.T
    flat = flattened(emit, a)
    if flat is not None:
        # The elements of an image in TFLite's order, and the weights in that order too.
        source, order = flat.tensor, natural(2)
        weight = weight[:, flat.positions]
    else:
        order = _order(emit, a)
        source = emit.tensor(a, order)
    end = ending(emit, op, order)
    emit.operator(
        "FULLY_CONNECTED",
        [source, layer.tensor(emit, weight, 0), layer.bias],
        [end.out],
        "FullyConnectedOptions",
        FusedActivationFunction=end.activation,
        KeepNumDims=len(order) != 2,
    )
    end.finish()


def _batch_matmul(op: Any, emit: TFLiteEmitter, a: Value, b: Value) -> None:
    if op.bias is not None:
        raise NoTFLiteForm("a product of two activations has no bias in TFLite")
    x, w, y = quant_of(a), quant_of(b), quant_of(op.results[0])
    if isinstance(op, npu.MatMul):
        assert isinstance(x, QuantType) and isinstance(y, QuantType)
        if w is None:
            raise NoTFLiteForm("its weights have more than 2 axes")
        wide = x.dtype.name == "i16"
        check_kind(op.kind, Kind.SINGLE_ROUNDING if wide else Kind.DOUBLE_ROUNDING)
        if not x.dtype == w.dtype == y.dtype:
            raise NoTFLiteForm("its tensors have different element types", SCHEME)
        factor = product(x.scale, w.scale) / y.scale
        check_multipliers([factor], emit.array(op.multiplier), emit.array(op.shift), wide)
    end = ending(emit, op, natural(len(shape_of(op.results[0]))), fuses=False)
    assert end.activation == NONE
    emit.operator(
        "BATCH_MATMUL",
        [emit.tensor(a), emit.tensor(b)],
        [end.out],
        "BatchMatMulOptions",
        AdjY=op.transpose_b,
    )
    end.finish()
