"""Rows that tiles keep for the next, by hand; heads of detectors run early; groups that do not pack are cut anew."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import compile_model
from npuc.ir import Graph
from npuc.partition import partition
from npuc.profile.timeline import profile_of
from npuc.quant import SCHEMES, quantize
from npuc.schedule import search
from npuc.schedule.cost import Costs
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import Rows, Tensor
from npuc.schedule.network import Network, build_network
from npuc.schedule.prefetch import DoesNotPack, place
from npuc.schedule.steps import Buffer, Work
from npuc.schedule.tiler import Tiler
from npuc.sim import simulate
from npuc.target import Target
from support.networks.backend import machine

TARGET = machine(1 << 20)


def conv(x: lang.Tensor, seed: int, stride: int = 1) -> lang.Tensor:
    weight = np.random.default_rng(seed).uniform(-0.3, 0.3, (8, 8, 3, 3)).astype(np.float32)
    return lang.conv(x, lang.constant(weight), strides=(stride, stride), pads=(1,) * 4)


def integers(outputs: dict[str, lang.Tensor]) -> Graph:
    graph = lang.build(outputs)
    return quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-4.0, 4.0)), SCHEMES["int8"])


def network_of(graph: Graph, target: Target = TARGET) -> Network:
    part = next(one for one in partition(graph, target).parts if one.device == "npu")
    return build_network(graph, part.ops, part.inputs, part.outputs)


def input_of(rows: int) -> lang.Tensor:
    return lang.input("x", (1, 8, rows, 6))


def in_order(network: Network, rows: dict[Tensor, Rows] | None) -> list[Rows]:
    """Those of the input, and of each result that has some."""
    assert rows is not None
    tensors = (network.inputs[0].storage, *(layer.outputs[0] for layer in network.layers))
    return [rows[tensor] for tensor in tensors if tensor in rows]


def test_the_example_of_the_docstring() -> None:
    network = network_of(integers({"y": conv(conv(input_of(8), 0), 1)}))
    grouping = Grouping(network, Tiler(Costs(TARGET)), 1 << 20)
    assert in_order(network, grouping.tile_rows(0, 2, 2, 0, seams=True)) == [(0, 6), (0, 5), (0, 4)]
    assert in_order(network, grouping.tile_rows(0, 2, 2, 1, seams=True)) == [(4, 8), (3, 8), (4, 8)]
    assert in_order(network, grouping.tile_rows(0, 2, 2, 1)) == [(2, 8), (3, 8), (4, 8)]
    assert in_order(network, grouping.seam(0, 2, 2, 0)) == [(4, 6), (3, 5)]
    assert grouping.seam(0, 2, 2, 1) == {}
    # Every row is loaded once, and made once.
    whole = sum(grouping.tiler.cycles(layer, (0, 4)) for layer in network.layers)
    cycles, loaded = grouping.tile_sums(0, 2, 2, seams=True)
    assert loaded == network.inputs[0].size
    assert cycles > 2 * whole


def test_a_stride_keeps_less() -> None:
    network = network_of(integers({"y": conv(conv(input_of(16), 0), 1, stride=2)}))
    grouping = Grouping(network, Tiler(Costs(TARGET)), 1 << 20)
    assert in_order(network, grouping.tile_rows(0, 2, 4, 1, seams=True)) == [(3, 9), (3, 8), (2, 4)]
    assert in_order(network, grouping.seam(0, 2, 4, 1)) == [(7, 9), (7, 8)]


def test_rows_that_mirror_others_keep_no_seams() -> None:
    """The border at the bottom needs rows that were there before."""
    padded = lang.pad(input_of(16), pads=(0, 0, 2, 0, 0, 0, 2, 0), mode="reflect")
    network = network_of(integers({"y": conv(padded, 0)}))
    grouping = Grouping(network, Tiler(Costs(TARGET)), 1 << 20)
    assert [layer.op.ascending for layer in network.layers] == [False, True]
    need = [grouping.tiled_memory(0, 2, 4, False, False, True, seams) for seams in (False, True)]
    assert need[0] < need[1] == float("inf")


def test_heads_run_behind_what_they_read() -> None:
    x = input_of(8)
    a = conv(x, 0)
    b = conv(a, 1)
    outputs = {"d": conv(conv(b, 2), 3), "head_of_b": lang.relu(b), "head_of_a": lang.relu(a)}
    names = [layer.name for layer in network_of(integers(outputs)).layers]
    assert names.index("head_of_a") == 1 and names.index("head_of_b") == 3 and len(names) == 6


def test_a_group_that_does_not_pack_is_cut_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """With less memory for that group, and as much as before for the others."""
    graph = integers({"y": conv(conv(conv(input_of(64), 0), 1), 2)})
    target = machine(12 << 10)
    lost: list[tuple[int, int, int]] = []
    refusals = iter((True, True))

    def noted(self: Grouping, first: int, last: int, size: int) -> None:
        lost.append((first, last, size))
        lose(self, first, last, size)
        assert self.room(first, last) == self.capacity - size * lost.count(lost[-1])

    lose = Grouping.lose

    def refusing(work: Work, capacity: int, *rest: object) -> dict[Buffer, int]:
        if next(refusals, False):
            raise DoesNotPack(0)
        return place(work, capacity)

    monkeypatch.setattr(Grouping, "lose", noted)
    monkeypatch.setattr(search, "place", refusing)
    compile_model(graph, target, level=1)
    assert len(lost) == 2 and all(first == 0 < size < 1 << 10 for first, _, size in lost)


def test_layer_by_layer_moves_as_many_bytes_as_it_is_passed_by_for() -> None:
    graph, target = integers({"y": conv(conv(conv(input_of(64), 0), 1, stride=2), 2)}), machine(12 << 10)
    model = compile_model(graph, target, level=0)
    least = search._least_bytes(network_of(graph, target), target)
    assert 0 < least <= profile_of(model, simulate(model)).dram < 3 * least
