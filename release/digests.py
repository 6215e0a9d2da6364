"""Build a release a second time and compare it with the first, byte by byte; part of `make release-check`.

    python release/digests.py dist/

The second build is of a copy of the sources in another folder, by another umask and without the settings of this shell, so that
no path, no time and no permission of a machine can hide in an archive. What is equal is listed in `SHA256SUMS`, in the form that
`sha256sum --check` reads.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = "SHA256SUMS"
_ARCHIVES = ("*.tar.gz", "*.whl")


def digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of every archive in a folder, by its name."""
    paths = sorted(path for pattern in _ARCHIVES for path in folder.glob(pattern))
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """The names of archives that only one of two builds has, or that differ.

    >>> differences({"a.whl": "1", "b.whl": "2"}, {"a.whl": "1", "b.whl": "3", "c.whl": "4"})
    ['b.whl', 'c.whl']
    """
    return sorted(name for name in first.keys() | second.keys() if first.get(name) != second.get(name))


def listed(folder: Path) -> dict[str, str]:
    """What the list of a folder says."""
    lines = (folder / LIST).read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split("  ") for line in lines)}


def write_list(folder: Path) -> None:
    """Write the list of the archives that are in a folder."""
    lines = [f"{digest}  {name}\n" for name, digest in digests(folder).items()]
    (folder / LIST).write_text("".join(lines), encoding="utf-8")


def _copy(place: Path) -> None:
    """The files that git knows or would add, and the libraries of the studio's page, which npm fetched."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    vendor = (ROOT / "src/npuc/studio/web/vendor").glob("*.js")
    for name in {*filter(None, names), *(path.relative_to(ROOT).as_posix() for path in vendor)}:
        if (ROOT / name).is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, place / name)


def main(arguments: list[str]) -> int:
    """Build again and compare; the list is written if nothing differs."""
    if len(arguments) != 1:
        print("usage: python release/digests.py FOLDER", file=sys.stderr)
        return 2
    folder = Path(arguments[0]).resolve()
    os.umask(0o077)
    with tempfile.TemporaryDirectory() as scratch:
        place, again = Path(scratch) / "another folder", Path(scratch) / "dist"
        _copy(place)
        kept = {"PATH", "HOME", "LANG"}
        settings = {
            name: value for name, value in os.environ.items() if name in kept or name.startswith("PIP_")
        }
        command = [sys.executable, str(place / "release" / "wheels.py"), str(again)]
        subprocess.run(command, check=True, env=settings, cwd=scratch, stdout=subprocess.DEVNULL)
        first, second = digests(folder), digests(again)
    if wrong := differences(first, second):
        print(f"a second build gives other bytes: {', '.join(wrong)}", file=sys.stderr)
        return 1
    write_list(folder)
    for name, digest in first.items():
        print(f"{digest}  {name}")
    print(f"{len(first)} archives, built twice: the same bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
