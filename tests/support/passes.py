"""How the tests of the passes look at a graph before and after, and how they spell formulas in primitives."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from npuc.ir import Graph, Value, print_graph, top
from npuc.ir.passes import run_pipeline
from npuc.ir.top import WeightOp
from support.graphs import Builder, assert_same_function, build

SHAPE = (2, 3, 4)
_IRREGULAR = {"prelu": "PRelu", "silu": "SiLU", "matmul": "MatMul"}
_NUMPY = {"f32": "float32", "f16": "float16"}


def kinds(graph: Graph) -> Counter[str]:
    """How many ops of each kind there are, without weights."""
    return Counter(op.name.removeprefix("top.") for op in graph.ops if not isinstance(op, WeightOp))


def only(graph: Graph, kind: str) -> object:
    """The one op of a kind."""
    ops = [op for op in graph.ops if op.name == f"top.{kind}"]
    assert len(ops) == 1, f"{len(ops)} ops of kind {kind}"
    return ops[0]


def transformed(graph: Graph, pipeline: str, tolerance: float = 1e-4) -> Graph:
    """The graph after a pipeline, checked: same function, same text when the pipeline runs again."""
    after = run_pipeline(graph, pipeline)
    assert_same_function(graph, after, tolerance=tolerance)
    again = run_pipeline(after, pipeline)
    assert print_graph(again) == print_graph(after), "the pass is not idempotent"
    return after


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
