"""Tensors that stay spread over cores: which rows cross by hand, and the same bits whatever the groups, cores and tiles."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import IntegerEngine
from npuc.errors import ScheduleError
from npuc.ir import Graph
from npuc.partition import partition
from npuc.quant import SCHEMES, quantize
from npuc.schedule import search
from npuc.schedule.cost import Costs
from npuc.schedule.decisions import Decisions, Group, ScheduleDecisions
from npuc.schedule.grouping import Grouping
from npuc.schedule.multicore import CoreGrouping
from npuc.schedule.network import Network, build_network
from npuc.schedule.schedule_file import SubgraphEntry, entry_of, resolve
from npuc.schedule.spread import Spread, SpreadTensor
from npuc.schedule.tiler import Choices, Tiler
from npuc.sim import Simulator, sanitize
from npuc.target import Target
from support.networks.backend import machine


def conv(
    x: lang.Tensor, channels: tuple[int, int], seed: int, stride: int = 1, kernel: int = 3
) -> lang.Tensor:
    draws = np.random.default_rng(seed).uniform(-0.3, 0.3, (*channels[::-1], kernel, kernel))
    pads = (kernel // 2,) * 4
    return lang.conv(x, lang.constant(draws.astype(np.float32)), strides=(stride, stride), pads=pads)


def integers(outputs: dict[str, lang.Tensor]) -> Graph:
    graph = lang.build(outputs)
    return quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-4.0, 4.0)), SCHEMES["int8"])


def two_convolutions(rows: int) -> Graph:
    x = lang.input("x", (1, 8, rows, 6))
    return integers({"y": conv(conv(x, (8, 8), 0), (8, 8), 1)})


def branches() -> Graph:
    """Strides, a sum over several groups, a pool, a concat, windows of several heights, and two outputs."""
    x = lang.input("x", (1, 8, 37, 9))
    a = conv(x, (8, 16), 0)
    b = conv(a, (16, 16), 1, kernel=5)
    c = lang.add(conv(b, (16, 16), 2), a)
    d = conv(c, (16, 24), 3, stride=2)
    e = lang.concat([conv(d, (24, 8), 4, kernel=1), d], axis=1)
    f = lang.max_pool(e, kernel=(3, 3), strides=(2, 2))
    return integers({"y": conv(f, (32, 8), 5), "middle": c})


def network_of(graph: Graph, target: Target) -> Network:
    part = next(one for one in partition(graph, target).parts if one.device == "npu")
    return build_network(graph, part.ops, part.inputs, part.outputs)


def test_the_rows_at_the_seams_between_cores_by_hand() -> None:
    target = machine(1 << 20, 4, 1 << 20)
    network = network_of(two_convolutions(16), target)
    grouping = Grouping(network, Tiler(Costs(target)), 1 << 20)
    decisions = Decisions((Group(0, 1, 4), Group(1, 2, 8)), (True,))
    spread = Spread(grouping, decisions, 4)
    between = network.layers[0].outputs[0]
    assert spread.finds(between, 1) and not spread.stays(network.layers[1].outputs[0])
    assert spread.tensor(between) == SpreadTensor(
        held=((0, 5), (3, 9), (7, 13), (11, 16)),
        lacks=(((4, 5),), ((3, 4), (8, 9)), ((7, 8), (12, 13)), ((11, 12),)),
        stores=(((3, 4),), ((4, 5), (7, 8)), ((8, 9), (11, 12)), ((12, 13),)),
    )


@pytest.mark.parametrize(
    "groups",
    [
        (Group(0, 1, 4), Group(1, 2, 4, alone=True)),
        (Group(0, 1, 4), Group(1, 2, by_channels=True)),
        (Group(0, 1, 4), Group(1, 2, channel_tiles=4)),
        (Group(0, 1), Group(1, 2, 4)),
        (Group(0, 1, 6), Group(1, 2, 4)),
    ],
)
def test_only_groups_that_are_cut_by_rows_leave_and_find_rows(groups: tuple[Group, ...]) -> None:
    target = machine(1 << 20, 4, 1 << 20)
    network = network_of(two_convolutions(16), target)
    spread = Spread(Grouping(network, Tiler(Costs(target)), 1 << 20), Decisions(groups, (True,)), 4)
    assert not spread.finds(network.layers[0].outputs[0], 1)


@pytest.mark.parametrize("cores", [2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize("width", [1, 3])
def test_the_bits_are_the_same_with_all_cuts_spread(
    cores: int, rounds: int, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, target = branches(), machine(512 << 10, cores, 1 << 20)

    def spread_out(self: CoreGrouping) -> Decisions:
        count = len(self.grouping.network.layers)
        cuts = [*range(0, count, width), count]
        groups = []
        for first, last in pairwise(cuts):
            tiles = cores * rounds
            if not self.grouping.can_cut(first, last, tiles):
                tiles = cores
            groups.append(Group(first, last, tiles))
        return Decisions(tuple(groups), (True,) * (len(groups) - 1))

    monkeypatch.setattr(CoreGrouping, "search", spread_out)
    monkeypatch.setattr(search, "search_space", lambda *_: [(1, {"level": 1, "cores": cores})])
    compiled = compile_model(graph, target, level=1)
    inputs = random_inputs(graph, 1)
    wanted, got = IntegerEngine(graph, raw=True).run(inputs), Simulator(compiled).run(inputs)
    for name, value in wanted.items():
        assert np.unique(value).size > 10
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    assert [str(finding) for finding in sanitize(compiled, inputs)] == []


def test_a_schedule_whose_tensors_stay_spread_can_be_stated() -> None:
    target = machine(1 << 20, 4, 1 << 20)
    network = network_of(two_convolutions(16), target)
    decisions = Decisions((Group(0, 1, 4), Group(1, 2, 4)), (True,))
    found = ScheduleDecisions(decisions, Choices(), 1 << 20, 4)
    entry = SubgraphEntry(**entry_of(found, [layer.name for layer in network.layers]))
    assert resolve(entry, network, target, 4).schedule_decisions == found
    open_end = entry.model_copy(update={"memory": None})
    with pytest.raises(ScheduleError, match="unless the schedule states all groups"):
        resolve(open_end, network, target, 4)
