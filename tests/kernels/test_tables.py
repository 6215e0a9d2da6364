"""Tables: the builders against exact rounding, the lookups against the obvious formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.kernels import tables
from support.kernel_strategies import EXACT, array, dtypes, seeds

bytes_ = st.sampled_from((np.int8, np.uint8))


@EXACT
@given(bytes_, dtypes, seeds, st.integers(0, 400))
def test_a_lookup_is_an_index(dtype: Any, out: Any, seed: int, n: int) -> None:
    x, table = array(seed, (n,), dtype), array(seed + 1, (256,), out)
    y = tables.lookup8(x, table)
    assert y.dtype == out
    np.testing.assert_array_equal(y, table[x.astype(np.int64) - np.iinfo(dtype).min])


@EXACT
@given(
    bytes_, dtypes, seeds, st.lists(st.integers(0, 9), min_size=1, max_size=4), st.data(), st.integers(1, 2)
)
def test_a_lookup_by_channel_is_an_index_for_each(
    dtype: Any, out: Any, seed: int, shape: list[int], data: Any, threads: int
) -> None:
    axis = data.draw(st.integers(-len(shape), len(shape) - 1))
    x = array(seed, tuple(shape), dtype)
    by_channel = array(seed + 1, (shape[axis], 256), out)
    y = tables.lookup8_by_channel(x, by_channel, axis, threads=threads)
    assert y.dtype == out
    places = np.moveaxis(x, axis, 0).astype(np.int64) - np.iinfo(dtype).min
    for channel, found in enumerate(np.moveaxis(y, axis, 0)):
        np.testing.assert_array_equal(found, by_channel[channel][places[channel]])


def test_large_tensors_by_channel_are_the_same_in_parts() -> None:
    x, by_channel = array(1, (40, 50, 33), np.int8), array(2, (33, 256), np.int8)
    one, two = (tables.lookup8_by_channel(x, by_channel, 2, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)
    np.testing.assert_array_equal(one, by_channel[np.arange(33), x.astype(int) + 128])


def test_what_are_no_tables_by_channel_is_refused() -> None:
    x = np.zeros((2, 3), np.int8)
    with pytest.raises(ValueError, match="3 tables of 256 entries"):
        tables.lookup8_by_channel(x, np.zeros((2, 256), np.int8), 1)
    with pytest.raises(ValueError, match="no axis 2"):
        tables.lookup8_by_channel(x, np.zeros((3, 256), np.int8), 2)
    with pytest.raises(ValueError, match="x must be int8 or uint8"):
        tables.lookup8_by_channel(x.astype(np.int16), np.zeros((3, 256), np.int8), 1)


@pytest.mark.parametrize("seed", range(5))
def test_every_16_bit_value_is_interpolated(seed: int) -> None:
    x = np.arange(-32768, 32768).astype(np.int16)
    table = array(seed, (513,), np.int16)
    y = tables.lookup16(x, table)
    for q in range(-32768, 32768, 61):
        entry, rest = divmod(q + 32768, 128)
        low, high = int(table[entry]), int(table[entry + 1])
        assert y[q + 32768] == math.floor(low + Fraction((high - low) * rest, 128) + Fraction(1, 2))


FUNCTIONS: list[Callable[[Any], Any]] = [np.tanh, np.exp, np.abs, lambda v: 1 / (1 + np.exp(-v)), np.sqrt]


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_an_8_bit_table_is_the_rounded_function(f: Callable[[Any], Any], dtype: Any) -> None:
    limits = np.iinfo(dtype)
    table = tables.table8(f, 0.07, 5, 0.011, 9, dtype)
    for i, entry in enumerate(table):
        with np.errstate(all="ignore"):
            real = float(f(np.float64(0.07 * (i + int(limits.min) - 5)))) / 0.011
        if math.isnan(real):
            assert entry == 9
            continue
        steps = math.copysign(math.floor(abs(real) + 0.5), real) + 9
        assert entry == min(max(steps, limits.min), limits.max)


@pytest.mark.parametrize("f", [np.tanh, lambda v: v / (1 + np.exp(-v)), lambda v: 1 / (1 + np.exp(-v))])
def test_a_16_bit_table_follows_a_smooth_function(f: Callable[[Any], Any]) -> None:
    sx, sy = 8 / 32768, 8 / 32768
    x = np.arange(-32768, 32768).astype(np.int16)
    y = tables.lookup16(x, tables.table16(f, sx, 0, sy, 0))
    # Half a step of rounding twice, and the curvature: h^2 / 8 * |f''|, h = 128 steps of x.
    bend = (128 * sx) ** 2 / 8 * 0.8 / sy
    assert np.abs(y * sy - f(x * sx)).max() / sy <= 1 + bend


@pytest.mark.parametrize(
    ("x", "table", "words"),
    [
        (np.zeros(3, np.int16), np.zeros(256, np.int8), "x must be int8 or uint8"),
        (np.zeros(3, np.int8), np.zeros(255, np.int8), "256 entries"),
        (np.zeros(3, np.int8), np.zeros(256, np.float32), "the table must be"),
    ],
)
def test_a_wrong_table_is_refused_in_words(x: Any, table: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        tables.lookup8(x, table)


def test_a_wrong_scale_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="scale of the input is 0"):
        tables.table8(np.tanh, 0, 0, 1, 0, np.int8)
    with pytest.raises(ValueError, match="zero point of the output, 300"):
        tables.table8(np.tanh, 1, 0, 1, 300, np.int8)


@EXACT
@given(st.sampled_from((np.int8, np.uint8, np.int16)), dtypes, seeds, st.integers(1, 15), st.integers(1, 2))
def test_a_table_of_any_size_is_a_line_between_entries(
    dtype: Any, out: Any, seed: int, segments: int, threads: int
) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    segments = min(segments, bits - 1)
    out = np.int16 if bits == 16 else out
    x, table = array(seed, (300,), dtype), array(seed + 1, ((1 << segments) + 1,), out)
    at = x.astype(np.int64) - np.iinfo(dtype).min
    shift = bits - segments
    low, high = (table[(at >> shift) + k].astype(np.int64) for k in (0, 1))
    line = low + (((high - low) * (at & ((1 << shift) - 1)) + (1 << (shift - 1))) >> shift)
    y = tables.lookup(x, table, threads=threads)
    assert y.dtype == out
    np.testing.assert_array_equal(y, line)


def test_what_are_no_sizes_of_tables_is_refused() -> None:
    for dtype, size in ((np.int8, 257), (np.int8, 128), (np.int16, 256), (np.int16, 512)):
        with pytest.raises(ValueError, match=r"a table of (8|16) bits has no shape"):
            tables.lookup(np.zeros(3, dtype), np.zeros(size, np.int16))
