"""Real functions of one value: what an activation is, said once for everything that computes it.

A `RealFunction` is the record of one: its formula, where it is defined, whether it is continuous, and what ONNX and TFLite call
it. The op that stands for the function has the record (`npuc.ir.top.functions`); tables for integers and for short floats,
the torch engine, importers and exporters read it there.

Formulas are written for an array namespace `xp`, which is `numpy` or `torch`, and use what both have under one name:

    >>> leaky = RealFunction(lambda op, x, xp: xp.where(x >= 0, x, 0.1 * x))
    >>> leaky(None, np.array([-1.0, 2.0])).tolist()
    [-0.1, 2.0]
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from npuc.arrays import Array

Formula = Callable[[Any, Any, Any], Any]
"""(op, x, xp): the properties of the function are those of the op."""
Domain = Callable[[Array], Array]
"""The nearest arguments at which a function is defined and finite."""


@dataclass(frozen=True)
class RealFunction:
    """What is known of a real function of one value."""

    formula: Formula
    """On floats: outside of its domain it gives what IEEE 754 does, NaN or infinity."""
    domain: Domain | None = None
    """For integers, which have neither; None if it is finite everywhere."""
    continuous: bool = True
    """Straight lines between the entries of a table cannot follow a function that jumps."""
    onnx: str = ""
    """ONNX's operator of the same function, with the same parameters; empty if it takes several nodes or a choice of them."""
    onnx_names: Mapping[str, str] = field(default_factory=dict)
    """What ONNX calls a property, where it is not the op's own name of it."""
    tflite: str = ""
    """TFLite's operator."""
    exact: Formula | None = None
    """The same in f64 where the formula loses digits that f32 still shows; None if it loses none."""
    constants: tuple[str, ...] = ()
    """Properties that TFLite's integer kernel has, too: they stand beside a table, so that it can be known again."""

    def __call__(self, op: Any, x: Array) -> Array:
        """The values in float64 at the nearest arguments inside of the domain."""
        return np.asarray(self.formula(op, x if self.domain is None else self.domain(x), np))

    def on_floats(self, op: Any, x: Array) -> Array:
        """The values in float64, NaN and infinity where IEEE 754 has them."""
        return np.asarray(self.formula(op, x, np))

    def in_f64(self, op: Any, x: Array) -> Array:
        """The same to the last digits of f32, also where they are small."""
        return np.asarray((self.exact or self.formula)(op, x, np))


def above(least: float) -> Domain:
    """All numbers from one on."""
    return lambda x: np.maximum(x, least)


def between(least: float, most: float) -> Domain:
    """An interval."""
    return lambda x: np.clip(x, least, most)


def not_zero(x: Array) -> Array:
    """All numbers but 0, beside which stands a very small one."""
    return np.where(x == 0, 1e-30, x)


def sigmoid(x: Any, xp: Any = np) -> Any:
    """1 / (1 + e^-x), without overflow.

    >>> sigmoid(np.array([0.0, -1000.0])).tolist()
    [0.5, 0.0]
    """
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0, 1 / (1 + small), small / (1 + small))


def softplus(x: Any, xp: Any = np) -> Any:
    """log(1 + e^x), without overflow.

    >>> softplus(np.array([1000.0])).tolist()
    [1000.0]
    """
    return xp.clip(x, 0, None) + xp.log1p(xp.exp(-xp.abs(x)))


def erf(x: Any, xp: Any = np) -> Any:
    """The error function, which NumPy does not have.

    >>> erf(np.array([0.0, 10.0])).tolist()
    [0.0, 1.0]
    """
    if xp is not np:
        return xp.erf(x)
    return np.array([math.erf(v) for v in x.reshape(-1)], np.float64).reshape(x.shape)


def gelu(x: Any, tanh: bool, xp: Any = np) -> Any:
    """x times the normal distribution function of x, exactly or by an approximation with tanh."""
    inner = xp.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)) if tanh else erf(x / math.sqrt(2), xp)
    return 0.5 * x * (1 + inner)


def gelu_in_f64(x: Array, tanh: bool) -> Array:
    """The same without a sum that cancels below 0.

    >>> gelu_in_f64(np.array([-10.0]), tanh=False).tolist()
    [-7.61985302416047e-23]
    """
    if tanh:
        share = sigmoid(2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
    else:
        share = 0.5 * np.array([math.erfc(v) for v in (-x / math.sqrt(2)).reshape(-1)]).reshape(x.shape)
    return np.asarray(x * share)
