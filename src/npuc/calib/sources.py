"""Calibration data as items: a folder, a list file, one file, COCO annotations, a Python iterable or random numbers.

Files are ordered by name and never by the file system. A maximum count takes the first samples or, with a seed, a random
selection in the same order.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from npuc.calib.coco import balanced_files
from npuc.calib.items import TENSOR_SUFFIXES, Item, Reader, Sample
from npuc.calib.listing import list_items
from npuc.calib.random_inputs import random_inputs
from npuc.calib.raw import RAW, RawFormat, is_raw
from npuc.calib.recipe import Recipe, load_recipe
from npuc.calib.samples import Samples
from npuc.calib.user_function import load_function, wrapped
from npuc.errors import CalibrationDataError, FileMissingError, UsageError
from npuc.files import existing_file
from npuc.images.loading import is_image
from npuc.ir import Graph

T = TypeVar("T")

RANDOM_SAMPLES = 4
"""How many random samples make a smoke run, unless a count is given."""


@dataclass(frozen=True)
class DataOptions:
    """Which samples to take, and how to prepare them."""

    preprocess: str | Path | Recipe | Callable[[str], Any] | None = None
    """A recipe (`.yaml`), a function (`file.py:function`, or the function itself), the format of raw files
    (`raw:uint8:224,224,3`), or None for the preprocessing of the network."""
    annotations: Path | str | None = None
    """COCO annotations of the images in the folder, for a selection that is balanced over the classes."""
    max_count: int | None = None
    seed: int | None = None
    """Select `max_count` samples at random instead of the first ones."""
    input: str | None = None
    """The data is for this input only; None: for all inputs."""


@dataclass(frozen=True)
class Source:
    """The items of a data set; `total` is None if their number is only known after reading them all."""

    items: Iterable[Item]
    total: int | None
    reader: Reader
    what: str
    """The name of the data set in messages."""


Data = Any
"""A path, `Samples`, or an iterable of arrays, sequences or mappings, or a function that returns such an iterable."""


def open_data(graph: Graph, data: Data, options: DataOptions | None = None) -> Source:
    """The samples of a data set for a network."""
    options = options or DataOptions()
    if options.max_count is not None and options.max_count < 1:
        raise UsageError(f"at most {options.max_count} samples are no samples")
    reader = _reader(graph, options.preprocess)
    if options.input is not None:
        reader.ports = {options.input: reader.ports[options.input]}
    if isinstance(data, str | os.PathLike):
        return _from_path(Path(data), reader, options)
    if options.annotations is not None:
        raise UsageError("annotations need the folder of their images")
    if isinstance(data, Samples):
        total = data.runs if options.max_count is None else min(data.runs, options.max_count)
        return Source(_limited(_from_samples(data), options.max_count), total, reader, "the samples")
    produced = data() if callable(data) else data
    if not isinstance(produced, Iterable):
        raise UsageError(
            f"{type(produced).__name__} is no calibration data", fix="Give a path or an iterable"
        )
    size = len(produced) if isinstance(produced, Sized) else None
    if size is not None and options.max_count is not None:
        size = min(size, options.max_count)
    return Source(_limited(_from_iterable(produced, reader), options.max_count), size, reader, "the iterable")


def random_data(graph: Graph, count: int | None = None, seed: int | None = None) -> Source:
    """Random samples for a smoke run; ranges collected from them are meaningless."""
    count = count or RANDOM_SAMPLES
    reader = Reader(graph)
    items = [
        Item(f"random sample {index}", partial(_random, graph, reader, (seed or 0) + index))
        for index in range(count)
    ]
    return Source(items, count, reader, "random data")


def _random(graph: Graph, reader: Reader, seed: int) -> Sample:
    return Sample(reader.named(random_inputs(graph, seed), "random data"))


def _reader(graph: Graph, preprocess: Any) -> Reader:
    if preprocess is None:
        return Reader(graph)
    if isinstance(preprocess, Recipe):
        return Reader(graph, preprocess)
    if callable(preprocess):
        return Reader(graph, wrapped(preprocess, getattr(preprocess, "__name__", "function")), takes_any=True)
    return Reader(graph, *prepared_by(str(preprocess)))


class Preparation(NamedTuple):
    """How files become tensors: the arguments of `Reader`."""

    prepare: Callable[[Path], Any] | None
    takes_any: bool = False
    raw: RawFormat | None = None


def prepared_by(text: str) -> Preparation:
    """The recipe (`.yaml`), function (`FILE.py:FUNCTION`) or raw format (`raw:TYPE:SHAPE`) that a text names."""
    if text.startswith(RAW):
        return Preparation(None, raw=RawFormat.parse(text))
    if Path(text).suffix.lower() in (".yaml", ".yml"):
        recipe = load_recipe(text)
        return Preparation(recipe, takes_any=recipe.image.yuv is not None)
    return Preparation(load_function(text), takes_any=True)


def _from_path(path: Path, reader: Reader, options: DataOptions) -> Source:
    if options.annotations is not None:
        if not path.is_dir():
            raise UsageError("annotations need the folder of their images", fix="Give the folder as --data")
        files = balanced_files(Path(options.annotations), path, options.max_count, options.seed or 0)
        items = [item for file in files for item in reader.items(file, str(file))]
        return Source(items, len(items), reader, str(path))
    if path.is_dir():
        items = _folder(path, reader)
    elif not path.exists():
        raise FileMissingError(
            "does not exist", where=str(path), fix="Give a folder, a list or a file of tensors"
        )
    elif is_image(path) or path.suffix.lower() in TENSOR_SUFFIXES or is_raw(path):
        items = reader.items(existing_file(path), str(path))
    else:
        items = list_items(path, reader)
    items = choose(items, options.max_count, options.seed)
    return Source(items, len(items), reader, str(path))


def _folder(folder: Path, reader: Reader) -> list[Item]:
    try:
        files = sorted(
            (file for file in folder.rglob("*") if file.is_file() and not _hidden(file, folder)),
            key=lambda file: file.relative_to(folder).parts,
        )
    except OSError as error:
        raise FileMissingError(f"cannot be read: {error.strerror or error}", where=str(folder)) from error
    used = [file for file in files if reader.reads(file)] or list(filter(is_raw, files))
    if not files:
        raise CalibrationDataError(
            "is empty: there are no samples in it",
            where=str(folder),
            fix="Put some typical inputs there",
        )
    if not used:
        raise CalibrationDataError(
            f"holds no images, .npy, .npz or .bin files, but others such as '{files[0].name}'",
            where=str(folder),
            fix="Images may be .jpg, .png and the like; --preprocess FILE.py:FUNCTION reads anything else",
        )
    return [item for file in used for item in reader.items(file, str(file))]


def _hidden(file: Path, folder: Path) -> bool:
    return any(part.startswith(".") for part in file.relative_to(folder).parts)


def choose(items: list[T], count: int | None, seed: int | None) -> list[T]:
    """The first `count` items or, with a seed, a random selection in the same order."""
    if count is None or count >= len(items):
        return items
    if seed is None:
        return items[:count]
    return [items[index] for index in sorted(random.Random(seed).sample(range(len(items)), count))]


def _limited(items: Iterator[Item], count: int | None) -> Iterator[Item]:
    for index, item in enumerate(items):
        if count is not None and index >= count:
            return
        yield item


def _from_iterable(produced: Iterable[Any], reader: Reader) -> Iterator[Item]:
    for index, value in enumerate(produced):
        label = f"sample {index}"

        def read(value: Any = value, label: str = label) -> Sample:
            return Sample(reader.named(value, label))

        yield Item(label, read)


def _from_samples(samples: Samples) -> Iterator[Item]:
    for index, batch in enumerate(samples):
        inputs = batch.inputs
        if batch.keep is not None:
            inputs = {name: array[: batch.keep] for name, array in inputs.items()}
        yield Item(f"batch {index}", partial(Sample, inputs))
