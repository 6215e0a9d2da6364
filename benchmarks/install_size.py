"""How much disk `pip install .` takes: a fresh environment before and after, and the packages that make it up.

    make install-size

What pip and setuptools take themselves was there before and is not counted. README.md states the figure; more than `LIMIT`
megabytes is a failure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIMIT = 290
"""Megabytes (of 2^20 bytes, as `du -m` counts them)."""


def used(folder: Path) -> int:
    """The bytes that a folder takes on disk, as `du` counts them."""
    files = [folder, *folder.rglob("*")]
    return sum(path.lstat().st_blocks * 512 for path in files)


def megabytes(count: int) -> int:
    """Whole megabytes, rounded up."""
    return -(-count // 2**20)


def by_package(folder: Path) -> dict[str, int]:
    """The bytes of each entry of `site-packages`, the largest first."""
    sizes = {
        path.name: used(path) if path.is_dir() else path.lstat().st_blocks * 512 for path in folder.iterdir()
    }
    return dict(sorted(sizes.items(), key=lambda item: (-item[1], item[0])))


def main() -> int:
    """Install in a fresh environment and print what that added."""
    with tempfile.TemporaryDirectory() as name:
        venv.create(name, with_pip=True)
        (packages,) = Path(name).glob("lib/python3*/site-packages")
        before = by_package(packages)
        command = [f"{name}/bin/python", "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*command, "-c", str(ROOT / "constraints.txt"), str(ROOT)], check=True)
        after = by_package(packages)
    added = {package: size for package, size in after.items() if package not in before}
    total = megabytes(sum(added.values()))
    for package, size in list(added.items())[:12]:
        print(f"{megabytes(size):5} MB  {package}")
    print(f"{total:5} MB  all that `pip install .` adds (at most {LIMIT})")
    print(f"{megabytes(sum(before.values())):5} MB  pip and setuptools, there before")
    return int(total > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
