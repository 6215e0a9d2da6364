"""Paired inputs: the same images for two networks that preprocess them differently.

A tensor prepared for the first network is wrong for the second if its mean, scale or channel order differ: a comparison
would measure the preprocessing, not the networks. So the images are shared, and each network applies its own preprocessing.
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
    """By input name, how the preprocessing of two networks differs, in words; only inputs where both state one are compared.

    A network that states none, such as an original file, is given the tensors that the other network's preprocessing makes.
    """
    second_ports = {port.name: port for port in second.inputs}
    differences = {}
    for port in first.inputs:
        second_port = second_ports.get(port.name)
        if second_port is None or not port.preprocess or not second_port.preprocess:
            continue
        words = _difference(_of(port), _of(second_port))
        if words:
            differences[port.name] = words
    return differences


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
        "standardize",
    ):
        first_value, second_value = getattr(first, field), getattr(second, field)
        if first_value != second_value:
            parts.append(f"{field.replace('_', ' ')} {_value(first_value)} against {_value(second_value)}")
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


def random_batch_pairs(
    first: Graph, second: Graph, count: int | None, seed: int | None
) -> Iterator[tuple[Batch, Batch]]:
    """Random batches for two networks: the same random images where both preprocess an input, else the same tensors."""
    second_ports = {port.name: port for port in second.inputs}
    for index in range(count or RANDOM_SAMPLES):
        number = (seed or 0) + index
        ours = random_inputs(first, number)
        theirs = {
            **random_inputs(second, number),
            **{name: ours[name] for name in ours if name in second_ports},
        }
        for place, port in enumerate(first.inputs):
            second_port = second_ports.get(port.name)
            if second_port is None or not port.preprocess or not second_port.preprocess:
                continue
            rng = np.random.default_rng([number, place])
            height, width = _of(port).image_size(shape_of(port.value))
            rows = max(
                (
                    shape_of(candidate.value)[0]
                    for candidate in (port, second_port)
                    if len(shape_of(candidate.value)) == 4
                ),
                default=1,
            )
            images = [
                Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8)) for _ in range(rows)
            ]
            ours[port.name], theirs[port.name] = _tensor(port, images), _tensor(second_port, images)
        yield Batch(ours), Batch(theirs)


def _tensor(port: Port, images: list[Image.Image]) -> Array:
    shape = shape_of(port.value)
    tensors = [image_tensor(image, _of(port), shape, dtype_of(port.type).numpy) for image in images]
    return np.concatenate(tensors[: shape[0]]) if len(shape) == 4 else tensors[0]
