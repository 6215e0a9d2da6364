"""Resizing: the tables against exact coordinates, the blend against exact fractions, all against float64."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from npuc.kernels import resampling
from support.kernel_strategies import EXACT, array, dtypes, seeds

sizes = st.integers(1, 9)
modes = st.sampled_from(("half_pixel", "align_corners", "asymmetric"))


def rounded(value: Fraction, kind: str) -> int:
    if kind == "single_even":
        return round(value)
    if kind == "double_rounding" and value < 0:
        return ceil(value - Fraction(1, 2))
    return floor(value + Fraction(1, 2))


@EXACT
@given(
    st.sampled_from(("double_rounding", "single_rounding", "single_even")),
    dtypes,
    modes,
    sizes,
    sizes,
    sizes,
    sizes,
    seeds,
)
def test_bilinear_is_the_exact_blend(
    kind: str, dtype: Any, mode: str, h: int, w: int, out_h: int, out_w: int, seed: int
) -> None:
    x = array(seed, (2, h, w, 3), dtype)
    rows, columns = (
        resampling.interpolation(kind, h, out_h, mode),
        resampling.interpolation(kind, w, out_w, mode),
    )
    y = resampling.resize_bilinear(x, rows, columns, kind)
    one = 2**rows.bits
    for n, i, j, c in np.ndindex(*y.shape):
        total = Fraction(0)
        for row, u in ((rows.low[i], one - int(rows.weight[i])), (rows.high[i], int(rows.weight[i]))):
            for column, v in (
                (columns.low[j], one - int(columns.weight[j])),
                (columns.high[j], int(columns.weight[j])),
            ):
                total += Fraction(int(x[n, row, column, c]) * u * v, one * one)
        assert y[n, i, j, c] == rounded(total, kind)


def coordinate(i: int, size: int, out: int, mode: str) -> float:
    if mode == "align_corners":
        return i * (size - 1) / (out - 1) if out > 1 else 0.0
    return i * size / out if mode == "asymmetric" else (i + 0.5) * size / out - 0.5


@EXACT
@given(st.sampled_from(("double_rounding", "single_rounding")), modes, sizes, st.integers(1, 40))
def test_a_table_points_where_the_convention_says(kind: str, mode: str, size: int, out: int) -> None:
    table = resampling.interpolation(kind, size, out, mode)
    at = table.low + (table.high - table.low) * table.weight / 2**table.bits
    wanted = np.clip([coordinate(i, size, out, mode) for i in range(out)], 0, size - 1)
    # TFLite rounds the step, not the place: its error grows along the axis.
    assert np.abs(at - wanted).max() <= (out / 2048 + 2 / 1024 if kind == "double_rounding" else 1 / 4096)
    assert (table.weight >= 0).all() and (table.weight <= 2**table.bits).all()


@pytest.mark.parametrize("mode", ["half_pixel", "align_corners", "asymmetric"])
def test_bilinear_is_within_a_step_of_float(mode: str) -> None:
    x = array(1, (1, 6, 7, 5), np.int8)
    y = resampling.resize_bilinear(
        x,
        resampling.interpolation("single_rounding", 6, 13, mode),
        resampling.interpolation("single_rounding", 7, 15, mode),
    )
    for i in range(13):
        for j in range(15):
            u = min(max(coordinate(i, 6, 13, mode), 0), 5)
            v = min(max(coordinate(j, 7, 15, mode), 0), 6)
            top, left = min(int(u), 4), min(int(v), 5)
            a, b = u - top, v - left
            box = x[0, top : top + 2, left : left + 2].astype(np.float64)
            wanted = np.einsum("ij...,i,j->...", box, [1 - a, a], [1 - b, b])
            assert np.abs(y[0, i, j] - wanted).max() < 0.7


def test_threads_do_not_change_the_result() -> None:
    x = array(0, (2, 30, 40, 16), np.int8)
    rows, columns = (
        resampling.interpolation("single_rounding", 30, 60),
        resampling.interpolation("single_rounding", 40, 80),
    )
    one, two = (resampling.resize_bilinear(x, rows, columns, threads=threads) for threads in (1, 2))
    np.testing.assert_array_equal(one, two)


def test_what_cannot_be_resized_is_refused_in_words() -> None:
    with pytest.raises(ValueError, match="cannot be resized to 0"):
        resampling.interpolation("single_rounding", 3, 0)
    with pytest.raises(ValueError, match="no coordinate mode 'centre'"):
        resampling.interpolation("single_rounding", 3, 4, "centre")
    with pytest.raises(ValueError, match="TFLite has"):
        resampling.interpolation("double_rounding", 3, 4, "pytorch_half_pixel")
    rows, columns = (
        resampling.interpolation("single_rounding", 3, 4),
        resampling.interpolation("single_rounding", 9, 4),
    )
    with pytest.raises(ValueError, match="column table reaches 8"):
        resampling.resize_bilinear(np.zeros((1, 3, 5, 1), np.int8), rows, columns)
