"""Activation functions by name, as a setting of a layer or a layer of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.frontend.blocks import arithmetic as a
from npuc.frontend.blocks.movement import split
from npuc.frontend.keras.registry import KerasContext, find_rule
from npuc.frontend.layout import ChannelsLastBuilder, LayoutTensor
from npuc.ir import top

Function = Callable[[ChannelsLastBuilder, LayoutTensor], LayoutTensor]


def _plain(kind: Any, **properties: Any) -> Function:
    return lambda c, x: a.unary(c, x, kind, **properties)


def _glu(c: ChannelsLastBuilder, x: LayoutTensor) -> LayoutTensor:
    half = x.shape[-1] // 2
    left, right = split(c, x, -1, (half, half))
    return a.binary(c, top.Mul, left, a.unary(c, right, top.Sigmoid))


def _shrink(c: ChannelsLastBuilder, x: LayoutTensor) -> LayoutTensor:
    """x minus x clipped: what soft_shrink leaves."""
    return a.binary(c, top.Sub, x, a.unary(c, x, top.Clip, min=-0.5, max=0.5))


def _hard_shrink(c: ChannelsLastBuilder, x: LayoutTensor) -> LayoutTensor:
    large = a.binary(c, top.Compare, a.unary(c, x, top.Abs), c.number(0.5, x), mode="greater")
    return a.where(c, large, x, c.number(0.0, x))


def _squareplus(c: ChannelsLastBuilder, x: LayoutTensor) -> LayoutTensor:
    root = a.unary(c, a.scaled(c, a.binary(c, top.Mul, x, x), 1.0, 4.0), top.Sqrt)
    return a.scaled(c, a.binary(c, top.Add, x, root), 0.5)


FUNCTIONS: dict[str, Function] = {
    "linear": lambda c, x: x,
    "relu": _plain(top.Relu),
    "relu6": _plain(top.Relu, limit=6.0),
    "leaky_relu": _plain(top.LeakyRelu, alpha=0.2),
    "elu": _plain(top.Elu),
    "celu": _plain(top.Celu),
    "selu": _plain(top.Selu),
    "sigmoid": _plain(top.Sigmoid),
    "tanh": _plain(top.Tanh),
    "softplus": _plain(top.Softplus),
    "softsign": _plain(top.Softsign),
    "exponential": _plain(top.Exp),
    "gelu": _plain(top.Gelu),
    "silu": _plain(top.SiLU),
    "swish": _plain(top.SiLU),
    "mish": _plain(top.Mish),
    "hard_silu": _plain(top.HardSwish),
    "hard_swish": _plain(top.HardSwish),
    "hard_tanh": _plain(top.Clip, min=-1.0, max=1.0),
    "softmax": lambda c, x: a.along(c, x, top.Softmax),
    "log_softmax": lambda c, x: a.along(c, x, top.LogSoftmax),
    "log_sigmoid": lambda c, x: a.unary(c, a.unary(c, a.unary(c, x, top.Neg), top.Softplus), top.Neg),
    "tanh_shrink": lambda c, x: a.binary(c, top.Sub, x, a.unary(c, x, top.Tanh)),
    "soft_shrink": _shrink,
    "hard_shrink": _hard_shrink,
    "squareplus": _squareplus,
    "glu": _glu,
}


def hard_sigmoid_slope(version: tuple[int, ...]) -> float:
    """Keras 3 changed the slope of its hard sigmoid."""
    return 1 / 6 if version >= (3,) else 0.2


def named(ctx: KerasContext, setting: Any) -> tuple[str, dict[str, Any]]:
    """The name of a function, and settings if it is a layer."""
    if setting is None:
        return "linear", {}
    if isinstance(setting, str):
        return setting.rpartition(">")[2], {}
    if isinstance(setting, dict):
        config, kind = setting.get("config"), setting.get("class_name")
        if kind == "function" and isinstance(config, str):
            return config, {}
        if isinstance(kind, str) and isinstance(config, dict):
            return kind, config
    raise ctx.wrong(f"its activation is {str(setting)[:60]}")


def activated(ctx: KerasContext, x: LayoutTensor, setting: Any) -> LayoutTensor:
    """x behind an activation."""
    name, config = named(ctx, setting)
    if name == "hard_sigmoid":
        return a.unary(ctx.c, x, top.HardSigmoid, alpha=hard_sigmoid_slope(ctx.version), beta=0.5)
    function = FUNCTIONS.get(name)
    if function is not None:
        return function(ctx.c, x)
    rule = find_rule(name)
    if rule is not None and config and name in ("ReLU", "LeakyReLU", "ELU", "Softmax", "ThresholdedReLU"):
        y = rule(KerasContext(ctx.name, name, config, [x], {}, ctx.weights, ctx.c, ctx.version))
        assert isinstance(y, LayoutTensor)
        return y
    raise ctx.refuse(
        f"its activation '{name[:60]}' is not one of Keras' own, and its code is not in the file",
        "Use one of Keras' own activations, or put it in a layer of your own, which becomes a custom op",
    )
