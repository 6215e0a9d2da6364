"""A Keras file, opened: the description of the network, the version that wrote it, and its weights.

A `.keras` file is a zip archive of `config.json`, `metadata.json` and `model.weights.h5`, which are read by name into
memory and never unpacked. An `.h5` file has the description in an attribute.
"""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from npuc.archives import AGAIN_FIX, open_zip, read_member
from npuc.errors import FileFormatError, NpucError, ResourceLimitError
from npuc.files import existing_file
from npuc.frontend.keras.hdf5 import Folder, damaged, open_hdf5
from npuc.frontend.keras.weights import ArchiveWeights, KerasWeights, LegacyWeights
from npuc.frontend.support import bounded_json

_CONFIG = 64 << 20
_RATIO = 200
MEMBERS = 1 << 10
WEIGHTS = "model.weights.h5"
"""The member of a `.keras` file that has the variables."""
_DEPTH = 200


@dataclass(frozen=True)
class Archive:
    """What a file holds."""

    path: Path
    config: dict[str, Any]
    version: tuple[int, ...]
    """Of the Keras that wrote it."""
    weights: KerasWeights


def open_archive(path: Path | str, weights: Path | None = None) -> Archive:
    """Open a `.keras` or `.h5` file; `weights` is a file of weights by itself (`.weights.h5` or `.h5`)."""
    path = existing_file(path)
    try:
        archive = _zipped(path) if is_zipped(path) else _hdf5(path)
        if weights is not None:
            folder = Folder(open_hdf5(existing_file(weights), str(weights)), str(weights))
            archive = Archive(path, archive.config, archive.version, _weights(folder))
        return archive
    except NpucError as error:
        error.where = error.where or str(path)
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise damaged(str(path), error) from error


def is_zipped(path: Path) -> bool:
    """True for a `.keras` file, False for an `.h5` file."""
    with open(path, "rb") as handle:
        return handle.read(4) == b"PK\x03\x04"


def weight_bytes(path: Path) -> bytes:
    """The HDF5 file that has the variables: a member of a `.keras` file, or an `.h5` file itself."""
    if not is_zipped(path):
        return path.read_bytes()
    with _damage_told(path), open_zip(path, MEMBERS) as archive:
        return _member(archive, WEIGHTS, path, None)


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    """What the library raises at a damaged archive, told in words."""
    try:
        yield
    except (zipfile.BadZipFile, NotImplementedError, EOFError, zlib.error) as error:
        raise FileFormatError(f"is a damaged zip archive: {error}", where=str(path), fix=AGAIN_FIX) from error
    except RuntimeError as error:  # an encrypted member
        raise FileFormatError(f"cannot be unpacked: {error}", where=str(path)) from error


def _weights(folder: Folder) -> KerasWeights:
    model = folder.folder("model_weights")
    if model is not None:
        return LegacyWeights.of(model)
    return LegacyWeights.of(folder) if folder.texts("layer_names") else ArchiveWeights(folder)


def _hdf5(path: Path) -> Archive:
    folder = Folder(open_hdf5(path, str(path)), str(path))
    text = folder.text("model_config")
    if not text:
        raise FileFormatError(
            "holds weights, but not the network that they belong to",
            where=str(path),
            fix="Save the whole model with model.save('model.keras'), not its weights alone",
        )
    model = folder.folder("model_weights")
    version = folder.text("keras_version") or (model.text("keras_version") if model is not None else "")
    return Archive(path, _json(text, path), _version(version), LegacyWeights.of(model or folder))


def _zipped(path: Path) -> Archive:
    with _damage_told(path), open_zip(path, MEMBERS) as archive:
        _check_names(archive, path)
        config = _json(_member(archive, "config.json", path, _CONFIG).decode("utf-8", "replace"), path)
        try:
            metadata = bounded_json(_member(archive, "metadata.json", path, _CONFIG), "metadata.json")
        except FileFormatError:
            metadata = {}
        if WEIGHTS not in archive.namelist():
            raise FileFormatError(
                f"has no {WEIGHTS} in it", where=str(path), fix="Save the model again as .keras"
            )
        data = _member(archive, WEIGHTS, path, None)
    folder = Folder(open_hdf5(io.BytesIO(data), str(path)), str(path))
    return Archive(path, config, _version(str(metadata.get("keras_version", ""))), _weights(folder))


def _check_names(archive: zipfile.ZipFile, path: Path) -> None:
    """No member may lie outside the archive's own folder: nothing is unpacked, but such a file means harm."""
    names = archive.namelist()
    if len(set(names)) != len(names):
        raise FileFormatError("the archive has two members of one name", where=str(path), fix=AGAIN_FIX)
    for name in names:
        parts = PurePosixPath(name.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts:
            raise FileFormatError(
                f"the archive has a member outside its own folder: '{name[:100]}'", where=str(path)
            )


def _member(archive: zipfile.ZipFile, name: str, path: Path, limit: int | None) -> bytes:
    try:
        info = archive.getinfo(name)
    except KeyError as error:
        raise FileFormatError(f"has no {name} in it", where=str(path)) from error
    most = 1 << 20 if info.compress_size < 1 << 12 else info.compress_size * _RATIO
    most = min(most, limit) if limit is not None else most
    if info.file_size > most or info.compress_size > path.stat().st_size:
        raise ResourceLimitError(
            f"{name} would unpack from {info.compress_size} to {info.file_size} bytes, which no weights do",
            where=str(path),
            fix=AGAIN_FIX,
        )
    return read_member(archive, info)


def _json(text: str, path: Path) -> dict[str, Any]:
    description = bounded_json(text.encode(errors="replace"), "its description of the network")
    pending: list[tuple[Any, int]] = [(description, 0)]
    while pending:
        item, depth = pending.pop()
        if depth > _DEPTH:
            raise ResourceLimitError(f"its description is nested more than {_DEPTH} deep", where=str(path))
        inner = item.values() if isinstance(item, dict) else item if isinstance(item, list) else ()
        pending += [(entry, depth + 1) for entry in inner if isinstance(entry, dict | list)]
    return description


def _version(text: str) -> tuple[int, ...]:
    numbers = []
    for part in text.split(".")[:2]:
        digits = "".join(char for char in part if char.isdigit())
        numbers.append(int(digits[:6]) if digits else 0)
    return tuple(numbers) if text else (2, 0)
