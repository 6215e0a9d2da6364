"""The binary interface of the C API: `python tests/native_abi.py --write` keeps it, `tests/test_native_abi.py` compares with it.

The sources that define the functions of the public headers are built with debug information, and `abidw` (Debian's abigail-tools)
writes down functions, types, sizes and offsets as XML. `abidiff` then says what changed. Functions may be added; structures that
the caller owns may not change.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from support.paths import ROOT

BASELINE = ROOT / "tests" / "golden_files" / "libnpuc-c-api.abi.xml"
HEADERS = ("npu.h", "npu_detect.h", "npu_plugin.h", "npu_networks.h")
TOOL = shutil.which("abidiff")


def sources(native: Path) -> list[Path]:
    """The files that define functions of the C API."""
    defines = re.compile(r"^(?!static)[a-z].*\bnpu_\w+\(", re.MULTILINE)
    found = [path for path in sorted((native / "src").glob("npu*.c")) if defines.search(path.read_text())]
    return [
        path for path in found if path.name != "npu_static.c"
    ]  # the form without a heap has the same functions


def build(native: Path, library: Path) -> None:
    """A library of the C API alone: what it calls is not needed to describe it."""
    command = [
        "gcc",
        "-std=gnu11",
        "-g",
        "-O0",
        "-w",
        "-fPIC",
        "-shared",
        "-fvisibility=hidden",
        "-DNPUC_BUILDING",
        f"-ffile-prefix-map={native.parent}=.",
    ]
    command += [
        f"-I{native / 'include'}",
        f"-Wl,--version-script={native / 'src/npuc.map'}",
        "-Wl,-soname,libnpuc.so",
    ]
    command += ["-Wl,--unresolved-symbols=ignore-all", *map(str, sources(native)), "-o", str(library)]
    subprocess.run(command, check=True)


def describe(native: Path, library: Path, out: Path) -> None:
    """Write the interface of a library as XML, without paths of this machine."""
    command = [
        "abidw",
        "--no-corpus-path",
        "--no-comp-dir-path",
        "--no-show-locs",
        "--headers-dir",
        str(native / "include"),
    ]
    subprocess.run([*command, "--drop-private-types", "--out-file", str(out), str(library)], check=True)


def difference(native: Path, folder: Path) -> tuple[int, str]:
    """What changed since the baseline: exit status of abidiff and its words. Functions that are added do not count."""
    library, now = folder / "libnpuc.so", folder / "now.abi.xml"
    build(native, library)
    describe(native, library, now)
    command = ["abidiff", "--no-added-syms", str(BASELINE), str(now)]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def main() -> None:
    """Compare, or write the baseline."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--write", action="store_true")
    with tempfile.TemporaryDirectory() as folder:
        if parser.parse_args().write:
            build(ROOT / "native", Path(folder, "libnpuc.so"))
            describe(ROOT / "native", Path(folder, "libnpuc.so"), BASELINE)
            return
        status, words = difference(ROOT / "native", Path(folder))
    print(words or "the interface is that of the baseline")
    sys.exit(status)


if __name__ == "__main__":
    main()
