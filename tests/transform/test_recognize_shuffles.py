"""Pixel and channel shuffles in the spellings of exporters become one op; other movement stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.ir import Graph, Value, top
from npuc.transform.rearrangement import normal_form
from support.graphs import assert_same_function
from support.passes import Arithmetic, ops_of, recognize, spelled

PIXELS = "recognize-pixel-shuffle"
CHANNELS = "recognize-channel-shuffle"

Ints = tuple[int, ...]
Spelling = Callable[[Arithmetic, Value], Any]


def moved(split: Ints, order: Ints, shape: Ints) -> Spelling:
    return lambda m, x: m.reshape(m.permute(m.reshape(x, shape=split), order=order), shape=shape)


def check(before: Graph, passes: str, *names: str, **properties: Any) -> None:
    after = recognize(before, passes)
    assert ops_of(after) == [*names]
    found = next(op for op in after.ops if op.name == f"top.{names[0]}")
    for key, value in properties.items():
        assert getattr(found, key) == value
    assert_same_function(before, after, tolerance=0)


@pytest.mark.parametrize(
    "mode, split, order",
    [
        ("CRD", (2, 3, 2, 2, 4, 5), (0, 1, 4, 2, 5, 3)),
        ("DCR", (2, 2, 2, 3, 4, 5), (0, 3, 4, 1, 5, 2)),
    ],
)
def test_depth_to_space(mode: str, split: Ints, order: Ints) -> None:
    before = spelled(moved(split, order, (2, 3, 8, 10)), (2, 12, 4, 5))
    check(before, PIXELS, "depth_to_space", block=2, mode=mode)


def test_depth_to_space_without_the_batch_axis() -> None:
    before = spelled(moved((3, 2, 2, 4, 5), (0, 3, 1, 4, 2), (1, 3, 8, 10)), (1, 12, 4, 5))
    check(before, PIXELS, "depth_to_space", block=2, mode="CRD")


def test_depth_to_space_of_one_channel() -> None:
    before = spelled(moved((1, 1, 3, 3, 4, 5), (0, 1, 4, 2, 5, 3), (1, 1, 12, 15)), (1, 9, 4, 5))
    check(before, PIXELS, "depth_to_space", block=3)


def test_space_to_depth() -> None:
    before = spelled(moved((2, 3, 4, 2, 5, 2), (0, 3, 5, 1, 2, 4), (2, 12, 4, 5)), (2, 3, 8, 10))
    check(before, PIXELS, "space_to_depth", block=2)


def test_pixel_unshuffle_interleaves_the_channels() -> None:
    before = spelled(moved((2, 3, 4, 2, 5, 2), (0, 1, 3, 5, 2, 4), (2, 12, 4, 5)), (2, 3, 8, 10))
    check(before, PIXELS, "space_to_depth", "shuffle_channel", block=2)


def quarter(m: Arithmetic, x: Value, row: int, column: int) -> Value:
    """x[:, :, row::2, column::2], by two slices as torch exports it."""
    n, c, h, w = 1, 3, 8, 10
    rows = m.slice(x, offset=(0, 0, row, 0), steps=(1, 1, 2, 1), shape=(n, c, h // 2, w))
    return m.slice(rows, offset=(0, 0, 0, column), steps=(1, 1, 1, 2), shape=(n, c, h // 2, w // 2))


def focus(m: Arithmetic, x: Value, *blocks: Ints) -> Value:
    return m.b(top.Concat, [quarter(m, x, *block) for block in blocks], axis=1)


def conv(m: Arithmetic, x: Value, group: int = 1) -> Value:
    weight = np.random.default_rng(0).normal(size=(8, 12 // group, 3, 3))
    return m.conv(x, weight, strides=(1, 1), pads=(1,) * 4, dilations=(1, 1), group=group)


YOLO = ((0, 0), (1, 0), (0, 1), (1, 1))


def test_slices_in_the_order_of_blocks() -> None:
    before = spelled(lambda m, x: focus(m, x, (0, 0), (0, 1), (1, 0), (1, 1)), (1, 3, 8, 10))
    check(before, PIXELS, "space_to_depth", block=2)


def test_focus_reorders_the_weights_of_the_convolution() -> None:
    before = spelled(lambda m, x: conv(m, focus(m, x, *YOLO)), (1, 3, 8, 10))
    after = recognize(before, PIXELS)
    assert ops_of(after) == ["space_to_depth", "conv"]
    assert_same_function(before, after, tolerance=1e-5)


FOCUS_NEAR_MISSES: dict[str, Spelling] = {
    "no convolution follows": lambda m, x: m.relu(focus(m, x, *YOLO)),
    "a grouped convolution follows": lambda m, x: conv(m, focus(m, x, *YOLO), group=2),
    "one block twice": lambda m, x: conv(m, focus(m, x, (0, 0), (0, 0), (0, 1), (1, 1))),
    "a slice is an output": lambda m, x: [
        conv(m, m.b(top.Concat, [q := quarter(m, x, 0, 0), *(quarter(m, x, *b) for b in YOLO[1:])], axis=1)),
        q,
    ],
}


@pytest.mark.parametrize("name", FOCUS_NEAR_MISSES)
def test_slices_that_are_no_space_to_depth_stay(name: str) -> None:
    before = spelled(FOCUS_NEAR_MISSES[name], (1, 3, 8, 10))
    assert ops_of(recognize(before, PIXELS)) == ops_of(before)


def test_channel_shuffle() -> None:
    before = spelled(moved((2, 3, 4, 5, 6), (0, 2, 1, 3, 4), (2, 12, 5, 6)), (2, 12, 5, 6))
    check(before, CHANNELS, "shuffle_channel", group=3)


def test_channel_shuffle_with_folded_axes() -> None:
    before = spelled(moved((2, 6, 30), (1, 0, 2), (1, 12, 5, 6)), (1, 12, 5, 6))
    check(before, CHANNELS, "shuffle_channel", group=2)


@pytest.mark.parametrize("passes", [PIXELS, CHANNELS])
@pytest.mark.parametrize(
    "split, order, shape",
    [
        ((2, 3, 4, 5, 6), (0, 2, 1, 4, 3), (2, 12, 5, 6)),
        ((2, 3, 4, 5, 6), (1, 0, 2, 3, 4), (2, 12, 5, 6)),
        ((2, 3, 2, 2, 5, 6), (0, 1, 4, 3, 5, 2), (2, 3, 10, 12)),
        ((2, 12, 5, 6), (0, 1, 3, 2), (2, 12, 6, 5)),
        ((2, 12, 5, 6), (0, 2, 1, 3), (2, 12, 5, 6)),
    ],
)
def test_other_movement_stays(split: Ints, order: Ints, shape: Ints, passes: str) -> None:
    before = spelled(moved(split, order, shape), (2, 12, 5, 6))
    assert ops_of(recognize(before, passes)) == ops_of(before)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=6).flatmap(
        lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))))
    )
)
def test_the_normal_form_moves_the_same_elements(case: tuple[list[int], list[int]]) -> None:
    shape, order = case
    elements = np.arange(np.prod(shape))
    sizes, normal = normal_form(shape, order)
    expected = elements.reshape(shape).transpose(order).ravel()
    np.testing.assert_array_equal(elements.reshape(sizes).transpose(normal).ravel(), expected)
    assert len(sizes) <= len(shape)


def test_parts_gathered_from_a_shuffle_are_slices() -> None:
    def spelling(m: Arithmetic, x: Value) -> list[Value]:
        parts = moved((6, 2, 30), (1, 0, 2), (2, 1, 6, 5, 6))(m, x)
        return [m.b(top.Gather, parts, m.b.weight(np.int64(index)), axis=0) for index in (0, -1)]

    check(spelled(spelling, (1, 12, 5, 6)), CHANNELS, "shuffle_channel", "slice", "slice", group=6)


def test_heads_split_for_attention_are_no_shuffle() -> None:
    before = spelled(moved((2, 6, 4, 5), (0, 2, 1, 3), (8, 6, 5)), (2, 6, 20))
    assert ops_of(recognize(before, CHANNELS)) == ops_of(before)
