"""Two networks that prepare pictures differently, on the same pictures.

A tensor made for one of them is not what the other takes: with another mean, scale or order of channels, every figure of a
comparison would be about the preparation and not about the networks. So each gets the pictures in its own way.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from PIL import Image

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.calib.samples import Batch
from npuc.calib.sources import RANDOM_SAMPLES
from npuc.images.loading import image_tensor
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, Port, dtype_of, shape_of


def prepared_differently(first: Graph, second: Graph) -> dict[str, str]:
    """The inputs for which both networks state a preparation of pictures, and not the same one, with the difference in words.

    A network that states none, such as an original file, takes what the other one makes of a picture.
    """
    others = {port.name: port for port in second.inputs}
    found = {}
    for port in first.inputs:
        other = others.get(port.name)
        if other is None or not port.preprocess or not other.preprocess:
            continue
        words = _difference(_of(port), _of(other))
        if words:
            found[port.name] = words
    return found


def _of(port: Port) -> Preprocess:
    return Preprocess.from_dict(port.preprocess or {})


def _difference(first: Preprocess, second: Preprocess) -> str:
    """
    >>> _difference(Preprocess(mean=(1.0,)), Preprocess(mean=(1.0, 1.0, 1.0), pixel_format="bgr"))
    'pixel format rgb against bgr'
    """
    parts = []
    for label, a, b in zip(("mean", "scale"), first.arithmetic(), second.arithmetic(), strict=True):
        if a != b:
            parts.append(f"{label} {_numbers(a)} against {_numbers(b)}")
    for field in (
        "resize",
        "crop",
        "keep_aspect_ratio",
        "pad_value",
        "pad_type",
        "pixel_format",
        "layout",
        "interpolation",
    ):
        one, other = getattr(first, field), getattr(second, field)
        if one != other:
            parts.append(f"{field.replace('_', ' ')} {_value(one)} against {_value(other)}")
    return ", ".join(parts)


def _numbers(values: tuple[float, ...]) -> str:
    shown = values[:1] if len(set(values)) == 1 else values
    return ",".join(f"{value:.6g}" for value in shown)


def _value(value: Any) -> str:
    if isinstance(value, tuple):
        return " x ".join(map(str, value))
    if value is None:
        return "none"
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)


def random_pictures(
    first: Graph, second: Graph, count: int | None, seed: int | None
) -> Iterator[tuple[Batch, Batch]]:
    """Random samples of two networks: the same random pictures where both prepare one, else the same tensors."""
    others = {port.name: port for port in second.inputs}
    for index in range(count or RANDOM_SAMPLES):
        number = (seed or 0) + index
        ours = random_inputs(first, number)
        theirs = {**random_inputs(second, number), **{name: ours[name] for name in ours if name in others}}
        for place, port in enumerate(first.inputs):
            other = others.get(port.name)
            if other is None or not port.preprocess or not other.preprocess:
                continue
            rng = np.random.default_rng([number, place])
            height, width = _of(port).image_size(shape_of(port.value))
            rows = max(
                (shape_of(one.value)[0] for one in (port, other) if len(shape_of(one.value)) == 4), default=1
            )
            pictures = [
                Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for _ in range(rows)
            ]
            ours[port.name], theirs[port.name] = _tensor(port, pictures), _tensor(other, pictures)
        yield Batch(ours), Batch(theirs)


def _tensor(port: Port, pictures: list[Image.Image]) -> Array:
    shape = shape_of(port.value)
    made = [image_tensor(one, _of(port), shape, dtype_of(port.type).numpy) for one in pictures]
    return np.concatenate(made[: shape[0]]) if len(shape) == 4 else made[0]
