"""What has to be done to an image before a network can take it.

A `Preprocess` is attached to an image input at import and travels in the IR as an attribute of that input. Its steps:
resize (stretched, or with the aspect ratio kept), center crop, pixel format, `(pixel - mean) * scale` or the standardisation of
each image by its own mean and deviation, layout.
Pixels are 0 to 255, and mean, scale and pad value are in that unit. `--fuse-preprocess` turns the arithmetic into ops:
what is left (`geometry()`) then describes how raw uint8 pixels reach the input. With a source (`source_size`,
`source_format`), resize, crop, padding and conversion of colours become ops too, and the input takes the bytes of a camera.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, cast, get_args

from npuc.errors import PreprocessError
from npuc.images.kernels import YUV_FORMATS, yuv_shape

PixelFormat = Literal["rgb", "bgr", "gray", "rgba"]
Layout = Literal["nchw", "nhwc"]
PadType = Literal["center", "corner"]
Standardization = Literal["", "image", "channel"]
Interpolation = Literal[
    "bilinear",
    "bicubic",
    "nearest",
    "opencv-nearest",
    "opencv-nearest-exact",
    "opencv-linear",
    "opencv-linear-exact",
]

CHANNELS: dict[str, int] = {"rgb": 3, "bgr": 3, "gray": 1, "rgba": 4}
"""Channels of each pixel format."""

_MAX_SIDE = 1 << 15


@dataclass(frozen=True)
class Placement:
    """Where a resized image lies in the input of a network."""

    height: int
    """Of the resized image."""
    width: int
    top: int
    """The row of the input that its first row is; below 0 if a crop cuts rows off."""
    left: int


@dataclass(frozen=True)
class Preprocess:
    """The preprocessing of one image input.

    >>> Preprocess(mean=(127.5,), scale=(1 / 127.5,)).arithmetic()[0]
    (127.5, 127.5, 127.5)
    """

    resize: tuple[int, int] | None = None
    """Height and width to resize to; None is the size after the crop, that is, of the input."""
    keep_aspect_ratio: bool = False
    """Scale both axes alike. Without a crop the image fits inside `resize` and the rest is padded; with a crop it
    covers `resize`, and the crop cuts off what is too much."""
    pad_value: int = 0
    """The pixel value of the padding, in all channels, before mean and scale."""
    pad_type: PadType = "center"
    """`center` pads on all sides; `corner` puts the image in the top left corner."""
    crop: tuple[int, int] | None = None
    """Height and width of the center crop after the resize."""
    mean: tuple[float, ...] = ()
    """Subtracted from each channel, in the order of `pixel_format`; one value serves all channels, none is 0."""
    scale: tuple[float, ...] = ()
    """Multiplied with each channel after the mean is subtracted; none is 1."""
    pixel_format: PixelFormat = "rgb"
    """The channels that the network wants, in order."""
    layout: Layout = "nchw"
    """The order of the axes of the network's input."""
    interpolation: Interpolation = "bilinear"
    """How to resize: the first three are Pillow's, whose filters widen when an image shrinks; the others OpenCV's."""

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            object.__setattr__(self, name, kind(name, getattr(self, name)))
        sizes = (("resize", self.resize), ("crop", self.crop), ("source_size", self.source_size))
        for name, size in sizes:
            if size is not None and not all(1 <= side <= _MAX_SIDE for side in size):
                raise PreprocessError(
                    f"{name}: {size[0]},{size[1]} is not a height and a width of 1 to {_MAX_SIDE}"
                )
        for name, values in (("mean", self.mean), ("scale", self.scale)):
            if len(values) not in (0, 1, self.channels):
                raise PreprocessError(
                    f"{name}: {len(values)} values, but pixel format {self.pixel_format} has {self.channels} channels"
                )
            if not all(abs(value) < 1e30 for value in values):
                raise PreprocessError(f"{name}: values must be finite")
        if self.standardize and (self.mean or self.scale):
            raise PreprocessError(
                "standardize takes an image's own mean and deviation, and leaves nothing to mean and scale",
                fix="Leave out --mean and --scale, or --standardize",
            )
        if 0 in self.scale:
            raise PreprocessError("scale: a factor of 0 turns every pixel into the same value")
        if self.resize and self.crop and any(c > r for c, r in zip(self.crop, self.resize, strict=True)):
            raise PreprocessError(
                f"crop: {list(self.crop)} is larger than the resized image {list(self.resize)}"
            )

    source_size: tuple[int, int] | None = None
    """Height and width of the images that a program will be given, if the network itself is to resize and crop them; None
    leaves that to the host. Takes effect when the preprocessing is fused into the network."""
    source_format: str = ""
    """The format of the images that a program will be given: a pixel format, or one of `YUV_FORMATS`; empty is
    `pixel_format`. Takes effect when the preprocessing is fused into the network."""
    standardize: Standardization = ""
    """In place of mean and scale: subtract the mean of the image and divide by its deviation, over all channels (`image`) or for
    each (`channel`)."""
    yuv: str = ""
    """One of `YUV_FORMATS`, if the input takes the bytes of images in that format; set by fusing."""

    @property
    def channels(self) -> int:
        """How many channels the network's input has."""
        return CHANNELS[self.pixel_format]

    @property
    def has_arithmetic(self) -> bool:
        """True if the pixels are changed by a mean, a scale or a standardisation."""
        mean, scale = self.arithmetic()
        return (
            bool(self.standardize) or any(value != 0 for value in mean) or any(value != 1 for value in scale)
        )

    def arithmetic(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Mean and scale, one value a channel."""
        return _spread(self.mean, 0.0, self.channels), _spread(self.scale, 1.0, self.channels)

    @property
    def has_source(self) -> bool:
        """True if the network is to take images of a stated size or format."""
        return self.source_size is not None or bool(self.source_format)

    def geometry(self) -> Preprocess:
        """What is left when the arithmetic has become ops of the network."""
        return replace(self, mean=(), scale=(), standardize="")

    def of_source(self) -> Preprocess:
        """What is left when the network takes images of the stated source: their bytes, row by row."""
        source = self.source_format or self.pixel_format
        is_yuv = source in YUV_FORMATS
        left = Preprocess(pixel_format=cast("PixelFormat", "rgb" if is_yuv else source), layout="nhwc")
        left = replace(left, interpolation=self.interpolation, yuv=source if is_yuv else "")
        if self.source_size is not None:
            return left
        return replace(
            left,
            resize=self.resize,
            crop=self.crop,
            keep_aspect_ratio=self.keep_aspect_ratio,
            pad_value=self.pad_value,
            pad_type=self.pad_type,
        )

    def image_size(self, shape: Sequence[int]) -> tuple[int, int]:
        """Height and width of an input of a shape; `PreprocessError` if the shape is not that of an image."""
        if len(shape) not in (3, 4) or min(shape) < 1:
            raise PreprocessError(
                f"an input of shape {list(shape)} cannot take an image",
                fix="Preprocessing needs an input of rank 4, such as 1,3,224,224",
            )
        first, second, third = shape[-3:]
        if self.yuv:
            return self._yuv_size(shape)
        channels, height, width = (first, second, third) if self.layout == "nchw" else (third, first, second)
        if channels != self.channels:
            raise PreprocessError(
                f"pixel format {self.pixel_format} has {self.channels} channels, but an input of shape {list(shape)} "
                f"has {channels} in {self.layout} order",
                fix="Change --pixel-format or --channel-format",
            )
        return height, width

    def _yuv_size(self, shape: Sequence[int]) -> tuple[int, int]:
        rows, width = shape[1], shape[2]
        height = rows if len(shape) == 4 else rows * 2 // 3
        if yuv_shape(height, width, self.yuv) != tuple(shape[1:]):
            raise PreprocessError(f"an input of shape {list(shape)} takes no images in {self.yuv} format")
        return height, width

    def placement(self, shape: Sequence[int], height: int, width: int) -> Placement:
        """Where an image of a height and a width lies in an input of `shape`, once it is resized, padded and cropped.

        >>> Preprocess(keep_aspect_ratio=True).placement((1, 3, 8, 8), 2, 4)
        Placement(height=4, width=8, top=2, left=0)
        """
        (rows, columns), crop = self.steps(shape)
        if self.keep_aspect_ratio:
            ratios = (rows / height, columns / width)
            ratio = max(ratios) if crop is not None else min(ratios)
            resized = (max(1, round(height * ratio)), max(1, round(width * ratio)))
        else:
            resized = (rows, columns)
        if crop is not None:
            return Placement(*resized, -((resized[0] - crop[0]) // 2), -((resized[1] - crop[1]) // 2))
        if self.pad_type == "center":
            return Placement(*resized, (rows - resized[0]) // 2, (columns - resized[1]) // 2)
        return Placement(*resized, 0, 0)

    def steps(self, shape: Sequence[int]) -> tuple[tuple[int, int], tuple[int, int] | None]:
        """The resize and the crop (None if there is none) that lead to an input of a shape.

        A resize larger than the input implies a crop to the input's size.

        >>> Preprocess(resize=(256, 256)).steps((1, 3, 224, 224))
        ((256, 256), (224, 224))
        """
        target = self.image_size(shape)
        crop = self.crop
        if crop is not None and crop != target:
            raise PreprocessError(
                f"the crop gives {crop[0]} x {crop[1]} pixels, but the input takes {target[0]} x {target[1]}",
                fix=f"Use --crop {target[0]},{target[1]}, or change the input shape",
            )
        resize = self.resize or target
        if crop is None and resize != target:
            if any(r < t for r, t in zip(resize, target, strict=True)):
                raise PreprocessError(
                    f"the resize gives {resize[0]} x {resize[1]} pixels, but the input takes {target[0]} x {target[1]}",
                    fix=f"Use --resize-dims {target[0]},{target[1]} or larger (the rest is cropped)",
                )
            crop = target
        return resize, crop

    def implied_crop(self, shape: Sequence[int]) -> str | None:
        """In words, what becomes of images where a resize is larger than the input and no crop was asked for.

        >>> Preprocess(resize=(256, 256)).implied_crop((1, 3, 224, 224))
        'images are resized to 256 x 256, and the middle 224 x 224 pixels of them are taken'
        """
        resize, crop = self.steps(shape)
        if crop is None or self.crop is not None:
            return None
        return (
            f"images are resized to {resize[0]} x {resize[1]}, and the middle {crop[0]} x {crop[1]} pixels of them "
            "are taken"
        )

    def check(self, shape: Sequence[int]) -> None:
        """Raise `PreprocessError` unless this leads to an input of `shape`."""
        self.steps(shape)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for the IR: what is not at its default, and always the pixel format and the layout."""
        values = {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if getattr(self, field.name) != field.default
        }
        return values | {"pixel_format": self.pixel_format, "layout": self.layout}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Preprocess:
        """Read what `to_dict` wrote, or options of the same names; `PreprocessError` says what is wrong.

        >>> Preprocess.from_dict({"mean": [1, 2]})
        Traceback (most recent call last):
        npuc.errors.PreprocessError: [E402] mean: 2 values, but pixel format rgb has 3 channels.
        """
        unknown = [f"there is no preprocessing option '{name}'" for name in values if name not in _KINDS]
        if unknown:
            raise PreprocessError("; ".join(unknown))
        return Preprocess(**values)


def _spread(values: tuple[float, ...], default: float, channels: int) -> tuple[float, ...]:
    if len(values) == channels:
        return values
    return (values[0] if values else default,) * channels


def _choice(*words: str) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in words:
            raise PreprocessError(f"{name}: {value!r} is none of {', '.join(filter(None, words))}")
        return str(value)

    return check


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise PreprocessError(f"{name}: {value!r} is neither true nor false")
    return value


def _pixel(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 255:
        raise PreprocessError(f"{name}: {value!r} is no whole number from 0 to 255")
    return value


def _side_lengths(name: str, value: Any) -> tuple[int, int] | None:
    if value is None:
        return None
    if not isinstance(value, list | tuple) or len(value) != 2 or not all(type(side) is int for side in value):
        raise PreprocessError(f"{name}: {value!r} is not a height and a width")
    return value[0], value[1]


def _numbers(name: str, value: Any) -> tuple[float, ...]:
    if not isinstance(value, list | tuple) or not all(type(number) in (int, float) for number in value):
        raise PreprocessError(f"{name}: {value!r} are no numbers")
    return tuple(float(number) for number in value)


_KINDS: dict[str, Callable[[str, Any], Any]] = {
    "resize": _side_lengths,
    "keep_aspect_ratio": _flag,
    "pad_value": _pixel,
    "pad_type": _choice(*get_args(PadType)),
    "crop": _side_lengths,
    "mean": _numbers,
    "scale": _numbers,
    "pixel_format": _choice(*CHANNELS),
    "layout": _choice(*get_args(Layout)),
    "interpolation": _choice(*get_args(Interpolation)),
    "source_size": _side_lengths,
    "source_format": _choice("", *CHANNELS, *YUV_FORMATS),
    "standardize": _choice(*get_args(Standardization)),
    "yuv": _choice("", *YUV_FORMATS),
}
"""What each field may be; the values of files are not trusted."""
