"""Samples: tensor files and images as batches for the inputs of a network.

A file may hold one sample, or many stacked along the batch axis. The samples are cut into batches of the size that the
network was imported with; an incomplete last batch is padded with copies of its last sample. `Batch.keep` is the number of
real samples in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.layouts import AS_IT_IS, layout_note, layout_of, rearranged
from npuc.calib.raw import TextFile, is_text
from npuc.errors import FileFormatError, InputDataError
from npuc.images.loading import guess_preprocess, is_image, load_image
from npuc.images.preprocess import Preprocess
from npuc.ir import Graph, Port, dtype_of, is_static, shape_of
from npuc.ir.states import data_inputs, initial_states
from npuc.tensors import TensorFile
from npuc.words import counted


@dataclass(frozen=True)
class Batch:
    """The inputs of one run, and how many of its samples are real."""

    inputs: Mapping[str, Array]
    keep: int | None = None


@dataclass(frozen=True)
class Samples:
    """All the data of a run."""

    arrays: Mapping[str, Array]
    """For each input, an array whose first axis counts runs, and whose other axes are those of the input."""
    runs: int
    batch: int | None
    """The size of the batch axis that all inputs share; None if they share none."""
    total: int
    """How many samples there are, without the padding of the last batch."""
    notes: Sequence[str] = field(default=())

    def __iter__(self) -> Iterator[Batch]:
        for index in range(self.runs):
            inputs = {name: array[index if len(array) > 1 else 0] for name, array in self.arrays.items()}
            keep = None
            if self.batch is not None and index == self.runs - 1 and self.total % self.batch:
                keep = self.total % self.batch
            yield Batch(inputs, keep)


def parse_assignments(texts: Sequence[str], names: Sequence[str]) -> list[tuple[str | None, Path]]:
    """Split `name=path` where the name is that of an input; anything else is a path.

    >>> parse_assignments(["x=a.npy", "b.npz"], ["x"])
    [('x', PosixPath('a.npy')), (None, PosixPath('b.npz'))]
    """
    assignments: list[tuple[str | None, Path]] = []
    for text in texts:
        name, separator, path = text.partition("=")
        if separator and name in names:
            assignments.append((name, Path(path)))
        elif separator and not Path(text).exists():
            raise InputDataError(f"the network has no input '{name}'", fix=f"Its inputs are {_list(names)}")
        else:
            assignments.append((None, Path(text)))
    return assignments


def load_samples(
    graph: Graph, sources: Sequence[tuple[str | None, Path]], option: str = "--input"
) -> Samples:
    """Read the samples for a network from `.npz`, `.npy`, `.tensor` and image files.

    A source without an input name is assigned by the names in the file (`.npz`), or to the only input of the network
    (images, `.npy`). Several images for one input are several samples. `option` is the command line option that named the
    files; messages mention it. States (`npuc.ir.states`) may be left out.
    """
    ports = {port.name: port for port in graph.inputs}
    needed = {port.name: port for port in data_inputs(graph)}
    gathered: dict[str, list[Array]] = {}
    notes: list[str] = []
    for name, path in sources:
        if is_image(path):
            port = _target(name, path, ports, needed, option)
            gathered.setdefault(port.name, []).append(read_image(path, port, notes))
            continue
        if is_text(path):
            port = _target(name, path, ports, needed, option)
            values = TextFile(path, shape_of(port.value))[""]
            gathered.setdefault(port.name, []).append(fit_array(values, port, str(path), notes))
            continue
        try:
            file = TensorFile(path)
        except FileFormatError as error:
            fix = "Inputs may be .npz, .npy, .tensor or image files"
            raise FileFormatError(error.message, where=error.where, fix=fix) from error
        if name is None and "" not in file:
            used = [key for key in file if key in ports]
            if not used and len(file) == 1 and len(needed) == 1:
                only, key = next(iter(needed)), next(iter(file))
                notes.append(f"{path.name}: tensor '{key}' is used for input '{only}'")
                gathered.setdefault(only, []).append(fit_array(file[key], ports[only], str(path), notes))
                continue
            if not used:
                raise InputDataError(
                    f"holds {_list(list(file))}, and the network takes {_list(list(ports))}",
                    where=str(path),
                    fix="Name the tensors after the inputs, or give INPUT=FILE",
                )
            ignored = [key for key in file if key not in ports]
            if ignored:
                notes.append(f"{path.name}: {_list(ignored)} is not an input of the network and is not used")
            for key in used:
                gathered.setdefault(key, []).append(fit_array(file[key], ports[key], str(path), notes))
        else:
            port = _target(name, path, ports, needed, option)
            key = port.name if port.name in file else next(iter(file))
            if len(file) > 1 and key != port.name:
                raise InputDataError(
                    f"holds {_list(list(file))}, none of them '{port.name}'",
                    where=str(path),
                    fix="Save one array in it",
                )
            gathered.setdefault(port.name, []).append(fit_array(file[key], port, str(path), notes))
    missing = [name for name in needed if name not in gathered]
    if missing:
        raise InputDataError(
            f"nothing was given for input {_list(missing)}",
            fix=f"Add {option} NAME=FILE for each{', or --random for all' * (option == '--input')}: "
            + "; ".join(f"'{name}' is {ports[name].type}" for name in missing[:4]),
        )
    return joined_samples(graph, gathered, notes)


def joined_samples(graph: Graph, gathered: Mapping[str, list[Array]], notes: list[str]) -> Samples:
    """The arrays gathered for each input, whose first axis is the batch axis, as samples."""
    for name, arrays in gathered.items():
        notes += _not_finite(name, arrays)
    return _align(graph, gathered, notes)


def _not_finite(name: str, arrays: Sequence[Array]) -> list[str]:
    """Notes about NaN and infinite values of an input, which integer layers would silently turn into numbers."""
    floats = [array for array in arrays if array.dtype.kind == "f"]
    size = sum(array.size for array in floats)
    nans = sum(int(np.isnan(array).sum()) for array in floats)
    infinite = sum(int(np.isinf(array).sum()) for array in floats)
    notes = []
    if nans:
        verb = "is" if nans == 1 else "are"
        notes.append(
            f"{nans} of {size} values of input '{name}' {verb} NaN, which an integer network takes as 0"
        )
    if infinite:
        verb = "is" if infinite == 1 else "are"
        words = "which an integer network takes as the end of its range"
        notes.append(f"{infinite} of {size} values of input '{name}' {verb} infinite, {words}")
    return notes


def with_states(samples: Samples, graph: Graph) -> Samples:
    """The samples with states of zero where none are given: every run begins a stream of its own."""
    begin = {name: value[None] for name, value in initial_states(graph).items() if name not in samples.arrays}
    return replace(samples, arrays={**samples.arrays, **begin}) if begin else samples


def single_run(inputs: Mapping[str, Array]) -> Samples:
    """The given inputs as samples of a single run."""
    return Samples({name: array[None] for name, array in inputs.items()}, 1, None, 1)


def batch_size(graph: Graph) -> int | None:
    """The first dimension that all inputs share, or None."""
    return _shared_size(graph.inputs)


def chunk_size(graph: Graph) -> int | None:
    """The first dimension that all inputs but the states share, or None: the rows that a run takes of a sequence."""
    return _shared_size(data_inputs(graph))


def _shared_size(ports: Sequence[Port]) -> int | None:
    sizes = {(shape_of(port.value) or (0,))[0] for port in ports}
    return (sizes.pop() or None) if len(sizes) == 1 else None


def _align(graph: Graph, gathered: Mapping[str, list[Array]], notes: list[str]) -> Samples:
    """Bring all inputs to the same number of runs."""
    batch = chunk_size(graph)
    arrays: dict[str, Array] = {}
    counts: dict[str, int] = {}
    runs: dict[str, int] = {}
    for name, parts in gathered.items():
        joined = parts[0] if len(parts) == 1 else np.concatenate(parts)
        shape = next(shape_of(port.value) for port in graph.inputs if port.name == name)
        if 0 in shape:
            arrays[name], counts[name], runs[name] = joined.reshape(1, *shape), 1, 1
            continue
        size = shape[0] if shape else 1
        counts[name] = len(joined)
        fill = -len(joined) % size
        if fill and (batch is None or graph.states):
            # A padded chunk would leave states of something that was never given.
            raise InputDataError(f"input '{name}' takes {counted(size, 'row')} at a time, not {len(joined)}")
        if fill:
            joined = np.concatenate([joined, np.repeat(joined[-1:], fill, axis=0)])
        arrays[name] = joined.reshape(-1, *shape)
        runs[name] = len(arrays[name])
    most = max(runs.values(), default=1)
    if any(count not in (1, most) for count in runs.values()):
        raise InputDataError(
            "the inputs have different numbers of samples: "
            + ", ".join(f"'{n}' {c}" for n, c in counts.items()),
            fix="Give every input the same number",
        )
    total = (
        max((counts[name] for name in counts if runs[name] == most), default=1) if batch is not None else most
    )
    if batch is not None and total % batch:
        notes.append(
            f"{counted(total, 'sample', 'does', 'do')} not fill batches of {batch}: the last batch is padded, and cut again"
        )
    return Samples(arrays, most, batch, total, tuple(notes))


def _target(
    name: str | None, path: Path, ports: Mapping[str, Port], needed: Mapping[str, Port], option: str
) -> Port:
    if name is not None:
        return ports[name]
    if len(needed) != 1:
        raise InputDataError(
            f"for which of the inputs {_list(list(needed))} is it?",
            where=str(path),
            fix=f"Write {option} NAME=FILE",
        )
    return next(iter(needed.values()))


def read_image(path: Path, port: Port, notes: list[str]) -> Array:
    """An image file as the tensor of an input, by the input's preprocessing; a note is added if it has none."""
    if not is_static(port.value):
        raise InputDataError(f"input '{port.name}' has no static shape")
    shape = shape_of(port.value)
    preprocess = Preprocess.from_dict(port.preprocess) if port.preprocess else guess_preprocess(shape)
    if preprocess is None:
        raise InputDataError(
            f"input '{port.name}' of shape {list(shape)} does not take an image",
            where=str(path),
            fix="Use .npy or .npz",
        )
    if not port.preprocess:
        note = (
            f"input '{port.name}' has no preprocessing attached: images are resized and passed as "
            f"{preprocess.pixel_format} pixels from 0 to 255 ('npuc import --mean ... --scale ...' attaches it)"
        )
        if note not in notes:
            notes.append(note)
    dtype = dtype_of(port.type).numpy
    image = load_image(path, preprocess, shape, dtype)
    return image if len(shape) == 4 or preprocess.yuv else image[None]


def fit_array(array: Array, port: Port, where: str, notes: list[str] | None = None) -> Array:
    """The array with the batch axis of the input first (or a new axis that counts runs), in the input's type.

    An image in another axis order is permuted if its shape fits in no other way; one note per input says so.
    """
    shape = shape_of(port.value)
    array = _as_type(array, dtype_of(port.type).numpy, port.name, where)
    layout = layout_of(array.shape, shape)
    if layout is None:
        raise InputDataError(
            f"input '{port.name}' takes shape {list(shape)} (or several of them), and was given {list(array.shape)}",
            where=where,
            fix="Reshape the data, or import the network again with another --input-shape",
        )
    if layout != AS_IT_IS:
        if notes is not None and not any(note.startswith(f"input '{port.name}' takes") for note in notes):
            notes.append(layout_note(port.name, shape, array.shape, layout))
        array = np.ascontiguousarray(rearranged(array, layout, shape))
    if array.shape == shape:
        return array if shape else array[None]
    if array.ndim == len(shape) + 1:
        return array.reshape(-1, *shape[1:]) if shape else array
    return array[None] if array.ndim < len(shape) else array


def _as_type(array: Array, dtype: np.dtype[Any], name: str, where: str) -> Array:
    if array.dtype == dtype:
        return array
    if array.dtype.kind not in "biuf":
        raise InputDataError(f"input '{name}' takes {dtype}, and was given {array.dtype}", where=where)
    with np.errstate(all="ignore"):
        converted = array.astype(dtype)
    if dtype.kind in "biu" and not np.array_equal(converted.astype(array.dtype), array):
        raise InputDataError(
            f"input '{name}' takes {dtype}, and the {array.dtype} values given are not all of that type",
            where=where,
            fix="Convert them first, in the way that you want them rounded",
        )
    return converted


def _list(names: Sequence[str]) -> str:
    return (
        ", ".join(f"'{name}'" for name in names[:8]) + (", ..." if len(names) > 8 else "")
        if names
        else "none"
    )
