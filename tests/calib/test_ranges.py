"""Every range method against a simple computation on the raw data, or a property that it must have."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.calib.observer import Observer
from npuc.calib.ranges import (
    CANDIDATES,
    METHODS,
    candidates,
    find_range,
    mean_square_error,
    observer_options,
    parse_method,
)
from npuc.calib.ranges.analytic import gauss_factor, laplace_factor
from npuc.calib.ranges.behind_sigmoid import SigmoidError
from npuc.calib.ranges.divergence import blurred, divergences, rebin
from npuc.calib.statistics import ObserverOptions, TensorStatistics
from npuc.errors import CalibrationDataError, UsageError

RNG = np.random.default_rng(11)
DATA: dict[str, Array] = {
    "gauss": RNG.standard_normal(50_000),
    "relu": np.maximum(RNG.standard_normal(50_000), 0),
    "laplace": RNG.laplace(size=50_000),
    "shifted": RNG.standard_normal(50_000) + 2,
    "negative": -np.abs(RNG.standard_normal(50_000)),
    "outlier": np.append(RNG.standard_normal(50_000), 100.0),
    "tiny": RNG.standard_normal(50_000) * 1e-8,
    "huge": RNG.standard_normal(50_000) * 1e12,
}


def statistics_of(values: Array, batches: int = 10, **options: Any) -> TensorStatistics:
    observer = Observer("t", ObserverOptions(**options))
    for batch in np.array_split(np.asarray(values, np.float32), batches):
        observer.update(batch)
    return observer.result()


STATISTICS = {name: statistics_of(values) for name, values in DATA.items()}


def quantization_error(values: Array, low: float, high: float, bits: int, symmetric: bool) -> float:
    """The mean squared error of really quantizing the values."""
    if symmetric:
        top = 2 ** (bits - 1) - 1
        step = max(abs(low), abs(high)) / top
        integers = np.clip(np.round(values / step), -top, top)
    else:
        step = (high - low) / (2**bits - 1)
        zero = round(-low / step)
        integers = np.clip(np.round(values / step) + zero, 0, 2**bits - 1) - zero
    return float(np.mean((values - integers * step) ** 2))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("bits", [4, 8, 16])
def test_every_method_gives_a_range_that_holds_zero_and_not_more_than_the_data(
    name: str, kind: str, bits: int
) -> None:
    statistics = STATISTICS[kind]
    symmetric = find_range(statistics, name, bits, True)
    affine = find_range(statistics, name, bits, False)
    assert symmetric.min == -symmetric.max < 0
    assert affine.min <= 0 <= affine.max and affine.min < affine.max
    if not name.startswith("pow2"):
        assert symmetric.max <= statistics.magnitude
        assert affine.min >= min(0.0, statistics.min) and affine.max <= max(0.0, statistics.max)


@pytest.mark.parametrize("kind", DATA)
def test_max_is_the_extremes(kind: str) -> None:
    values = DATA[kind].astype(np.float32)
    assert find_range(STATISTICS[kind], "max").max == np.abs(values).max()
    affine = find_range(STATISTICS[kind], "max", symmetric=False)
    assert (affine.min, affine.max) == (min(0, values.min()), max(0, values.max()))


@pytest.mark.parametrize("kind", ["gauss", "relu", "laplace", "shifted", "negative", "outlier"])
@pytest.mark.parametrize("ratio", [0.5, 0.99, 0.9999])
def test_percentile_is_that_of_the_raw_data_within_a_bin(kind: str, ratio: float) -> None:
    values, statistics = DATA[kind].astype(np.float32), STATISTICS[kind]
    near = {"abs": 1.5 * statistics.width}
    found = find_range(statistics, f"percentile:ratio={ratio}").max
    # Between two sparse values in the tail any point is a percentile: accept what lies between the neighbours.
    ordered = np.sort(np.abs(values))
    index = ratio * (len(ordered) - 1)
    low, high = ordered[math.floor(index) - 1], ordered[min(len(ordered) - 1, math.ceil(index) + 1)]
    assert low - near["abs"] <= found <= high + near["abs"]
    affine = find_range(statistics, f"percentile:ratio={ratio}", symmetric=False)
    if kind == "gauss" and ratio < 0.999:
        assert affine.max == pytest.approx(np.percentile(values, 100 * (1 + ratio) / 2), **near)
        assert affine.min == pytest.approx(np.percentile(values, 100 * (1 - ratio) / 2), **near)


def test_max_percentile_is_a_percentile_of_the_top_of_each_batch() -> None:
    values = np.split(RNG.standard_normal(40_000).astype(np.float32), 20)
    observer = Observer("t", ObserverOptions(tail_ratio=0.01))
    for batch in values:
        observer.update(batch)
    top = np.concatenate([np.sort(np.abs(batch))[-20:] for batch in values])
    found = find_range(observer.result(), "max-percentile:ratio=0.9").max
    assert found == pytest.approx(np.percentile(top, 90), abs=0.01)


def test_averages_of_batches() -> None:
    batches = [RNG.standard_normal(100).astype(np.float32) * scale for scale in (1, 2, 3, 4)]
    observer = Observer("t", ObserverOptions(momenta=(0.9, 0.99, 0.5)))
    low = high = None
    for batch in batches:
        observer.update(batch)
        low = float(batch.min()) if low is None else 0.5 * low + 0.5 * float(batch.min())
        high = float(batch.max()) if high is None else 0.5 * high + 0.5 * float(batch.max())
    statistics = observer.result()
    found = find_range(statistics, "mean:momentum=0.5", symmetric=False)
    assert (found.min, found.max) == pytest.approx((low, high))
    plain = find_range(statistics, "mean:momentum=none", symmetric=False)
    assert plain.max == pytest.approx(np.mean([batch.max() for batch in batches]))
    first = float(batches[0].max())
    moving = find_range(statistics, "moving-average", symmetric=False).max
    assert abs(moving - first) < 0.1 * first
    # The extremes of all batches were kept: any other average can be taken later.
    other = Observer("t", ObserverOptions(momenta=(0.3,)))
    for batch in batches:
        other.update(batch)
    later = find_range(statistics, "mean:momentum=0.3", symmetric=False)
    assert (later.min, later.max) == pytest.approx(other.result().running[0.3])
    few = Observer("t", ObserverOptions(kept_batches=2))
    for batch in batches:
        few.update(batch)
    with pytest.raises(UsageError, match=r"momentum=0\.3 was not recorded; recorded are 0\.9, 0\.99"):
        find_range(few.result(), "mean:momentum=0.3")


def test_kept_extremes_are_those_of_every_second_batch_and_so_on() -> None:
    observer = Observer("t", ObserverOptions(kept_batches=4))
    for number in range(11):
        observer.update(np.float32([-number, 2 * number]))
    assert observer.result().extremes.tolist() == [[0, 0], [-4, 8], [-8, 16]]
    assert observer.result().batches == 11


def test_median_mode_and_trimmed_mean_of_the_extremes_of_batches() -> None:
    tops = [1.0, 1.1, 1.2, 1.1, 3.0, 9.0, 0.2]
    observer = Observer("t")
    for top in tops:
        observer.update(np.float32([-top / 2, 0, top]))
    statistics = observer.result()
    singles = np.float32(tops).astype(np.float64)
    median = find_range(statistics, "median", symmetric=False)
    assert (median.min, median.max) == (-np.median(singles) / 2, np.median(singles))
    trimmed = find_range(statistics, "trimmed-mean:limit=0.2", symmetric=False)
    assert trimmed.max == pytest.approx(np.mean(np.sort(singles)[1:-1]))
    assert find_range(statistics, "trimmed-mean:limit=0").max == pytest.approx(singles.mean())
    # Ten intervals from 0.2 to 9: three batches lie in the second one, which begins at 1.08.
    mode = find_range(statistics, "mode:bins=10", symmetric=False)
    assert mode.max == pytest.approx(np.mean(singles[1:4])) and mode.min == pytest.approx(-mode.max / 2)
    old = dataclasses.replace(statistics, extremes=np.zeros((0, 2)))
    for name in ("median", "mode", "trimmed-mean"):
        with pytest.raises(UsageError, match="needs the extremes of batches"):
            find_range(old, name)


def test_methods_say_what_has_to_be_recorded() -> None:
    options = observer_options(["moving-average:weight=0.25", "mean:momentum=0.5", "max-percentile:top=0.02"])
    assert options.momenta == (0.9, 0.99, 0.75, 0.5) and options.tail_ratio == 0.02
    assert (
        observer_options(["mean:momentum=none", "moving-average", "kl", "max-percentile"])
        == ObserverOptions()
    )
    statistics = statistics_of(DATA["gauss"], tail_ratio=0.02)
    assert find_range(statistics, "max-percentile:top=0.02") == find_range(statistics, "max-percentile")
    with pytest.raises(UsageError, match=r"top=0\.1 was not recorded; recorded is 0\.02"):
        find_range(statistics, "max-percentile:top=0.1")
    with pytest.raises(UsageError, match="several shares"):
        observer_options(["max-percentile:top=0.1", "max-percentile:top=0.2"])


def test_kl_smoothing_takes_the_noise_of_a_histogram_away() -> None:
    statistics = statistics_of(DATA["gauss"][:500])
    plain, default = (find_range(statistics, text).max for text in ("kl", "kl:smooth=0.0001,window=1"))
    assert plain == default
    smoothed = find_range(statistics, "kl:window=63").max
    assert smoothed > plain  # single values at the ends are no longer islands that a cut removes
    assert find_range(statistics, "kl:smooth=0.3").max != plain


@pytest.mark.parametrize("n", [1.0, 2.5])
def test_std_is_n_deviations(n: float) -> None:
    values = DATA["shifted"].astype(np.float32).astype(np.float64)
    found = find_range(STATISTICS["shifted"], f"std:n={n}", symmetric=False)
    assert found.max == pytest.approx(values.mean() + n * values.std(), rel=1e-6)
    assert found.min == pytest.approx(min(0.0, values.mean() - n * values.std()), rel=1e-6)


def kl_by_hand(counts: list[int], start: int, end: int, levels: int) -> float:
    """The divergence of one window, written with loops."""
    size = end - start
    p = [float(count) for count in counts[start:end]]
    p[0] += sum(counts[:start])
    p[-1] += sum(counts[end:])
    q = [0.0] * size
    for level in range(levels):
        members = [i for i in range(size) if i * levels // size == level]
        occupied = [i for i in members if counts[start + i] > 0]
        for i in occupied:
            q[i] = sum(counts[start + j] for j in members) / len(occupied)
    if not sum(q):
        return math.inf
    p, q = [a / sum(p) for a in p], [b / sum(q) for b in q]
    holes = [i for i in range(size) if p[i] > 0 and q[i] == 0]
    q = [1e-4 if i in holes else b * (1 - 1e-4 * len(holes)) for i, b in enumerate(q)]
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


@settings(max_examples=300, deadline=None, derandomize=True)
@given(
    st.lists(st.one_of(st.just(0), st.integers(0, 50)), min_size=12, max_size=40).filter(any),
    st.sampled_from([2, 4, 8, 64]),
    st.data(),
)
def test_divergence_is_the_textbook_one(counts: list[int], levels: int, data: st.DataObject) -> None:
    windows = data.draw(
        st.lists(
            st.tuples(st.integers(0, len(counts) - 1), st.integers(1, len(counts))).filter(
                lambda w: w[0] < w[1]
            ),
            min_size=1,
            max_size=4,
        )
    )
    starts, ends = (np.array(side) for side in zip(*windows, strict=True))
    found = divergences(np.array(counts, np.float64), starts, ends, levels)
    for (start, end), value in zip(windows, found, strict=True):
        assert value == pytest.approx(kl_by_hand(counts, start, end, levels), rel=1e-6, abs=1e-9)


def test_kl_keeps_a_uniform_distribution_whole_and_cuts_an_outlier_off() -> None:
    uniform = statistics_of(np.linspace(-1, 1, 100_000))
    assert find_range(uniform, "kl").max > 0.98
    assert find_range(STATISTICS["outlier"], "kl").max < 20
    assert find_range(STATISTICS["outlier"], "kl", symmetric=False).max < 20


def test_kl_with_fewer_bins_than_levels_keeps_all() -> None:
    assert find_range(STATISTICS["gauss"], "kl", bits=16).max == STATISTICS["gauss"].magnitude


def test_rebin_keeps_the_total() -> None:
    counts = RNG.integers(0, 100, 64)
    counts[40:] = 0
    assert rebin(counts, 8.0, 4.99, 100).sum() == pytest.approx(counts.sum())


@pytest.mark.parametrize("kind", ["gauss", "laplace", "relu", "shifted", "outlier"])
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("symmetric", [True, False])
def test_mse_is_the_best_of_a_search_on_the_raw_data(kind: str, bits: int, symmetric: bool) -> None:
    values = DATA[kind].astype(np.float32).astype(np.float64)
    found = find_range(STATISTICS[kind], "mse", bits, symmetric)
    error = quantization_error(values, found.min, found.max, bits, symmetric)
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    shares = np.linspace(0.02, 1, 50)
    if symmetric:
        peak = max(-low, high)
        searched = [quantization_error(values, -peak * s, peak * s, bits, True) for s in shares]
    else:
        searched = [
            quantization_error(values, low * a, high * b, bits, False)
            for a in shares[::3]
            for b in shares[::3]
        ]
    assert error <= 1.05 * min(searched)


@pytest.mark.parametrize("kind", ["gauss", "laplace", "relu", "shifted"])
@pytest.mark.parametrize("symmetric", [True, False])
def test_the_estimated_error_is_the_real_one(kind: str, symmetric: bool) -> None:
    values = DATA[kind].astype(np.float32).astype(np.float64)
    for share in (0.3, 0.6, 1.0):
        low, high = min(0.0, float(values.min())) * share, max(0.0, float(values.max())) * share
        estimate = mean_square_error(STATISTICS[kind], low, high, 8, symmetric)
        real = quantization_error(values, low, high, 8, symmetric)
        assert estimate == pytest.approx(real, rel=0.1)


def test_aciq_has_the_published_factors() -> None:
    gauss = {2: 1.71, 3: 2.15, 4: 2.55, 5: 2.93, 6: 3.28, 7: 3.61, 8: 3.92}
    laplace = {2: 2.83, 3: 3.89, 4: 5.03, 5: 6.20, 6: 7.41, 7: 8.64, 8: 9.89}
    for bits in gauss:
        assert gauss_factor(bits) == pytest.approx(gauss[bits], abs=0.02)
        assert laplace_factor(bits) == pytest.approx(laplace[bits], abs=0.02)


def test_aciq_takes_the_distribution_that_fits() -> None:
    for kind in ("gauss", "laplace"):
        chosen = find_range(STATISTICS[kind], "aciq", bits=4)
        assert chosen == find_range(STATISTICS[kind], f"aciq:distribution={kind}", bits=4)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.floats(-1000, 1000, width=32), min_size=1, max_size=20), st.sampled_from([4, 8, 16]))
def test_pow2_is_the_smallest_at_which_nothing_saturates(values: list[float], bits: int) -> None:
    array = np.array(values, np.float32)
    if np.abs(array).max() < 1e-15:
        return
    threshold = find_range(statistics_of(array, 1), "pow2", bits).max
    assert math.log2(threshold) == int(math.log2(threshold))

    def saturates(t: float) -> bool:
        scale = t / 2 ** (bits - 1)
        integers = [math.floor(abs(v) / scale + 0.5) * (1 if v > 0 else -1) for v in map(float, array)]
        return any(not -(2 ** (bits - 1)) <= q <= 2 ** (bits - 1) - 1 for q in integers)

    assert not saturates(threshold) and saturates(threshold / 2)


def test_pow2_min_diff_gives_up_an_outlier() -> None:
    statistics = STATISTICS["outlier"]
    assert find_range(statistics, "pow2", 4).max == 128
    assert find_range(statistics, "pow2-min-diff", 4).max == 4


def test_pow2_min_diff_looks_as_far_down_as_it_is_told() -> None:
    """With no step it is `pow2`; each step more lets it go one power lower, until the error grows again."""
    statistics = STATISTICS["outlier"]
    found = [find_range(statistics, f"pow2-min-diff:steps={steps}", 4).max for steps in range(8)]
    assert found[0] == find_range(statistics, "pow2", 4).max == 128
    assert found == [128, 64, 32, 16, 8, 4, 4, 4]


def test_candidates_are_different_and_auto_is_the_best_of_them() -> None:
    for symmetric in (True, False):
        found = candidates(STATISTICS["outlier"], 8, symmetric)
        assert 4 <= len(found) <= len(CANDIDATES)
        assert found[0].method == "max"
        assert len({(c.min, c.max) for c in found}) == len(found)
        errors = [mean_square_error(STATISTICS["outlier"], c.min, c.max, 8, symmetric) for c in found]
        best = find_range(STATISTICS["outlier"], "auto", 8, symmetric)
        assert mean_square_error(STATISTICS["outlier"], best.min, best.max, 8, symmetric) == min(errors)


def test_a_tensor_of_zeros_has_an_empty_range() -> None:
    zeros = statistics_of(np.zeros(100))
    for name in METHODS:
        found = find_range(zeros, name)
        assert (found.min, found.max) == (0.0, 0.0)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("value", [3.0, -3.0])
def test_a_constant_tensor_has_a_range(name: str, value: float) -> None:
    found = find_range(statistics_of(np.full(100, value)), name)
    assert found.max > 0.5


def test_a_tensor_without_a_finite_value_is_an_error() -> None:
    with pytest.raises(CalibrationDataError, match="tensor 't' never had a finite value") as caught:
        find_range(statistics_of(np.full(100, np.nan)), "max")
    assert caught.value.fix


@pytest.mark.parametrize(
    "text,words",
    [
        ("kll", "there is no range method 'kll'. Did you mean 'kl'"),
        (
            "kl:bin=3",
            "has no option 'bin'. Its options are: bins=2048, step=16, smooth=0.0001, window=1, sigma=0.0",
        ),
        ("percentile:ratio=high", "'high' is not a number"),
        ("percentile:ratio", "'ratio' is not OPTION=VALUE"),
    ],
)
def test_a_method_that_is_not_there_is_an_error(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_method(text)
    assert words in caught.value.paragraph()


@pytest.mark.parametrize(
    "text",
    [
        "percentile:ratio=2",
        "std:n=0",
        "aciq:distribution=flat",
        "kl:bins=1",
        "pow2-min-diff:steps=-1",
        "kl:smooth=0",
        "kl:window=2",
        "kl:sigma=-1",
        "kl:sigma=200",
        "mode:bins=0",
        "trimmed-mean:limit=0.5",
        "moving-average:weight=0",
        "mean:momentum=1",
    ],
)
def test_an_option_out_of_range_is_an_error(text: str) -> None:
    with pytest.raises(UsageError, match="range method"):
        find_range(STATISTICS["gauss"], text)


def test_a_gaussian_smooths_the_histogram_of_kl_and_loses_no_count() -> None:
    counts = np.array([5.0, 0.0, 0.0, 40.0, 0.0, 0.0, 0.0, 7.0])
    smoothed = blurred(counts, 1.6)
    assert smoothed.sum() == pytest.approx(counts.sum()) and smoothed.max() < 20 and (smoothed > 0).all()
    # Values on a coarse grid leave holes in the histogram, which pull the unsmoothed divergence to a narrow cut.
    values = np.round(DATA["gauss"] * 40) / 40
    statistics = statistics_of(values)
    plain, gaussian = (find_range(statistics, text).max for text in ("kl", "kl:sigma=40"))
    assert plain != gaussian and gaussian <= statistics.magnitude
    assert find_range(statistics, "kl:sigma=0").max == plain


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_sigmoid_range_is_the_best_behind_a_sigmoid(symmetric: bool) -> None:
    values = np.concatenate([RNG.standard_normal(20_000) - 1, RNG.standard_normal(20_000) * 8 - 10])
    statistics = statistics_of(values)

    def error(low: float, high: float) -> float:
        step = max(-low, high) / 127 if symmetric else (high - low) / 255
        integers = np.clip(np.round(values / step), round(low / step), round(high / step))
        return float(np.mean((_sigmoid(integers * step) - _sigmoid(values)) ** 2))

    chosen = find_range(statistics, "sigmoid", 8, symmetric)
    best = error(chosen.min, chosen.max)
    assert best < 0.5 * min(
        error(other.min, other.max)
        for other in (find_range(statistics, name, 8, symmetric) for name in ("max", "mse", "percentile"))
    )
    for factor in (0.7, 1.4):
        assert best < error(chosen.min * factor, chosen.max * factor)
    expected = SigmoidError(statistics).symmetric(chosen.threshold, 8) / statistics.count
    if symmetric:
        assert float(expected) == pytest.approx(best, rel=0.1)


def _sigmoid(x: Array) -> Array:
    level: Array = 1 / (1 + np.exp(-x))
    return level
