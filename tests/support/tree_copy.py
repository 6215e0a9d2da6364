"""A changed copy of the sources, run in a process of its own: what the tests of walkthroughs share."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from npuc import native

_CUSTOMIZE = """
# An editable install finds npuc before any path does; the copy has to come first.
import sys

sys.meta_path[:] = [finder for finder in sys.meta_path if type(finder).__name__ != "ScikitBuildRedirectingFinder"]
"""

_GENERATE = """
# What `make docs` makes of tables and a build needs. The whole command imports every package, and one of them may already use
# an instruction whose class is still to be written.
from pathlib import Path
from npuc.program.instruction_source import instructions_source
from npuc.program.isa_header import c_header
from npuc.program.kinds_header import kinds_header

Path("native/include/npuc/isa.h").write_text(c_header())
Path("native/include/npuc/kinds.h").write_text(kinds_header())
Path("src/npuc/program/instructions.py").write_text(instructions_source())
"""


def environment_of(tree: Path, library: Path | None = None) -> dict[str, str]:
    """The environment in which Python imports npuc from `tree`/src, with a native library or that of this process."""
    tree = tree.resolve()
    folder = tree / "sitecustomize"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(_CUSTOMIZE)
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tree / "src"), str(folder)]),
        "PYTHONDONTWRITEBYTECODE": "1",
        "NPUC_LIBRARY": str(library or native.library()._name),
    }


def generate(tree: Path) -> None:
    """Write the headers and the typed instructions of the copy, from its own tables."""
    subprocess.run([sys.executable, "-c", _GENERATE], cwd=tree, env=environment_of(tree), check=True)


def build_native(tree: Path) -> Path:
    """Build the native core of the copy, without optimization: that takes seconds, and the integers are the same.

    The files and their instruction sets are read from CMakeLists.txt, which is not run: cmake need not be installed. The path of
    the library is absolute, wherever the tree is.
    """
    tree = tree.resolve()
    text = (tree / "CMakeLists.txt").read_text(encoding="utf-8")
    listed = re.search(r"add_library\(npuc SHARED\s+(.*?)\)", text, re.DOTALL)
    assert listed, "CMakeLists.txt names no sources"
    branch = re.search(
        r'^if\(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64.*?^elseif', text, re.DOTALL | re.MULTILINE
    )
    assert branch, "CMakeLists.txt has no instruction sets of x86"
    options = dict(
        re.findall(
            r'set_source_files_properties\((\S+\.c) PROPERTIES COMPILE_OPTIONS\s+"(-m\S+)"\)', branch[0]
        )
    )
    assert options, "no source has an instruction set of its own"
    common = [
        "gcc",
        "-std=c11",
        "-O0",
        "-w",
        "-fPIC",
        "-ffp-contract=off",
        "-D_GNU_SOURCE",
        "-Inative/include",
    ]
    common += ["-DNPUC_BUILDING", f'-DNPUC_VERSION="{native.version()}"']

    def compiled(source: str) -> str:
        result = source.replace("/", "_") + ".o"
        instruction_set = options.get(source, "").split(";") if _is_x86() else []
        subprocess.run(
            [*common, *filter(None, instruction_set), "-c", source, "-o", result], cwd=tree, check=True
        )
        return result

    with ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(compiled, listed[1].split()))
    library = tree / "libnpuc.so"
    subprocess.run(["gcc", "-shared", *objects, "-lm", "-lpthread", "-o", str(library)], cwd=tree, check=True)
    return library


def _is_x86() -> bool:
    return os.uname().machine in ("x86_64", "AMD64")
