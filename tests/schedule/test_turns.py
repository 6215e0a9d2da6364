"""Permutes that loads do: the blocks by hand and against NumPy, and attention whose heads are turned on their way to cores."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import Compilation
from npuc.errors import ScheduleError
from npuc.ir import Graph
from npuc.partition import partition
from npuc.quant import SCHEMES, quantize
from npuc.schedule import search
from npuc.schedule.artifact import Schedule
from npuc.schedule.cost import Costs
from npuc.schedule.grouping import Grouping
from npuc.schedule.layers import Layer, Tensor
from npuc.schedule.network import Network, build_network
from npuc.schedule.rules.movement import StridedCopyOp
from npuc.schedule.schedule_file import SubgraphEntry, entry_of, resolve
from npuc.schedule.search_space import search_space
from npuc.schedule.tiler import Tiler
from npuc.schedule.turns import Turn, turn_of
from npuc.target import Target
from support.networks.backend import machine
from support.programs.equal_modes import check


def permute(shape: tuple[int, ...], order: tuple[int, ...]) -> Layer:
    """A permute of bytes that lie in the order of their axes."""
    x = Tensor("x", shape, "u8", 1, matrices=True)
    y = Tensor("y", tuple(shape[axis] for axis in order), "u8", 1, matrices=True)
    strides, mine = ([prod(t.shape[at + 1 :]) for at in range(len(shape))] for t in (x, y))
    axes = tuple((y.shape[i], strides[axis], mine[i]) for i, axis in enumerate(order))
    return Layer("y", "permute", (x,), (y,), StridedCopyOp(x, y, axes))


def loaded(turn: Turn, data: np.ndarray, rows: tuple[int, int]) -> np.ndarray:
    """What the transfers of some rows leave in local memory."""
    got = np.zeros((rows[1] - rows[0]) * turn.run, np.uint8)
    for at, offset, block in turn.blocks(rows):
        for index in np.ndindex(*block.size[:3]):
            far = at + sum(i * step for i, step in zip(index, block.far, strict=True))
            near = offset + sum(i * step for i, step in zip(index, block.near, strict=True))
            got[near : near + block.size[3]] = data[far : far + block.size[3]]
    return got


def test_the_blocks_of_six_heads_by_hand() -> None:
    turn = turn_of(permute((197, 6, 64), (1, 0, 2)))
    assert turn is not None
    blocks = [(at, offset // 64, block.size) for at, offset, block in turn.blocks((100, 500))]
    assert blocks == [
        (100 * 384, 0, (1, 1, 97, 64)),
        (64, 97, (1, 1, 197, 64)),
        (128, 294, (1, 1, 106, 64)),
    ]


@pytest.mark.parametrize(
    ("shape", "order"),
    [
        ((7, 3, 32), (1, 0, 2)),
        ((2, 5, 3, 40), (0, 2, 1, 3)),
        ((2, 3, 4, 32), (2, 1, 0, 3)),
        ((3, 4, 5, 2, 32), (1, 0, 2, 3, 4)),
    ],
)
def test_blocks_bring_any_rows(shape: tuple[int, ...], order: tuple[int, ...]) -> None:
    turn = turn_of(permute(shape, order))
    assert turn is not None
    data = np.random.default_rng(0).integers(0, 256, prod(shape), np.uint8)
    wanted = data.reshape(shape).transpose(order).reshape(-1, turn.run)
    for low in range(len(wanted)):
        for high in range(low + 1, len(wanted) + 1):
            assert np.array_equal(loaded(turn, data, (low, high)), wanted[low:high].ravel())


@pytest.mark.parametrize(
    ("shape", "order"),
    [((7, 3, 16), (1, 0, 2)), ((6, 64, 32), (0, 2, 1)), ((2, 3, 4, 5, 32), (3, 2, 1, 0, 4))],
)
def test_short_runs_and_too_many_axes_are_left_to_an_engine(
    shape: tuple[int, ...], order: tuple[int, ...]
) -> None:
    assert turn_of(permute(shape, order)) is None


def attention(tokens: int, count: int, width: int, residual: bool) -> Graph:
    """Attention of some heads between products; with `residual`, what is turned is read unturned as well."""
    draws = np.random.default_rng(count)
    channels = count * width

    def product(x: lang.Tensor) -> lang.Tensor:
        weights = draws.uniform(-0.2, 0.2, (channels, channels)).astype(np.float32)
        return lang.matmul(x, lang.constant(weights))

    x = lang.input("x", (1, tokens, channels))
    flat = [product(x) for _ in range(3)]
    q, k, v = (
        lang.permute(lang.reshape(y, shape=(1, tokens, count, width)), order=(0, 2, 1, 3)) for y in flat
    )
    scores = lang.softmax(lang.matmul(q, lang.permute(k, order=(0, 1, 3, 2))))
    joined = lang.permute(lang.matmul(scores, v), order=(0, 2, 1, 3))
    y = product(lang.reshape(joined, shape=(1, tokens, channels)))
    if residual:
        y = lang.add(y, flat[2])
    graph = lang.build({"y": y})
    return quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-4.0, 4.0)), SCHEMES["int8"])


def network_of(graph: Graph, target: Target) -> Network:
    part = next(one for one in partition(graph, target).parts if one.device == "npu")
    return build_network(graph, part.ops, part.inputs, part.outputs)


def turned_groups(schedule: Schedule) -> int:
    """Groups of several layers, cut by rows, that hold a permute."""
    groups = schedule.schedule_decisions.decisions.groups
    kinds = [[layer.kind for layer in schedule.layers[group.first : group.last]] for group in groups]
    return sum(
        group.tiles > 1 and "permute" in kind and len(kind) > 1
        for group, kind in zip(groups, kinds, strict=True)
    )


def compiled(graph: Graph, target: Target) -> Compilation:
    done = check(graph, target, 1)
    assert done is not None
    return done


@pytest.mark.parametrize("cores", [2, 3, 4])
@pytest.mark.parametrize(("tokens", "count", "width"), [(37, 6, 32), (50, 2, 64), (24, 5, 48)])
@pytest.mark.parametrize("residual", [False, True])
@pytest.mark.parametrize("shared", [1 << 20, 0])
def test_attention_has_the_same_bits_and_no_copies(
    cores: int,
    tokens: int,
    count: int,
    width: int,
    residual: bool,
    shared: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def points(*args: object) -> object:
        return [entry for entry in search_space(*args) if entry[1].get("cores", 1) > 1]  # type: ignore[arg-type]

    monkeypatch.setattr(search, "search_space", points)
    target = machine(512 << 10, cores, shared)
    (part,) = compiled(attention(tokens, count, width, residual), target).parts
    schedule = part.schedule
    assert turned_groups(schedule) >= 1
    entry = entry_of(schedule.schedule_decisions, [layer.name for layer in part.network.layers])
    stated = resolve(SubgraphEntry(**entry), part.network, target, cores)
    assert stated.schedule_decisions == schedule.schedule_decisions


def test_loads_do_what_comes_from_another_group_and_stays_in_its_own() -> None:
    target = machine(512 << 10, 4, 1 << 20)
    network = network_of(attention(37, 6, 32, False), target)
    grouping = Grouping(network, Tiler(Costs(target)), 512 << 10, several_cores=True)
    for index, turn in grouping.turns.items():
        made, read = grouping.producers[turn.source], grouping.last_use[network.layers[index].outputs[0]]
        assert grouping.is_loaded(index, made + 1, read + 1)
        assert not grouping.is_loaded(index, made, read + 1)
        assert not grouping.is_loaded(index, made + 1, read)
    assert len(grouping.turns) == 4
    alone = Grouping(network, Tiler(Costs(target)), 512 << 10)
    assert not alone.turns


def test_a_group_that_makes_what_it_turns_is_refused() -> None:
    target = machine(512 << 10, 4, 1 << 20)
    network = network_of(attention(37, 6, 32, False), target)
    names = [layer.name for layer in network.layers]
    entry = SubgraphEntry.model_validate({"groups": [{"layers": names[: len(names) - 1], "tiles": 4}]})
    with pytest.raises(ScheduleError, match="cannot be cut into tiles of rows"):
        resolve(entry, network, target, 4)
