"""Install built wheels as a user does, outside of the repository and without a compiler, and run them: `make release-check`.

    python release/check.py dist/ [--python python3.13]

Archives must have the digests of `SHA256SUMS`, where `digests.py` has written it. Both wheels go into one empty environment,
which compiles and runs the demo network; the runtime alone goes into another, which runs the compiled model and must give the
same bits without the compiler's packages. PATH has no compiler, so that none is used unseen.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import digests

ROOT = Path(__file__).resolve().parent.parent
_RUN = """
import sys
import numpy as np
from npuc.runtime import Runner
samples = np.load(sys.argv[2])["image"]
with Runner(sys.argv[1]) as runner:
    np.save(sys.argv[3], runner.run({"image": samples})["logits"])
heavy = {"onnx", "onnxruntime", "xdsl", "pydantic", "torch", "PIL"} & set(sys.modules)
assert not heavy, heavy
"""


def main(arguments: list[str]) -> int:
    """Install, run, compare; the first step that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", default=sys.executable, help="the interpreter of the environments")
    parser.add_argument("folder", type=Path)
    given = parser.parse_args(arguments)
    folder = given.folder.resolve()
    if (folder / digests.LIST).exists() and (
        wrong := digests.differences(digests.listed(folder), digests.digests(folder))
    ):
        print(f"not what {digests.LIST} says: {', '.join(wrong)}", file=sys.stderr)
        return 1
    (runtime,) = folder.glob(f"npuc_runtime-*_{platform.machine()}.whl")
    (compiler,) = folder.glob("npuc-*-any.whl")
    with tempfile.TemporaryDirectory() as scratch:
        place = Path(scratch)
        for name in ("digits.onnx", "digits_samples.npz"):
            shutil.copy(ROOT / "examples" / name, place)
        (place / "run.py").write_text(_RUN)
        version = subprocess.run([given.python, "--version"], check=True, capture_output=True, text=True)
        print(version.stdout.strip(), flush=True)
        whole, small = (_environment(place / name, given.python) for name in ("whole", "small"))
        bare = {path.name for path in _packages(whole).iterdir()}
        _call(
            place, whole, "python", "-m", "pip", "install", "-q", *_CONSTRAINTS, str(runtime), str(compiler)
        )
        _call(place, whole, "npuc", "doctor")
        compile_ = (
            "compile",
            "digits.onnx",
            "--target",
            "edge-4t",
            "--calib",
            "digits_samples.npz",
            "-o",
            "digits.npu",
        )
        _call(place, whole, "npuc", *compile_)
        _call(place, whole, "npuc", "run", "digits.npu", "--input", "digits_samples.npz")
        _call(place, whole, "python", "run.py", "digits.npu", "digits_samples.npz", "whole.npy")
        _call(place, small, "python", "-m", "pip", "install", "-q", *_CONSTRAINTS, str(runtime))
        _call(place, small, "python", "run.py", "digits.npu", "digits_samples.npz", "small.npy")
        if (place / "whole.npy").read_bytes() != (place / "small.npy").read_bytes():
            print("the runtime alone gives other bits than the whole", file=sys.stderr)
            return 1
        own = sum(path.stat().st_size for path in _packages(small).glob("npuc*/**/*") if path.is_file())
        print(
            f"installed: npuc {_size(whole, bare):.0f} MB with all that it needs; npuc-runtime {own / 1e6:.1f} MB itself"
        )
    print("the wheels install, compile and run; the runtime alone gives the same bits")
    return 0


_CONSTRAINTS = ("--disable-pip-version-check", "-c", str(ROOT / "constraints.txt"))


def _environment(folder: Path, python: str) -> Path:
    subprocess.run([python, "-m", "venv", str(folder)], check=True)
    return folder


def _call(place: Path, environment: Path, program: str, *arguments: str) -> None:
    print(
        "$", program, *[Path(word).name if word.startswith("/") else word for word in arguments], flush=True
    )
    # No compiler and no repository in sight.
    settings = {"PATH": str(environment / "bin"), "HOME": str(place)} | {
        name: value for name, value in os.environ.items() if name.startswith("PIP_")
    }
    subprocess.run([str(environment / "bin" / program), *arguments], cwd=place, env=settings, check=True)


def _packages(environment: Path) -> Path:
    return next((environment / "lib").glob("python3*/site-packages"))


def _size(environment: Path, bare: set[str]) -> float:
    """Megabytes of all packages but those that every environment begins with: pip, and setuptools before Python 3.12."""
    packages = (path for path in _packages(environment).iterdir() if path.name not in bare)
    files = (file for path in packages for file in (path, *path.rglob("*")) if file.is_file())
    return sum(file.stat().st_size for file in files) / 1e6


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
