"""Rows at the seams of tiles that are kept: the bits of graph mode, no races, and no row that is made or loaded twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.sources import random_data
from npuc.flow import network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.ir import Graph
from npuc.quant import quantize
from npuc.schedule import grouping, search
from npuc.schedule.artifact import ComputeStep, LoadStep
from npuc.schedule.listing import listing, parse_listing
from npuc.schedule.search_space import search_space
from npuc.schedule.tiler import Choices
from support.networks.backend import SIZES, drawn_network, machine
from support.networks.drawn_schemes import drawn_scheme
from support.programs.equal_modes import check


@pytest.fixture(autouse=True)
def only_with_seams(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave ways that keep no seams out of the search."""

    def points(*args: Any) -> Any:
        tried = search_space(*args)
        return [entry for entry in tried if entry[1].get("choices", Choices()).seams > 1] or tried

    monkeypatch.setattr(search, "search_space", points)


@pytest.fixture
def convolutions(tmp_path: Path) -> Graph:
    """Three convolutions of 3 x 3 over 48 x 40 pixels of 8 channels."""
    rng = np.random.default_rng(5)
    nodes = [helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], pads=[1] * 4) for i in range(3)]
    weights = [
        numpy_helper.from_array(rng.standard_normal((8, 8, 3, 3)).astype(np.float32), f"w{i}")
        for i in range(3)
    ]
    ports = [
        helper.make_tensor_value_info("x0", TensorProto.FLOAT, [1, 8, 48, 40]),
        helper.make_empty_tensor_value_info("x3"),
    ]
    graph = helper.make_graph(nodes, "net", ports[:1], ports[1:], weights)
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    loaded = network_to_quantize(path)
    target = machine(20 << 10)
    ranges = ranges_from(loaded, random_data(loaded, 1, 0), schemes_of(loaded, None, target), "max")
    return quantize_network(loaded, ranges, None, target).graph


def test_every_row_is_loaded_and_made_once(convolutions: Graph) -> None:
    done = check(convolutions, machine(20 << 10), 1)
    assert done is not None
    (schedule,) = (part.schedule for part in done.parts)
    (group,) = schedule.groups
    assert group.keeps_seams and group.tiles > 2 and group.last - group.first == 3
    steps = schedule.cores[0].steps
    made = Counter(
        (step.layer, row)
        for step in steps
        if isinstance(step, ComputeStep) and step.tile is not None
        for row in range(*step.tile.rows)
    )
    assert set(made.values()) == {1} and len(made) == 3 * 48
    loaded = sum(step.size for step in steps if isinstance(step, LoadStep) and step.tensor >= 0)
    assert loaded == 48 * 40 * 8


def test_random_networks_give_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_WAYS", ((True, True, 2), (False, True, 1)))  # whatever is cheapest
    kept = copies = 0
    for seed in range(40):
        graph, ranges = drawn_network(seed)
        made = quantize(graph, ranges, drawn_scheme(seed, np.random.default_rng(seed)))
        try:
            done = check(made, machine(SIZES[seed % len(SIZES)]), 1)
        except Exception as error:
            raise AssertionError(f"network {seed}") from error
        for part in done.parts if done is not None else ():
            seams = sum(group.keeps_seams for group in part.schedule.groups)
            kept += seams
            steps = (step for step in part.schedule.cores[0].steps if isinstance(step, ComputeStep))
            copies += sum("from" in step.operands for step in steps)
            if seams:
                assert parse_listing(listing(part.schedule)) == part.schedule
    assert kept >= 10 and copies >= 10
