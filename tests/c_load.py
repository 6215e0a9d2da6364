"""Builds and runs c_load.c, the load on npu.h, against a build of the library: `make tsan` gives one with race checks.

python tests/c_load.py --library build/tsan/libnpuc.so --flags=-fsanitize=thread [--jobs 1000] [--models 50]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from c_proof import exported
from support.paths import ROOT
from support.programs.c_applications import STRICT, compiled


def main() -> int:
    """Build, run, and return the exit status of the program."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--library", type=Path, required=True)
    parser.add_argument("--flags", default="")
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--models", type=int, default=50)
    given = parser.parse_args()
    library = given.library.resolve()
    with tempfile.TemporaryDirectory() as folder:
        app = exported(compiled(ROOT / "examples/digits.onnx"), Path(folder), "hosted")
        program = Path(folder) / "c_load"
        flags = [*STRICT.split(), "-O1", "-g", *given.flags.split(), f"-I{ROOT / 'native/include'}"]
        command = [
            "gcc",
            "-std=c11",
            *flags,
            str(ROOT / "tests" / "export" / "c_load.c"),
            str(library),
            f"-Wl,-rpath,{library.parent}",
        ]
        subprocess.run([*command, "-lpthread", "-o", str(program)], check=True)
        files = [app / "model.npu", app / "sample/input0.bin", app / "sample/output0.bin"]
        load = [given.threads, given.jobs, given.models]
        return subprocess.run([str(program), *map(str, (*files, *load))]).returncode


if __name__ == "__main__":
    sys.exit(main())
