"""Functions of one real value: TFLite's operator, or a few of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.export.tflite.emitter import TFLiteEmitter
from npuc.export.tflite.ending import limit
from npuc.export.tflite.formula import OPTIONS, binary, unary
from npuc.export.tflite.layout import Order, channels_last
from npuc.export.tflite.model import TFLiteTensor
from npuc.export.tflite.registry import NoTFLiteForm, exports
from npuc.ir import shape_of, top
from npuc.ir.top.functions import FUNCTIONS

_OWN_RULES = (top.LeakyRelu, top.Elu, top.Gelu)
"""Functions with parameters."""
_OWN = {kind: record.tflite for kind, record in FUNCTIONS.items() if record.tflite and kind not in _OWN_RULES}
_OWN[top.Not] = "LOGICAL_NOT"


@exports(*_OWN)
def own(op: Any, emit: TFLiteEmitter) -> None:
    """One operator."""
    code = _OWN[type(op)]
    order = emit.common_order(op.x)
    emit.operator(code, [emit.tensor(op.x, order)], [emit.result(op.y, order)], OPTIONS.get(code, ""))


@exports(top.Relu)
def relu(op: top.Relu, emit: TFLiteEmitter) -> None:
    """RELU, RELU6, or two bounds."""
    order = emit.common_order(op.x)
    source = emit.tensor(op.x, order)
    if op.limit in (0.0, 6.0):
        emit.operator("RELU6" if op.limit else "RELU", [source], [emit.result(op.y, order)])
    else:
        limit(emit, source, op.y, order, [("MAXIMUM", 0.0), ("MINIMUM", op.limit)])


@exports(top.Clip)
def clip(op: top.Clip, emit: TFLiteEmitter) -> None:
    """Bounds that are finite."""
    order = emit.common_order(op.x)
    bounds = [("MAXIMUM", op.min)] if np.isfinite(op.min) else []
    bounds += [("MINIMUM", op.max)] if np.isfinite(op.max) else []
    if bounds:
        limit(emit, emit.tensor(op.x, order), op.y, order, bounds)
    else:
        emit.reshape(emit.tensor(op.x, order), emit.result(op.y, order))


@exports(top.LeakyRelu)
def leaky_relu(op: top.LeakyRelu, emit: TFLiteEmitter) -> None:
    """One operator."""
    order = emit.common_order(op.x)
    emit.operator(
        "LEAKY_RELU",
        [emit.tensor(op.x, order)],
        [emit.result(op.y, order)],
        "LeakyReluOptions",
        Alpha=op.alpha,
    )


@exports(top.Elu)
def elu(op: top.Elu, emit: TFLiteEmitter) -> None:
    """With an alpha of 1."""
    if op.alpha != 1.0:
        raise NoTFLiteForm(f"its alpha is {op.alpha:g}, and TFLite's ELU has 1")
    order = emit.common_order(op.x)
    emit.operator("ELU", [emit.tensor(op.x, order)], [emit.result(op.y, order)])


@exports(top.Gelu)
def gelu(op: top.Gelu, emit: TFLiteEmitter) -> None:
    """Exact or by tanh."""
    order = emit.common_order(op.x)
    emit.operator(
        "GELU", [emit.tensor(op.x, order)], [emit.result(op.y, order)], "GeluOptions", Approximate=op.tanh
    )


@exports(top.PRelu)
def prelu(op: top.PRelu, emit: TFLiteEmitter) -> None:
    """The slope broadcast to x."""
    order = channels_last(len(shape_of(op.x)))
    slope = emit.broadcast(op.slope, order)
    emit.operator("PRELU", [emit.tensor(op.x, order), slope], [emit.result(op.y, order)])


def _ends(op: Any, emit: TFLiteEmitter) -> tuple[Order, TFLiteTensor]:
    order = emit.common_order(op.x)
    return order, emit.tensor(op.x, order)


@exports(top.SiLU)
def silu(op: top.SiLU, emit: TFLiteEmitter) -> None:
    """x * sigmoid(x)"""
    order, x = _ends(op, emit)
    binary(emit, op.y, "MUL", x, unary(emit, op.y, "LOGISTIC", x), emit.result(op.y, order))


@exports(top.HardSigmoid)
def hard_sigmoid(op: top.HardSigmoid, emit: TFLiteEmitter) -> None:
    """A line between two bounds."""
    order, x = _ends(op, emit)
    line = binary(emit, op.y, "ADD", binary(emit, op.y, "MUL", x, float(op.alpha)), float(op.beta))
    limit(emit, line, op.y, order, [("MAXIMUM", 0.0), ("MINIMUM", 1.0)])


@exports(top.Softsign)
def softsign(op: top.Softsign, emit: TFLiteEmitter) -> None:
    """x / (1 + |x|)"""
    order, x = _ends(op, emit)
    below = binary(emit, op.y, "ADD", unary(emit, op.y, "ABS", x), 1.0)
    binary(emit, op.y, "DIV", x, below, emit.result(op.y, order))


@exports(top.Reciprocal)
def reciprocal(op: Any, emit: TFLiteEmitter) -> None:
    """1 / x"""
    order, x = _ends(op, emit)
    ones = emit.constant(np.ones(1, np.float32))
    binary(emit, op.y, "DIV", ones, x, emit.result(op.y, order))


def _softplus(emit: TFLiteEmitter, op: Any, x: TFLiteTensor) -> TFLiteTensor:
    """max(x, 0) + log(1 + e^-|x|): no exponential overflows."""
    size = unary(emit, op.y, "ABS", x)
    small = unary(emit, op.y, "EXP", unary(emit, op.y, "NEG", size))
    rest = unary(emit, op.y, "LOG", binary(emit, op.y, "ADD", small, 1.0))
    return binary(emit, op.y, "ADD", unary(emit, op.y, "RELU", x), rest)


@exports(top.Softplus)
def softplus(op: top.Softplus, emit: TFLiteEmitter) -> None:
    """By a formula that does not overflow."""
    order, x = _ends(op, emit)
    emit.hold(op.y, _softplus(emit, op, x), order)


@exports(top.Mish)
def mish(op: top.Mish, emit: TFLiteEmitter) -> None:
    """x * tanh(softplus(x))"""
    order, x = _ends(op, emit)
    inner = unary(emit, op.y, "TANH", _softplus(emit, op, x))
    binary(emit, op.y, "MUL", x, inner, emit.result(op.y, order))
