"""A C compiler that remembers its objects: `python cached_compiler.py FOLDER gcc -O1 -c -o x.o x.c`.

The applications that tests export bring the sources of the runtime along, and each compiles all of them again. An object depends
only on the preprocessed source, the compiler and the flags, so it is kept in FOLDER under a hash of these; whatever else the
compiler is asked for (linking, `-dumpmachine`) it does itself. A compilation that says anything is not kept: a warning has to be
said each time. Two processes may compile the same source at once; the file of an object appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

OBJECTS = "NPUC_TEST_OBJECTS"
"""The environment variable that names the folder, for a session of tests and its worker processes."""
_DEPENDENCIES = ("-MMD", "-MP")
"""Flags that write a file of dependencies, which a folder that is built once does not need."""


def cached(compiler: str) -> str:
    """The command to use for a compiler: this one in front of it, in a session that has a folder."""
    folder = os.environ.get(OBJECTS)
    return f"{sys.executable} -S {__file__} {folder} {compiler}" if folder else compiler


def compile_cached(folder: Path, command: list[str]) -> int:
    """Run a compiler's command, or take its object from the folder; returns the exit status."""
    if "-c" not in command or "-o" not in command:
        return subprocess.run(command).returncode
    at = command.index("-o")
    result = Path(command[at + 1])
    others = [word for word in command[:at] + command[at + 2 :] if word not in _DEPENDENCIES]
    source = subprocess.run([word if word != "-c" else "-E" for word in others], capture_output=True)
    if source.returncode == 0:
        key = hashlib.sha256("\0".join(others).encode() + b"\0" + source.stdout).hexdigest()
        kept = folder / f"{key}.o"
        if kept.is_file():
            shutil.copyfile(kept, result)
            return 0
    done = subprocess.run(command, capture_output=True)
    sys.stderr.buffer.write(done.stdout + done.stderr)
    if done.returncode == 0 and source.returncode == 0 and not done.stdout + done.stderr:
        partial = folder / f"{key}.{os.getpid()}"
        shutil.copyfile(result, partial)
        partial.replace(kept)
    return done.returncode


if __name__ == "__main__":
    sys.exit(compile_cached(Path(sys.argv[1]), sys.argv[2:]))
