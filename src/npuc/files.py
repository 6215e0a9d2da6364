"""Reading and writing files the way a user can rely on.

Outputs go to a file without a name, which gets one when it is complete: a killed run leaves the old file or none, and
nothing half written. (Where the file system has no such files, a hidden name in the same folder serves.) Problems become
one-paragraph errors that name the path.
"""

from __future__ import annotations

import mmap
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from npuc.errors import FileMissingError, NpucError, OutputError

_before_mapping: list[Callable[[], None]] = []


@contextmanager
def write_atomically(path: Path | str) -> Iterator[IO[bytes]]:
    """Open `path` for binary writing; it appears, whole, only if the block ends without an error.

    >>> with write_atomically("/dev/null/x") as out:  # doctest: +IGNORE_EXCEPTION_DETAIL
    ...     pass
    Traceback (most recent call last):
    npuc.errors.OutputError: ...
    """
    given, path = path, final_place(path)
    temporary: str | None = None
    try:
        if _is_stream(path):
            with tempfile.TemporaryFile() as buffer:
                yield buffer
                buffer.seek(0)
                with open(path, "wb") as stream:
                    shutil.copyfileobj(buffer, stream)
            return
        descriptor = _unnamed(path.parent)
        named = descriptor is None
        if descriptor is None:
            descriptor, temporary = _named(path)
        with os.fdopen(descriptor, "wb", buffering=1 << 20) as handle:
            yield handle
            handle.flush()
            umask = os.umask(0)
            os.umask(umask)
            os.fchmod(descriptor, 0o666 & ~umask)
            if not named:
                temporary = _give_name(descriptor, path)
        assert temporary is not None
        os.replace(temporary, path)
        temporary = None
        _tell(given, path)
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror or error}",
            where=str(given),
            fix="Choose another path",
        ) from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                os.unlink(temporary)


def _tell(given: Path | str, path: Path) -> None:
    """Leave a line in the log, if there is one: a program that logs nothing has not imported it."""
    if "logging" in sys.modules:
        sys.modules["logging"].getLogger(__name__).info("wrote %s, %d bytes", given, os.stat(path).st_size)


def final_place(path: Path | str) -> Path:
    """Where a file goes that is written to a path: a symbolic link is followed, and stays."""
    path = Path(path)
    if not path.is_symlink() or _is_stream(path):
        return path
    place = Path(os.path.realpath(path))
    if place.is_symlink():
        raise OutputError(
            "cannot be written: it is a link that leads to itself", where=str(path), fix="Choose another path"
        )
    return place


def _is_stream(path: Path) -> bool:
    """True for a device or a pipe, such as /dev/stdout: it is written to, and never replaced."""
    with suppress(OSError):
        mode = os.stat(path).st_mode
        return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)
    return False


def _unnamed(folder: Path) -> int | None:
    """A file without a name; None if the system has no such files."""
    if not hasattr(os, "O_TMPFILE") or not os.path.exists("/proc/self/fd"):
        return None
    try:
        return os.open(folder or ".", os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError:
        return None


def _named(path: Path) -> tuple[int, str]:
    return tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)


def _give_name(descriptor: int, path: Path) -> str:
    """A hidden name for a complete file: only renaming puts it in the place of an older one."""
    while True:
        name = path.parent / f".{path.name}.{os.urandom(6).hex()}.tmp"
        with suppress(FileExistsError):
            # With a folder for the source, which an absolute path does not need, Python follows the symbolic link.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor, follow_symlinks=True)
            return str(name)


def writable(path: Path | str) -> Path:
    """The path, if a file can be written there; asked before long work, so that its result is not lost."""
    path = Path(path)
    folder = final_place(path).parent
    reason, fix = "", "Choose another path"
    if path.is_dir():
        reason = "it is a folder"
    elif _is_stream(path):
        reason = "" if os.access(path, os.W_OK) else "it takes no data from this user"
    elif not folder.is_dir():
        reason, fix = f"there is no folder '{folder}'", "Make it first, or choose another path"
    elif not os.access(folder, os.W_OK):
        reason = f"the folder '{folder}' is read-only"
    if reason:
        raise OutputError(f"cannot be written: {reason}", where=str(path), fix=fix)
    return path


@contextmanager
def new_folder(path: Path | str) -> Iterator[Path]:
    """A folder to fill, which takes the place of `path` (new, or an empty folder) if the block ends without an error.

    Otherwise nothing of it is left, nor of folders above it that were made for it.
    """
    given, path = path, Path(os.path.realpath(path))
    missing = [folder for folder in (path.parent, *path.parent.parents) if not folder.exists()]
    filled: str | None = None
    try:
        make_folder(path.parent)
        filled = tempfile.mkdtemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(filled, 0o777 & ~umask)
        yield Path(filled)
        os.replace(filled, path)
        filled, missing = None, []
    except OSError as error:
        raise OutputError(
            f"cannot be written: {error.strerror or error}", where=str(given), fix="Choose another folder"
        ) from error
    finally:
        if filled is not None:
            shutil.rmtree(filled, ignore_errors=True)
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()


def make_folder(path: Path | str) -> Path:
    """Make a folder, and those above it, unless it is there."""
    path = Path(path)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"cannot be made a folder: {error.strerror or error}",
            where=str(path),
            fix="Choose another path",
        ) from error
    return path


@contextmanager
def filled_folder(path: Path | str) -> Iterator[Path]:
    """A folder to write into, which may have files already; if the block ends with an error, folders made for it go if empty."""
    path = Path(path)
    missing = [folder for folder in (path, *path.absolute().parents) if not folder.exists()]
    try:
        yield make_folder(path)
    except BaseException:
        for folder in missing:
            with suppress(OSError):
                folder.rmdir()
        raise


def existing_model(path: Path | str) -> Path:
    """The path, if it names a file that can be opened, or TensorFlow's SavedModel, which is a folder."""
    path = Path(path)
    try:
        if (path / "saved_model.pb").is_file():
            return path
    except OSError as error:
        raise FileMissingError(f"cannot be read: {error.strerror}", where=str(path)) from error
    if path.is_dir():
        raise FileMissingError(
            "is a folder, and no SavedModel of TensorFlow: there is no saved_model.pb in it",
            where=str(path),
            fix="Give the file of the model",
        )
    return existing_file(path)


def existing_text(path: Path | str) -> Path:
    """As `existing_file`, for a short text, which may also come through a pipe: a shell makes one of `<(...)`."""
    path = Path(path)
    with suppress(OSError):
        if path.is_fifo():
            return path
    return existing_file(path)


def read_short(path: Path | str, most: int, what: str, error: type[NpucError]) -> bytes:
    """The bytes of a short text; `error` if there are more than `most`, which are too many for what it is."""
    path = existing_text(path)
    try:
        with open(path, "rb") as handle:
            data = handle.read(most + 1)
    except OSError as failed:
        raise FileMissingError(f"cannot be read: {failed.strerror}", where=str(path)) from failed
    if len(data) > most:
        raise error(f"is too large for {what}", where=str(path))
    if not data and path.is_fifo():
        raise error(f"is a pipe that gives nothing, and {what} is needed", where=str(path))
    return data


def existing_file(path: Path | str) -> Path:
    """The path, if it names a file that can be opened; an error in words otherwise."""
    path = Path(path)
    if path.is_dir():
        raise FileMissingError("is a folder, not a file", where=str(path), fix="Give the path of a file")
    try:
        # Whoever opens a pipe waits for its other end, and a device has no end.
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise FileMissingError(
                "is a pipe or a device, not a file",
                where=str(path),
                fix="Write what it gives to a file first",
            )
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


def before_mapping(call: Callable[[], None]) -> None:
    """Have a function called once, before the first file is mapped: a program may have to prepare for it."""
    _before_mapping.append(call)


def map_file(handle: IO[bytes]) -> mmap.mmap | bytes:
    """The bytes of an open file in place.

    A file that becomes shorter afterwards has pages that nobody can read, and looking at one is SIGBUS: `mmap.size` tells
    its length now, and `npuc.native.report_truncation` has words for those that come too late.
    """
    while _before_mapping:
        _before_mapping.pop()()
    if not os.fstat(handle.fileno()).st_size:
        return b""
    return mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ)
