"""Keywords in a stream, and labels of pixels back in their image."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from npuc.errors import InputDataError
from npuc.images.loading import load_image
from npuc.images.preprocess import Preprocess
from npuc.runtime.postprocess import (
    KeywordSpotter,
    boxes_to_image,
    label_map,
    labels_to_image,
    mean_iou,
    overlay,
    palette,
)

LABELS = ["silence", "yes", "no"]
YES, NO, QUIET = [0.05, 0.9, 0.05], [0.1, 0.1, 0.8], [0.9, 0.05, 0.05]


def heard(rows: list[list[float]], **options: float) -> list[tuple[str, float]]:
    spotter = KeywordSpotter(LABELS, **options)  # type: ignore[arg-type]
    found = [spotter.add(row, 0.25 * k) for k, row in enumerate(rows)]
    return [(one.label, one.time) for one in found if one is not None]


def test_a_word_is_reported_once() -> None:
    rows = [QUIET] * 4 + [YES] * 6 + [QUIET] * 8 + [NO] * 6
    found = heard(rows, average=1.0, threshold=0.6, pause=1.5, least=3)
    assert [label for label, _ in found] == ["yes", "no"]
    # Smoothing takes time: three of the last four windows have to be of the word.
    assert found[0][1] == 0.25 * 6


def test_one_loud_window_is_not_a_word() -> None:
    assert heard([QUIET] * 4 + [YES] + [QUIET] * 4, threshold=0.6) == []
    assert heard([YES] * 2, threshold=0.6) == []
    assert heard([QUIET] * 20, threshold=0.6) == []


def test_a_long_word_is_reported_again_after_the_pause() -> None:
    found = heard([YES] * 20, threshold=0.6, pause=2.0, least=1)
    assert [time for _, time in found] == [0.0, 2.0, 4.0]


def test_windows_that_make_no_sense() -> None:
    spotter = KeywordSpotter(LABELS)
    spotter.add(YES, 1.0)
    with pytest.raises(InputDataError, match="not after"):
        spotter.add(YES, 1.0)
    with pytest.raises(InputDataError, match="3 labels and 2"):
        spotter.add([0.5, 0.5], 2.0)
    with pytest.raises(InputDataError):
        KeywordSpotter([])


def test_label_maps() -> None:
    scores = np.random.default_rng(0).standard_normal((2, 5, 3, 4)).astype(np.float32)
    np.testing.assert_array_equal(label_map(scores), scores.argmax(1))
    np.testing.assert_array_equal(label_map(scores.transpose(0, 2, 3, 1), axis=-1), scores.argmax(1))
    np.testing.assert_array_equal(label_map(scores[:, :1], threshold=0.5), scores[:, 0] > 0.5)
    with pytest.raises(InputDataError):
        label_map(np.zeros((2, 3)))


PREPROCESSES = [
    Preprocess(),
    Preprocess(keep_aspect_ratio=True),
    Preprocess(keep_aspect_ratio=True, pad_type="corner"),
    Preprocess(resize=(80, 96), crop=(64, 64)),
    Preprocess(resize=(80, 80), crop=(64, 64), keep_aspect_ratio=True),
]


@settings(max_examples=30, deadline=None, derandomize=True)
@given(st.sampled_from(PREPROCESSES), st.integers(40, 150), st.integers(40, 150))
def test_labels_come_back_where_boxes_do(how: Preprocess, height: int, width: int) -> None:
    """A region of the input is, in the image, where `boxes_to_image` puts its box."""
    labels = np.zeros((64, 64), np.uint8)
    labels[20:41, 16:33] = 3
    found = labels_to_image(labels, how, (1, 3, 64, 64), height, width, outside=9)
    assert found.shape == (height, width)
    (x1, y1, x2, y2), ys, xs = (
        boxes_to_image(np.float32([[16, 20, 33, 41]]), how, (1, 3, 64, 64), height, width)[0],
        *np.nonzero(found == 3),
    )
    assert np.abs([ys.min() - y1, ys.max() + 1 - y2, xs.min() - x1, xs.max() + 1 - x2]).max() <= 1.0


def test_a_image_of_two_halves(tmp_path) -> None:  # type: ignore[no-untyped-def]
    """Through the real preprocessing and back: every pixel but those at the edge has its side."""
    how = Preprocess(keep_aspect_ratio=True, pad_value=128)
    image = np.zeros((50, 90, 3), np.uint8)
    image[:, 45:] = 255
    Image.fromarray(image).save(tmp_path / "x.png")
    tensor = load_image(tmp_path / "x.png", how, (1, 3, 64, 64))
    back = labels_to_image((tensor[0, 0] > 127.5).astype(np.uint8), how, (1, 3, 64, 64), 50, 90)
    wrong = back != (image[..., 0] > 0)
    assert not wrong[:, :43].any() and not wrong[:, 47:].any()


def test_colours() -> None:
    assert len({tuple(row) for row in palette(256).tolist()}) == 256
    image = np.full((2, 2, 3), 100, np.uint8)
    labels = np.array([[0, 1], [2, 0]], np.uint8)
    mixed = overlay(image, labels)
    assert mixed[0, 0].tolist() == [100] * 3 and mixed[0, 1].tolist() == [114, 50, 50]
    with pytest.raises(InputDataError):
        overlay(image, labels[:1])


def test_the_mean_of_overlaps() -> None:
    truth = np.array([[0, 0, 1, 1, 255]])
    mean, each = mean_iou(np.array([[0, 1, 1, 1, 0]]), truth, 3)
    np.testing.assert_allclose(each, [1 / 2, 2 / 3, np.nan])
    assert mean == pytest.approx((1 / 2 + 2 / 3) / 2)
    with pytest.raises(InputDataError):
        mean_iou(np.array([[7]]), np.array([[0]]), 3)
