"""Images of bytes in the native core: resampling with the results of Pillow and OpenCV, and luma and chroma to RGB.

Images are height × width × channels, uint8, of 1 to 4 channels. `native/include/npuc/image.h` has the C side.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.errors import PreprocessError
from npuc.native import library

KERNELS = {
    "pillow-nearest": 0,
    "pillow-bilinear": 1,
    "pillow-bicubic": 2,
    "opencv-nearest": 3,
    "opencv-nearest-exact": 4,
    "opencv-linear": 5,
    "opencv-linear-exact": 6,
}
"""`npuc_image_kernel` by name. All have the bits of their library but `opencv-linear`, which is within 1."""

YUV_FORMATS = {"i420": 0, "yv12": 1, "nv12": 2, "nv21": 3, "yuyv": 4, "uyvy": 5}
"""`npuc_yuv_format` by name: I420, YV12, NV12 and NV21 have one chroma sample for 2 × 2 pixels, the others for 2 × 1."""

_PACKED = ("yuyv", "uyvy")


def resize_image(pixels: Array, height: int, width: int, kernel: str) -> Array:
    """An image resampled by one of `KERNELS`.

    >>> resize_image(np.array([[[0], [10]]], np.uint8), 1, 4, "opencv-linear-exact")[0, :, 0].tolist()
    [0, 3, 8, 10]
    """
    if kernel not in KERNELS:
        raise PreprocessError(f"there is no kernel '{kernel}'", fix=f"There are {', '.join(KERNELS)}")
    if pixels.ndim != 3 or pixels.dtype != np.uint8:
        raise PreprocessError(
            f"an image is height x width x channels of uint8, not {pixels.ndim} axes of {pixels.dtype}"
        )
    x = np.ascontiguousarray(pixels)
    y = np.empty((max(height, 0), max(width, 0), x.shape[2]), np.uint8)
    resize = _function("npuc_image_resize", "ipLLLpLL")
    status = resize(KERNELS[kernel], x.ctypes.data, *x.shape, y.ctypes.data, height, width)
    _check(status, f"an image of {_size(x.shape)} cannot be resized to {height} x {width}")
    return y


def yuv_shape(height: int, width: int, yuv: str) -> tuple[int, ...]:
    """The shape of the bytes of an image: (height × 3/2, width) for 4:2:0, (height, width, 2) for 4:2:2.

    >>> yuv_shape(4, 6, "nv12"), yuv_shape(4, 6, "yuyv")
    ((6, 6), (4, 6, 2))
    """
    if yuv not in YUV_FORMATS:
        raise PreprocessError(f"there is no format '{yuv}'", fix=f"There are {', '.join(YUV_FORMATS)}")
    packed = yuv in _PACKED
    if min(height, width) < 1 or width % 2 or (not packed and height % 2):
        sides = "an even width" if packed else "even sides"
        raise PreprocessError(f"an image in {yuv} format has {sides}, and this one is {height} x {width}")
    return (height, width, 2) if packed else (height * 3 // 2, width)


def rgb_from_yuv(data: Array, height: int, width: int, yuv: str) -> Array:
    """Height × width × 3 in the order red, green, blue, from the bytes of an image in one of `YUV_FORMATS`.

    BT.601 of limited range (luma 16 to 235), with the bits of OpenCV's `cvtColor`.

    >>> rgb_from_yuv(np.array([235, 235, 16, 16, 128, 128], np.uint8), 2, 2, "nv12")[:, 0, 0].tolist()
    [255, 0]
    """
    shape = yuv_shape(height, width, yuv)
    expected = int(np.prod(shape))
    if data.dtype != np.uint8 or data.size != expected:
        raise PreprocessError(
            f"an image of {height} x {width} in {yuv} format has {expected} bytes, not {data.size} of {data.dtype}"
        )
    x = np.ascontiguousarray(data)
    rgb = np.empty((height, width, 3), np.uint8)
    convert = _function("npuc_image_from_yuv", "ipLLp")
    status = convert(YUV_FORMATS[yuv], x.ctypes.data, height, width, rgb.ctypes.data)
    _check(status, f"an image of {height} x {width} is too large")
    return rgb


def yuv_from_rgb(rgb: Array, yuv: str) -> Array:
    """The bytes of an image in one of `YUV_FORMATS`: what a camera would give, chroma as the mean of the pixels that share it.

    >>> yuv_from_rgb(np.full((2, 2, 3), 255, np.uint8), "nv12").tolist()
    [[235, 235], [235, 235], [128, 128]]
    """
    height, width, _ = rgb.shape
    shape = yuv_shape(height, width, yuv)
    weights = np.array(
        [[0.257, 0.504, 0.098], [-0.148, -0.291, 0.439], [0.439, -0.368, -0.071]]
    )  # BT.601, limited range
    whole = rgb.astype(np.float64) @ weights.T + [16, 128, 128]
    rows = 1 if yuv in _PACKED else 2
    shared = whole[:, :, 1:].reshape(height // rows, rows, width // 2, 2, 2).mean(axis=(1, 3))
    luma, chroma = (np.clip(np.rint(part), 0, 255).astype(np.uint8) for part in (whole[:, :, 0], shared))
    if yuv in ("yv12", "nv21"):
        chroma = chroma[:, :, ::-1]
    if yuv in _PACKED:
        pairs = [luma, chroma.reshape(height, width)]
        return np.stack(pairs if yuv == "yuyv" else pairs[::-1], axis=-1)
    planes = chroma.transpose(2, 0, 1) if yuv in ("i420", "yv12") else chroma
    return np.concatenate([luma.reshape(-1), planes.reshape(-1)]).reshape(shape)


@cache
def _function(name: str, types: str) -> Any:
    kinds = {"i": ctypes.c_int32, "L": ctypes.c_int64, "p": ctypes.c_void_p}
    function = getattr(library(), name)
    function.argtypes, function.restype = [kinds[letter] for letter in types], ctypes.c_int
    return function


def _check(status: int, words: str) -> None:
    if status:
        raise PreprocessError(words if status == 1 else "memory is short")


def _size(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))
