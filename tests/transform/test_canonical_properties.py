"""Every pass, and all of them together, on random graphs: same function, and nothing left to do."""

from __future__ import annotations

import pytest
from checks import kinds, transformed
from hypothesis import HealthCheck, given, settings

from graph_strategies import graphs
from npuc.ir import Graph
from npuc.ir.passes import PASSES, parse_passes
from npuc.transform import CANONICAL

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
    after = transformed(graph, CANONICAL, tolerance=1e-3)
    assert not kinds(after).keys() & {"batch_norm"}


def test_the_passes_of_this_stage_are_all_registered() -> None:
    assert set(ALONE) <= set(PASSES)
    for name in ("fold-constants", "fold-scale", "fuse-relu", "move-permutes", "recognize-activations"):
        assert name in CANONICAL
    assert "fuse-preprocess" not in CANONICAL
