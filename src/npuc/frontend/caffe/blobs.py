"""The weights of a Caffe network: blobs by layer, as the file has them, or random ones where there is no file.

A rule says which shape it needs; what lies in the file must have that many elements. (The oldest files give every blob
four axes.) Random weights depend on a seed, the name of the layer and the place of the blob, and on nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.caffe.message import CaffeMessage
from npuc.frontend.layered.network import Shape
from npuc.frontend.layered.random_weights import SEED, RandomWeights

_RAW = {0: "<f8", 1: "<f4", 2: "<f2"}


class Blobs:
    """Blobs of layers by name; `stored` is None where there is no file."""

    def __init__(self, stored: Mapping[str, tuple[CaffeMessage, ...]] | None, file: Path | None) -> None:
        self.stored = stored
        self.file = file
        self.arrays: dict[str, dict[int, Array]] = {}
        """Those that were read or drawn so far, by layer and place."""
        self._random_weights = RandomWeights()

    def get(self, layer: str, index: int, shape: Shape, role: str) -> Array:
        """One blob; `role` tells how a random one has to look: weight, bias, one, scale, variance."""
        if any(size < 1 for size in shape):
            raise InvalidModelError(
                f"the layer '{layer}' needs weights of the impossible shape {list(shape)}"
            )
        arrays = self.arrays.setdefault(layer, {})
        if index not in arrays:
            arrays[index] = (
                self._random(layer, index, shape, role)
                if self.stored is None
                else self.read(layer, index, prod(shape))
            )
        return arrays[index].reshape(shape)

    @property
    def _name(self) -> str:
        return self.file.name if self.file is not None else "the model"

    def count(self, layer: str) -> int | None:
        """How many blobs a layer has; None where there is no file."""
        return None if self.stored is None else len(self.stored.get(layer, ()))

    def read(self, layer: str, index: int, count: int | None = None) -> Array:
        """One blob of the file, flat; its size is checked where it is known."""
        assert self.stored is not None
        blobs = self.stored.get(layer, ())
        if index >= len(blobs):
            raise InvalidModelError(
                f"the layer '{layer}' needs weights that are not in {self._name}: it has {len(blobs)} blobs there",
                fix="Give the weights that belong to this network with --weights",
            )
        array = _numbers(blobs[index], f"blob {index} of the layer '{layer}'")
        if count is not None and array.size != count:
            raise InvalidModelError(
                f"blob {index} of the layer '{layer}' has {array.size} elements in {self._name}, but the layer needs {count}",
                fix="Give the weights that belong to this network with --weights",
            )
        return np.require(array, np.float32, ["A", "C"])

    def _random(self, layer: str, index: int, shape: Shape, role: str) -> Array:
        rng = np.random.default_rng([SEED, crc32(layer.encode()), index])
        return self._random_weights.make(rng, shape, role)


def _numbers(blob: CaffeMessage, what: str) -> Array:
    """What a blob holds, as it is in the file."""
    for name, dtype in (("data", "<f4"), ("double_data", "<f8")):
        given: list[Any] = list(blob.fields.get(name, ()))
        if given and all(isinstance(part, memoryview) for part in given):
            data: Any = given[0] if len(given) == 1 else b"".join(given)
            return _viewed(data, dtype, what)
        if given:
            return np.array(blob.floats(name), np.float32)
    raw = blob.fields.get("raw_data", ())
    if raw:
        kind = blob.int("raw_data_type", 1)
        if kind not in _RAW or not isinstance(raw[-1], memoryview):
            raise InvalidModelError(f"{what} is of the unknown raw type {kind}")
        return _viewed(raw[-1], _RAW[kind], what)
    return np.zeros(0, np.float32)


def _viewed(data: Any, dtype: str, what: str) -> Array:
    if len(data) % np.dtype(dtype).itemsize:
        raise InvalidModelError(f"{what} is cut off")
    return np.frombuffer(data, dtype)
