"""The native observer counts what NumPy counts, in one pass, and its two code paths give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.kernels.observe import (
    EMPTY,
    PORTABLE,
    RawStatistics,
    empty_statistics,
    observe,
    observe_channels,
)

BOUND = 1e30


def observed(
    batches: list[Array], bins: int = 256, ratio: float = 0.01, flags: int = 0
) -> tuple[RawStatistics, Array, Array]:
    statistics = empty_statistics()
    histogram, tail = np.zeros(bins, np.uint64), np.zeros(bins // 2, np.uint64)
    for batch in batches:
        observe(batch, statistics, histogram, tail, bound=BOUND, tail_ratio=ratio, flags=flags)
    return statistics, histogram, tail


def expected_histogram(values: Array, exponent: int, bins: int) -> Array:
    """Bin floor(x / width) + bins / 2, in exact arithmetic (float64 holds it)."""
    width = 2.0 ** (exponent + 1) / bins
    index = np.floor(values.astype(np.float64) / width).astype(np.int64) + bins // 2
    return np.bincount(index, minlength=bins).astype(np.uint64)


def batches_strategy() -> st.SearchStrategy[list[Array]]:
    special = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.0,
        -4.0,
        np.nan,
        np.inf,
        -np.inf,
        3e30,
        -2e30,
        1e30,
        1e-40,
        -1e-45,
    ]
    value = st.one_of(
        st.sampled_from(special),
        st.floats(width=32, allow_nan=True, allow_infinity=True),
        st.floats(-10, 10, width=32),
    )
    return st.lists(
        st.lists(value, max_size=40).map(lambda v: np.array(v, np.float32)), min_size=1, max_size=5
    )


@settings(max_examples=300, deadline=None, derandomize=True)
@given(batches_strategy(), st.sampled_from([4, 64, 256]), st.sampled_from([0, PORTABLE]))
def test_everything_agrees_with_numpy(batches: list[Array], bins: int, flags: int) -> None:
    statistics, histogram, tail = observed(batches, bins, flags=flags)
    values = np.concatenate(batches)
    with np.errstate(invalid="ignore"):
        good = values[np.abs(values) <= np.float32(BOUND)]
    assert statistics.nans == np.isnan(values).sum()
    assert statistics.infinite == values.size - good.size - statistics.nans
    assert statistics.count == good.size
    if not good.size:
        assert statistics.exponent == EMPTY and not histogram.any() and not tail.any()
        return
    assert (statistics.min, statistics.max) == (good.min(), good.max())
    wide = good.astype(np.float64)
    for field, exact in (("sum", wide), ("square", wide * wide), ("absolute", np.abs(wide))):
        assert getattr(statistics, field) == pytest.approx(
            float(exact.sum()), rel=1e-12, abs=1e-12 * np.abs(exact).sum()
        )
    # The range is the smallest power of two above the largest magnitude.
    assert np.abs(wide).max() < 2.0**statistics.exponent
    assert statistics.exponent == -60 or np.abs(wide).max() >= 2.0 ** (statistics.exponent - 1)
    assert histogram.sum() == good.size
    np.testing.assert_array_equal(histogram, expected_histogram(good, statistics.exponent, bins))


@pytest.mark.parametrize("flags", [0, PORTABLE])
def test_values_far_smaller_than_a_bin_keep_their_side(flags: int) -> None:
    tiny = np.float32([-1e-45, 1e-45, -1e-30, 0.0, -0.0, 1e29, -1e-45, 1e-45])
    _, histogram, _ = observed([tiny], 16, flags=flags)
    assert histogram[7] == 3 and histogram[8] == 4


def test_growth_keeps_every_count() -> None:
    rng = np.random.default_rng(1)
    batches = [(rng.standard_normal(500) * 10.0**power).astype(np.float32) for power in range(-6, 6)]
    small, _, _ = observed(batches[:1])
    statistics, histogram, _ = observed(batches)
    assert statistics.exponent > small.exponent + 20
    np.testing.assert_array_equal(
        histogram, expected_histogram(np.concatenate(batches), statistics.exponent, 256)
    )
    backwards, reverse_histogram, _ = observed(batches[::-1])
    assert backwards.exponent == statistics.exponent
    np.testing.assert_array_equal(reverse_histogram, histogram)


@pytest.mark.parametrize("size", [1, 7, 8, 9, 1023, 1024, 1025, 16383, 16384, 16385, 100_003])
def test_both_code_paths_give_the_same_bits(size: int) -> None:
    rng = np.random.default_rng(size)
    batches = [
        rng.standard_normal(size).astype(np.float32),
        np.maximum(rng.standard_normal(size), 0).astype(np.float32),
    ]
    batches[1][:: max(1, size // 5)] = np.nan
    fast, portable = observed(batches, 8192), observed(batches, 8192, flags=PORTABLE)
    assert bytes(fast[0]) == bytes(portable[0])
    np.testing.assert_array_equal(fast[1], portable[1])
    np.testing.assert_array_equal(fast[2], portable[2])


def test_the_tail_has_the_largest_magnitudes_of_each_batch() -> None:
    rng = np.random.default_rng(3)
    batches = [rng.standard_normal(1000).astype(np.float32) * scale for scale in (1.0, 3.0)]
    statistics, _, tail = observed(batches, 4096, ratio=0.05)
    top = np.concatenate([np.sort(np.abs(batch))[-50:] for batch in batches])
    width = 2.0 ** (statistics.exponent + 1) / 4096
    expected = np.bincount((top / width).astype(np.int64), minlength=2048)
    np.testing.assert_array_equal(tail, expected.astype(np.uint64))


def test_a_zero_ratio_still_keeps_the_maximum_of_each_batch() -> None:
    _, _, tail = observed([np.float32([1, 2, 3]), np.float32([-7, 1])], ratio=0.0)
    assert tail.sum() == 2


def test_an_all_zero_tensor_is_in_the_bin_of_zero() -> None:
    statistics, histogram, _ = observed([np.zeros(100, np.float32), -np.zeros(3, np.float32)])
    assert (statistics.min, statistics.max, statistics.count) == (0.0, 0.0, 103)
    assert histogram[128] == 103


@pytest.mark.parametrize(
    "shape,axis", [((2, 3, 5, 7), 1), ((4, 6), 1), ((2, 5, 9), -1), ((3,), 0), ((2, 0, 4), 2)]
)
def test_channel_extremes(shape: tuple[int, ...], axis: int) -> None:
    values = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    if values.size:
        values.reshape(-1)[0] = np.nan
    size = shape[axis]
    low, high = np.full(size, np.inf, np.float32), np.full(size, -np.inf, np.float32)
    observe_channels(values, axis, low, high, bound=BOUND)
    others = tuple(i for i in range(values.ndim) if i != axis % values.ndim)
    with np.errstate(all="ignore"):
        masked = np.where(np.isnan(values), np.inf, values)
        np.testing.assert_array_equal(low, masked.min(axis=others, initial=np.inf))
        masked = np.where(np.isnan(values), -np.inf, values)
        np.testing.assert_array_equal(high, masked.max(axis=others, initial=-np.inf))


@pytest.mark.parametrize("change", [{"bound": -1.0}, {"bound": float("nan")}, {"tail_ratio": 2.0}])
def test_arguments_that_make_no_sense_are_refused(change: dict[str, float]) -> None:
    arguments = {"bound": BOUND, "tail_ratio": 0.0} | change
    with pytest.raises(ValueError, match="makes no sense"):
        observe(
            np.zeros(3, np.float32),
            empty_statistics(),
            np.zeros(16, np.uint64),
            np.zeros(8, np.uint64),
            **arguments,
        )


@pytest.mark.parametrize("bins", [0, 3, 100])
def test_bins_that_are_no_power_of_two_are_refused(bins: int) -> None:
    with pytest.raises(ValueError):
        observed([np.zeros(3, np.float32)], bins)
