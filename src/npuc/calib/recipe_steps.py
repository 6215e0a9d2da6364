"""The steps of preprocessing recipes: each a class of its parameters, called with an image and giving the next one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from npuc.arrays import Array, ceil_div
from npuc.errors import FileFormatError, PreprocessError
from npuc.files import existing_file
from npuc.images.kernels import resize_image, rgb_from_yuv, yuv_shape
from npuc.images.loading import MAX_PIXELS, decode
from npuc.images.resampling import resize


class RecipeStep(BaseModel):
    """A step; what is no parameter of it is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        raise NotImplementedError


class GetImage(RecipeStep):
    """Decode the file: a picture, or with `yuv` the raw bytes of one of `size` (height, width) in a camera's format."""

    to_float32: bool = False
    channel_order: str = "bgr"
    yuv: Literal["i420", "yv12", "nv12", "nv21", "yuyv", "uyvy"] | None = None
    size: tuple[int, int] | None = None

    @field_validator("channel_order")
    @classmethod
    def _lower(cls, value: str) -> str:
        value = value.lower()
        if value not in ("rgb", "bgr", "gray", "rgba"):
            raise ValueError(f"'{value}' is not rgb, bgr, gray or rgba")
        return value

    @model_validator(mode="after")
    def _has_size(self) -> GetImage:
        if (self.yuv is None) != (self.size is None):
            raise ValueError("yuv and size go together: raw bytes do not tell the size of an image")
        if self.yuv is not None and self.size is not None:
            if self.channel_order == "rgba":
                raise ValueError("an image in yuv has no alpha")
            yuv_shape(*self.size, self.yuv)
        return self

    def load(self, path: Path) -> Array:
        """The pixels of a file."""
        pixels = decode(path, self.channel_order) if self.yuv is None else self._from_yuv(path)
        return pixels.astype(np.float32) if self.to_float32 else pixels

    def taken(self, pixels: Array) -> Array:
        """Pixels that are decoded already, height × width × channels; an image without the last axis is gray."""
        if pixels.ndim == 2:
            pixels = pixels[:, :, None]
        if pixels.ndim != 3 or not pixels.size or pixels.dtype.kind not in "uif":
            raise PreprocessError(
                f"GetImage: an array of {pixels.dtype} and shape {list(pixels.shape)} is not an image",
                fix="Give height × width × channels",
            )
        return pixels.astype(np.float32) if self.to_float32 else pixels

    def _from_yuv(self, path: Path) -> Array:
        assert self.yuv is not None and self.size is not None
        path = existing_file(path)
        expected = int(np.prod(yuv_shape(*self.size, self.yuv)))
        if (size := path.stat().st_size) != expected:
            raise FileFormatError(
                f"has {size} bytes, and an image of {self.size[0]} x {self.size[1]} in {self.yuv} format has {expected}",
                where=str(path),
            )
        rgb = rgb_from_yuv(np.fromfile(path, np.uint8), *self.size, self.yuv)
        if self.channel_order == "gray":
            return to_gray(rgb)
        return rgb[:, :, ::-1] if self.channel_order == "bgr" else rgb


class Pad(RecipeStep):
    """Pad to a size, or to a multiple of one, on all sides or only at the right and the bottom."""

    shape: tuple[int, int] | None = None
    size_divisor: int | None = Field(None, ge=1)
    pad_val: float = 0.0
    right_bottom: bool = False

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        height, width = image.shape[:2]
        target_height, target_width = self.shape or (height, width)
        if self.size_divisor:
            target_height, target_width = (
                ceil_div(side, self.size_divisor) * self.size_divisor
                for side in (target_height, target_width)
            )
        if target_height < height or target_width < width or target_height * target_width > MAX_PIXELS:
            raise PreprocessError(
                f"Pad: an image of {height} x {width} cannot be filled up to {target_height} x {target_width}"
            )
        more_height, more_width = target_height - height, target_width - width
        top, left = (0, 0) if self.right_bottom else (more_height // 2, more_width // 2)
        pads = ((top, more_height - top), (left, more_width - left), (0, 0))
        return np.pad(image, pads, constant_values=np.asarray(self.pad_val).astype(image.dtype))


class Normalize(RecipeStep):
    """`(x - mean) / std` of pixels from 0 to 255, or from 0 to 1 with `to_float`."""

    mean: tuple[float, ...] = Field(min_length=1)
    std: tuple[float, ...] = Field(min_length=1)
    to_float: bool = Field(False, alias="to_float_div255")

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    @field_validator("std")
    @classmethod
    def _not_zero(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if not all(deviation > 0 for deviation in value):
            raise ValueError("each value has to be above 0")
        return value

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        for label, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, image.shape[2]):
                raise PreprocessError(
                    f"Normalize: {len(values)} values of {label} for an image of {image.shape[2]} channels"
                )
        pixels = image.astype(np.float32)
        if self.to_float:
            pixels /= np.float32(255)
        mean, std = np.asarray(self.mean, np.float32), np.asarray(self.std, np.float32)
        normal: Array = (pixels - mean) / std
        return normal


class ResizeTorch(RecipeStep):
    """Resize with a filter that widens when the image shrinks; one number is the length of the shorter side."""

    size: tuple[int, ...] = Field(min_length=1, max_length=2)
    interpolation: Literal["nearest", "bilinear", "bicubic", "box", "hamming", "lanczos"] = "bilinear"

    @field_validator("size", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, int) else value

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        height, width = self.size if len(self.size) == 2 else _shorter(image, self.size[0])
        _check_size("ResizeTorch", height, width)
        filter_ = Image.Resampling[self.interpolation.upper()]
        if image.dtype == np.uint8 and image.shape[2] in (1, 3, 4):
            resizable = Image.fromarray(
                image[:, :, 0] if image.shape[2] == 1 else np.ascontiguousarray(image)
            )
            resized = np.asarray(resizable.resize((width, height), filter_))
            return resized if resized.ndim == 3 else resized[:, :, None]
        planes = [
            np.asarray(Image.fromarray(image[:, :, c].astype(np.float32)).resize((width, height), filter_))
            for c in range(image.shape[2])
        ]
        return np.stack(planes, axis=-1).astype(image.dtype)


class Resize(RecipeStep):
    """Resize by a factor, or to a size (or inside it, with the aspect ratio kept), with fixed kernels as in OpenCV."""

    img_scale: float | tuple[int, int]
    keep_ratio: bool = False
    interpolation: Literal[
        "nearest", "nearest-exact", "bilinear", "bilinear-exact", "bicubic", "area", "lanczos"
    ] = "bilinear"

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        height, width = image.shape[:2]
        if not isinstance(self.img_scale, tuple):
            new_height, new_width = (int(side * self.img_scale + 0.5) for side in (height, width))
        elif self.keep_ratio:
            factor = min(self.img_scale[0] / height, self.img_scale[1] / width)
            new_height, new_width = (int(side * factor + 0.5) for side in (height, width))
        else:
            new_height, new_width = self.img_scale
        _check_size("Resize", new_height, new_width)
        return _resized(image, new_height, new_width, self.interpolation)


class Letterbox(RecipeStep):
    """Resize with the aspect ratio kept so that the image fits into a size, and fill the rest, on all sides or at two."""

    size: tuple[int, int]
    pad_val: int = Field(114, ge=0, le=255)
    right_bottom: bool = False
    interpolation: Literal["nearest", "nearest-exact", "bilinear", "bilinear-exact", "bicubic"] = "bilinear"

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        factor = min(self.size[0] / image.shape[0], self.size[1] / image.shape[1])
        height, width = (max(1, round(side * factor)) for side in image.shape[:2])
        _check_size("Letterbox", *self.size)
        inside = _resized(image, height, width, self.interpolation)
        return Pad(shape=self.size, size_divisor=None, pad_val=self.pad_val, right_bottom=self.right_bottom)(
            inside
        )


class CenterCrop(RecipeStep):
    """Cut a size out of the middle."""

    size: tuple[int, int]

    @field_validator("size", mode="before")
    @classmethod
    def _pair(cls, value: Any) -> Any:
        return (value, value) if isinstance(value, int) else value

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        height, width = self.size
        if height > image.shape[0] or width > image.shape[1] or min(self.size) < 1:
            raise PreprocessError(
                f"CenterCrop: {height} x {width} cannot be cut out of an image of {image.shape[0]} x {image.shape[1]}"
            )
        top, left = round((image.shape[0] - height) / 2), round((image.shape[1] - width) / 2)
        return image[top : top + height, left : left + width]


class Crop(RecipeStep):
    """Cut a size out, from a row and a column on."""

    size: tuple[int, int]
    top: int = Field(0, ge=0)
    left: int = Field(0, ge=0)

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        end = self.top + self.size[0], self.left + self.size[1]
        if min(self.size) < 1 or end[0] > image.shape[0] or end[1] > image.shape[1]:
            raise PreprocessError(
                f"Crop: rows {self.top} to {end[0]} and columns {self.left} to {end[1]} are not in an image of "
                f"{image.shape[0]} x {image.shape[1]}"
            )
        return image[self.top : end[0], self.left : end[1]]


class SwapChannels(RecipeStep):
    """RGB to BGR and back: the channels in reverse order."""

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        return image[:, :, ::-1]


class ToGray(RecipeStep):
    """RGB (or BGR, with `channel_order`) to one channel of luma, rounded as Pillow does."""

    channel_order: Literal["rgb", "bgr"] = "rgb"

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        if image.shape[2] != 3:
            raise PreprocessError(f"ToGray: an image of {image.shape[2]} channels is not RGB")
        return to_gray(image[:, :, ::-1] if self.channel_order == "bgr" else image)


class Standardize(RecipeStep):
    """`(x - mean) / deviation` of the image itself, of all channels together or of each."""

    per_channel: bool = False

    def __call__(self, image: Array) -> Array:
        """The image after the step; the deviation is at least that of one gray level in one pixel, as in TensorFlow."""
        axes = (0, 1) if self.per_channel else (0, 1, 2)
        pixels = image.astype(np.float32)
        count = image.size // image.shape[2] if self.per_channel else image.size
        deviation = np.maximum(pixels.std(axis=axes, dtype=np.float64), 1 / np.sqrt(count))
        standard: Array = ((pixels - pixels.mean(axis=axes, dtype=np.float64)) / deviation).astype(np.float32)
        return standard


class SetOrder(RecipeStep):
    """The order of the axes of the tensor."""

    shape: Literal["HWC", "CHW", "BHW", "BCHW", "BHWC"] = "HWC"

    def __call__(self, image: Array) -> Array:
        """The tensor."""
        if self.shape == "HWC":
            return image
        if self.shape == "BHWC" or (self.shape == "BHW" and image.shape[2] == 3):
            return image[None]
        tensor = image.transpose(2, 0, 1)
        if self.shape == "CHW":
            return tensor
        if self.shape == "BCHW":
            return tensor[None]
        if tensor.shape[0] != 1:
            raise PreprocessError(f"SetOrder: BHW has no place for {tensor.shape[0]} channels")
        return tensor


STEPS: dict[str, type[RecipeStep]] = {
    kind.__name__: kind
    for kind in (
        GetImage,
        Pad,
        Normalize,
        ResizeTorch,
        Resize,
        Letterbox,
        CenterCrop,
        Crop,
        SwapChannels,
        ToGray,
        Standardize,
        SetOrder,
    )
}
"""The steps by name."""


def to_gray(rgb: Array) -> Array:
    """Luma of height × width × 3, with the weights and the rounding of Pillow for uint8."""
    if rgb.dtype != np.uint8:
        luma: Array = (rgb @ np.array([0.299, 0.587, 0.114], rgb.dtype))[:, :, None]
        return luma
    total = rgb.astype(np.int32) @ np.array([19595, 38470, 7471], np.int32)
    gray: Array = ((total + 0x8000) >> 16).astype(np.uint8)[:, :, None]
    return gray


_BYTES = {
    "nearest": "opencv-nearest",
    "nearest-exact": "opencv-nearest-exact",
    "bilinear": "opencv-linear",
    "bilinear-exact": "opencv-linear-exact",
}
"""Interpolations that the native core has for uint8."""


def _resized(image: Array, height: int, width: int, interpolation: str) -> Array:
    if image.dtype == np.uint8 and interpolation in _BYTES and image.shape[2] <= 4:
        return resize_image(image, height, width, _BYTES[interpolation])
    return resize(image, height, width, interpolation.removesuffix("-exact"))


def _shorter(image: Array, size: int) -> tuple[int, int]:
    height, width = image.shape[:2]
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _check_size(name: str, height: int, width: int) -> None:
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise PreprocessError(f"{name}: {height} x {width} is not a size for an image")
