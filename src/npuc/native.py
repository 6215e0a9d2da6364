"""The native core, `libnpuc`, loaded through ctypes.

The library is built by CMake and installed inside the package, in `_native/`. An editable install keeps the Python
sources in the checkout and the built library in site-packages, so every directory of the package is searched; the
environment variable NPUC_LIBRARY names another build, such as the one with sanitizers.
It is loaded once, at first use: importing npuc needs no compiler and no library.
"""

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import npuc
from npuc.errors import NativeLibraryError

ABI_VERSION = 1
"""The `NPUC_ABI_VERSION` of native/include/npuc/npuc.h that this module speaks."""

_FILE_NAMES = {"darwin": "lib{}.dylib", "win32": "{}.dll"}
_FIX = (
    "Install npuc again: `pip install --force-reinstall --no-deps npuc`, or `pip install -e .` in a checkout."
)


def version() -> str:
    """Return the release that the native library was built from.

    >>> version()
    '0.1.0'
    """
    text: bytes = library().npuc_version()
    return text.decode("ascii")


def report_truncation(status: int) -> None:
    """For a program: a mapped file that becomes shorter ends it with an error's words and `status`, not with SIGBUS.

    Nothing happens where the library is missing (whoever needs it says so) or was built before it had this.
    """
    with suppress(NativeLibraryError, AttributeError):
        install = library().npuc_report_truncation
        install.argtypes, install.restype = [ctypes.c_int], ctypes.c_int
        install(status)


@cache
def library() -> ctypes.CDLL:
    """Return the loaded library with its functions declared, or raise `NativeLibraryError`.

    >>> library().npuc_abi_version() == ABI_VERSION
    True
    """
    return load(find())


def find(library_name: str = "npuc") -> Path:
    """Return the path of the native library in the installed package, or raise `NativeLibraryError`.

    `library_name` is another library of the package, such as a plugin of a framework; with NPUC_LIBRARY it is beside that.

    >>> find().name
    'libnpuc.so'
    """
    name = _FILE_NAMES.get(sys.platform, "lib{}.so").format(library_name)
    if chosen := os.environ.get("NPUC_LIBRARY"):
        return Path(chosen) if library_name == "npuc" else Path(chosen).with_name(name)
    candidates = [Path(directory) / "_native" / name for directory in npuc.__path__]
    for path in candidates:
        if path.is_file():
            return path
    looked = ", ".join(str(path) for path in candidates)
    raise _unusable(f"{name} is not in the installed package; looked at {looked}")


def load(path: Path) -> ctypes.CDLL:
    """Load the library at `path`, check its ABI number and declare its functions.

    >>> load(find()).npuc_version()
    b'0.1.0'
    """
    try:
        core = ctypes.CDLL(str(path))
    except OSError as error:
        raise _unusable(f"{path} cannot be loaded: {error}") from error
    try:
        _declare(core)
    except AttributeError as error:
        raise _unusable(f"{path} is not the npuc core: {error}") from error
    abi: int = core.npuc_abi_version()
    if abi != ABI_VERSION:
        raise _unusable(f"{path} has ABI {abi}, this npuc speaks ABI {ABI_VERSION}")
    return core


def _declare(core: ctypes.CDLL) -> None:
    core.npuc_version.argtypes = []
    core.npuc_version.restype = ctypes.c_char_p
    core.npuc_abi_version.argtypes = []
    core.npuc_abi_version.restype = ctypes.c_int


def _unusable(reason: str) -> NativeLibraryError:
    return NativeLibraryError(reason, fix=_FIX)
