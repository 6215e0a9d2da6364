"""Resampling and colours against the libraries whose results they have: Pillow and OpenCV."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.errors import PreprocessError
from npuc.images.kernels import KERNELS, YUV_FORMATS, resize_image, rgb_from_yuv, yuv_shape

cv2: Any = pytest.importorskip("cv2")

COUNTS = [60, pytest.param(500, marks=pytest.mark.slow)]


def cases(count: int, seed: int) -> list[tuple[Array, int, int]]:
    """Random images and the sizes that they get; some tiny, some extremes, every third with a simple ratio."""
    rng = np.random.default_rng(seed)
    made = []
    for index in range(count):
        height, width = (int(side) for side in rng.integers(1, 12 if index % 10 == 0 else 160, 2))
        out_height, out_width = (int(side) for side in rng.integers(1, 160, 2))
        if index % 3 == 0:
            ratio = int(rng.integers(2, 5))
            out_height, out_width = (height * ratio, width * ratio) if index % 2 else (height, width)
            if not index % 2:
                height, width = height * ratio, width * ratio
        channels = (1, 3, 4)[index % 3]
        made.append((rng.integers(0, 256, (height, width, channels), dtype=np.uint8), out_height, out_width))
    return made


def pillow(pixels: Array, height: int, width: int, kernel: str) -> Array:
    """Channel by channel: Pillow multiplies colours with their alpha first."""
    filter_ = Image.Resampling[kernel.removeprefix("pillow-").upper()]
    planes = [
        np.asarray(Image.fromarray(pixels[:, :, c]).resize((width, height), filter_))
        for c in range(pixels.shape[2])
    ]
    return np.stack(planes, axis=-1)


def opencv(pixels: Array, height: int, width: int, kernel: str) -> Array:
    flag = getattr(cv2, f"INTER_{kernel.removeprefix('opencv-').replace('-', '_').upper()}")
    resized: Array = cv2.resize(pixels, (width, height), interpolation=flag)
    return resized.reshape(height, width, -1)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_a_kernel_has_the_results_of_its_library(kernel: str, count: int) -> None:
    judge = pillow if kernel.startswith("pillow") else opencv
    tolerance = 1 if kernel == "opencv-linear" else 0
    for pixels, height, width in cases(count, KERNELS[kernel]):
        ours = resize_image(pixels, height, width, kernel).astype(int)
        apart = np.abs(ours - judge(pixels, height, width, kernel)).max()
        assert apart <= tolerance, f"{pixels.shape} to {height} x {width}: {apart}"


@pytest.mark.parametrize("yuv", YUV_FORMATS)
def test_colours_have_opencvs_bits(yuv: str) -> None:
    """It may be 1 apart by the issue; it is not."""
    flag = getattr(cv2, f"COLOR_YUV2RGB_{'YUY2' if yuv == 'yuyv' else yuv.upper()}")
    rng = np.random.default_rng(1)
    for height, width in [(2, 2), (4, 2), (2, 34), (64, 48), (130, 258)]:
        data = rng.integers(0, 256, yuv_shape(height, width, yuv), dtype=np.uint8)
        np.testing.assert_array_equal(rgb_from_yuv(data, height, width, yuv), cv2.cvtColor(data, flag))


def test_what_is_no_image_is_refused_in_words() -> None:
    pixels = np.zeros((2, 2, 3), np.uint8)
    for height, width in [(0, 4), (4, -1), (1 << 20, 1)]:
        with pytest.raises(PreprocessError, match="cannot be resized"):
            resize_image(pixels, height, width, "pillow-bilinear")
    with pytest.raises(PreprocessError, match="no kernel 'sinc'"):
        resize_image(pixels, 1, 1, "sinc")
    with pytest.raises(PreprocessError, match="uint8"):
        resize_image(pixels.astype(np.float32), 1, 1, "pillow-bilinear")
    with pytest.raises(PreprocessError, match="2 x 2 x 5 cannot be resized"):
        resize_image(np.zeros((2, 2, 5), np.uint8), 1, 1, "pillow-bilinear")
    with pytest.raises(PreprocessError, match="has 6 bytes, not 7"):
        rgb_from_yuv(np.zeros(7, np.uint8), 2, 2, "nv12")
    with pytest.raises(PreprocessError, match="no format 'p010'"):
        yuv_shape(2, 2, "p010")
