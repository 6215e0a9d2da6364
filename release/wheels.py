"""Build the source distribution and the wheels of a release: `make wheels`.

    python release/wheels.py [--machine x86_64|aarch64] dist/

The native core is compiled by `zig cc` (the package ziglang), which has the C libraries of old and of other systems: the result
runs on every Linux with glibc 2.17 or newer, and wheels for aarch64 are made on any machine. Instruction sets beyond the
baseline are chosen at run time (native/src/isa.c). `split.py` then makes two wheels of one.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from split import split

ROOT = Path(__file__).resolve().parent.parent
GLIBC = "2.17"
MACHINES = ("x86_64", "aarch64")
_TIMELESS = {"SOURCE_DATE_EPOCH": "315532800"}
"""The one time that files in archives have, so that the same sources give the same bytes."""


def build(machine: str, folder: Path) -> tuple[Path, Path]:
    """The wheels of the runtime, for one kind of machine, and of the compiler, for all."""
    with tempfile.TemporaryDirectory() as scratch:
        compiler = _tool(Path(scratch) / "cc", f"cc -target {machine}-linux-gnu.{GLIBC} -g0")
        archiver = _tool(Path(scratch) / "ar", "ar")
        ranlib = _tool(Path(scratch) / "ranlib", "ranlib")
        settings = {
            "CMAKE_C_COMPILER": compiler,
            "CMAKE_AR": archiver,
            "CMAKE_RANLIB": ranlib,
            "CMAKE_SYSTEM_NAME": "Linux",
            "CMAKE_SYSTEM_PROCESSOR": machine,
            "CMAKE_BUILD_WITH_INSTALL_RPATH": "ON",
        }
        environment = os.environ | {
            "CMAKE_ARGS": " ".join(f"-D{name}={shlex.quote(str(value))}" for name, value in settings.items()),
            **_TIMELESS,
        }
        command = [sys.executable, "-m", "build", "--wheel", "--outdir", scratch, str(ROOT)]
        subprocess.run(command, env=environment, check=True, stdout=subprocess.DEVNULL)
        (whole,) = Path(scratch).glob("npuc-*.whl")
        return split(whole, f"manylinux_{GLIBC.replace('.', '_')}_{machine}", folder)


def _tool(path: Path, arguments: str) -> Path:
    """A program that CMake can call: zig under the name of one of its tools."""
    path.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m ziglang {arguments} "$@"\n')
    path.chmod(0o755)
    return path


def main() -> None:
    """Build what is asked for; the source distribution too."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machine", choices=MACHINES, action="append", help="only for this one")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args()
    subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--outdir", str(given.folder), str(ROOT)],
        check=True,
        env=os.environ | _TIMELESS,
        stdout=subprocess.DEVNULL,
    )
    for machine in given.machine or MACHINES:
        for path in build(machine, given.folder):
            print(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
