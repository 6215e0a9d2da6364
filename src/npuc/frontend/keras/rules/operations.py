"""Operations of Keras 3 that are no layers (`x + 1`, `keras.ops.mean(x)`), and those of Keras 2 (`tf.nn.relu(x)`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks import movement as m
from npuc.frontend.blocks.einsum import einsum
from npuc.frontend.keras.activations import FUNCTIONS
from npuc.frontend.keras.registry import KerasContext, Outcome, rule
from npuc.frontend.layout import LayoutTensor
from npuc.ir import top
from npuc.ir.definition import normal_axis


def _operand(ctx: KerasContext, value: Any, like: LayoutTensor | None) -> LayoutTensor:
    if isinstance(value, LayoutTensor):
        return value
    if isinstance(value, bool | int | float) or (isinstance(value, list) and not _has_tensor(value)):
        dtype = like.dtype.numpy if like is not None else np.float32
        return ctx.c.constant(np.array(value, dtype))
    raise ctx.wrong(f"an operand is {str(value)[:60]}")


def _has_tensor(value: Any) -> bool:
    return isinstance(value, LayoutTensor) or (
        isinstance(value, list) and any(_has_tensor(item) for item in value)
    )


def _pair(ctx: KerasContext) -> tuple[LayoutTensor, LayoutTensor]:
    """Two operands, of which one may be a number."""
    first = ctx.keyword("x1", 0, ctx.keywords.get("x"))
    second = ctx.keyword("x2", 1, ctx.keywords.get("y"))
    if isinstance(first, list) and second is None and len(first) == 2:
        first, second = first
    like = first if isinstance(first, LayoutTensor) else second if isinstance(second, LayoutTensor) else None
    return _operand(ctx, first, like), _operand(ctx, second, like)


_BINARY: dict[str, Callable[[Any, LayoutTensor, LayoutTensor], LayoutTensor]] = {
    "Add": lambda c, x, y: a.binary(c, top.Add, x, y),
    "Subtract": lambda c, x, y: a.binary(c, top.Sub, x, y),
    "Multiply": lambda c, x, y: a.binary(c, top.Mul, x, y),
    "Divide": lambda c, x, y: a.binary(c, top.Div, x, y),
    "TrueDivide": lambda c, x, y: a.binary(c, top.Div, x, y),
    "Maximum": lambda c, x, y: a.binary(c, top.Max, x, y),
    "Minimum": lambda c, x, y: a.binary(c, top.Min, x, y),
    "Power": lambda c, x, y: a.binary(c, top.Pow, x, y),
    "Matmul": lambda c, x, y: a.matmul(c, x, y),
}


@rule(*(f"ops.{name}" for name in _BINARY))
def binary(ctx: KerasContext) -> Outcome:
    """Two operands, of which one may be a number; they broadcast."""
    return _BINARY[ctx.kind.removeprefix("ops.")](ctx.c, *_pair(ctx))


_UNARY: dict[str, Any] = {
    "Absolute": top.Abs,
    "Abs": top.Abs,
    "Negative": top.Neg,
    "Exp": top.Exp,
    "Log": top.Log,
    "Sqrt": top.Sqrt,
    "Rsqrt": top.Rsqrt,
    "Reciprocal": top.Reciprocal,
    "Sin": top.Sin,
    "Cos": top.Cos,
    "Tanh": top.Tanh,
    "Sigmoid": top.Sigmoid,
    "Relu": top.Relu,
    "Silu": top.SiLU,
    "Softplus": top.Softplus,
    "Softsign": top.Softsign,
    "Floor": top.Floor,
    "Ceil": top.Ceil,
    "Erf": top.Erf,
    "Sign": top.Sign,
}


@rule(*(f"ops.{name}" for name in _UNARY))
def unary(ctx: KerasContext) -> Outcome:
    """One operand."""
    return a.unary(ctx.c, ctx.x(), _UNARY[ctx.kind.removeprefix("ops.")])


@rule(
    "ops.Relu6",
    "ops.Elu",
    "ops.Selu",
    "ops.HardSilu",
    "ops.Gelu",
    "ops.LeakyRelu",
    "ops.HardSigmoid",
    "ops.Square",
)
def function(ctx: KerasContext) -> Outcome:
    """One operand; settings as the operation has them."""
    c, x, name = ctx.c, ctx.x(), ctx.kind.removeprefix("ops.")
    if name == "Square":
        return a.binary(c, top.Mul, x, x)
    if name == "Gelu":
        return a.unary(c, x, top.Gelu, tanh=bool(ctx.get("approximate", True)))
    if name == "LeakyRelu":
        return a.unary(c, x, top.LeakyRelu, alpha=ctx.number("negative_slope", 0.2))
    if name == "HardSigmoid":
        return a.unary(c, x, top.HardSigmoid, alpha=1 / 6, beta=0.5)
    return FUNCTIONS[{"Relu6": "relu6", "Elu": "elu", "Selu": "selu", "HardSilu": "hard_silu"}[name]](c, x)


def _setting(ctx: KerasContext, name: str, position: int, default: Any = None) -> Any:
    """A setting that is in the configuration or among the arguments."""
    value = ctx.config.get(name)
    return value if value is not None else ctx.keyword(name, position, default)


def _axes(ctx: KerasContext) -> list[int]:
    setting = _setting(ctx, "axis", 1)
    return (
        list(range(ctx.x().rank)) if setting is None else setting if isinstance(setting, list) else [setting]
    )


_REDUCTIONS = {"Mean": "mean", "Sum": "sum", "Max": "max", "Min": "min", "Prod": "prod"}


@rule(*(f"ops.{name}" for name in _REDUCTIONS))
def reduction(ctx: KerasContext) -> Outcome:
    """Over any axes."""
    kind = _REDUCTIONS[ctx.kind.removeprefix("ops.")]
    return a.reduce(ctx.c, ctx.x(), kind, _axes(ctx), bool(_setting(ctx, "keepdims", 2, False)))


@rule("ops.Softmax", "ops.LogSoftmax")
def softmax(ctx: KerasContext) -> Outcome:
    """Along one axis."""
    axis = _setting(ctx, "axis", 1, -1)
    return a.along(ctx.c, ctx.x(), top.Softmax if ctx.kind == "ops.Softmax" else top.LogSoftmax, axis)


@rule("ops.Reshape")
def reshape(ctx: KerasContext) -> Outcome:
    """The batch, if it is left open, is what it is."""
    target_shape = _setting(ctx, "newshape", 1) or _setting(ctx, "shape", 1)
    if not isinstance(target_shape, list):
        raise ctx.wrong("it has no shape")
    return m.reshape(ctx.c, ctx.x(), [-1 if n is None else n for n in target_shape])


@rule("ops.Transpose")
def transpose(ctx: KerasContext) -> Outcome:
    """Any order."""
    axes = _setting(ctx, "axes", 1) or list(range(ctx.x().rank))[::-1]
    return m.transpose(ctx.c, ctx.x(), axes)


@rule("ops.Concatenate")
def concatenate(ctx: KerasContext) -> Outcome:
    """Any axis."""
    return m.concat(ctx.c, ctx.inputs, int(_setting(ctx, "axis", 1, 0)))


@rule("ops.Stack")
def stack(ctx: KerasContext) -> Outcome:
    """Any axis."""
    return m.stack(ctx.c, ctx.inputs, int(_setting(ctx, "axis", 1, 0)))


@rule("ops.ExpandDims")
def expand_dims(ctx: KerasContext) -> Outcome:
    """One axis."""
    shape = list(ctx.x().shape)
    shape.insert(normal_axis(int(_setting(ctx, "axis", 1)), len(shape) + 1), 1)
    return m.reshape(ctx.c, ctx.x(), shape)


@rule("ops.Squeeze")
def squeeze(ctx: KerasContext) -> Outcome:
    """One axis, or all of size 1."""
    x, axis = ctx.x(), _setting(ctx, "axis", 1)
    listed = axis if isinstance(axis, list) else [axis]
    gone = (
        {i for i, n in enumerate(x.shape) if n == 1}
        if axis is None
        else {normal_axis(int(entry), x.rank) for entry in listed}
    )
    return m.reshape(ctx.c, x, [n for i, n in enumerate(x.shape) if i not in gone])


@rule("ops.GetItem")
def get_item(ctx: KerasContext) -> Outcome:
    """Slices, numbers, None and an ellipsis."""
    keys = ctx.keyword("key", 1)
    listed = keys if isinstance(keys, list) else [keys]
    return m.indexed(ctx.c, ctx.x(), [_key(ctx, key) for key in listed])


def _key(ctx: KerasContext, key: Any) -> Any:
    if isinstance(key, dict) and key.get("class_name") in ("slice", "__slice__"):
        config = key.get("config")
        if isinstance(config, dict):
            return slice(*(_whole(ctx, config.get(name)) for name in ("start", "stop", "step")))
    if isinstance(key, dict) and key.get("class_name") in ("__ellipsis__", "Ellipsis"):
        return Ellipsis
    return _whole(ctx, key)


def _whole(ctx: KerasContext, value: Any) -> int | None:
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ctx.refuse(f"it takes {str(value)[:60]}")


@rule("ops.Einsum")
def einsum_(ctx: KerasContext) -> Outcome:
    """Every letter once in each operand."""
    return einsum(ctx.c, str(_setting(ctx, "subscripts", 0)), ctx.inputs)


_TF: dict[str, str] = {
    "math.add": "Add",
    "__operators__.add": "Add",
    "math.subtract": "Subtract",
    "math.multiply": "Multiply",
    "math.truediv": "Divide",
    "math.divide": "Divide",
    "math.maximum": "Maximum",
    "math.minimum": "Minimum",
    "linalg.matmul": "Matmul",
}
_TF_UNARY: dict[str, Any] = {
    "nn.relu": top.Relu,
    "math.sigmoid": top.Sigmoid,
    "nn.sigmoid": top.Sigmoid,
    "math.tanh": top.Tanh,
    "nn.silu": top.SiLU,
    "math.exp": top.Exp,
    "math.log": top.Log,
    "math.sqrt": top.Sqrt,
    "math.rsqrt": top.Rsqrt,
    "math.abs": top.Abs,
    "math.negative": top.Neg,
}


@rule("TFOpLambda")
def tf_operation(ctx: KerasContext) -> Outcome:
    """Functions of TensorFlow that Keras 2 wrote down by name: arithmetic, relu, relu6, softmax, reshape, mean, concat."""
    name = str(ctx.get("function", ""))
    if name in _TF:
        return _BINARY[_TF[name]](ctx.c, *_pair(ctx))
    if name in _TF_UNARY:
        return a.unary(ctx.c, ctx.x(), _TF_UNARY[name])
    if name == "nn.relu6":
        return a.unary(ctx.c, ctx.x(), top.Relu, limit=6.0)
    if name == "nn.softmax":
        return a.along(ctx.c, ctx.x(), top.Softmax, ctx.keywords.get("axis") or -1)
    if name == "reshape":
        return m.reshape(ctx.c, ctx.x(), ctx.keywords.get("shape") or ())
    if name == "math.reduce_mean":
        axes = ctx.keywords.get("axis")
        listed = list(range(ctx.x().rank)) if axes is None else axes if isinstance(axes, list) else [axes]
        return a.reduce(ctx.c, ctx.x(), "mean", listed, bool(ctx.keywords.get("keepdims")))
    if name == "concat":
        return m.concat(ctx.c, ctx.inputs, int(ctx.keywords.get("axis", -1)))
    raise ctx.refuse(f"it calls the function '{name[:60]}' of TensorFlow")
