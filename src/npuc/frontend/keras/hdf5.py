"""HDF5 with the doors shut: only data that lies in the file itself, and never more than the file can hold.

HDF5 can refer to other files (external links, external storage, virtual datasets), can state sizes for which it stores
nothing, and can compress. A model needs none of that but plain compression, so everything else is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import wraps
from math import prod
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np

from npuc.arrays import Array
from npuc.errors import ExternalDataError, FileFormatError, MissingExtraError, ResourceLimitError

_RATIO = 200
"""How many times larger than its bytes in the file a compressed tensor may be."""
_TEXT = 256 << 20
_MEMBERS = 1 << 17
_T = TypeVar("_T")


def open_hdf5(source: Path | IO[bytes], where: str) -> Any:
    """An open file."""
    try:
        import h5py
    except ImportError as error:
        raise MissingExtraError(
            "reading Keras models needs h5py, which is not installed",
            where=where,
            fix="Install it with: pip install 'npuc[keras]'",
        ) from error
    try:
        return h5py.File(source, "r")
    except (OSError, RuntimeError, ValueError, KeyError, TypeError) as error:
        raise damaged(where, error) from error


def damaged(where: str, error: object) -> FileFormatError:
    """The error for a file that the library trips over."""
    words = next(iter(str(error).splitlines()), "")[:160]
    return FileFormatError(
        f"is not a readable HDF5 file: {words}", where=where, fix="Save or download it again"
    )


def _guarded(method: Callable[..., _T]) -> Callable[..., _T]:
    """What the library raises at a damaged file, told in words."""

    @wraps(method)
    def guarded(self: Folder, *arguments: Any) -> _T:
        try:
            return method(self, *arguments)
        except (OSError, RuntimeError, ValueError, KeyError, TypeError, SystemError) as error:
            raise damaged(self.where, error) from error

    return guarded


class Folder:
    """A group: names, datasets and attributes, each looked at with care."""

    def __init__(self, group: Any, where: str) -> None:
        self._group = group
        self.where = where

    @_guarded
    def names(self) -> list[str]:
        """The names in it."""
        if len(self._group) > _MEMBERS:
            raise ResourceLimitError(f"a group has {len(self._group)} members", where=self.where)
        return [str(name) for name in self._group]

    @_guarded
    def _entry(self, name: str) -> Any:
        import h5py

        link = self._group.get(name, getlink=True)
        if link is None:
            return None
        if not isinstance(link, h5py.HardLink):
            raise ExternalDataError(
                f"'{name[:200]}' is a link to another place or file, which a model file must not have",
                where=self.where,
            )
        return self._group[name]

    def folder(self, path: str) -> Folder | None:
        """A group inside, by its path."""
        folder: Folder | None = self
        for name in path.split("/"):
            if folder is None:
                return None
            entry = folder._entry(name)
            folder = Folder(entry, self.where) if hasattr(entry, "keys") else None
        return folder

    @_guarded
    def array(self, path: str) -> Array:
        """A dataset of numbers inside, by its path."""
        *groups, name = path.split("/")
        holder = self.folder("/".join(groups)) if groups else self
        entry = None if holder is None else holder._entry(name)
        if entry is None or not hasattr(entry, "shape") or entry.shape is None:
            raise FileFormatError(f"there are no weights '{path[:200]}'", where=self.where)
        return _read(entry, path, self.where)

    @_guarded
    def attribute(self, name: str) -> Any:
        """An attribute, None if there is none."""
        attributes = self._group.attrs
        if name not in attributes:
            return None
        stored = attributes.get_id(name)
        if prod(stored.shape or ()) * max(1, stored.dtype.itemsize) > _TEXT:
            raise ResourceLimitError(f"the attribute '{name}' is too large", where=self.where)
        return attributes[name]

    def texts(self, name: str) -> list[str]:
        """A list of texts, which Keras cuts into several attributes when it is long."""
        value = self.attribute(name)
        if value is not None:
            return [_text(item) for item in np.asarray(value).reshape(-1)]
        return list(self._pieces(name))

    def _pieces(self, name: str) -> Iterator[str]:
        for number in range(_MEMBERS):
            value = self.attribute(f"{name}{number}")
            if value is None:
                return
            yield from (_text(item) for item in np.asarray(value).reshape(-1))

    def text(self, name: str) -> str:
        """A text, empty if there is none."""
        value = self.attribute(name)
        return "" if value is None else _text(value)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _read(entry: Any, path: str, where: str) -> Array:
    if entry.external or entry.is_virtual:
        raise ExternalDataError(
            f"the weights '{path[:200]}' are in another file, which a model file must not refer to",
            where=where,
        )
    if entry.dtype.kind not in "fiub" or entry.dtype.itemsize > 8:
        raise FileFormatError(f"the weights '{path[:200]}' are no numbers ({entry.dtype})", where=where)
    stored, size = int(entry.id.get_storage_size()), int(entry.size) * entry.dtype.itemsize
    if size > max(1 << 16, stored * (_RATIO if entry.compression else 1)):
        raise ResourceLimitError(
            f"the weights '{path[:200]}' of the shape {list(entry.shape)} have only {stored} bytes in the file",
            where=where,
        )
    array: Array = np.asarray(entry[()])
    return array.astype(array.dtype.newbyteorder("="), copy=False)
