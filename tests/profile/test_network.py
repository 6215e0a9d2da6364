"""The graph of a compiled model, and where its nodes are drawn."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.profile.drawing import draw
from npuc.profile.network import network_of
from npuc.program.model import CompiledModel
from npuc.target import load_target


@pytest.fixture(scope="module")
def mixed(root: Path) -> CompiledModel:
    """A layer in the middle runs on the CPU."""
    target = load_target("edge-1t")
    graph = network_to_quantize(root / "examples/digits.onnx")
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    quantized = quantize_network(graph, ranges, None, target).graph
    return compile_program(quantized, target, CompileOptions(1, {"pool": "cpu"}, island_threshold=0)).model


def named(compiled: CompiledModel) -> tuple[dict[str, str], set[tuple[str, str]]]:
    """Node to device, and edges by name."""
    graph = network_of(compiled)
    return (
        {node.name: node.device for node in graph.nodes},
        {(graph.nodes[a].name, graph.nodes[b].name) for a, b in graph.edges},
    )


def test_layers_branches_and_subgraphs(mixed: CompiledModel) -> None:
    nodes, edges = named(mixed)
    assert nodes["pool"] == "cpu" and nodes["stem/relu"] == "npu" and nodes["image"] == "input"
    assert {
        ("image", "convert0"), ("convert0", "stem/relu"), ("stem/relu", "block1/depthwise/relu"), ("stem/relu", "block1/relu"),
        ("block1/pointwise/norm", "block1/relu"), ("block1/relu", "pool"), ("pool", "widen/relu"),
    } <= edges  # fmt: skip
    layers = [node for node in network_of(mixed).nodes if node.layer is not None]
    assert [node.name for node in layers] == list(mixed.layers)
    assert layers[0].type == "1x16x8x8xi8" and layers[0].kind == "conv"


@pytest.mark.parametrize(
    "notes",
    [
        {}, {"layers": 3, "makes": {}}, {"layers": [["conv", "", ["image"]]], "makes": {}},
        {"layers": [["conv", "", [1]]], "makes": {}}, {"layers": [["conv", "", [0]]], "makes": {}},
        {"layers": [["conv", ""]], "makes": {}}, {"layers": [["conv", "", [True]]], "makes": {}},
        {"layers": [["conv", "", []]] * 99, "makes": {}}, {"layers": [["conv", "", [-1]]], "makes": []},
    ],
)  # fmt: skip
def test_without_notes_a_subgraph_is_a_node(mixed: CompiledModel, notes: dict[str, Any]) -> None:
    schedule = dict.fromkeys(mixed.metadata["schedule"], notes)
    nodes, edges = named(replace(mixed, metadata={"schedule": schedule}))
    assert list(nodes) == ["image", "convert0", "npu1", "pool", "npu3", "convert4", "logits"]
    assert ("npu1", "pool") in edges and ("convert4", "logits") in edges


GRAPH = st.integers(1, 14).flatmap(
    lambda count: st.tuples(
        st.just(count),
        st.lists(
            st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
                lambda edge: edge[0] < edge[1]
            ),
            unique=True,
            max_size=30,
        )
        if count > 1
        else st.just([]),
    )
)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(GRAPH)
def test_edges_lead_downwards_and_nodes_do_not_overlap(graph: tuple[int, list[tuple[int, int]]]) -> None:
    count, edges = graph
    drawn = draw(count, edges)
    assert len(drawn.places) == count and len(drawn.lines) == len(edges)
    for (a, b), line in zip(edges, drawn.lines, strict=True):
        assert line[0] == drawn.places[a] and line[-1] == drawn.places[b]
        assert [rank for _, rank in line] == list(range(drawn.places[a][1], drawn.places[b][1] + 1))
    for one in range(count):
        for other in range(one):
            (x, rank), (y, level) = drawn.places[one], drawn.places[other]
            assert rank != level or abs(x - y) >= 0.999
    assert min((x for x, _ in drawn.places), default=0) >= 0


def test_a_chain_is_a_straight_line_and_a_fork_stands_over_its_branches() -> None:
    assert {x for x, _ in draw(5, [(i, i + 1) for i in range(4)]).places} == {0}
    drawn = draw(4, [(0, 1), (0, 2), (1, 3), (2, 3)])
    (a, left, right, b) = (x for x, _ in drawn.places)
    assert abs(left - right) == 1 and a == b == pytest.approx((left + right) / 2)
    skip = draw(4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert skip.ranks == 4 and len(skip.lines[-1]) == 4 and skip.width > 0


def test_a_thousand_layers_with_a_skip_over_all() -> None:
    edges = [(i, i + 1) for i in range(999)] + [(i, i + 3) for i in range(0, 990, 3)] + [(0, 999)]
    drawn = draw(1000, edges)
    assert drawn.ranks == 1000 and drawn.width < 3
