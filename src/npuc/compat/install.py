"""Write a vendor's console scripts and importable packages into a folder: `DIR/bin` for PATH, `DIR/python` for PYTHONPATH.

A vendor with a C++ runtime also gets `DIR/include` and `DIR/lib`: headers over npuc's C runtime, and the names that programs link
with, which are linker scripts that name that runtime.

Everything that is written begins with a mark. A file that has it is ours and is written again; any other file stops the whole
installation before anything is written.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from npuc import native
from npuc.compat.vendor import Vendor
from npuc.deploy.c.sources import public_header
from npuc.errors import OutputError
from npuc.files import make_folder, write_atomically

_MARK = "# Written by 'npuc compat install'."
_RUNTIME = ("npu.h", "npu.hpp", "npu_kernel.h", "npu_plugin.h")
"""The headers of npuc's own that those of vendors include."""
_LINKED = "/* {mark} */\nINPUT({library})\n"
_SCRIPT = """\
#!{python}
{mark}
import sys

from npuc.cli import main

main(["compat", "run", "{vendor}", "{command}", *sys.argv[1:]])
"""
_MODULE = """\
{mark}
from npuc.compat.modules import publish

publish(__name__, "{adapter}")
"""

_EXTENSION = """\
{mark}
from npuc.compat.modules import extend

extend(__name__, __file__, "{adapter}")
"""


@dataclass(frozen=True)
class Installation:
    """Where things were written."""

    files: tuple[Path, ...]
    scripts: Path | None
    """The folder for PATH; None if the vendor has no commands."""
    packages: Path | None
    """The folder for PYTHONPATH; None if the vendor has no packages."""
    headers: Path | None = None
    """The folder for CPLUS_INCLUDE_PATH; None if the vendor has no C++ runtime."""
    libraries: Path | None = None
    """The folder for LIBRARY_PATH."""
    runtime: Path | None = None
    """The folder of the runtime itself, for LD_LIBRARY_PATH."""


def install(vendor: Vendor, folder: Path | str) -> Installation:
    """Write the scripts and packages of a vendor; nothing is put on anybody's path."""
    root = Path(folder).absolute()
    texts = _texts(vendor, root)
    foreign = [path for path in texts if path.exists() and not _is_ours(path)]
    if foreign:
        more = f", and {len(foreign) - 1} more of its files are not, either" if len(foreign) > 1 else ""
        raise OutputError(
            f"is not a file of 'npuc compat install'{more}; nothing was written",
            where=str(foreign[0]),
            fix="Choose a new folder",
        )
    for path, text in texts.items():
        make_folder(path.parent)
        with write_atomically(path) as out:
            out.write(text.encode())
        if path.parent == root / "bin":
            path.chmod(0o755)
    return Installation(
        tuple(texts),
        root / "bin" if vendor.commands else None,
        root / "python" if vendor.modules or vendor.extensions else None,
        root / "include" if vendor.headers else None,
        root / "lib" if vendor.libraries else None,
        native.find().parent if vendor.libraries else None,
    )


def _texts(vendor: Vendor, root: Path) -> dict[Path, str]:
    """The files of an installation and what is in them."""
    texts = {
        root / "bin" / command: _SCRIPT.format(
            python=sys.executable, mark=_MARK, vendor=vendor.name, command=command
        )
        for command in vendor.commands
    }
    parents = {
        ".".join(name.split(".")[:end]) for name in vendor.modules for end in range(1, name.count(".") + 1)
    }
    for name in sorted({*vendor.modules, *parents}):
        adapter = vendor.modules.get(name, "")
        place = root / "python" / Path(*name.split("."))
        path = place / "__init__.py" if name in parents else place.with_name(f"{place.name}.py")
        texts[path] = _MODULE.format(mark=_MARK, adapter=adapter) if adapter else f"{_MARK}\n"
    for name, adapter in vendor.extensions.items():
        texts[root / "python" / name / "__init__.py"] = _EXTENSION.format(mark=_MARK, adapter=adapter)
    return texts | _cpp_texts(vendor, root)


def _cpp_texts(vendor: Vendor, root: Path) -> dict[Path, str]:
    """The headers and libraries for C++ programs."""
    texts: dict[Path, str] = {}
    if vendor.headers:
        own = Path(__file__).parent / vendor.name / vendor.headers
        headers = {
            str(path.relative_to(own)): path.read_text(encoding="utf-8") for path in sorted(own.rglob("*.h*"))
        }
        headers |= {name: public_header(name) for name in _RUNTIME}
        texts |= {root / "include" / name: f"/* {_MARK} */\n{text}" for name, text in headers.items()}
    for name in vendor.libraries:
        texts[root / "lib" / f"lib{name}.so"] = _LINKED.format(mark=_MARK, library=native.find())
    return texts


def _is_ours(path: Path) -> bool:
    try:
        with open(path, "rb") as handle:
            return _MARK.encode() in handle.read(4096)
    except OSError:
        return False
