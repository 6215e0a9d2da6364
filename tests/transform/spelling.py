"""Spelling formulas in primitives, for the tests of the passes that recognize them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from helpers import Builder, build
from npuc.ir import Graph, Value, top
from npuc.ir.passes import run_pipeline

SHAPE = (2, 3, 4)
_IRREGULAR = {"prelu": "PRelu", "silu": "SiLU", "matmul": "MatMul"}
_NUMPY = {"f32": "float32", "f16": "float16"}


class Arithmetic:
    """Short names for ops; numbers and arrays become constants: `m.div(m.add(x, 3.0), 6.0)`."""

    def __init__(self, b: Builder, dtype: str = "float32") -> None:
        self.b, self.dtype = b, dtype

    def _value(self, value: Any) -> Any:
        if isinstance(value, int | float | np.ndarray):
            return self.b.weight(np.asarray(value, self.dtype))
        return value

    def __getattr__(self, name: str) -> Callable[..., Value]:
        kind = getattr(top, _IRREGULAR.get(name, name.title().replace("_", "")))
        return lambda *values, **properties: self.b(kind, *map(self._value, values), **properties)

    def mean(self, x: Value, *axes: int, kind: str = "mean") -> Value:
        """A reduction that keeps its axes."""
        return self.reduce(x, kind=kind, axes=axes)


def spelled(
    spelling: Callable[..., Any],
    shape: tuple[int, ...] = SHAPE,
    dtype: str = "f32",
    more: Mapping[str, tuple[int, ...]] | None = None,
) -> Graph:
    """The graph of `spelling(arithmetic, x, *more inputs)`."""
    inputs = {"x": (shape, dtype), **{key: (value, dtype) for key, value in (more or {}).items()}}
    return build(inputs, lambda b, *values: spelling(Arithmetic(b, _NUMPY[dtype]), *values))


def ops_of(graph: Graph) -> list[str]:
    """The ops by name, without the dialect and without weights."""
    return [op.name.removeprefix("top.") for op in graph.ops if not isinstance(op, top.WeightOp)]


def recognize(graph: Graph, passes: str) -> Graph:
    """The graph after the passes; running them again changes nothing more."""
    once = run_pipeline(graph, passes)
    assert ops_of(run_pipeline(once, passes)) == ops_of(once)
    return once
