"""From what a caller has to the arrays that a model takes: by name or by place, images, and batches of any size."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import numpy as np

from npuc.arrays import Array
from npuc.errors import InputDataError, MissingExtraError, PreprocessError, UsageError
from npuc.images.preprocess import CHANNELS, Preprocess
from npuc.program.model import CompiledModel
from npuc.runtime.tensors import ModelPort, ModelPorts, TensorInfo
from npuc.words import counted


def preprocessing_of(model: CompiledModel) -> dict[str, Preprocess]:
    """How images become inputs, as the file states it."""
    stated = model.metadata.get("preprocess")
    by_input: dict[str, Preprocess] = {}
    for name, options in stated.items() if isinstance(stated, dict) else ():
        if name not in model.inputs or not isinstance(options, dict):
            continue
        try:
            by_input[name] = Preprocess.from_dict(options)
        except PreprocessError as error:
            raise PreprocessError(error.message, where=f"{model.name}, input '{name}'") from error
    return by_input


def arrays_of(
    inputs: Any, ports: ModelPorts, preprocessing: Mapping[str, Preprocess], raw: bool
) -> dict[str, Array]:
    """What a caller gave, as arrays of the types of the ports. Shapes are checked but for the batch."""
    if type(inputs) is dict and len(inputs) == len(ports.inputs):
        for port in ports.inputs:
            value, info = inputs.get(port.info.name), port.info
            if type(value) is not np.ndarray or value.shape != info.shape or value.dtype != info.dtype:
                break
        else:
            return inputs  # what the model takes as it is, which no image looks like
    names = ports.input_names
    if type(inputs) is not dict and not isinstance(inputs, Mapping):
        several = isinstance(inputs, list | tuple)
        values = list(inputs) if several and len(inputs) == len(names) else [inputs]
        if len(values) != len(names):
            raise InputDataError(f"the model takes {counted(len(names), 'input')}: {', '.join(names)}")
        inputs = dict(zip(names, values, strict=True))
    if len(inputs) != len(names) or any(name not in inputs for name in names):
        given = ", ".join(map(str, inputs)) or "nothing"
        raise InputDataError(f"the model takes {', '.join(names)}, and {given} is given")
    return {
        port.info.name: _array(inputs[port.info.name], port, ports, preprocessing, raw)
        for port in ports.inputs
    }


def _array(
    value: Any, port: ModelPort, ports: ModelPorts, preprocessing: Mapping[str, Preprocess], raw: bool
) -> Array:
    info = port.info
    if type(value) is np.ndarray and value.shape == info.shape and value.dtype == info.dtype:
        return value
    if is_image(value, info, preprocessing) or (
        isinstance(value, list | tuple)
        and value
        and all(is_image(element, info, preprocessing) for element in value)
    ):
        return _image_tensors(value, info, preprocessing, raw)
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputDataError(f"input '{info.name}' is no array: {error}") from error
    if array.dtype != info.dtype:
        casting = "same_kind" if info.dtype.kind in "fV" else "safe"
        if array.dtype.kind not in "biuf" or not np.can_cast(array.dtype, info.dtype, casting):  # type: ignore[arg-type]
            raise InputDataError(f"input '{info.name}' takes {info.dtype.name}, not {array.dtype.name}")
        array = array.astype(info.dtype)
    free = ports.batch is not None
    if array.shape != info.shape and not (free and array.ndim and array.shape[1:] == info.shape[1:]):
        rest = " or any other number of rows" if free else ""
        raise InputDataError(
            f"input '{info.name}' takes shape {list(info.shape)}{rest}, and was given {list(array.shape)}"
        )
    return array


def is_image(value: Any, info: TensorInfo, preprocessing: Mapping[str, Preprocess]) -> bool:
    """Whether a value is a picture that the model says how to prepare, or the name of one, and no tensor."""
    if isinstance(value, str | Path) or _is_pillow_image(value):
        return True
    if info.name not in preprocessing or not isinstance(value, np.ndarray) or value.dtype != np.uint8:
        return False
    if preprocessing[info.name].yuv:
        # The bytes of a frame have other shapes than an image of height x width x channels.
        return value.ndim == 3 and value.shape[2] in CHANNELS.values() and value.shape != info.shape
    # Height x width x channels, where the input has a batch axis as well.
    return value.ndim in (2, 3) and value.ndim < len(info.shape)


def _is_pillow_image(value: Any) -> bool:
    """Nobody has an image of Pillow's before Pillow is loaded, so this does not load it."""
    pillow = sys.modules.get("PIL.Image")
    return pillow is not None and isinstance(value, pillow.Image)


def _image_loading() -> ModuleType:
    """`npuc.images.loading`, which needs Pillow: models that are given tensors run without it."""
    try:
        from npuc.images import loading
    except ImportError as error:
        raise MissingExtraError(
            "images are decoded by Pillow, which is not installed", fix="Install it with: pip install pillow"
        ) from error
    return loading


def _image_tensors(value: Any, info: TensorInfo, preprocessing: Mapping[str, Preprocess], raw: bool) -> Array:
    if info.name not in preprocessing:
        raise PreprocessError(
            f"the model does not say how an image becomes input '{info.name}'",
            fix="Import the network with --mean, --scale and their like (npuc import --help), or give a tensor",
        )
    if raw:
        raise UsageError(
            "a runner of raw tensors takes the integers, not images", where=f"input '{info.name}'"
        )
    several = value if isinstance(value, list | tuple) else [value]
    tensors = [_image_tensor(image, preprocessing[info.name], info) for image in several]
    return tensors[0] if len(tensors) == 1 else np.concatenate(tensors)


def _image_tensor(value: Any, preprocess: Preprocess, info: TensorInfo) -> Array:
    loading = _image_loading()
    if isinstance(value, str | Path):
        return cast(Array, loading.load_image(value, preprocess, info.shape, info.dtype))
    if isinstance(value, np.ndarray):
        from PIL import Image

        try:
            value = Image.fromarray(value[:, :, 0] if value.ndim == 3 and value.shape[2] == 1 else value)
        except (TypeError, ValueError) as error:
            raise InputDataError(
                f"an array of shape {list(value.shape)} is no image of height x width x channels",
                where=f"input '{info.name}'",
            ) from error
    return cast(Array, loading.image_tensor(value, preprocess, info.shape, info.dtype))


@dataclass(frozen=True)
class Chunk:
    """The rows of a batch that one run of the model does."""

    first: int
    count: int


def rows_of(arrays: Mapping[str, Array], ports: ModelPorts) -> int | None:
    """The rows of a batch that is not the model's own; None if every array has the model's shape."""
    for port in ports.inputs:
        if arrays[port.info.name].shape != port.info.shape:
            break
    else:
        return None
    counts = {name: len(array) for name, array in arrays.items()}
    if len(set(counts.values())) > 1:
        words = ", ".join(f"'{name}' {count}" for name, count in counts.items())
        raise InputDataError(f"the inputs have different numbers of rows: {words}")
    return next(iter(counts.values()))


def chunks_of(rows: int, batch: int) -> Iterator[Chunk]:
    """A batch cut into those of the model.

    >>> [(c.first, c.count) for c in chunks_of(5, 2)]
    [(0, 2), (2, 2), (4, 1)]
    """
    for first in range(0, rows, batch):
        yield Chunk(first, min(batch, rows - first))


def rows_for(array: Array, chunk: Chunk, batch: int) -> Array:
    """The rows of a chunk; the last of them fills up what the model takes more."""
    part = array[chunk.first : chunk.first + chunk.count]
    if chunk.count == batch:
        return part
    return np.concatenate([part, np.repeat(part[-1:], batch - chunk.count, axis=0)])


def check_outputs(outputs: Mapping[str, Array], ports: Sequence[ModelPort], rows: int | None) -> None:
    """Arrays that a caller gives for outputs fit them."""
    if type(outputs) is not dict and not isinstance(outputs, Mapping):
        raise InputDataError("outputs are given by name", fix="Write {'" + ports[0].info.name + "': array}")
    known = {port.info.name: port.info for port in ports} if outputs else {}
    for name, array in outputs.items():
        if name not in known:
            raise InputDataError(f"there is no output '{name}'", fix=f"There are: {', '.join(known)}")
        info = known[name]
        shape = info.shape if rows is None else (rows, *info.shape[1:])
        if not isinstance(array, np.ndarray) or array.shape != shape or array.dtype != info.dtype:
            given = f"{array.dtype.name} of {list(array.shape)}" if isinstance(array, np.ndarray) else "none"
            raise InputDataError(
                f"the array for output '{name}' has to be {info.dtype.name} of {list(shape)}, and is {given}"
            )
        if not array.flags.writeable:
            raise InputDataError(f"the array for output '{name}' cannot be written")
