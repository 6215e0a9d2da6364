"""Elementwise operators."""

from __future__ import annotations

from functools import reduce

import numpy as np

from npuc.errors import InvalidModelError
from npuc.frontend.onnx.node import NoTopForm
from npuc.frontend.onnx.reader import element_type
from npuc.frontend.onnx.registry import Outcome, rule
from npuc.frontend.onnx.scope import NodeContext
from npuc.frontend.quantization import quantized_in
from npuc.ir import Value, dtype_of, shape_of, top
from npuc.ir.definition import ShapeError, TopOp, normal_axis
from npuc.ir.top.functions import FUNCTIONS

_OWN_RULES = (top.Selu,)
"""Functions that ONNX has had in more than one form."""
_FUNCTIONS = {
    record.onnx: kind for kind, record in FUNCTIONS.items() if record.onnx and kind not in _OWN_RULES
}
"""By the name in the record of each."""
_UNARY: dict[str, type[TopOp]] = {"Not": top.Not, "Relu": top.Relu}
_BINARY: dict[str, type[TopOp]] = {
    "Add": top.Add,
    "Sub": top.Sub,
    "Mul": top.Mul,
    "Div": top.Div,
    "Pow": top.Pow,
}
_COMPARE = {
    "Equal": "equal",
    "Less": "less",
    "LessOrEqual": "less_equal",
    "Greater": "greater",
    "GreaterOrEqual": "greater_equal",
}
_LOGICAL = {"And": "and", "Or": "or", "Xor": "xor"}


@rule(*_FUNCTIONS)
def function(ctx: NodeContext) -> Outcome:
    """A function of one value."""
    kind = _FUNCTIONS[ctx.node.op_type]
    names = FUNCTIONS[kind].onnx_names
    properties = {key: ctx.node.float(names.get(key, key), value) for key, value in kind.DEFAULTS.items()}
    if properties and not ctx.dtype(0).is_float:
        raise NoTopForm(f"it works on {ctx.dtype(0).name}")
    op = ctx.emit(kind, ctx.operand(0), **properties)
    try:
        op.check()
    except ShapeError as error:
        raise NoTopForm(str(error)) from error
    return op.results[0]


@rule(*_UNARY)
def unary(ctx: NodeContext) -> Outcome:
    """One operand, no attributes."""
    return ctx.emit(_UNARY[ctx.node.op_type], ctx.operand(0)).results[0]


def _pair(ctx: NodeContext) -> tuple[Value, Value]:
    """The two operands of a binary op, under the explicit broadcasting of opsets before 7 too."""
    a, b = ctx.operand(0), ctx.operand(1)
    if ctx.opset < 7 and ctx.node.flag("broadcast") and ctx.node.has("axis"):
        rank, axis = len(shape_of(a)), ctx.node.int("axis")
        axis = normal_axis(axis, rank)
        ones = rank - axis - len(shape_of(b))
        if ones > 0:
            b = ctx.emit(top.Reshape, b, shape=(*shape_of(b), *[1] * ones)).y
    return a, b


@rule(*_BINARY)
def binary(ctx: NodeContext) -> Outcome:
    """Two operands, broadcast."""
    return ctx.emit(_BINARY[ctx.node.op_type], *_pair(ctx)).results[0]


@rule("Mod")
def mod(ctx: NodeContext) -> Outcome:
    """Remainder."""
    return ctx.emit(top.Mod, *_pair(ctx), fmod=ctx.node.flag("fmod")).y


@rule(*_COMPARE)
def compare(ctx: NodeContext) -> Outcome:
    """Comparison to booleans."""
    return ctx.emit(top.Compare, *_pair(ctx), mode=_COMPARE[ctx.node.op_type]).y


@rule(*_LOGICAL)
def logical(ctx: NodeContext) -> Outcome:
    """Boolean arithmetic."""
    return ctx.emit(top.Logical, *_pair(ctx), mode=_LOGICAL[ctx.node.op_type]).y


@rule("Max", "Min", "Sum")
def variadic(ctx: NodeContext) -> Outcome:
    """Any number of operands become a chain of two at a time."""
    kinds: dict[str, type[TopOp]] = {"Max": top.Max, "Min": top.Min, "Sum": top.Add}
    kind = kinds[ctx.node.op_type]
    values = ctx.operands()
    if not values:
        raise InvalidModelError(f"{ctx.node.label}: it has no inputs")
    return reduce(lambda a, b: ctx.emit(kind, a, b).results[0], values)


@rule("Mean")
def mean(ctx: NodeContext) -> Outcome:
    """The mean of several tensors."""
    values = ctx.operands()
    if not values:
        raise InvalidModelError(f"{ctx.node.label}: it has no inputs")
    total = reduce(lambda a, b: ctx.emit(top.Add, a, b).y, values)
    count = ctx.literal(np.array(len(values), dtype_of(total.type).numpy), "count")
    return ctx.emit(top.Div, total, count).y


@rule("Where")
def where(ctx: NodeContext) -> Outcome:
    """Choice between two tensors."""
    return ctx.emit(top.Where, ctx.operand(0), ctx.operand(1), ctx.operand(2)).y


@rule("Cast", "CastLike")
def cast(ctx: NodeContext) -> Outcome:
    """Type conversion."""
    number = ctx.node.int("to") if ctx.node.op_type == "Cast" else None
    to = ctx.dtype(1) if number is None else element_type(number, ctx.node.label)
    for dtype in (to, ctx.dtype(0)):
        if dtype.name.startswith(("f8", "f4", "string", "complex")) or dtype.name in (
            "ui4",
            "i4",
            "ui2",
            "i2",
        ):
            raise NoTopForm(f"it converts {ctx.dtype(0).name} to {to.name}")
    return ctx.emit(top.Cast, ctx.operand(0), to=to.name).y


@rule("Selu")
def selu(ctx: NodeContext) -> Outcome:
    """Scaled ELU; before opset 6 the defaults were rounder."""
    alpha, gamma = (
        (1.67326319217681884765625, 1.05070102214813232421875) if ctx.opset >= 6 else (1.6732, 1.0507)
    )
    return ctx.emit(
        top.Selu, ctx.operand(0), alpha=ctx.node.float("alpha", alpha), gamma=ctx.node.float("gamma", gamma)
    ).y


@rule("PRelu")
def prelu(ctx: NodeContext) -> Outcome:
    """Learned slope; before opset 7 a slope of rank 1 was per channel."""
    x, slope = ctx.operand(0), ctx.operand(1)
    rank = len(shape_of(x))
    if ctx.opset < 7 and len(shape_of(slope)) == 1 and rank > 2:
        slope = ctx.emit(top.Reshape, slope, shape=(*shape_of(slope), *[1] * (rank - 2))).y
    return ctx.emit(top.PRelu, x, slope).y


@rule("Clip")
def clip(ctx: NodeContext) -> Outcome:
    """Bounds as attributes (before opset 11) or inputs; integers only right behind QuantizeLinear."""
    if not ctx.dtype(0).is_float:
        return _fewer_steps(ctx)
    bounds = []
    for index, name, default in ((1, "min", -np.inf), (2, "max", np.inf)):
        if ctx.opset < 11:
            bounds.append(float(ctx.node.float(name, default)))
        else:
            bounds.append(float(ctx.known(index, name).reshape(())) if ctx.has(index) else default)
    return ctx.emit(top.Clip, ctx.operand(0), min=float(bounds[0]), max=float(bounds[1])).y


def _fewer_steps(ctx: NodeContext) -> Outcome:
    """Quantized values of fewer bits than their type has (Brevitas' QCDQ): real values are clipped instead.

    clip(quantize(x), low, high) = quantize(clip(x, (low - zero_point) * scale, (high - zero_point) * scale))
    """
    quantized = ctx.operand(0).owner
    if not isinstance(quantized, top.Quantize):
        raise NoTopForm("it clips integers that no QuantizeLinear makes")
    scale, zero = ctx.scope.graph.constant(quantized.scale), ctx.scope.graph.constant(quantized.zero_point)
    if scale is None or scale.size != 1 or (zero is None and quantized.zero_point is not None):
        raise NoTopForm("it clips integers that are not quantized per tensor")
    middle = 0.0 if zero is None else float(zero.reshape(()))
    low, high = (
        (float(ctx.known(index, name).reshape(())) - middle) * float(scale.reshape(()))
        if ctx.has(index)
        else end
        for index, name, end in ((1, "min", -np.inf), (2, "max", np.inf))
    )
    steps = (quantized.scale, quantized.zero_point)
    return quantized_in(ctx, quantized.x, steps, quantized.to, (low, high))


@rule("Gelu")
def gelu(ctx: NodeContext) -> Outcome:
    """Exact or by tanh."""
    return ctx.emit(top.Gelu, ctx.operand(0), tanh=ctx.node.string("approximate", "none") == "tanh").y


@rule("Swish")
def swish(ctx: NodeContext) -> Outcome:
    """x * sigmoid(alpha * x)."""
    if ctx.node.float("alpha", 1.0) != 1.0:
        raise NoTopForm("its alpha is not 1")
    return ctx.emit(top.SiLU, ctx.operand(0)).y


@rule("Identity")
def identity(ctx: NodeContext) -> Outcome:
    """The same value under another name."""
    return ctx.operand(0)


@rule("Dropout")
def dropout(ctx: NodeContext) -> Outcome:
    """Nothing at inference."""
    training = ctx.constant(2)
    if len([name for name in ctx.node.outputs if name]) > 1:
        raise NoTopForm("its mask is used")
    if ctx.has(2) and (training is None or bool(training)):
        raise NoTopForm("it is in training mode")
    if ctx.opset < 7 and not ctx.node.flag("is_test"):
        raise NoTopForm("it is in training mode")
    return ctx.operand(0)
