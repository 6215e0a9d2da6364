"""The variables of a Keras file: read by their paths, and written into a copy of the file.

    variables = read_variables("model.keras")
    write_variables("model.keras", "trained.keras", {path: 2 * array for path, array in variables.items()})

A copy is the file as it was, with other numbers in some of its datasets: description, names, optimizer and assets stay, so that
what could open the file opens the copy. Keras is not needed.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from npuc.archives import open_zip, read_member
from npuc.arrays import Array
from npuc.errors import FileFormatError, ResourceLimitError, UsageError
from npuc.files import existing_file, write_atomically
from npuc.frontend.keras.archive import MEMBERS, WEIGHTS, is_zipped, weight_bytes
from npuc.frontend.keras.hdf5 import Folder, damaged, open_hdf5

_OTHERS = ("optimizer", "optimizer_weights")
"""Groups whose numbers belong to no layer."""
_DEPTH = 64


def read_variables(path: Path | str) -> dict[str, Array]:
    """The float variables of all layers, by their path in the file, in its order."""
    path = existing_file(path)
    root = Folder(open_hdf5(io.BytesIO(weight_bytes(path)), str(path)), str(path))
    return {
        place: array
        for name in root.names()
        if name not in _OTHERS
        for place, array in _datasets(root, name, name, 0)
        if array.dtype.kind == "f"
    }


def _datasets(holder: Folder, name: str, place: str, depth: int) -> Iterator[tuple[str, Array]]:
    if depth > _DEPTH:
        raise ResourceLimitError(f"its groups are nested more than {_DEPTH} deep", where=holder.where)
    group = holder.folder(name)
    if group is None:
        yield place, holder.array(name)
        return
    for inner in group.names():
        yield from _datasets(group, inner, f"{place}/{inner}", depth + 1)


def write_variables(source: Path | str, path: Path | str, arrays: Mapping[str, Array]) -> None:
    """A copy of the file with other values in some variables, given by their path."""
    source, path = existing_file(source), Path(path)
    require_same_kind(source, path)
    changed = _changed(weight_bytes(source), arrays, str(source))
    if not is_zipped(source):
        with write_atomically(path) as handle:
            handle.write(changed)
        return
    with (
        open_zip(source, MEMBERS) as old,
        write_atomically(path) as handle,
        zipfile.ZipFile(handle, "w") as new,
    ):
        for info in old.infolist():
            new.writestr(info, changed if info.filename == WEIGHTS else read_member(old, info))


def require_same_kind(source: Path, path: Path) -> None:
    """Refuse to write a copy under the ending of another format."""
    kinds = (".keras",) if is_zipped(source) else (".h5", ".hdf5")
    if path.suffix.lower() not in kinds:
        raise UsageError(
            f"{path}: {source} is a file in the format {kinds[0]}, and so is a copy of it with trained weights",
            fix=f"End the name in {kinds[0]}; Keras converts: keras.models.load_model(…).save(…)",
        )


def _changed(data: bytes, arrays: Mapping[str, Array], where: str) -> bytes:
    """The HDF5 file with other values."""
    import h5py

    buffer = io.BytesIO(data)
    try:
        with h5py.File(buffer, "r+") as file:
            for path, array in arrays.items():
                if path not in file or file[path].shape != array.shape:
                    raise FileFormatError(
                        f"there is no variable '{path}' of shape {list(array.shape)}", where=where
                    )
                file[path][...] = array.astype(file[path].dtype)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise damaged(where, error) from error
    return buffer.getvalue()
