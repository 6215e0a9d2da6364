"""Preprocessing recipes: a YAML file of steps from an image file to a tensor.

    GetImage: {channel_order: RGB}
    ResizeTorch: {size: [256, 256], interpolation: bilinear}
    CenterCrop: {size: [224, 224]}
    Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], to_float: true}
    SetOrder: {shape: CHW}

The steps run in the order of the file; alternatively `Pre-Order` lists the order and `Pre-processing` the parameters.
GetImage comes first and SetOrder last. Between them an image is height × width × channels.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from npuc.arrays import Array, ceil_div
from npuc.errors import PreprocessError
from npuc.files import existing_file
from npuc.images.loading import MAX_PIXELS, decode
from npuc.images.resampling import resize
from npuc.plain_yaml import load_yaml

_MAX_FILE = 1 << 20


class _Step(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    def __call__(self, image: Array) -> Array:
        """The image after the step."""
        raise NotImplementedError


class GetImage(_Step):
    """Decode the file."""

    to_float32: bool = False
    channel_order: str = "bgr"

    @field_validator("channel_order")
    @classmethod
    def _lower(cls, value: str) -> str:
        value = value.lower()
        if value not in ("rgb", "bgr", "gray", "rgba"):
            raise ValueError(f"'{value}' is not rgb, bgr, gray or rgba")
        return value

    def load(self, path: Path) -> Array:
        """The pixels of a file."""
        pixels = decode(path, self.channel_order)
        return pixels.astype(np.float32) if self.to_float32 else pixels


class Pad(_Step):
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


class Normalize(_Step):
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


class ResizeTorch(_Step):
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


class Resize(_Step):
    """Resize by a factor, or to a size (or inside it, with the aspect ratio kept), with fixed kernels as in OpenCV."""

    img_scale: float | tuple[int, int]
    keep_ratio: bool = False
    interpolation: Literal["nearest", "bilinear", "bicubic", "area", "lanczos"] = "bilinear"

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
        return resize(image, new_height, new_width, self.interpolation)


class CenterCrop(_Step):
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


class SetOrder(_Step):
    """The order of the axes of the tensor."""

    shape: Literal["HWC", "CHW", "BHW", "BCHW"] = "HWC"

    def __call__(self, image: Array) -> Array:
        """The tensor."""
        if self.shape == "HWC":
            return image
        tensor = image.transpose(2, 0, 1)
        if self.shape == "CHW":
            return tensor
        if self.shape == "BCHW":
            return tensor[None]
        if tensor.shape[0] != 1:
            raise PreprocessError(f"SetOrder: BHW has no place for {tensor.shape[0]} channels")
        return tensor


STEPS: dict[str, type[_Step]] = {
    kind.__name__: kind for kind in (GetImage, Pad, Normalize, ResizeTorch, Resize, CenterCrop, SetOrder)
}


@dataclass(frozen=True)
class Recipe:
    """The steps from an image file to a tensor."""

    image: GetImage
    steps: tuple[_Step, ...]

    def __call__(self, path: Path | str) -> Array:
        """The tensor of an image."""
        tensor = self.image.load(Path(path))
        for step in self.steps:
            tensor = step(tensor)
        return np.ascontiguousarray(tensor)


def load_recipe(path: Path | str) -> Recipe:
    """Read a recipe from a YAML file; `PreprocessError` names what is wrong in it."""
    path = existing_file(path)
    if path.stat().st_size > _MAX_FILE:
        raise PreprocessError("is too large for a preprocessing recipe", where=str(path))
    try:
        content = load_yaml(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise PreprocessError(
            f"is not YAML ({' '.join(str(error).split())})", where=str(path), fix="Check its indentation"
        ) from error
    try:
        return parse_recipe(content)
    except PreprocessError as error:
        raise PreprocessError(error.message, where=str(path), fix=error.fix) from error


def parse_recipe(content: Any) -> Recipe:
    """A recipe from the content of its file.

    >>> parse_recipe({"GetImage": {"channel_order": "RGB"}, "SetOrder": {"shape": "CHW"}}).image.channel_order
    'rgb'
    """
    if not isinstance(content, Mapping) or not content:
        raise PreprocessError("a recipe is a list of steps with their parameters", fix=_names())
    parameters = dict(content)
    kind = parameters.pop("Datatype", "Image")
    if str(kind).lower() != "image":
        raise PreprocessError(f"Datatype: {kind} is not supported", fix="A recipe is for images")
    order = parameters.pop("Pre-Order", None)
    if "Pre-processing" in parameters:
        inner = parameters.pop("Pre-processing")
        if not isinstance(inner, Mapping):
            raise PreprocessError("Pre-processing holds no steps", fix=_names())
        parameters |= inner
    if order is not None:
        if not isinstance(order, list) or not all(isinstance(name, str) for name in order):
            raise PreprocessError("Pre-Order is not a list of steps", fix=_names())
        missing = [name for name in order if name not in parameters and name != "GetImage"]
        unused = [name for name in parameters if name not in order and name != "GetImage"]
        if missing or unused:
            words = f"has '{missing[0]}' without" if missing else f"does not have '{unused[0]}' of"
            raise PreprocessError(f"Pre-Order {words} Pre-processing")
        parameters = {"GetImage": parameters.get("GetImage")} | {
            name: parameters[name] for name in order if name != "GetImage"
        }
    steps = [(name, _step(name, values)) for name, values in parameters.items()]
    if "GetImage" not in parameters:
        steps.insert(0, ("GetImage", GetImage()))
    for index, (name, _) in enumerate(steps):
        if name == "GetImage" and index:
            raise PreprocessError("GetImage has to be the first step")
        if name == "SetOrder" and index != len(steps) - 1:
            raise PreprocessError("SetOrder has to be the last step")
    first = steps[0][1]
    assert isinstance(first, GetImage)
    return Recipe(first, tuple(step for _, step in steps[1:]))


def _step(name: Any, values: Any) -> _Step:
    if name not in STEPS:
        near = get_close_matches(str(name), STEPS, n=1)
        raise PreprocessError(
            f"there is no step '{name}'", fix=f"Did you mean '{near[0]}'?" if near else _names()
        )
    if values is not None and not isinstance(values, Mapping):
        raise PreprocessError(f"{name}: its parameters have to be written NAME: VALUE")
    options = dict(values or {})
    if name == "Normalize" and "to_float" in options and "to_float_div255" in options:
        raise PreprocessError("Normalize: to_float and to_float_div255 are the same; give one")
    try:
        return STEPS[name].model_validate(options)
    except ValidationError as error:
        # A name that is not there explains one that is missing.
        problem = min(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        where = ".".join(str(part) for part in problem["loc"][:1])
        if problem["type"] == "extra_forbidden":
            known = ", ".join(STEPS[name].model_fields)
            raise PreprocessError(f"{name} has no parameter '{where}'", fix=f"It has: {known}") from error
        text = str(problem["msg"]).removeprefix("Value error, ")
        raise PreprocessError(f"{name}: {where}: {text[:1].lower()}{text[1:]}") from error


def _names() -> str:
    return f"The steps are: {', '.join(STEPS)}"


def _shorter(image: Array, size: int) -> tuple[int, int]:
    height, width = image.shape[:2]
    if height <= width:
        return size, int(size * width / height)
    return int(size * height / width), size


def _check_size(name: str, height: int, width: int) -> None:
    if min(height, width) < 1 or height * width > MAX_PIXELS:
        raise PreprocessError(f"{name}: {height} x {width} is not a size for an image")
