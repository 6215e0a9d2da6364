"""The compiler cache of the tests: one object for the same source and flags, another otherwise; warnings are never kept."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from support.cached_compiler import compile_cached

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler is here")


def test_an_object_is_kept_by_what_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    kept = tmp_path / "kept"
    kept.mkdir()
    Path("value.h").write_text("#define VALUE 1\n")
    Path("x.c").write_text('#include "value.h"\nint value(void) { return VALUE; }\n')

    def compiled(*flags: str) -> bytes:
        assert compile_cached(kept, ["gcc", *flags, "-MMD", "-c", "-o", "x.o", "x.c"]) == 0
        return Path("x.o").read_bytes()

    first = compiled("-O1")
    assert compiled("-O1") == first and len(list(kept.iterdir())) == 1
    compiled("-O0")
    assert len(list(kept.iterdir())) == 2
    Path("value.h").write_text("#define VALUE 2\n")
    assert compiled("-O1") != first and len(list(kept.iterdir())) == 3


def test_what_the_compiler_says_is_said_each_time(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    source = tmp_path / "x.c"
    source.write_text("int f(int x) { int unused; return x; }\n")
    command = ["gcc", "-Wall", "-c", "-o", str(tmp_path / "x.o"), str(source)]
    for _ in range(2):
        assert compile_cached(tmp_path, command) == 0
        assert "unused" in capfd.readouterr().err
    source.write_text("int f(int x) { return y; }\n")
    assert compile_cached(tmp_path, command) != 0


def test_other_commands_are_the_compilers_own(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert compile_cached(tmp_path, ["gcc", "-dumpmachine"]) == 0
    machine = subprocess.run(["gcc", "-dumpmachine"], capture_output=True, text=True).stdout
    assert capfd.readouterr().out == machine
