"""Images become tensors as their preprocessing says."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from npuc.arrays import Array
from npuc.errors import FileFormatError, FileMissingError, PreprocessError, ResourceLimitError
from npuc.images.loading import MAX_PIXELS, apply_arithmetic, guess_preprocess, load_image
from npuc.images.preprocess import Preprocess


@pytest.fixture
def pixels(tmp_path: Path) -> Array:
    array = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    Image.fromarray(array).save(tmp_path / "p.png")
    return array


def test_arithmetic_per_channel_in_nchw(tmp_path: Path, pixels: Any) -> None:
    preprocess = Preprocess(mean=(1, 2, 3), scale=(0.5, 0.25, 2))
    x = load_image(tmp_path / "p.png", preprocess, (4, 3, 6, 8))
    assert x.shape == (1, 3, 6, 8) and x.dtype == np.float32
    expected = (pixels.astype(np.float32) - [1, 2, 3]) * [0.5, 0.25, 2]
    np.testing.assert_allclose(x[0], expected.transpose(2, 0, 1), rtol=1e-6)


def test_bgr_turns_the_channels_round_before_the_arithmetic(tmp_path: Path, pixels: Any) -> None:
    preprocess = Preprocess(mean=(1, 2, 3), pixel_format="bgr", layout="nhwc")
    x = load_image(tmp_path / "p.png", preprocess, (1, 6, 8, 3))
    np.testing.assert_allclose(x[0], pixels[:, :, ::-1].astype(np.float32) - [1, 2, 3])


def test_raw_pixels_for_a_uint8_input(tmp_path: Path, pixels: Any) -> None:
    x = load_image(tmp_path / "p.png", Preprocess(layout="nhwc"), (1, 6, 8, 3), np.uint8)
    assert x.dtype == np.uint8
    np.testing.assert_array_equal(x[0], pixels)
    with pytest.raises(PreprocessError):
        load_image(tmp_path / "p.png", Preprocess(mean=(1.0,)), (1, 3, 6, 8), np.uint8)


def test_gray_and_rgba(tmp_path: Path, pixels: Any) -> None:
    gray = load_image(tmp_path / "p.png", Preprocess(pixel_format="gray"), (1, 1, 6, 8))
    luma = pixels @ [0.299, 0.587, 0.114]
    np.testing.assert_allclose(gray[0, 0], luma, atol=1)
    rgba = load_image(tmp_path / "p.png", Preprocess(pixel_format="rgba"), (1, 4, 6, 8))
    assert (rgba[0, 3] == 255).all()


def test_center_crop(tmp_path: Path, pixels: Any) -> None:
    x = load_image(tmp_path / "p.png", Preprocess(resize=(6, 8), layout="nhwc"), (1, 4, 4, 3), np.uint8)
    np.testing.assert_array_equal(x[0], pixels[1:5, 2:6])


@pytest.mark.parametrize(("pad_type", "rows"), [("center", slice(2, 6)), ("corner", slice(0, 4))])
def test_letterbox(tmp_path: Path, pad_type: Any, rows: slice) -> None:
    Image.new("RGB", (8, 4), (50, 60, 70)).save(tmp_path / "wide.png")
    preprocess = Preprocess(keep_aspect_ratio=True, pad_value=114, pad_type=pad_type, layout="nhwc")
    x = load_image(tmp_path / "wide.png", preprocess, (1, 8, 8, 3), np.uint8)[0]
    assert (x[rows] == [50, 60, 70]).all()
    outside = np.delete(x, np.r_[rows], axis=0)
    assert outside.shape[0] == 4 and (outside == 114).all()


def test_keeping_the_aspect_ratio_with_a_crop_covers_it(tmp_path: Path) -> None:
    Image.new("RGB", (100, 50), (50, 60, 70)).save(tmp_path / "wide.png")
    preprocess = Preprocess(keep_aspect_ratio=True, resize=(10, 10), crop=(8, 8), layout="nhwc")
    x = load_image(tmp_path / "wide.png", preprocess, (1, 8, 8, 3), np.uint8)
    assert (x == [50, 60, 70]).all()


def test_palette_16_bit_and_transparent_pictures(tmp_path: Path) -> None:
    Image.new("P", (4, 4)).save(tmp_path / "p.gif")
    assert load_image(tmp_path / "p.gif", Preprocess(), (1, 3, 4, 4)).shape == (1, 3, 4, 4)
    Image.fromarray(np.full((4, 4), 0x8000, np.uint16)).save(tmp_path / "deep.png")
    deep = load_image(tmp_path / "deep.png", Preprocess(pixel_format="gray"), (1, 1, 4, 4), np.uint8)
    assert (deep == 0x80).all()


def test_files_that_are_no_pictures(tmp_path: Path, pixels: Any) -> None:
    good = (tmp_path / "p.png").read_bytes()
    for name, content in {"text.png": b"hello", "cut.png": good[: len(good) // 2], "none.jpg": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError, match="image"):
            load_image(tmp_path / name, Preprocess(), (1, 3, 6, 8))
    with pytest.raises(FileMissingError):
        load_image(tmp_path / "absent.png", Preprocess(), (1, 3, 6, 8))


@pytest.mark.parametrize("side", [int(MAX_PIXELS**0.5) + 1, 100_000])
def test_a_picture_that_claims_to_be_huge_is_not_decoded(tmp_path: Path, side: int) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    content = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b"")
    (tmp_path / "bomb.png").write_bytes(b"\x89PNG\r\n\x1a\n" + content)
    with pytest.raises(ResourceLimitError):
        load_image(tmp_path / "bomb.png", Preprocess(), (1, 3, 6, 8))


def test_damaged_pictures_are_errors_in_words(tmp_path: Path, pixels: Any) -> None:
    rng = np.random.default_rng(1)
    for suffix in ("png", "jpg", "bmp", "gif", "webp", "tiff", "ppm"):
        Image.fromarray(pixels).save(tmp_path / f"g.{suffix}")
        good = (tmp_path / f"g.{suffix}").read_bytes()
        for _ in range(30):
            data = bytearray(good)
            for position in rng.integers(0, len(data), 4):
                data[position] = rng.integers(0, 256)
            (tmp_path / f"d.{suffix}").write_bytes(data)
            with suppress(FileFormatError, ResourceLimitError):
                assert load_image(tmp_path / f"d.{suffix}", Preprocess(), (1, 3, 6, 8)).shape == (1, 3, 6, 8)


def test_the_guess_from_a_shape() -> None:
    cases = {
        (1, 3, 9, 9): "rgb nchw",
        (1, 9, 9, 3): "rgb nhwc",
        (1, 1, 9, 9): "gray nchw",
        (4, 9, 9): "rgba nchw",
    }
    for shape, words in cases.items():
        guess = guess_preprocess(shape)
        assert guess is not None and f"{guess.pixel_format} {guess.layout}" == words
    assert guess_preprocess((1, 100)) is None and guess_preprocess((1, 7, 9, 9)) is None


def test_arithmetic_in_half_precision() -> None:
    x = apply_arithmetic(
        np.full((2, 2, 3), 200, np.uint8), Preprocess(mean=(100.0,), scale=(0.01,)), np.float16
    )
    assert x.dtype == np.float16
    np.testing.assert_allclose(x.astype(np.float32), 1.0, rtol=1e-3)


def test_pixels_of_signed_bytes_begin_at_minus_128(tmp_path: Path, pixels: Any) -> None:
    x = load_image(tmp_path / "p.png", Preprocess(layout="nhwc"), (1, 6, 8, 3), np.int8)
    assert x.dtype == np.int8 and np.array_equal(x[0].astype(int), pixels.astype(int) - 128)
