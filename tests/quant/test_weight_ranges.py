"""Range methods of weights, against NumPy and torch on the raw values; and what they do to a layer."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import QuantizationError, UsageError
from npuc.quant.config import QuantizationConfig, parse_options
from npuc.quant.parameters import quantize_affine_weight, quantize_weight
from npuc.quant.scheme import Scheme
from npuc.quant.weight_ranges import WEIGHT_METHODS, parse_weight_method, weight_thresholds

ROWS = np.random.default_rng(3).standard_t(3, size=(5, 400))
"""Heavy tails: clipping pays."""


def error(rows: Array, threshold: Array, levels: int) -> Array:
    step = threshold[:, None] / levels
    return np.square(rows - np.clip(np.round(rows / step), -levels, levels) * step).sum(axis=1)


def test_max_is_torchs_range_of_each_channel() -> None:
    torch = pytest.importorskip("torch")
    observer = torch.ao.quantization.PerChannelMinMaxObserver(
        0, torch.qint8, torch.per_channel_symmetric, quant_min=-127, quant_max=127
    )
    observer(torch.tensor(ROWS, dtype=torch.float32))
    scale, _ = observer.calculate_qparams()
    _, ours = quantize_weight(ROWS.astype(np.float32), 0, Scheme())
    np.testing.assert_allclose(ours, scale.numpy(), rtol=1e-6)


@pytest.mark.parametrize("ratio", [0.9, 0.99, 1.0])
def test_percentile_is_numpys(ratio: float) -> None:
    found = weight_thresholds(ROWS, f"percentile:ratio={ratio}", 127)
    np.testing.assert_allclose(found, np.percentile(np.abs(ROWS), 100 * ratio, axis=1))


def test_std_is_n_deviations_within_the_largest_weight() -> None:
    expected = np.abs(ROWS.mean(axis=1)) + 2 * ROWS.std(axis=1)
    np.testing.assert_allclose(weight_thresholds(ROWS, "std:n=2", 127), expected)
    np.testing.assert_array_equal(weight_thresholds(ROWS, "std:n=99", 127), np.abs(ROWS).max(axis=1))


@pytest.mark.parametrize("levels", [1, 7, 127])
def test_mse_is_the_best_of_a_dense_search(levels: int) -> None:
    found = error(ROWS, weight_thresholds(ROWS, "mse", levels), levels)
    most = np.abs(ROWS).max(axis=1)
    dense = np.min([error(ROWS, most * share, levels) for share in np.linspace(0.2, 1, 2001)], axis=0)
    assert (found <= dense * 1.01).all() and (found <= error(ROWS, most, levels)).all()


@pytest.mark.parametrize("method", WEIGHT_METHODS)
@pytest.mark.parametrize("per_channel", [True, False])
def test_weights_beyond_the_threshold_are_clipped(method: str, per_channel: bool) -> None:
    scheme = Scheme(weight="i4", weight_method=method, per_channel=per_channel)
    integers, scale = quantize_weight(ROWS, 0, scheme)
    rows = ROWS if per_channel else ROWS.reshape(1, -1)
    np.testing.assert_allclose(scale, weight_thresholds(rows, method, 7).astype(np.float32) / 7, rtol=1e-6)
    assert np.abs(integers.astype(int)).max() == 7


def test_affine_weights_are_clipped_at_both_ends() -> None:
    scheme = Scheme(
        weight="ui8", weight_scales="affine", per_channel=False, weight_method="percentile:ratio=0.9"
    )
    reach = np.percentile(np.abs(ROWS), 90)
    _, scale, zero = quantize_affine_weight(ROWS, scheme)
    assert scale[0] == pytest.approx(2 * reach / 255, rel=1e-6) and zero == 128


def test_rows_of_nothing_and_of_zeros_have_thresholds() -> None:
    for method in WEIGHT_METHODS:
        assert weight_thresholds(np.zeros((2, 0)), method, 127).tolist() == [0.0, 0.0]
        assert weight_thresholds(np.zeros((1, 4)), method, 127).tolist() == [0.0]
        assert weight_thresholds(np.array([[0.0] * 999 + [3.0]]), method, 127)[0] > 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("mae", "there is no weight range method 'mae'"),
        ("std:k=2", "weight range method 'std' has no option 'k'. Its options are: n=4.0"),
    ],
)
def test_a_method_that_is_not_there_is_named(text: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_weight_method(text)
    assert words in caught.value.paragraph()
    with pytest.raises(QuantizationError, match="options: "):
        parse_options([f"weight_method={text}"])


def test_options_change_the_scheme_of_the_model() -> None:
    config = QuantizationConfig().with_options(parse_options(["full_range=true", "weight_method=std:n=3"]))
    assert config.options == {"full_range": True, "weight_method": "std:n=3"}
    assert "scheme" not in config.model_fields_set  # a target may still give it
    for wrong in ("full_range", "full_range=maybe", "fullrange=true", "weight_method=[", "sum_bits={"):
        with pytest.raises(QuantizationError):
            parse_options([wrong])
