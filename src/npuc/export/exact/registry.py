"""The registry of exact rules: which function computes an op of the `npu` dialect over an `Algebra`.

    @computes(npu.Requant)
    def requant(op: npu.Requant, x: Exact) -> None:
        ...

A rule lives in a module of `rules/`; importing that package is all it takes to be found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from npuc.arrays import Array
from npuc.errors import ExportError
from npuc.export.exact.algebra import Algebra, Integers, T, int64
from npuc.export.exact.rounding import NoExactForm
from npuc.ir import Graph, Value, layer_name
from npuc.ir.dtypes import QuantType, quant_of
from npuc.ir.npu import NpuOp
from npuc.registries import Registry


class Exact:
    """What a rule sees: the algebra, the operands of its op as integers, and its constants."""

    def __init__(self, graph: Graph, algebra: Algebra, load: Callable[[Value], T]) -> None:
        self.graph = graph
        self.algebra = algebra
        self._load = load

    def raw(self, value: Value) -> T:
        """A value as it is."""
        return self._load(value)

    def integers(self, value: Value) -> Integers:
        """A quantized value in int64, with its range and zero point."""
        kind = type_of(value)
        low, high = kind.dtype.carrier.limits
        return Integers(self.algebra.cast(self._load(value), "i64"), low, high, kind.zero_point)

    def steps(self, value: Value) -> T:
        """q - zero_point in int64."""
        x = self.integers(value)
        return x.tensor if x.zero == 0 else self.algebra.sub(x.tensor, int64(x.zero))

    def reach(self, value: Value) -> int:
        """The largest |q - zero_point|."""
        low, high = type_of(value).dtype.carrier.limits
        zero = type_of(value).zero_point
        return max(high - zero, zero - low)

    def array(self, value: Value | None) -> Array:
        """The values of a constant that has to be there."""
        array = self.graph.constant(value)
        assert array is not None
        return array

    def stored(self, x: T, kind: QuantType) -> T:
        """An int64 result in its storage type."""
        return self.algebra.cast(x, kind.dtype.carrier.name)


def type_of(value: Value) -> QuantType:
    """The quantized type of a value that has one."""
    kind = quant_of(value)
    assert kind is not None
    return kind


Rule = Callable[[Any, Exact], list[T]]

RULES: Registry[type[NpuOp], Rule] = Registry("an exact form of the op", provider="npuc.export.exact.rules")
"""By the class of op; a rule gives the op's results."""

computes = RULES.register
"""Decorator that makes a function the exact rule of some ops."""


def exact_results(op: NpuOp, exact: Exact, what: str) -> list[T]:
    """The results of an op; `ExportError`, which says that there is no `what`, without a rule or for numbers that do not fit."""
    rule = RULES.get(type(op))
    lever = "Quantize the layer to integers of 8 or 16 bits ('npuc quantize --scheme int8'), or keep it float (--keep-float)"
    if rule is None:
        raise ExportError(
            f"{op.name} '{layer_name(op)}' has no {what}: it does not compute with integers", fix=lever
        )
    try:
        return rule(op, exact)
    except NoExactForm as error:
        raise ExportError(f"{op.name} '{layer_name(op)}' has no {what}: {error}", fix=lever) from error
