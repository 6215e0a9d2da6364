"""Ops that are real functions of one value, each with the record of its function.

    @function(lambda op, x, xp: xp.where(x >= 0, x, op.alpha * x), onnx="LeakyRelu")
    class LeakyRelu(Unary):
        '''x if x >= 0 else alpha * x'''
        name = "top.leaky_relu"
        alpha: float = number(0.01)

That is the whole op: ONNX nodes are read and written by the names in the record, torch computes the formula, and the NPU looks
its results up in a table that is made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from npuc.arithmetic.functions import Formula, RealFunction
from npuc.ir.definition import TopOp, top_op
from npuc.registries import Registry

FUNCTIONS: Registry[type[TopOp], RealFunction] = Registry("a function of the op")
"""Every op that is a function of one value, with the record of that function; filled by `function`."""

_TopOpT = TypeVar("_TopOpT", bound=TopOp)


def function(formula: Formula, **facts: Any) -> Callable[[type[_TopOpT]], type[_TopOpT]]:
    """Class decorator: a `top` op that computes a formula; `facts` are further fields of `RealFunction`."""

    def define(cls: type[_TopOpT]) -> type[_TopOpT]:
        op = top_op(cls)
        FUNCTIONS.add([op], RealFunction(formula, **facts), module=op.__module__)
        return op

    return define


def function_of(op: TopOp) -> tuple[str, tuple[float, ...]]:
    """The name of an op's function, and those of its numbers that TFLite's kernel has, too."""
    record = FUNCTIONS[type(op)]
    return op.name.removeprefix("top."), tuple(getattr(op, name) for name in record.constants)
