"""Dependency groups: the slim network computes what the masked one does, for random networks and random selections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.engine.floating import FloatEngine
from npuc.errors import UsageError
from npuc.ir import Graph, load_graph, save_graph, shape_of
from npuc.train.pruning.groups import DependencyGraph
from npuc.train.pruning.slimming import masked, slim

_SIZE = 8


class _Draw:
    """Blocks of a random network on (1, channels, 8, 8)."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def array(self, *shape: int) -> Array:
        return self.rng.uniform(-1, 1, shape).astype(np.float32) / np.sqrt(max(1, np.prod(shape[1:])))

    def conv(self, x: Any, out: int, kernel: int = 3, **options: Any) -> Any:
        inputs = x.shape[1] // options.get("group", 1)
        weight = self.array(out, inputs, kernel, kernel)
        return lang.conv(x, weight, self.array(out), pads=kernel // 2, **options)

    def width(self) -> int:
        return 4 * int(self.rng.integers(1, 4))

    def residual(self, x: Any) -> Any:
        return lang.relu(x + self.conv(self.conv(x, self.width(), relu=True), x.shape[1]))

    def branches(self, x: Any) -> Any:
        return lang.concat([self.conv(x, self.width(), 1), x, self.conv(x, self.width())], axis=1)

    def depthwise(self, x: Any) -> Any:
        y = self.conv(x, x.shape[1], group=x.shape[1])
        return self.conv(self.conv(y, 2 * x.shape[1], group=x.shape[1]), self.width(), 1)

    def grouped(self, x: Any) -> Any:
        y = lang.shuffle_channel(self.conv(self.conv(x, 12, 1), 8, group=4), group=4)
        return self.conv(y, self.width(), 1)

    def shuffled(self, x: Any) -> Any:
        y = self.conv(x, 12, 1)
        y = lang.permute(lang.reshape(y, shape=(1, 2, 6, _SIZE, _SIZE)), order=(0, 2, 1, 3, 4))
        return self.conv(lang.reshape(y, shape=(1, 12, _SIZE, _SIZE)), self.width(), 1)

    def gate(self, x: Any) -> Any:
        pooled = lang.reduce(x, kind="mean", axes=(2, 3), keepdims=True)
        weights = lang.sigmoid(self.conv(self.conv(pooled, 4, 1, relu=True), x.shape[1], 1))
        return x * weights

    def norms(self, x: Any) -> Any:
        y = self.conv(x, 12)
        y = lang.batch_norm(y, self.array(12), self.array(12), self.array(12), np.abs(self.array(12)) + 0.5)
        y = lang.group_norm(lang.prelu(y, self.array(12, 1, 1)), self.array(12), self.array(12), groups=4)
        y = lang.instance_norm(y, self.array(12), self.array(12)) / (np.abs(self.array(1, 12, 1, 1)) + 0.5)
        return self.conv(lang.softmax(y, axis=3), self.width(), 1)

    def parts(self, x: Any) -> Any:
        y = self.conv(x, 12)
        first, second = lang.split(y, axis=1, sizes=(5, 7))
        last = lang.slice(y, offset=(0, 3, 0, 0), steps=(1, 1, 1, 1), shape=(1, 7, _SIZE, _SIZE))
        tiled = lang.tile(first, repeats=(1, 2, 1, 1))
        return self.conv(lang.concat([tiled, second - last], axis=1), self.width(), 1)

    def blocks(self, x: Any) -> Any:
        y = lang.space_to_depth(self.conv(x, 5), block=2)
        y = lang.conv(y, self.array(8, 20, 1, 1), self.array(8), relu=True)
        return lang.depth_to_space(y, block=2, mode=str(self.rng.choice(["DCR", "CRD"])))

    def shortcut(self, x: Any) -> Any:
        c = x.shape[1]
        padded = lang.pad(x, pads=(0, 2, 0, 0, 0, 3, 0, 0))
        return lang.relu(padded + self.conv(self.conv(x, self.width()), c + 5))

    def deconv(self, x: Any) -> Any:
        y = lang.max_pool(self.conv(x, 6), kernel=2, strides=2)
        y = lang.deconv(y, self.array(6, 1, 2, 2), self.array(6), strides=2, group=6)
        return self.conv(lang.deconv(y, self.array(6, 4, 1, 1), self.array(4)), self.width(), 1)

    def attention(self, x: Any) -> Any:
        c, tokens = x.shape[1], _SIZE * _SIZE
        rows = lang.permute(lang.reshape(x, shape=(1, c, tokens)), order=(0, 2, 1))
        heads = []
        for _ in range(3):
            y = lang.matmul(rows, self.array(c, 12), self.array(12))
            heads.append(lang.permute(lang.reshape(y, shape=(1, tokens, 3, 4)), order=(0, 2, 1, 3)))
        y = lang.attention(*heads, scale=0.5)
        y = lang.reshape(lang.permute(y, order=(0, 2, 1, 3)), shape=(1, tokens, 12))
        y = lang.layer_norm(rows + lang.matmul(y, self.array(12, c), self.array(c)))
        y = lang.matmul(lang.gelu(lang.matmul(y, self.array(c, 10), self.array(10))), self.array(10, 8))
        return lang.reshape(lang.permute(y, order=(0, 2, 1)), shape=(1, 8, _SIZE, _SIZE))


_BLOCKS: tuple[Callable[[_Draw, Any], Any], ...] = (
    _Draw.residual,
    _Draw.branches,
    _Draw.depthwise,
    _Draw.grouped,
    _Draw.shuffled,
    _Draw.gate,
    _Draw.norms,
    _Draw.parts,
    _Draw.blocks,
    _Draw.shortcut,
    _Draw.deconv,
    _Draw.attention,
)


def _network(seed: int, blocks: int = 4) -> Graph:
    draw = _Draw(seed)
    x = draw.conv(lang.input("x", (1, 3, _SIZE, _SIZE)), draw.width(), relu=True)
    for block in range(blocks):
        number = (seed + block * 5) % len(_BLOCKS) if block < 2 else int(draw.rng.integers(len(_BLOCKS)))
        x = _BLOCKS[number](draw, x)
    x = lang.avg_pool(draw.conv(x, draw.width()), kernel=4, strides=4)
    flat = lang.reshape(x, shape=(1, x.shape[1] * 4))
    return lang.build({"y": lang.matmul(flat, draw.array(x.shape[1] * 4, 5), draw.array(5))})


def _selection(dependencies: DependencyGraph, seed: int) -> dict[str, list[int]]:
    """Some channels of each group, but never all."""
    rng = np.random.default_rng(seed)
    return {
        group.name: sorted(rng.choice(group.size, rng.integers(0, group.size), replace=False).tolist())
        for group in dependencies.groups
    }


def _check(graph: Graph, seed: int) -> None:
    dependencies = DependencyGraph(graph)
    assert dependencies.groups
    selection = _selection(dependencies, seed)
    small, zeroed = slim(dependencies, selection), masked(dependencies, selection)
    inputs = {
        port.name: np.random.default_rng(seed).uniform(-1, 1, shape_of(port.value)).astype(np.float32)
        for port in graph.inputs
    }
    slimmed, expected = FloatEngine(small).run(inputs), FloatEngine(zeroed).run(inputs)
    for name, values in expected.items():
        np.testing.assert_allclose(slimmed[name], values, rtol=0, atol=1e-6 * max(1, np.abs(values).max()))
    assert small.tensor_names() == graph.tensor_names()
    assert set(small.used_weights()) == set(graph.used_weights())


@pytest.mark.parametrize("seed", range(len(_BLOCKS)))
def test_a_slim_network_computes_what_the_masked_one_does(seed: int) -> None:
    _check(_network(seed), seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 300))
def test_many_slim_networks_compute_what_the_masked_ones_do(seed: int) -> None:
    _check(_network(seed, blocks=6), seed)


def _groups(outputs: Any) -> dict[str, int]:
    return {group.name: group.size for group in DependencyGraph(lang.build({"y": outputs})).groups}


def test_channels_of_a_residual_chain_are_one_group() -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 8, name="stem")
    y = x + draw.conv(draw.conv(x, 6, name="inner"), 8, name="outer")
    assert _groups(draw.conv(y, 2, name="head")) == {"stem": 8, "inner": 6}


def test_heads_are_removed_whole() -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 8, name="stem")
    graph = lang.build({"y": draw.conv(draw.attention(x), 2, name="head")})
    heads = [group for group in DependencyGraph(graph).groups if group.unit == 4]
    assert [group.size for group in heads] == [3]
    assert len(heads[0].layers) == 3


def test_constant_channels_around_a_shortcut_are_a_group_of_their_own() -> None:
    """Channels that a shortcut pads with zeros do not depend on those of the stage before."""
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 8, name="stem")
    y = lang.pad(x, pads=(0, 4, 0, 0, 0, 4, 0, 0)) + draw.conv(x, 16, name="wide")
    assert _groups(draw.conv(y, 2, name="head")) == {"stem": 8, "wide": 8}


@pytest.mark.parametrize(
    ("op", "words"),
    [
        (lambda x: lang.topk(x, k=2, axis=1)[0], "has no pruning rule"),
        (lambda x: lang.softmax(x, axis=1), "mixes the values of all channels"),
        (lambda x: lang.layer_norm(x, axis=1), "mixes the values of all channels"),
        (lambda x: lang.pad(x, pads=(0, 1, 0, 0, 0, 1, 0, 0), mode="reflect"), "makes channels of channels"),
        (
            lambda x: lang.slice(x, offset=(0, 0, 0, 0), steps=(1, 2, 1, 1), shape=(1, 4, 8, 8)),
            "takes every 2th channel",
        ),
    ],
)
def test_what_cannot_be_pruned_says_why(op: Callable[[Any], Any], words: str) -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 8, name="stem")
    y = op(x)
    graph = lang.build({"y": draw.conv(y, 2, name="head")})
    reasons = {group.name: group.reason for group in DependencyGraph(graph).all_groups}
    assert words in reasons["stem"]
    assert reasons["head"] == "'y' is an output of the network"


def test_weights_that_two_layers_share_are_cut_once() -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 6, name="stem")
    shared = lang.constant(draw.array(6, 6, 3, 3))
    y = lang.conv(lang.relu(lang.conv(x, shared, pads=1)), shared, pads=1)
    _check(lang.build({"y": draw.conv(y, 2)}), 3)


def test_a_layer_can_be_excluded() -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 8, name="stem")
    graph = lang.build({"y": draw.conv(draw.conv(x, 6, name="inner"), 2)})
    assert [group.name for group in DependencyGraph(graph, exclude=["stem"]).groups] == ["inner"]
    with pytest.raises(UsageError, match="there is no layer 'stm' that makes channels"):
        DependencyGraph(graph, exclude=["stm"])


def test_selections_that_make_no_sense_are_refused() -> None:
    draw = _Draw(0)
    x = draw.conv(lang.input("x", (1, 3, 8, 8)), 4, name="stem")
    dependencies = DependencyGraph(lang.build({"y": draw.conv(x, 2, name="head")}))
    with pytest.raises(UsageError, match="nothing would be left of 'stem'"):
        slim(dependencies, {"stem": range(4)})
    with pytest.raises(UsageError, match="no group of channels 'tail'"):
        slim(dependencies, {"tail": [0]})
    with pytest.raises(UsageError, match="'y' is an output of the network"):
        slim(dependencies, {"head": [0]})
    with pytest.raises(UsageError, match="4 channels, and none with the number 9"):
        slim(dependencies, {"stem": [9]})


def test_a_slim_network_is_saved_and_read_back(tmp_path: Any) -> None:
    dependencies = DependencyGraph(_network(3))
    small = slim(dependencies, _selection(dependencies, 3))
    save_graph(small, tmp_path / "slim.mlir")
    x = {"x": np.ones((1, 3, _SIZE, _SIZE), np.float32)}
    loaded = load_graph(tmp_path / "slim.mlir")
    np.testing.assert_array_equal(FloatEngine(loaded).run(x)["y"], FloatEngine(small).run(x)["y"])
