"""Batches of matrices: the tensors of attention lie in the order of their axes, nothing is turned, and both modes agree."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.quant import SCHEMES, quantize
from npuc.schedule.layers import Tile
from npuc.sim import Simulator, sanitize
from npuc.target import Target
from support.networks.backend import machine

KINDS = [
    "matmul", "matmul", "matmul", "permute", "permute", "permute", "product", "softmax", "product", "permute",
    "matmul",
]  # fmt: skip


def weights(*shape: int, seed: int) -> lang.Tensor:
    return lang.constant(np.random.default_rng(seed).uniform(-0.4, 0.4, shape).astype(np.float32))


def heads(x: lang.Tensor, batch: int, tokens: int, count: int, width: int, seed: int) -> lang.Tensor:
    """One of the three operands of attention."""
    made = lang.matmul(x, weights(count * width, count * width, seed=seed))
    return lang.permute(lang.reshape(made, shape=(batch, tokens, count, width)), order=(0, 2, 1, 3))


def attention(
    tokens: int, count: int, width: int, batch: int = 1
) -> tuple[lang.Tensor, lang.Tensor, lang.Tensor]:
    """Attention of some heads; its scores, what softmax makes of them, and its result."""
    x = lang.input("x", (batch, tokens, count * width))
    q, k, v = (heads(x, batch, tokens, count, width, seed) for seed in range(3))
    scores = lang.matmul(q, k, transpose_b=True)
    shares = lang.softmax(scores, axis=-1)
    joined = lang.permute(lang.matmul(shares, v), order=(0, 2, 1, 3))
    flat = lang.reshape(joined, shape=(batch, tokens, count * width))
    return scores, shares, lang.matmul(flat, weights(count * width, count * width, seed=3))


def check(target: Target, level: int = 2, scheme: str = "int8", **outputs: lang.Tensor) -> Compilation:
    """Compile, and compare both modes."""
    graph = lang.build(outputs)
    made = quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-3.0, 3.0)), SCHEMES[scheme])
    inputs = random_inputs(made, 1)
    done = compile_program(made, target, CompileOptions(level=level))
    wanted = IntegerEngine(made, raw=True).run(inputs)
    got = Simulator(done.model).run(inputs)
    for name, value in wanted.items():
        assert np.unique(value).size > 1
        np.testing.assert_array_equal(got[name], value, err_msg=name)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []
    return done


def kinds(done: Compilation) -> list[str]:
    return [layer.kind for part in done.parts for layer in part.network.layers]


def copies(done: Compilation) -> int:
    """Instructions of the layers, each whole, that only move elements."""
    found = 0
    for layer in (layer for part in done.parts for layer in part.network.layers):
        rows = 0, layer.outputs[0].rows
        inputs = tuple((0, tensor.storage.rows) for tensor in layer.inputs)
        templates = layer.templates(Tile(rows, (0, layer.channels), inputs, rows))
        found += sum(template.instruction.name == "copy" for template in templates)
    return found


@pytest.mark.parametrize("scheme", ["int8", "tflite", "int16"])
def test_nothing_is_turned_but_what_makes_heads_and_joins_them(scheme: str) -> None:
    _, _, y = attention(9, 3, 5)
    done = check(machine(2 << 20), scheme=scheme, y=y)
    assert Counter(kinds(done)) == Counter(KINDS)
    assert copies(done) == 4


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize(("tokens", "count", "width"), [(7, 3, 5), (33, 2, 16), (2, 5, 1), (1, 4, 3)])
def test_odd_sizes_in_ever_less_memory(tokens: int, count: int, width: int, batch: int) -> None:
    _, _, y = attention(tokens, count, width, batch)
    for size in (2 << 20, 12 << 10, 6 << 10):
        for level in (0, 2):
            check(machine(size), level, y=y)


def test_matrices_are_shared_out_among_cores() -> None:
    _, _, y = attention(130, 6, 32)
    done = check(machine(256 << 10, 3, 512 << 10), y=y)
    assert len(done.parts[0].scheduled.streams) == 3
    schedule_decisions = done.parts[0].scheduled.schedule_decisions.decisions
    layers = done.parts[0].network.layers
    of_products = [
        group
        for group in schedule_decisions.groups
        if "product" in {layer.kind for layer in layers[group.first : group.last]}
    ]
    assert any(group.tiles > 1 and not group.alone for group in of_products)


def test_who_wants_pictures_gets_them() -> None:
    """Scores that leave the network, and shares that a pool reads, lie as pictures do."""
    scores, shares, y = attention(10, 4, 6)
    pooled = lang.max_pool(shares, kernel=(2, 2), strides=(2, 2))
    flat = lang.reshape(pooled, shape=(1, 4, 25))
    for outputs in ({"y": y, "scores": scores}, {"y": y, "pooled": pooled}, {"flat": flat}):
        done = check(machine(2 << 20), **outputs)
        assert copies(done) > 4


def test_one_matrix_for_all_heads() -> None:
    x = lang.input("x", (1, 8, 12))
    q = heads(x, 1, 8, 3, 4, 0)
    one = lang.reshape(lang.matmul(x, weights(12, 5, seed=1)), shape=(1, 1, 8, 5))
    y = lang.matmul(lang.softmax(lang.matmul(q, q, transpose_b=True), axis=-1), one)
    for size in (2 << 20, 3 << 10):
        check(machine(size), y=lang.reshape(y, shape=(1, 24, 5)))
