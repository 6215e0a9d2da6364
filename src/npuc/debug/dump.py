"""A dump: every tensor of one or more runs in a folder, and `dump.json`, which says what is where (docs/debugging.md).

The folder is read without trust: names of files are plain names inside of it, tensors are what their entries say.
"""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from npuc.arrays import Array
from npuc.debug.layers import LayerTensor
from npuc.errors import CompareError, FileFormatError, FileMissingError, OutputError
from npuc.files import make_folder, write_atomically
from npuc.format_versions import DUMP
from npuc.ir import Graph, shape_of
from npuc.tensors import TensorFile, file_names

INDEX = "dump.json"
_LARGEST_INDEX = 256 << 20
FileName = Annotated[str, Field(pattern=r"^run[0-9]+/[\w.+=-]+\.npy$")]


class DumpedTensor(BaseModel):
    """A tensor of a dump."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: Annotated[int, Field(ge=0)]
    name: str
    layer: str
    kind: str
    shape: tuple[Annotated[int, Field(ge=0)], ...]
    dtype: str
    scale: float
    zero_point: int
    file: FileName
    """Its elements as they are: integers, if it is quantized."""
    float_file: FileName | None
    """The reals that they stand for, if it is quantized."""
    md5: str
    """Of the elements in `file`, without its header."""
    computed_file: FileName | None = None
    """Which elements were computed, if not all."""


class DumpIndex(BaseModel):
    """`dump.json`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    format: Literal["npuc-dump"] = "npuc-dump"
    version: Literal[1] = 1
    model: str
    runs: Annotated[int, Field(ge=0)]
    outputs: tuple[str, ...] = ()
    """The names of the network's outputs, as far as the writer knew them."""
    tensors: tuple[DumpedTensor, ...]


class DumpWriter:
    """Writes tensors as they come; `finish` writes the index, without which a folder is no dump."""

    def __init__(self, folder: Path, model: str) -> None:
        self.folder = make_folder(folder)
        self.model = model
        drop(self.folder / INDEX)
        self._entries: list[DumpedTensor] = []
        self._in_run: Counter[int] = Counter()

    def add(self, run: int, tensor: LayerTensor) -> DumpedTensor:
        """Write a tensor of a run."""
        make_folder(self.folder / f"run{run}")
        stem = f"run{run}/{self._in_run[run]:04d}-{file_names([tensor.name])[tensor.name]}"
        reals = tensor.reals
        entry = DumpedTensor(
            run=run,
            name=tensor.name,
            layer=tensor.layer,
            kind=tensor.kind,
            shape=tensor.values.shape,
            dtype=tensor.dtype,
            scale=tensor.scale,
            zero_point=tensor.zero_point,
            file=f"{stem}.npy",
            float_file=f"{stem}.float.npy" if reals is not None else None,
            md5=tensor.md5,
            computed_file=f"{stem}.computed.npy" if tensor.computed is not None else None,
        )
        _write_array(self.folder / entry.file, tensor.values)
        if reals is not None and entry.float_file is not None:
            _write_array(self.folder / entry.float_file, reals)
        if tensor.computed is not None and entry.computed_file is not None:
            _write_array(self.folder / entry.computed_file, tensor.computed)
        self._entries.append(entry)
        self._in_run[run] += 1
        return entry

    def finish(self, outputs: Iterable[str] = ()) -> DumpIndex:
        """Write the index; `outputs` are the names of the network's outputs."""
        index = DumpIndex(
            model=self.model, runs=len(self._in_run), outputs=tuple(outputs), tensors=tuple(self._entries)
        )
        with write_atomically(self.folder / INDEX) as out:
            out.write((json.dumps(index.model_dump(mode="json"), indent=1) + "\n").encode())
        return index


def drop(path: Path) -> None:
    """Delete an index of before: a folder that is being written has none."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be replaced: {error.strerror or error}", where=str(path)) from error


def _write_array(path: Path, array: Array) -> None:
    data = io.BytesIO()
    np.lib.format.write_array(data, array, version=(1, 0), allow_pickle=False)
    with write_atomically(path) as out:
        out.write(data.getbuffer())


class Dump:
    """A dump on disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        path = folder / INDEX
        try:
            if path.stat().st_size > _LARGEST_INDEX:
                raise FileFormatError("is too large for the index of a dump", where=str(path))
            text = path.read_bytes()
        except OSError as error:
            raise FileMissingError(
                f"is no dump: {INDEX} cannot be read ({error.strerror or error})",
                where=str(folder),
                fix="Make one with 'npuc run MODEL --random --dump-layers DIR'",
            ) from error
        try:
            self.index = DumpIndex.model_validate_json(text)
        except ValidationError as error:
            DUMP.check_json(text, str(path))
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"])) or "the whole"
            raise FileFormatError(
                f"is not an index of a dump: {place}: {first['msg']}", where=str(path)
            ) from error
        self._entries = {(entry.run, entry.name): entry for entry in self.index.tensors}

    def find(self, run: int, name: str) -> DumpedTensor | None:
        """The entry of a tensor."""
        return self._entries.get((run, name))

    def names(self, run: int) -> list[str]:
        """The tensors of a run in their order."""
        return [entry.name for entry in self.index.tensors if entry.run == run]

    def read(self, entry: DumpedTensor) -> Array:
        """The elements of a tensor."""
        return self._read(entry, entry.file)

    def computed(self, entry: DumpedTensor) -> Array | None:
        """Which elements of a tensor were computed; None if all."""
        return None if entry.computed_file is None else self._read(entry, entry.computed_file).astype(bool)

    def _read(self, entry: DumpedTensor, file: str) -> Array:
        where = str(self.folder / file)
        archive = TensorFile(self.folder / file)
        if "" not in archive:
            raise FileFormatError("is an .npz file, and has to be an .npy file", where=where)
        array = archive[""]
        if array.shape != entry.shape:
            words = f"has the shape {list(array.shape)}, and the index of its dump says {list(entry.shape)}"
            raise FileFormatError(words, where=where)
        if array.dtype.kind not in "biuf":
            raise FileFormatError(f"has elements of type {array.dtype}, which no tensor has", where=where)
        return array

    def inputs(self, run: int) -> dict[str, Array]:
        """The inputs of a run."""
        return {
            entry.name: self.read(entry)
            for entry in self.index.tensors
            if entry.run == run and entry.kind == "input"
        }

    def inputs_for(self, graph: Graph, run: int) -> dict[str, Array]:
        """The inputs of a run, for a network that takes the same ones; `CompareError` says why it does not."""
        given, ports = self.inputs(run), {port.name: port for port in graph.inputs}
        words = ""
        if set(given) != set(ports):
            words = f"its inputs are {_list(given)}, and this network takes {_list(ports)}"
        for name in given:
            if not words and given[name].shape != shape_of(ports[name].value):
                have, want = list(given[name].shape), list(shape_of(ports[name].value))
                words = f"its input '{name}' has the shape {have}, and that of this network {want}"
        if words:
            raise CompareError(
                f"is a dump of another network ({self.index.model}): {words}",
                where=str(self.folder),
                fix="Dump the network that this one is to be held against",
            )
        return given


def _list(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names) or "none"
