"""Images: from a file to the tensor that a network takes, as its `Preprocess` says.

Mean and scale are applied if the input is a float; an input of raw pixels (uint8, after `--fuse-preprocess`) gets the
pixels. Pillow's resampling widens its filter when it shrinks an image, as `torchvision` on Pillow images does; OpenCV's
kernels are in `images.kernels`. The orientation that a camera noted in a file is not applied. Files are hostile until
decoded: only common formats are opened, and the size is checked before the pixels are.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from npuc.arrays import Array
from npuc.errors import FileFormatError, PreprocessError, ResourceLimitError
from npuc.files import existing_file
from npuc.images.kernels import resize_image, yuv_from_rgb
from npuc.images.preprocess import CHANNELS, Preprocess

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm"})
"""File names that end so are taken for images."""

MAX_PIXELS = 80_000_000
"""The largest image that is decoded: 80 million pixels need 240 MB."""

_FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "TIFF", "PPM")
_FILTERS = {
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "nearest": Image.Resampling.NEAREST,
}


def load_image(
    path: Path | str, preprocess: Preprocess, shape: Sequence[int], dtype: Any = np.float32
) -> Array:
    """One image as the input of a network; `shape` is the shape of that input.

    The result has the rank of the input and, where that has a batch axis, a batch of 1.

    >>> load_image("cat.jpg", Preprocess(), (8, 3, 224, 224)).shape  # doctest: +SKIP
    (1, 3, 224, 224)
    """
    path = existing_file(path)
    preprocess.check(shape)
    return image_tensor(_decode(path, preprocess.pixel_format), preprocess, shape, dtype)


def image_tensor(
    image: Image.Image, preprocess: Preprocess, shape: Sequence[int], dtype: Any = np.float32
) -> Array:
    """An image that is already decoded, as `load_image` gives it."""
    height, width = preprocess.image_size(shape)
    at = preprocess.placement(shape, image.height, image.width)
    if at.height * at.width > MAX_PIXELS:
        raise PreprocessError(
            f"an image of {image.width} x {image.height} would become {at.width} x {at.height} when it is resized"
        )
    image = image.convert(_mode(preprocess.pixel_format))
    image = _resized(image, at.height, at.width, preprocess.interpolation)
    if (at.top, at.left, at.height, at.width) != (0, 0, height, width):
        value = preprocess.pad_value
        fill: Any = value if image.mode == "L" else (value,) * len(image.getbands())
        canvas = Image.new(image.mode, (width, height), fill)
        canvas.paste(image, (at.left, at.top))
        image = canvas
    if preprocess.yuv:
        return yuv_from_rgb(np.asarray(image), preprocess.yuv)[None]
    pixels = np.asarray(image)
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    if preprocess.pixel_format == "bgr":
        pixels = pixels[:, :, ::-1]
    tensor = apply_arithmetic(pixels, preprocess, dtype)
    if preprocess.layout == "nchw":
        tensor = tensor.transpose(2, 0, 1)
    return np.ascontiguousarray(tensor[None] if len(shape) == 4 else tensor)


def apply_arithmetic(pixels: Array, preprocess: Preprocess, dtype: Any = np.float32) -> Array:
    """`(pixel - mean) * scale` over the last axis, or the standardisation of each image, as a tensor of `dtype`."""
    kind = np.dtype(dtype)
    # Kind "V" is what NumPy calls bfloat16 and its like from ml_dtypes.
    if kind.kind in "fV":
        if preprocess.standardize:
            return standardized(pixels, per_channel=preprocess.standardize == "channel").astype(kind)
        mean, scale = (np.asarray(values, np.float32) for values in preprocess.arithmetic())
        return ((pixels.astype(np.float32) - mean) * scale).astype(kind)
    if preprocess.has_arithmetic:
        raise PreprocessError(
            f"mean, scale and standardisation need a float input, and this one is {kind}",
            fix="Leave out --mean, --scale and --standardize, or use --fuse-preprocess",
        )
    if kind == np.int8:
        # Networks of signed bytes have the pixel 0 at -128.
        return (pixels.astype(np.int16) - 128).astype(kind)
    return pixels.astype(kind)


def standardized(pixels: Array, *, per_channel: bool) -> Array:
    """Images (..., H, W, C) of whole pixels less their mean, by their deviation, as float32.

    Sums are those of integers, so that every implementation has the same bits. A deviation is at least 1 / sqrt(pixels), as
    TensorFlow has it.

    >>> standardized(np.array([[[1], [3]]], np.uint8), per_channel=False).ravel()
    array([-1.,  1.], dtype=float32)
    """
    axes = (-3, -2) if per_channel else (-3, -2, -1)
    values = pixels.astype(np.int64)
    count = int(np.prod([pixels.shape[axis] for axis in axes]))
    total, squares = (part.sum(axis=axes, keepdims=True) for part in (values, values * values))
    deviation = np.sqrt((count * squares - total * total).astype(np.float64)) / count
    mean = total.astype(np.float64) / count
    scaled: Array = ((values - mean) / np.maximum(deviation, 1 / np.sqrt(count))).astype(np.float32)
    return scaled


def guess_preprocess(shape: Sequence[int]) -> Preprocess | None:
    """Plain pixels in the format and layout that a shape suggests; None if it is not that of an image.

    >>> guess_preprocess((1, 224, 224, 3)).layout
    'nhwc'
    """
    if len(shape) not in (3, 4):
        return None
    formats = {CHANNELS[name]: name for name in ("rgb", "gray", "rgba")}
    for layout, channels in (("nchw", shape[-3]), ("nhwc", shape[-1])):
        if channels in formats:
            return Preprocess.from_dict({"pixel_format": formats[channels], "layout": layout})
    return None


def is_image(path: Path | str) -> bool:
    """True if the name of a file is that of an image."""
    return Path(path).suffix.lower() in SUFFIXES


def is_gray(path: Path | str) -> bool:
    """True if an image has no colours, by its header; what is wrong with a file shows when it is decoded."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as file:
                return file.mode in ("1", "L", "LA", "La", "F") or file.mode.startswith("I")
    except Exception:
        return False


def image_size(path: Path | str) -> tuple[int, int]:
    """Height and width of an image, by its header."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as file:
                return file.height, file.width
    except Exception as error:
        raise FileFormatError(f"cannot be decoded as an image ({error})", where=str(path)) from error


def decode(path: Path, pixel_format: str) -> Array:
    """The pixels of an image as height × width × channels, uint8."""
    pixels = np.asarray(_decode(existing_file(path), pixel_format))
    pixels = pixels[:, :, None] if pixels.ndim == 2 else pixels
    return pixels[:, :, ::-1] if pixel_format == "bgr" else pixels


def _decode(path: Path, pixel_format: str) -> Image.Image:
    mode = _mode(pixel_format)
    try:
        with warnings.catch_warnings():
            # Pillow warns about images half the size of its own limit; ours is below that.
            warnings.simplefilter("ignore")
            with Image.open(path, formats=_FORMATS) as file:
                if file.width * file.height > MAX_PIXELS:
                    raise _too_large(path, f"{file.width} x {file.height} pixels")
                file.load()
                image: Image.Image = file
                if image.mode.startswith("I"):
                    # Pillow clips 16-bit samples when it converts; keep their upper byte instead.
                    image = Image.fromarray(
                        (np.asarray(image).astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
                    )
                return image.convert(mode)
    except Image.DecompressionBombError as error:
        raise _too_large(path, "far more pixels than that") from error
    except MemoryError as error:
        raise _too_large(path, "more pixels than fit in memory") from error
    except (OSError, SyntaxError, ValueError, TypeError, EOFError, IndexError, ArithmeticError) as error:
        kinds = ", ".join(_FORMATS)
        raise FileFormatError(
            f"cannot be decoded as an image ({error})", where=str(path), fix=f"Images may be {kinds}"
        ) from error


def _mode(pixel_format: str) -> str:
    """Pillow's name for the channels; it has no BGR."""
    return {"gray": "L", "rgba": "RGBA"}.get(pixel_format, "RGB")


def _too_large(path: Path, size: str) -> ResourceLimitError:
    return ResourceLimitError(
        f"declares {size}; the limit is {MAX_PIXELS} pixels",
        where=str(path),
        fix="Make the image smaller first",
    )


def _resized(image: Image.Image, height: int, width: int, interpolation: str) -> Image.Image:
    if interpolation in _FILTERS:
        return image.resize((width, height), _FILTERS[interpolation])
    pixels = np.asarray(image)
    resized = resize_image(pixels[:, :, None] if pixels.ndim == 2 else pixels, height, width, interpolation)
    return Image.fromarray(resized[:, :, 0] if pixels.ndim == 2 else resized)
