"""Reading and writing files the way a user can rely on.

Outputs go to a temporary name in the same folder and are renamed when complete: a killed run leaves the old file or
none. Problems become one-paragraph errors that name the path.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from npuc.errors import FileMissingError, OutputError


@contextmanager
def write_atomically(path: Path | str) -> Iterator[IO[bytes]]:
    """Open `path` for binary writing; it appears, whole, only if the block ends without an error.

    >>> with write_atomically("/dev/null/x") as out:  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     pass
    Traceback (most recent call last):
    npuc.errors.OutputError: ...
    """
    path = Path(path)
    temporary: str | None = None
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as handle:
            yield handle
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
        temporary = None
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror or error}",
            where=str(path),
            fix="Choose another path with -o",
        ) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def writable(path: Path | str) -> Path:
    """The path, if a file can be written there; asked before long work, so that its result is not lost."""
    path = Path(path)
    reason = ""
    if path.is_dir():
        reason = "it is a folder"
    elif not path.parent.is_dir():
        reason = f"there is no folder '{path.parent}'"
    elif not os.access(path.parent, os.W_OK):
        reason = f"the folder '{path.parent}' is read-only"
    if reason:
        raise OutputError(f"cannot be written: {reason}", where=str(path), fix="Choose another path with -o")
    return path


def make_folder(path: Path | str) -> Path:
    """Make a folder, and those above it, unless it is there."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot be made a folder: {error.strerror or error}", where=str(path)) from error
    return path


def existing_file(path: Path | str) -> Path:
    """The path, if it names a file that can be opened; an error in words otherwise."""
    path = Path(path)
    if path.is_dir():
        raise FileMissingError("is a folder, not a file", where=str(path))
    try:
        with open(path, "rb"):
            return path
    except FileNotFoundError as error:
        near = (
            [p.name for p in sorted(path.parent.glob(f"*{path.suffix}"))[:5]] if path.parent.is_dir() else []
        )
        fix = f"In that folder there are: {', '.join(near)}" if near else "Check the path"
        raise FileMissingError("does not exist", where=str(path), fix=fix) from error
    except OSError as error:
        raise FileMissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
