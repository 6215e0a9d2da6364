"""Functions of each element, alone or of two under broadcasting; those without a kernel of torch by their formula."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from npuc.arithmetic.functions import Formula
from npuc.engine.torch.registry import HANDLERS, fused, handles
from npuc.ir import dtype_of, top
from npuc.ir.definition import TOP_OPS
from npuc.ir.top.functions import FUNCTIONS

_PLAIN: dict[str, Callable[[Any], Any]] = {
    "abs": torch.abs, "acos": torch.acos, "acosh": torch.acosh, "asin": torch.asin, "asinh": torch.asinh,
    "atan": torch.atan, "atanh": torch.atanh, "ceil": torch.ceil, "cos": torch.cos, "cosh": torch.cosh,
    "erf": torch.erf, "exp": torch.exp, "floor": torch.floor, "log": torch.log, "mish": F.mish, "neg": torch.neg,
    "not": torch.logical_not, "reciprocal": torch.reciprocal, "round": torch.round, "rsqrt": torch.rsqrt,
    "sigmoid": torch.sigmoid, "sign": torch.sign, "silu": F.silu, "sin": torch.sin, "sinh": torch.sinh,
    "softplus": F.softplus, "softsign": F.softsign, "sqrt": torch.sqrt, "tan": torch.tan, "tanh": torch.tanh,
}  # fmt: skip


"""Kernels that torch has."""


def _plain(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda op, x: function(x)


for _name, _function in _PLAIN.items():
    HANDLERS.add([TOP_OPS[f"top.{_name}"]], _plain(_function))

_COMPARE = {
    "equal": torch.eq,
    "less": torch.lt,
    "less_equal": torch.le,
    "greater": torch.gt,
    "greater_equal": torch.ge,
}
_LOGICAL = {"and": operator.and_, "or": operator.or_, "xor": operator.xor}

DTYPES = {
    "f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "f64": torch.float64, "i1": torch.bool,
    "i8": torch.int8, "i16": torch.int16, "i32": torch.int32, "i64": torch.int64, "ui8": torch.uint8,
}  # fmt: skip
"""Element types that both sides have."""


@handles(top.Add, top.Sub, top.Mul)
def arithmetic(op: Any, a: Any, b: Any) -> Any:
    """With its relu."""
    function = {top.Add: operator.add, top.Sub: operator.sub, top.Mul: operator.mul}[type(op)]
    return fused(op, function(a, b))


@handles(top.Div)
def div(op: Any, a: Any, b: Any) -> Any:
    """Integers truncate."""
    return a / b if a.is_floating_point() else torch.div(a, b, rounding_mode="trunc")


@handles(top.Max)
def maximum(op: Any, a: Any, b: Any) -> Any:
    """The larger."""
    return torch.maximum(a, b)


@handles(top.Min)
def minimum(op: Any, a: Any, b: Any) -> Any:
    """The smaller."""
    return torch.minimum(a, b)


@handles(top.Mod)
def mod(op: Any, a: Any, b: Any) -> Any:
    """The remainder, with the sign of b or of a."""
    return torch.fmod(a, b) if op.fmod else torch.remainder(a, b)


@handles(top.Pow)
def power(op: Any, a: Any, b: Any) -> Any:
    """In the type of a."""
    return torch.pow(a, b.to(a.dtype))


@handles(top.Compare)
def compare(op: Any, a: Any, b: Any) -> Any:
    """Booleans."""
    return _COMPARE[op.mode](a, b)


@handles(top.Logical)
def logical(op: Any, a: Any, b: Any) -> Any:
    """Booleans."""
    return _LOGICAL[op.mode](a, b)


@handles(top.Where)
def where(op: Any, condition: Any, a: Any, b: Any) -> Any:
    """One or the other."""
    return torch.where(condition, a, b)


@handles(top.Cast)
def cast(op: Any, x: Any) -> Any:
    """Another element type."""
    return x.to(DTYPES[dtype_of(op.y.type).name])


@handles(top.LeakyRelu)
def leaky_relu(op: Any, x: Any) -> Any:
    """A slope below zero."""
    return F.leaky_relu(x, op.alpha)


@handles(top.PRelu)
def prelu(op: Any, x: Any, slope: Any) -> Any:
    """The slope broadcasts."""
    return torch.where(x >= 0, x, slope * x)


@handles(top.Elu)
def elu(op: Any, x: Any) -> Any:
    """Exponential below zero."""
    return F.elu(x, op.alpha)


@handles(top.Celu)
def celu(op: Any, x: Any) -> Any:
    """Exponential below zero."""
    return F.celu(x, op.alpha)


@handles(top.Gelu)
def gelu(op: Any, x: Any) -> Any:
    """Exact, or by tanh."""
    return F.gelu(x, approximate="tanh" if op.tanh else "none")


def _along(values: Any, axis: int, rank: int) -> Any:
    """A scale or zero point, shaped to broadcast along an axis."""
    return (
        values.reshape([-1 if i == axis % rank else 1 for i in range(rank)]) if values.numel() > 1 else values
    )


@handles(top.Quantize)
def quantize(op: Any, x: Any, scale: Any, zero_point: Any) -> Any:
    """Rounded to even, saturated."""
    kind = dtype_of(op.to)
    least, most = kind.limits
    zero = 0 if zero_point is None else _along(zero_point, op.axis, x.dim())
    integers = torch.round(x / _along(scale, op.axis, x.dim())) + zero
    return integers.clamp(least, most).to(DTYPES[kind.carrier.name])


@handles(top.Dequantize)
def dequantize(op: Any, x: Any, scale: Any, zero_point: Any) -> Any:
    """Back to reals."""
    zero = 0 if zero_point is None else _along(zero_point, op.axis, x.dim()).to(scale.dtype)
    return (x.to(scale.dtype) - zero) * _along(scale, op.axis, x.dim())


def _by_formula(formula: Formula) -> Callable[..., Any]:
    return lambda op, x: formula(op, x, torch)


for _kind, _record in FUNCTIONS.items():
    if _kind not in HANDLERS:
        HANDLERS.add([_kind], _by_formula(_record.formula))
