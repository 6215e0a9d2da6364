"""The native library is found, speaks our ABI, and says clearly why when it does not."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import npuc
from npuc import native
from npuc.errors import NativeLibraryError

ROOT = Path(__file__).parents[1]


def test_the_library_and_the_package_are_one_release() -> None:
    assert native.version() == npuc.__version__


def test_the_library_is_loaded_once() -> None:
    assert native.library() is native.library()


def test_python_and_the_header_agree_on_the_abi() -> None:
    header = (ROOT / "native/include/npuc/npuc.h").read_text()
    match = re.search(r"^#define NPUC_ABI_VERSION (\d+)$", header, re.MULTILINE)
    assert match and int(match[1]) == native.ABI_VERSION
    assert native.library().npuc_abi_version() == native.ABI_VERSION


def test_a_missing_library_is_a_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(npuc, "__path__", [str(tmp_path)])
    with pytest.raises(NativeLibraryError, match=re.escape(str(tmp_path))) as caught:
        native.find()
    assert caught.value.fix


def test_a_damaged_library_is_a_clear_error(tmp_path: Path) -> None:
    damaged = tmp_path / "libnpuc.so"
    damaged.write_bytes(b"\x7fELF and nothing more")
    with pytest.raises(NativeLibraryError, match=r"cannot be loaded.*"):
        native.load(damaged)


def compiled(source: str, directory: Path) -> Path:
    library = directory / "libnpuc.so"
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=source, text=True, check=True)
    return library


def test_a_library_that_is_not_ours_is_a_clear_error(tmp_path: Path) -> None:
    stranger = compiled("int something_else(void) { return 0; }", tmp_path)
    with pytest.raises(NativeLibraryError, match="is not the npuc core"):
        native.load(stranger)


def test_a_library_of_another_abi_is_a_clear_error(tmp_path: Path) -> None:
    newer = compiled(
        'const char *npuc_version(void) { return "9.9"; } int npuc_abi_version(void) { return 999; }',
        tmp_path,
    )
    with pytest.raises(NativeLibraryError, match="has ABI 999"):
        native.load(newer)


def test_the_headers_compile_as_c11_and_as_cpp(tmp_path: Path) -> None:
    include_folder = ROOT / "native/include"
    headers = sorted(str(path.relative_to(include_folder)) for path in include_folder.rglob("*.h"))
    source = "".join(f'#include "{name}"\n' for name in headers)
    source += "int main(void) { return npuc_abi_version() != NPUC_ABI_VERSION; }\n"
    include = f"-I{include_folder}"
    for compiler in filter(None, (shutil.which("gcc"), shutil.which("g++"))):
        flags = ["-xc++"] if compiler.endswith("g++") else ["-xc", "-std=c11"]
        command = [
            compiler,
            *flags,
            "-Wall",
            "-Wextra",
            "-Werror",
            "-pedantic",
            include,
            "-fsyntax-only",
            "-",
        ]
        subprocess.run(command, input=source, text=True, check=True)


def test_only_the_public_api_is_exported() -> None:
    symbols = subprocess.run(
        ["nm", "--dynamic", "--defined-only", str(native.find())], capture_output=True, text=True, check=True
    )
    # `A` are the names of versions; a symbol has its version behind an @.
    rows = [line.split() for line in symbols.stdout.splitlines()]
    names = {row[-1].partition("@")[0] for row in rows if row[-2] != "A"}
    exported = {name for name in names if not name.startswith("_")}
    headers = "".join(path.read_text() for path in sorted((ROOT / "native/include").rglob("*.h")))
    declared = set(re.findall(r"^NPUC?_API[^;(]*?\b(npuc?_\w+)\s*\(", headers, re.MULTILINE))
    assert {"npuc_version", "npuc_observe", "npu_load"} <= declared
    assert exported == declared
