"""One wheel of npuc becomes two: `npuc-runtime`, which runs compiled models, and `npuc`, the compiler on top of it.

    python release/split.py npuc-0.1.0-py3-none-linux_x86_64.whl manylinux_2_17_x86_64 dist/

`npuc-runtime` has the packages that `npuc.runtime` imports, found by reading their imports, and the native libraries; it needs
NumPy and ml_dtypes alone. `npuc` has the rest: pure Python, for every machine. No file is in both. The same wheel gives the same
bytes: files are sorted, and their times are fixed.
"""

from __future__ import annotations

import ast
import base64
import hashlib
import sys
import zipfile
from collections.abc import Iterable
from email.message import Message
from email.parser import Parser
from pathlib import Path

ROOTS = ("npuc.runtime",)
"""What `npuc-runtime` is for; the rest of it follows from their imports."""

RUNTIME_NEEDS = ("numpy>=1.26", "ml_dtypes")
RUNTIME_EXTRAS = {"images": "pillow", "cpu": "onnxruntime>=1.20"}
"""Decoding of images, and subgraphs that run on the CPU."""

_TIME = (1980, 1, 1, 0, 0, 0)


def split(wheel: Path, platform: str, folder: Path) -> tuple[Path, Path]:
    """Write both wheels into the folder; returns their paths, that of the runtime first."""
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}
    information = next(name.partition("/")[0] for name in files if name.endswith(".dist-info/METADATA"))
    metadata = Parser().parsestr(files[f"{information}/METADATA"].decode("utf-8"))
    licences = {name: data for name, data in files.items() if name.startswith(f"{information}/licenses/")}
    points = files[f"{information}/entry_points.txt"]
    contents = {name: data for name, data in files.items() if not name.startswith(f"{information}/")}
    runtime = runtime_files(contents)
    version = metadata["Version"]
    folder.mkdir(parents=True, exist_ok=True)

    def licence_files(package: str) -> dict[str, bytes]:
        new = f"{package}-{version}.dist-info"
        return {name.replace(information, new, 1): data for name, data in licences.items()}

    return (
        _write(
            folder / f"npuc_runtime-{version}-py3-none-{platform}.whl",
            {name: contents[name] for name in runtime} | licence_files("npuc_runtime"),
            _runtime_metadata(metadata),
        ),
        _write(
            folder / f"npuc-{version}-py3-none-any.whl",
            {name: data for name, data in contents.items() if name not in runtime}
            | licence_files("npuc")
            | {f"npuc-{version}.dist-info/entry_points.txt": points},
            _compiler_metadata(metadata),
        ),
    )


def runtime_files(files: Iterable[str]) -> set[str]:
    """The files of `npuc-runtime`: whole packages, native libraries, and the headers of the C API."""
    packages = _closure(files)
    chosen = {"npuc/__init__.py", "npuc/py.typed"}
    for name in files:
        parts = name.split("/")
        if parts[0] != "npuc" or len(parts) < 2:
            continue
        package = parts[1].removesuffix(".py")
        library = parts[1] == "_native" and len(parts) == 3
        if package in packages or library or parts[1] == "include":
            chosen.add(name)
    return chosen & set(files)


def _closure(files: Iterable[str]) -> set[str]:
    """The packages and modules directly below `npuc` that the roots import, and what those import."""
    source = Path(__file__).resolve().parent.parent / "src"
    names = {name.split("/")[1].removesuffix(".py") for name in files if name.startswith("npuc/")}
    found: set[str] = set()
    waiting = [root.split(".")[1] for root in ROOTS]
    while waiting:
        package = waiting.pop()
        if package in found or package not in names:
            continue
        found.add(package)
        place = source / "npuc" / package
        modules = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
        waiting += sorted({name for module in modules for name in _imported(module)})
    return found | {"aliases", "registries"}  # npuc/__init__.py itself


def _imported(module: Path) -> set[str]:
    """The packages below `npuc` that a module imports, also inside of functions."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return {name.split(".")[1] for name in names if name.startswith("npuc.")}


def _runtime_metadata(whole: Message) -> Message:
    metadata = Message()
    for key in ("Metadata-Version", "Version", "License-Expression", "License-File", "Requires-Python"):
        metadata[key] = whole[key]
    metadata["Name"] = "npuc-runtime"
    metadata["Summary"] = "Runs models that npuc has compiled, from Python and C"
    for need in RUNTIME_NEEDS:
        metadata["Requires-Dist"] = need
    for extra, need in RUNTIME_EXTRAS.items():
        metadata["Provides-Extra"] = extra
        metadata["Requires-Dist"] = f'{need}; extra == "{extra}"'
    return metadata


def _compiler_metadata(whole: Message) -> Message:
    whole["Requires-Dist"] = f"npuc-runtime=={whole['Version']}"
    return whole


def _write(path: Path, files: dict[str, bytes], metadata: Message) -> Path:
    """A wheel with its metadata and its list of hashes."""
    package, version, *tag = path.stem.split("-")
    information = f"{package}-{version}.dist-info"
    pure = "true" if tag[-1] == "any" else "false"
    head = f"Wheel-Version: 1.0\nGenerator: npuc release\nRoot-Is-Purelib: {pure}\nTag: {'-'.join(tag)}\n"
    whole = files | {
        f"{information}/METADATA": _text(metadata).encode("utf-8"),
        f"{information}/WHEEL": head.encode(),
    }
    record = "".join(f"{name},sha256={_digest(whole[name])},{len(whole[name])}\n" for name in sorted(whole))
    whole[f"{information}/RECORD"] = (record + f"{information}/RECORD,,\n").encode()
    temporary = path.with_suffix(".part")
    with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in sorted(whole):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.external_attr = (0o100755 if name.endswith(".so") else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, whole[name])
    temporary.replace(path)
    return path


def _text(metadata: Message) -> str:
    """Headers, a blank line, and the description."""
    head = "".join(f"{key}: {value}\n" for key, value in metadata.items())
    return head + "\n" + (metadata.get_payload() or "")


def _digest(data: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def main(arguments: list[str]) -> int:
    """Split the wheel that is named."""
    if len(arguments) != 3:
        print("usage: python release/split.py WHEEL PLATFORM FOLDER", file=sys.stderr)
        return 2
    for path in split(Path(arguments[0]), arguments[1], Path(arguments[2])):
        print(f"{path.name}  {path.stat().st_size / 1e6:.1f} MB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
