"""The kernels for 64-bit ARM, compiled by a cross compiler and run by an emulator, give the bits of this machine's kernels.

`kernel_cases.c` compares the instruction sets of the machine that it runs on with each other and prints a digest of all results;
this machine's is held to the NumPy model by the tests beside this one. NPUC_KERNEL_CASES sets how many cases there are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from npuc.native import library
from support.cached_compiler import cached

ROOT = Path(__file__).resolve().parents[2]
CROSS, EMULATOR = "aarch64-linux-gnu-gcc", "qemu-aarch64"
SOURCES = (
    "conv", "eltwise", "gemm_avx2", "gemm_avx512", "gemm_neon", "gemm_neondot", "gemm_portable", "isa", "loops", "matmul",
    "pooling", "threads",
)  # fmt: skip
FLAGS = [
    "-std=c11",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
    "-ffp-contract=off",
    f"-I{ROOT}/native/include",
]
CASES = os.environ.get("NPUC_KERNEL_CASES", "100")

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler is here")


def run(*command: str | Path) -> list[str]:
    """The lines that a program prints. What `make sanitize` loads first is not for an emulator."""
    words = [str(word) for word in command]
    environment = dict(os.environ)
    if words[0] == EMULATOR:
        environment.pop("LD_PRELOAD", None)
    done = subprocess.run(words, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The instruction sets and the digest of this machine, with the library in use."""
    program = tmp_path_factory.mktemp("here") / "cases"
    path = Path(library()._name)
    run(
        "gcc", *FLAGS, ROOT / "tests/kernels/kernel_cases.c", path, f"-Wl,-rpath,{path.parent}", "-o", program
    )
    sets, digest = run(program, CASES)
    return sets, digest


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program for ARM, with what it needs of the library."""
    missing = [name for name in (CROSS, EMULATOR) if shutil.which(name) is None]
    if missing:
        pytest.skip(f"{' and '.join(missing)} not here (Debian: gcc-aarch64-linux-gnu, qemu-user)")
    folder = tmp_path_factory.mktemp("arm")
    objects = []
    for name in SOURCES:
        more = ["-march=armv8.2-a+dotprod"] if name == "gemm_neondot" else []
        objects.append(folder / f"{name}.o")
        source = ROOT / "native/src" / f"{name}.c"
        run(*cached(CROSS).split(), *FLAGS, *more, "-c", "-o", objects[-1], source)
    cases = ROOT / "tests/kernels/kernel_cases.c"
    run(CROSS, *FLAGS, "-static", cases, *objects, "-lm", "-lpthread", "-o", folder / "cases")
    return folder / "cases"


def test_the_sets_of_this_machine_agree(here: tuple[str, str]) -> None:
    assert "portable" in here[0]


@pytest.mark.parametrize(
    ("processor", "sets"),
    [
        pytest.param("max", "portable neon neondot", id="with sdot"),
        pytest.param("cortex-a53", "portable neon", id="without"),
    ],
)
def test_arm_gives_the_same_bits(here: tuple[str, str], program: Path, processor: str, sets: str) -> None:
    assert run(EMULATOR, "-cpu", processor, program, CASES) == [sets, here[1]]
