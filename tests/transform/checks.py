"""How the tests of the passes look at a graph before and after."""

from __future__ import annotations

from collections import Counter

from helpers import assert_same_function
from npuc.ir import Graph, print_graph
from npuc.ir.passes import run_pipeline
from npuc.ir.top import WeightOp


def kinds(graph: Graph) -> Counter[str]:
    """How many ops of each kind there are, without weights."""
    return Counter(op.name.removeprefix("top.") for op in graph.ops if not isinstance(op, WeightOp))


def only(graph: Graph, kind: str) -> object:
    """The one op of a kind."""
    found = [op for op in graph.ops if op.name == f"top.{kind}"]
    assert len(found) == 1, f"{len(found)} ops of kind {kind}"
    return found[0]


def transformed(graph: Graph, pipeline: str, tolerance: float = 1e-4) -> Graph:
    """The graph after a pipeline, checked: same function, same text when the pipeline runs again."""
    after = run_pipeline(graph, pipeline)
    assert_same_function(graph, after, tolerance=tolerance)
    again = run_pipeline(after, pipeline)
    assert print_graph(again) == print_graph(after), "the pass is not idempotent"
    return after
