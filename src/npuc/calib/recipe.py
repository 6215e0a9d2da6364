"""Preprocessing recipes: a YAML file of steps from an image file to a tensor.

    GetImage: {channel_order: RGB}
    ResizeTorch: {size: [256, 256], interpolation: bilinear}
    CenterCrop: {size: [224, 224]}
    Normalize: {mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225], to_float: true}
    SetOrder: {shape: CHW}

The steps run in the order of the file; alternatively `Pre-Order` lists the order and `Pre-processing` the parameters.
GetImage comes first and SetOrder last. Between them an image is height × width × channels. The steps themselves, as classes of
their parameters, are in `recipe_steps`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from pydantic import ValidationError

from npuc.arrays import Array
from npuc.calib.recipe_steps import STEPS, GetImage, RecipeStep
from npuc.errors import PreprocessError
from npuc.files import existing_file
from npuc.plain_yaml import load_yaml

_MAX_FILE = 1 << 20


@dataclass(frozen=True)
class Recipe:
    """The steps from an image file to a tensor."""

    image: GetImage
    steps: tuple[RecipeStep, ...]

    def __call__(self, image: Path | str | Array) -> Array:
        """The tensor of an image: of a file, or of pixels in the channel order that the other steps expect."""
        tensor = self.image.taken(image) if isinstance(image, np.ndarray) else self.image.load(Path(image))
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


def _step(name: Any, values: Any) -> RecipeStep:
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
        place = f"{name}: {where}" if where else name
        raise PreprocessError(f"{place}: {text[:1].lower()}{text[1:]}") from error


def _names() -> str:
    return f"The steps are: {', '.join(STEPS)}"
