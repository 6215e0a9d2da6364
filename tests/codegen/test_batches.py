"""Several pictures at once: layers are cut into rows of all of them, or of one at a time where memory is small."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc import lang
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.ir import Graph
from npuc.quant import SCHEMES, quantize
from npuc.schedule.rules.common import batch_rows, images_of, window_rows
from npuc.sim import Simulator, sanitize
from support.networks.backend import machine


@cache
def network(pictures: int, height: int, width: int) -> Graph:
    """Every op that is cut by rows, in windows that end before, at and behind the border of a picture."""
    random = np.random.default_rng(3)

    def weight(*shape: int) -> Array:
        made: Array = random.uniform(-0.4, 0.4, shape).astype(np.float32)
        return made

    x = lang.input("x", (pictures, 3, height, width))
    stem = lang.max_pool(
        lang.conv(x, weight(8, 3, 3, 3), strides=2, relu=True), kernel=3, strides=2, name="pool"
    )
    squeezed = lang.conv(stem, weight(4, 8, 1, 1))
    fire = lang.concat(
        [lang.conv(squeezed, weight(6, 4, 1, 1)), lang.conv(squeezed, weight(6, 4, 3, 3), pads=1)], axis=1
    )
    residual = lang.conv(fire, weight(12, 12, 3, 3), pads=1) + fire
    deep = lang.conv(lang.sigmoid(residual) * residual, weight(12, 1, 3, 3), pads=1, group=12)
    shifted = deep + lang.constant(weight(12, 1, 1))
    larger = lang.avg_pool(lang.deconv(shifted, weight(12, 5, 2, 2), strides=2), kernel=2, strides=1)
    mean = lang.reduce(shifted, kind="mean", axes=(2, 3), keepdims=True)
    outputs = {
        "scores": lang.softmax(larger, axis=1),
        "mean": mean + lang.relu(mean),
        "gated": shifted * lang.sigmoid(mean),
    }
    graph = lang.build(outputs)
    ranges = dict.fromkeys(["x", *graph.tensor_names()], (-3.0, 3.0))
    return quantize(graph, ranges, SCHEMES["int8"])


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("local", [64, 6, 4])
@pytest.mark.parametrize("shape", [(2, 21, 19), (3, 30, 22), (10, 17, 13)])
def test_a_batch_gives_the_same_bits(shape: tuple[int, int, int], local: int, level: int, cores: int) -> None:
    graph = network(*shape)
    done = compile_program(graph, machine(local << 10, cores), CompileOptions(level=level))
    assert not done.partition.reasons
    inputs = random_inputs(graph, 1)
    found = Simulator(done.model).run(inputs)
    for name, array in IntegerEngine(graph, raw=True).run(inputs).items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    assert [str(finding) for finding in sanitize(done.model, inputs)] == []


def test_a_batch_that_does_not_fit_is_cut_and_not_given_to_the_cpu() -> None:
    x = lang.input("x", (8, 8, 16, 16))
    y = lang.conv(x, np.full((8, 8, 3, 3), 0.01, np.float32), pads=1)
    graph = lang.build({"y": lang.max_pool(y, kernel=2, strides=2)})
    made = quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-1.0, 1.0)), SCHEMES["int8"])
    done = compile_program(made, machine(6 << 10))
    assert not done.partition.reasons
    (part,) = done.parts
    assert max(group.tiles for group in part.scheduled.schedule_decisions.decisions.groups) > 8


@settings(max_examples=300, deadline=None, derandomize=True)
@given(data=st.data(), size=st.integers(1, 12), kernel=st.integers(1, 4), stride=st.integers(1, 4))
def test_rows_of_a_batch_are_made_of_the_rows_that_are_there(
    data: st.DataObject, size: int, kernel: int, stride: int
) -> None:
    pad = data.draw(st.integers(0, kernel - 1))
    height = max((size + 2 * pad - kernel) // stride + 1, 1)
    first = data.draw(st.integers(0, 4 * height - 1))
    rows = first, data.draw(st.integers(first + 1, 4 * height))

    def need(part: tuple[int, int]) -> tuple[int, int]:
        return window_rows(part, size, kernel, stride, 1, pad)

    low, high = batch_rows(rows, height, size, need)
    assert 0 <= low < high <= 4 * size
    made = []
    for picture, count, (begin, end) in images_of(rows, height):
        assert count == 1 or (begin, end) == (0, height)
        for number in range(picture, picture + count):
            made += range(number * height + begin, number * height + end)
        a, b = (0, size) if count > 1 else need((begin, end))
        assert low <= picture * size + a and (picture + count - 1) * size + b <= high
    assert made == list(range(*rows))
