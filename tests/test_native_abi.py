"""The C API keeps its binary interface: abidiff compares it with the one that was written down."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import native_abi
from npuc.native import library
from support.paths import ROOT

needs_abidiff = pytest.mark.skipif(
    native_abi.TOOL is None, reason="abidiff is not here (Debian: abigail-tools)"
)


@needs_abidiff
def test_the_interface_is_that_of_the_baseline(tmp_path: Path) -> None:
    status, words = native_abi.difference(ROOT / "native", tmp_path)
    assert status == 0, words


@needs_abidiff
@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            "    int32_t dtype; /* npu_dtype */\n    int32_t rank;\n",
            "    int32_t rank;\n    int32_t dtype;\n",
        ),
        ("    NPU_TIMEOUT = 7,", "    NPU_TIMEOUT = 70,"),
        ("    double least, mean, most; /* seconds */", "    float least, mean, most;"),
    ],
    ids=["fields exchanged", "another value", "another type"],
)
def test_what_breaks_callers_is_noticed(old: str, new: str, tmp_path: Path) -> None:
    native = tmp_path / "native"
    shutil.copytree(ROOT / "native", native)
    header = native / "include" / "npu.h"
    text = header.read_text()
    assert old in text
    header.write_text(text.replace(old, new))
    status, words = native_abi.difference(native, tmp_path)
    assert status & 4, words


def test_every_function_of_the_headers_is_exported() -> None:
    for name in native_abi.HEADERS:
        text = (ROOT / "native" / "include" / name).read_text()
        functions = re.findall(r"^NPU_API .*?\b(npu_\w+)\(", text, re.MULTILINE)
        for function in functions:
            assert hasattr(library(), function), f"{function} of {name}"


def test_symbols_have_versions(tmp_path: Path) -> None:
    native_abi.build(ROOT / "native", tmp_path / "libnpuc.so")
    listed = subprocess.run(
        ["readelf", "--dyn-syms", "--wide", str(tmp_path / "libnpuc.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"\bnpu_run@@NPU_1\b", listed)
    exported = {
        line.split()[-1] for line in listed.splitlines() if "GLOBAL DEFAULT" in line and " UND " not in line
    }
    assert {name.split("@@")[1] for name in exported if "@@" in name} <= {"NPU_1", "NPU_2", "NPUC_PRIVATE"}
    assert "npu_part@@NPU_2" in exported
