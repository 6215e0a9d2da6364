"""Every pass, and all of them together, on random graphs: same function, and nothing left to do."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings

from npuc.ir import Graph, print_graph
from npuc.ir.passes import PASSES, parse_passes
from npuc.transform import CANONICAL, canonicalize
from support.graphs import assert_same_function
from support.networks.random_graphs import graphs
from support.passes import kinds, transformed

SETTINGS = {"deadline": None, "derandomize": True, "suppress_health_check": list(HealthCheck)}
ALONE = sorted({step.name for step in parse_passes(CANONICAL)})


@pytest.mark.parametrize("name", ALONE)
@settings(max_examples=25, **SETTINGS)
@given(graph=graphs())
def test_a_pass_keeps_the_function(name: str, graph: Graph) -> None:
    transformed(graph, name, tolerance=1e-3)


@settings(max_examples=60, **SETTINGS)
@given(graph=graphs(14))
def test_the_canonical_form_keeps_the_function(graph: Graph) -> None:
    after = canonicalize(graph, verify_each=True)
    assert_same_function(graph, after, tolerance=1e-3)
    assert "batch_norm" not in kinds(after)
    # Passes run in one order, so one of the last may in rare cases make work for one of the first; not more than once.
    again = canonicalize(after)
    assert print_graph(canonicalize(again)) == print_graph(again)


def test_the_passes_of_this_stage_are_all_registered() -> None:
    assert set(ALONE) <= set(PASSES)
    for name in ("fold-constants", "fold-scale", "fuse-relu", "move-permutes", "recognize-activations"):
        assert name in CANONICAL
    assert "fuse-preprocess" not in CANONICAL
