"""Calibration data as qubee reads it, and the sample of inputs and outputs that it leaves behind."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.calib.feeding import Feeder
from npuc.calib.sources import DataOptions, Source, open_data, random_data
from npuc.compat.qubee.notices import note, wrong
from npuc.errors import CalibrationDataError, UsageError
from npuc.files import make_folder, write_atomically
from npuc.ir import Graph, shape_of
from npuc.tensors import TensorFile

_LATER_NAMES = ("_np", "_npz")
"""Endings under which a folder of prepared data is also known."""
SAMPLE_FOLDER = "sampleInOut"


def calibration_data(graph: Graph, path: Any, *, random: bool, own_shapes: bool) -> Source:
    """The samples of a folder or list; `own_shapes` if arrays have the shape of the input, not height × width × channels."""
    if random:
        note("use_random_calib: ranges come from random data, and accuracy means nothing")
        return random_data(graph)
    if path is None:
        raise UsageError("calib_data_path is None", fix="Give a folder or list, or use_random_calib=True")
    if not isinstance(path, str | Path):
        raise wrong("calib_data_path", path, "the path of a folder or of a list (.txt, .json)")
    options = DataOptions() if own_shapes else DataOptions(preprocess=_channels_moved(graph))
    return open_data(graph, calibration_path(Path(path)), options)


def calibration_path(path: Path) -> Path:
    """The folder that is meant: that of the tutorials, where the name has an ending of the reference."""
    for ending in _LATER_NAMES:
        plain = path.with_name(path.name.removesuffix(ending)) if path.name.endswith(ending) else path
        if not path.exists() and plain.is_dir() and plain.name:
            return plain
    return path


def _channels_moved(graph: Graph) -> Callable[[str], Any] | None:
    """What reads arrays whose shape does not tell where the channels are: they are last. Other arrays tell by themselves."""
    cubes = {
        port.name
        for port in graph.inputs
        if len(shape_of(port.value)) == 4 and len(set(shape_of(port.value)[1:])) == 1
    }
    if not cubes or len(graph.inputs) > 1:
        return None

    def read(path: str) -> Array:
        file = TensorFile(path)
        array = file[next(iter(file))]
        return np.moveaxis(array, -1, -3) if array.ndim in (3, 4) else array

    return read


def first_sample(graph: Graph, source: Source) -> Mapping[str, Array]:
    """The inputs of the first sample, as the network takes them; what there is to say about the data has been said."""
    for batch in Feeder(graph, source, False, lambda text: None).batches():
        return batch.inputs
    raise CalibrationDataError("there is no sample", where=source.what)


def save_sample(inputs: Mapping[str, Array], outputs: Mapping[str, Array], model: str) -> Path:
    """Write raw inputs and outputs and a description of them; the folder."""
    folder = make_folder(Path(SAMPLE_FOLDER))
    listing: dict[str, Any] = {"model": model}
    for word, arrays in (("input", inputs), ("output", outputs)):
        entries = []
        for number, (name, array) in enumerate(arrays.items()):
            plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
            path = folder / f"{word}_{number}.bin"
            with write_atomically(path) as out:
                out.write(plain.tobytes())
            entries.append(
                {"file": path.name, "name": name, "dtype": array.dtype.name, "shape": list(array.shape)}
            )
        listing[f"{word}s"] = entries
    with write_atomically(folder / "sample.json") as out:
        out.write((json.dumps(listing, indent=2) + "\n").encode())
    return folder
