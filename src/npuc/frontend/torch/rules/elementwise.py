"""Arithmetic, comparison and logic, element by element, with torch's promotion of types."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.frontend.torch.masks import HIDDEN, hides, limited
from npuc.frontend.torch.registry import NoTopForm, Outcome, rule
from npuc.frontend.torch.scope import TorchContext
from npuc.ir import DType, Value, dtype_of, shape_of, top

_UNARY: dict[str, Any] = {
    "abs": top.Abs, "neg": top.Neg, "exp": top.Exp, "log": top.Log, "sqrt": top.Sqrt, "rsqrt": top.Rsqrt,
    "reciprocal": top.Reciprocal, "floor": top.Floor, "ceil": top.Ceil, "round": top.Round, "erf": top.Erf,
    "sign": top.Sign, "sgn": top.Sign, "sin": top.Sin, "cos": top.Cos, "tan": top.Tan, "asin": top.Asin,
    "acos": top.Acos, "atan": top.Atan, "sinh": top.Sinh, "cosh": top.Cosh, "asinh": top.Asinh, "acosh": top.Acosh,
    "atanh": top.Atanh,
}  # fmt: skip


@rule(*(f"aten.{name}" for name in _UNARY))
def unary(ctx: TorchContext) -> Outcome:
    """One value, one result; integers go through float where the function needs it."""
    dtype = ctx.result_dtype
    name = ctx.op.removeprefix("aten.")
    if name == "round" and ctx.args.get("decimals"):
        raise NoTopForm("it rounds to decimals")
    if not dtype.is_float and name in ("floor", "ceil", "round"):
        return ctx.value("self", dtype)
    return ctx.emit(_UNARY[name], ctx.value("self", dtype)).y


@rule("aten.trunc", "aten.fix")
def trunc(ctx: TorchContext) -> Outcome:
    """Towards zero."""
    x = ctx.value("self")
    down = ctx.emit(top.Floor, ctx.emit(top.Abs, x).y).y
    return ctx.emit(top.Mul, down, ctx.emit(top.Sign, x).y).y


@rule("aten.frac")
def frac(ctx: TorchContext) -> Outcome:
    """What trunc leaves."""
    return ctx.emit(top.Sub, ctx.value("self"), trunc(ctx)).y


@rule("aten.square")
def square(ctx: TorchContext) -> Outcome:
    """x * x"""
    x = ctx.value("self", ctx.result_dtype)
    return ctx.emit(top.Mul, x, x).y


def _scaled(ctx: TorchContext, name: str, dtype: DType) -> Value:
    """The second operand of a sum, times alpha."""
    alpha = ctx.args.get("alpha", 1)
    if isinstance(ctx.meaning(name), int | float) and not isinstance(ctx.meaning(name), bool):
        return ctx.value(ctx.meaning(name) * alpha, dtype)
    value = ctx.value(name, dtype)
    return value if alpha == 1 else ctx.emit(top.Mul, value, ctx.value(alpha, dtype)).y


@rule("aten.add")
def add(ctx: TorchContext) -> Outcome:
    """self + alpha * other"""
    dtype = ctx.result_dtype
    if dtype.name == "i1":
        return ctx.emit(top.Logical, ctx.value("self", dtype), ctx.value("other", dtype), mode="or").y
    for name, rest in (("self", "other"), ("other", "self")):
        if ctx.args.get("alpha", 1) == 1 and hides(ctx, name):
            ctx.scope.masked.add(ctx.node)
            return ctx.emit(top.Add, ctx.value(rest, dtype), ctx.literal(limited(ctx.known(name)), "mask")).y
    return ctx.emit(top.Add, ctx.value("self", dtype), _scaled(ctx, "other", dtype)).y


@rule("aten.sub")
def sub(ctx: TorchContext) -> Outcome:
    """self - alpha * other"""
    dtype = ctx.result_dtype
    return ctx.emit(top.Sub, ctx.value("self", dtype), _scaled(ctx, "other", dtype)).y


@rule("aten.rsub")
def rsub(ctx: TorchContext) -> Outcome:
    """other - alpha * self"""
    dtype = ctx.result_dtype
    return ctx.emit(top.Sub, ctx.value("other", dtype), _scaled(ctx, "self", dtype)).y


@rule("aten.mul")
def mul(ctx: TorchContext) -> Outcome:
    """A product; of booleans, both."""
    dtype = ctx.result_dtype
    if dtype.name == "i1":
        return ctx.emit(top.Logical, ctx.value("self", dtype), ctx.value("other", dtype), mode="and").y
    return ctx.emit(top.Mul, ctx.value("self", dtype), ctx.value("other", dtype)).y


def _floored(ctx: TorchContext, a: Value, b: Value) -> Value:
    """Division that rounds down; integers by way of the remainder, which has the sign of b."""
    if dtype_of(a.type).is_float:
        return ctx.emit(top.Floor, ctx.emit(top.Div, a, b).y).y
    rest = ctx.emit(top.Mod, a, b).y
    return ctx.emit(top.Div, ctx.emit(top.Sub, a, rest).y, b).y


@rule("aten.div", "aten.true_divide", "aten.divide", "aten.floor_divide")
def div(ctx: TorchContext) -> Outcome:
    """True division, or rounded."""
    dtype = ctx.result_dtype
    mode = "floor" if ctx.op == "aten.floor_divide" else ctx.args.get("rounding_mode")
    a, b = ctx.value("self", dtype), ctx.value("other", dtype)
    if mode == "floor":
        return _floored(ctx, a, b)
    y = ctx.emit(top.Div, a, b).y
    if mode == "trunc" and dtype.is_float:
        return ctx.emit(top.Mul, ctx.emit(top.Floor, ctx.emit(top.Abs, y).y).y, ctx.emit(top.Sign, y).y).y
    return y


@rule("aten.remainder", "aten.fmod")
def remainder(ctx: TorchContext) -> Outcome:
    """With the sign of the divisor, or of the dividend."""
    dtype = ctx.result_dtype
    a, b = ctx.value("self", dtype), ctx.value("other", dtype)
    if ctx.op == "aten.fmod":
        return ctx.emit(top.Mod, a, b, fmod=True).y
    if not dtype.is_float:
        return ctx.emit(top.Mod, a, b).y
    whole = ctx.emit(top.Floor, ctx.emit(top.Div, a, b).y).y
    return ctx.emit(top.Sub, a, ctx.emit(top.Mul, whole, b).y).y


@rule("aten.maximum", "aten.minimum", "aten.fmax", "aten.fmin", limits="fmax and fmin: as without NaN")
def extremum(ctx: TorchContext) -> Outcome:
    """Of two tensors."""
    kind = top.Max if "max" in ctx.op else top.Min
    return ctx.emit(kind, ctx.value("self", ctx.result_dtype), ctx.value("other", ctx.result_dtype)).y


@rule("aten.pow")
def power(ctx: TorchContext) -> Outcome:
    """A square is a product."""
    dtype = ctx.result_dtype
    exponent = ctx.meaning("exponent")
    x = ctx.value("self", dtype)
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        if exponent == 2:
            return ctx.emit(top.Mul, x, x).y
        if exponent == 0.5 and dtype.is_float:
            return ctx.emit(top.Sqrt, x).y
        if exponent == 1:
            return x
    return ctx.emit(top.Pow, x, ctx.value("exponent", dtype)).y


@rule("aten.hypot")
def hypot(ctx: TorchContext) -> Outcome:
    """sqrt(a^2 + b^2)"""
    a, b = ctx.value("self", ctx.result_dtype), ctx.value("other", ctx.result_dtype)
    return ctx.emit(top.Sqrt, ctx.emit(top.Add, ctx.emit(top.Mul, a, a).y, ctx.emit(top.Mul, b, b).y).y).y


@rule("aten.atan2", limits="not at the origin")
def atan2(ctx: TorchContext) -> Outcome:
    """atan(y / x), turned by pi to the side of y where x is negative."""
    f32 = dtype_of("f32")
    y, x = ctx.value("self", f32), ctx.value("other", f32)
    angle = ctx.emit(top.Atan, ctx.emit(top.Div, y, x).y).y
    behind = ctx.emit(top.Compare, x, ctx.value(0.0, f32), mode="less").y
    below = ctx.emit(top.Compare, y, ctx.value(0.0, f32), mode="less").y
    turn = ctx.emit(top.Where, below, ctx.value(float(-np.pi), f32), ctx.value(float(np.pi), f32)).y
    return ctx.emit(top.Where, behind, ctx.emit(top.Add, angle, turn).y, angle).y


@rule("aten.exp2", "aten.expm1", "aten.log1p", "aten.log2", "aten.log10")
def exponential(ctx: TorchContext) -> Outcome:
    """By way of exp and log."""
    x, f32 = ctx.value("self", ctx.result_dtype), dtype_of("f32")
    name = ctx.op.removeprefix("aten.")
    if name == "exp2":
        return ctx.emit(top.Exp, ctx.emit(top.Mul, x, ctx.value(float(np.log(2.0)), f32)).y).y
    if name == "expm1":
        return ctx.emit(top.Sub, ctx.emit(top.Exp, x).y, ctx.value(1.0, f32)).y
    if name == "log1p":
        return ctx.emit(top.Log, ctx.emit(top.Add, x, ctx.value(1.0, f32)).y).y
    base = 2.0 if name == "log2" else 10.0
    return ctx.emit(top.Mul, ctx.emit(top.Log, x).y, ctx.value(float(1 / np.log(base)), f32)).y


@rule("aten.addcmul", "aten.addcdiv")
def fused_sum(ctx: TorchContext) -> Outcome:
    """self + value * tensor1 * tensor2, or divided by tensor2"""
    dtype = ctx.result_dtype
    kind = top.Mul if ctx.op == "aten.addcmul" else top.Div
    part = ctx.emit(kind, ctx.value("tensor1", dtype), ctx.value("tensor2", dtype)).y
    if ctx.args["value"] != 1:
        part = ctx.emit(top.Mul, part, ctx.value("value", dtype)).y
    return ctx.emit(top.Add, ctx.value("self", dtype), part).y


@rule("aten.lerp")
def lerp(ctx: TorchContext) -> Outcome:
    """self + weight * (end - self)"""
    dtype = ctx.result_dtype
    x = ctx.value("self", dtype)
    step = ctx.emit(top.Mul, ctx.emit(top.Sub, ctx.value("end", dtype), x).y, ctx.value("weight", dtype)).y
    return ctx.emit(top.Add, x, step).y


_COMPARE = {
    "eq": "equal", "ne": "equal", "lt": "less", "le": "less_equal", "gt": "greater", "ge": "greater_equal",
}  # fmt: skip


def _common(ctx: TorchContext) -> DType:
    """The type in which two operands are compared."""
    a, b = ctx.dtype("self"), ctx.dtype("other")
    if a == b:
        return a
    ranks = ("i1", "ui8", "i8", "i16", "i32", "i64", "f32")
    number = isinstance(ctx.meaning("other"), bool | int | float)
    if number and not (b.is_float and not a.is_float) and a.name != "i1":
        return a
    return dtype_of(max(a.name, b.name, key=ranks.index))


@rule(*(f"aten.{name}" for name in _COMPARE))
def compare(ctx: TorchContext) -> Outcome:
    """Booleans."""
    name = ctx.op.removeprefix("aten.")
    dtype = _common(ctx)
    if dtype.name == "i1":
        dtype = dtype_of("i32")
    y = ctx.emit(top.Compare, ctx.value("self", dtype), ctx.value("other", dtype), mode=_COMPARE[name]).y
    return ctx.emit(top.Not, y).y if name == "ne" else y


_LOGICAL = {"logical_and": "and", "logical_or": "or", "logical_xor": "xor"}
_BITWISE = {"bitwise_and": "and", "bitwise_or": "or", "bitwise_xor": "xor"}


@rule(
    *(f"aten.{name}" for name in _LOGICAL),
    *(f"aten.{name}" for name in _BITWISE),
    limits="bitwise: on booleans",
)
def logical(ctx: TorchContext) -> Outcome:
    """On booleans."""
    boolean = dtype_of("i1")
    name = ctx.op.removeprefix("aten.")
    if name in _BITWISE and ctx.result_dtype != boolean:
        raise NoTopForm("it works on the bits of integers")
    mode = {**_LOGICAL, **_BITWISE}[name]
    return ctx.emit(top.Logical, ctx.value("self", boolean), ctx.value("other", boolean), mode=mode).y


@rule("aten.logical_not", "aten.bitwise_not", limits="bitwise: on booleans")
def negation(ctx: TorchContext) -> Outcome:
    """On booleans."""
    if ctx.op == "aten.bitwise_not" and ctx.result_dtype.name != "i1":
        raise NoTopForm("it works on the bits of integers")
    return ctx.emit(top.Not, ctx.value("self", dtype_of("i1"))).y


def _chosen(ctx: TorchContext, mask: str, yes: str, no: str) -> Value:
    """yes where the mask is set, else no; a constant mask before a softmax is a sum."""
    dtype, boolean = ctx.result_dtype, dtype_of("i1")
    for shown, hidden, sense in ((no, yes, True), (yes, no, False)):
        if hides(ctx, hidden) and ctx.known(hidden).size == 1 and ctx.shape(shown) == ctx.result_shape:
            ctx.scope.masked.add(ctx.node)
            x, low = ctx.value(shown, dtype), ctx.value(HIDDEN, dtype)
            if ctx.is_constant(mask):
                covered = ctx.known(mask).astype(bool) == sense
                return ctx.emit(top.Add, x, ctx.literal(limited(np.where(covered, HIDDEN, 0.0)), "mask")).y
            parts = (low, x) if sense else (x, low)
            return ctx.emit(top.Where, ctx.value(mask, boolean), *parts).y
    return ctx.emit(top.Where, ctx.value(mask, boolean), ctx.value(yes, dtype), ctx.value(no, dtype)).y


@rule("aten.where", limits="with one argument: on the CPU, for how many depends on data")
def where(ctx: TorchContext) -> Outcome:
    """A choice."""
    if not ctx.has("self"):
        raise NoTopForm("the number of its results depends on data")
    return _chosen(ctx, "condition", "self", "other")


@rule("aten.masked_fill")
def masked_fill(ctx: TorchContext) -> Outcome:
    """A value where the mask is set."""
    return _chosen(ctx, "mask", "value", "self")


@rule("aten.isnan", "aten.isinf", "aten.isfinite")
def classify(ctx: TorchContext) -> Outcome:
    """By comparisons."""
    x, f32 = ctx.value("self", dtype_of("f32")), dtype_of("f32")
    if ctx.op == "aten.isnan":
        return ctx.emit(top.Not, ctx.emit(top.Compare, x, x, mode="equal").y).y
    limit = ctx.value(float(np.finfo(np.float32).max), f32)
    size = ctx.emit(top.Abs, x).y
    mode = "greater" if ctx.op == "aten.isinf" else "less_equal"
    return ctx.emit(top.Compare, size, limit, mode=mode).y


@rule(
    "aten._to_copy",
    "aten.to",
    "aten.type_as",
    "prims.convert_element_type",
    "aten.float",
    limits="all floats are float32",
)
def convert(ctx: TorchContext) -> Outcome:
    """Another type; floats of any width are one."""
    name = "self" if "self" in ctx.args else "a"
    x = ctx.value(name)
    dtype = ctx.result_dtype
    if dtype.name == "i1" and dtype_of(x.type).name != "i1":
        kind = dtype_of(x.type)
        return ctx.emit(top.Not, ctx.emit(top.Compare, x, ctx.value(0, kind), mode="equal").y).y
    return ctx.cast(x, dtype)


@rule(
    "aten.clone", "aten.detach", "aten.alias", "aten.contiguous", "aten.lift_fresh_copy", "aten.lift_fresh",
    "aten.positive", "aten.view_of", "aten._assert_tensor_metadata", "aten.dropout", "aten.native_dropout",
    "aten.feature_dropout", "aten.alpha_dropout", "aten._conj", "aten.resolve_conj", "aten.resolve_neg", "aten.real",
    "aten.fill", "aten.copy", keep=False,
)  # fmt: skip
def identity(ctx: TorchContext) -> Outcome:
    """The same values; dropout does nothing in inference."""
    shape = ctx.result_shape
    if ctx.op == "aten.fill":
        return ctx.literal(np.full(shape, ctx.known("value").item(), ctx.result_dtype.numpy), "full")
    if ctx.op == "aten.copy":
        x = ctx.value("src", ctx.result_dtype)
        return x if shape_of(x) == shape else ctx.emit(top.Expand, x, shape=shape).y
    if (ctx.flag("train") and "dropout" in ctx.op) or ctx.result_dtype.name.startswith("complex"):
        raise NoTopForm("it is random" if "dropout" in ctx.op else "its numbers are complex")
    return ctx.value("input" if "input" in ctx.args else "self")


@rule(
    "aten.zeros_like", "aten.ones_like", "aten.full_like", "aten.new_zeros", "aten.new_ones", "aten.new_full",
    "aten.empty_like", "aten.new_empty", "aten.full", "aten.zeros", "aten.ones", "aten.empty", "aten.scalar_tensor",
    limits="empty tensors are zeros", keep=False,
)  # fmt: skip
def full(ctx: TorchContext) -> Outcome:
    """A constant of the shape of the result."""
    name = ctx.op.removeprefix("aten.")
    number = 1 if "ones" in name else 0
    for key in ("fill_value", "s"):
        if key in ctx.args:
            number = ctx.known(key, "value").item()
    scalar = ctx.literal(np.array(number, ctx.result_dtype.numpy), "value")
    shape = ctx.result_shape
    return ctx.emit(top.Expand, scalar, shape=shape).y if shape else scalar
