"""Run the wheel of npuc-runtime for aarch64 under qemu-user, on any machine: `make release-check-arm`.

    python release/check_aarch64.py dist/ build/aarch64

Debian's packages of Python and of the C library for arm64 are unpacked into a folder, and so are the wheels of NumPy, ml_dtypes
and npuc-runtime; nothing is installed. Two networks, one with convolutions and one with attention, are compiled here and run by
the emulated processor on handwritten digits; the results must have the bits that this machine's own runtime gives.
"""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = (
    "libc6", "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "zlib1g", "libexpat1", "libssl3",
    "libffi8", "libgcc-s1", "libstdc++6", "libbz2-1.0", "liblzma5", "libcrypt1", "libuuid1",
)  # fmt: skip
NETWORKS = ("digits", "digits_vit")
_APT = """
APT::Architecture "arm64";
APT::Architectures {{ "arm64"; }};
Dir::State "{0}";
Dir::State::status "{0}/status";
Dir::State::lists "{0}/lists";
Dir::Cache "{0}/cache";
"""
_RUN = """
import ctypes, platform, sys
import numpy as np
from npuc.native import library
from npuc.runtime import Runner
images = np.load(sys.argv[1])["image"].astype(np.float32)[:32]
results = {}
for path in sys.argv[3:]:
    with Runner(path) as runner:
        results[path] = runner.run(images)["logits"]
open(sys.argv[2], "wb").write(b"".join(array.tobytes() for array in results.values()))
heavy = {"onnx", "onnxruntime", "xdsl", "pydantic", "torch", "PIL"} & set(sys.modules)
assert not heavy, heavy
function = library().npuc_isa
function.restype = ctypes.c_char_p
kernels = function().decode()
assert platform.machine() != "aarch64" or kernels == "neondot", kernels
shapes = {name: array.shape for name, array in results.items()}
print(platform.machine(), "Python", platform.python_version(), kernels, shapes)
"""


def system(place: Path) -> Path:
    """Python for arm64 with what it needs, in a folder; Debian's servers are asked as this machine's apt is set up."""
    root, state = place / "root", place / "apt"
    if not (root / "usr/bin/python3.11").exists():
        for folder in ("lists/partial", "cache/archives/partial", "debs"):
            (state / folder).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        (state / "apt.conf").write_text(_APT.format(state))
        settings = os.environ | {"APT_CONFIG": str(state / "apt.conf")}
        for command in (["update", "-qq"], ["download", "-qq", *PACKAGES]):
            subprocess.run(["apt-get", *command], cwd=state / "debs", env=settings, check=True)
        for package in sorted((state / "debs").glob("*.deb")):
            subprocess.run(["dpkg", "-x", str(package), str(root)], check=True)
    return root


def packages(place: Path, runtime: Path) -> Path:
    """The wheels, unpacked as an environment would have them."""
    folder = place / "site"
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in (17, 27, 28)]
    download = [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps"]
    download += ["--only-binary=:all:", "--python-version=3.11", *platforms, "-d", str(place / "wheels")]
    download += ["-c", str(ROOT / "constraints.txt"), "numpy", "ml_dtypes"]
    subprocess.run(download, check=True)
    for wheel in (*(place / "wheels").glob("*.whl"), runtime):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder)
    return folder


def main(arguments: list[str]) -> int:
    """Unpack, run on both processors, compare."""
    if len(arguments) != 2:
        print("usage: python release/check_aarch64.py DIST FOLDER", file=sys.stderr)
        return 2
    dist, place = (Path(argument).resolve() for argument in arguments)
    (runtime,) = dist.glob("npuc_runtime-*_aarch64.whl")
    root, folder = system(place), packages(place, runtime)
    (place / "run.py").write_text(_RUN)
    samples = str(ROOT / "examples" / "digits_samples.npz")
    for name in NETWORKS:
        words = [
            "compile",
            str(ROOT / "examples" / f"{name}.onnx"),
            "--target",
            "edge-4t",
            "--calib",
            samples,
            "-q",
        ]
        subprocess.run(
            [str(Path(sys.executable).parent / "npuc"), *words, "-o", str(place / f"{name}.npu")], check=True
        )
    files = [f"{name}.npu" for name in NETWORKS]
    python = str(root / "usr/bin/python3.11")
    emulated = ["qemu-aarch64", "-L", str(root), "-E", f"PYTHONPATH={folder}", python]
    for command, name in ((emulated, "emulated.bin"), ([sys.executable], "own.bin")):
        subprocess.run([*command, "run.py", samples, name, *files], check=True, cwd=place)
    if (place / "emulated.bin").read_bytes() != (place / "own.bin").read_bytes():
        print("the emulated processor gives other bits", file=sys.stderr)
        return 1
    print(f"{runtime.name} runs under qemu-aarch64 and gives the bits of this machine")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
