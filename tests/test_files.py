"""Files appear whole or not at all, whatever the file system offers."""

from __future__ import annotations

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path
from threading import Thread

import pytest

from npuc import files
from npuc.errors import FileMissingError, OutputError, ScheduleError
from npuc.files import existing_file, existing_model, read_short, write_atomically


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """With files that have no name, and without."""
    if request.param == "named":
        monkeypatch.setattr(files, "_unnamed", lambda folder: None)
    return str(request.param)


def test_a_file_appears_when_it_is_complete(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for path in (Path("new"), tmp_path / "new"):
        path.write_text("old")
        with write_atomically(path) as out:
            out.write(b"new")
            assert path.read_text() == "old"
        assert path.read_text() == "new"
    umask = os.umask(0)
    os.umask(umask)
    assert stat.S_IMODE(os.stat("new").st_mode) == 0o666 & ~umask
    assert os.listdir(tmp_path) == ["new"]


def test_an_error_leaves_what_was_there(way: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(KeyError), write_atomically(path) as out:
        out.write(b"half")
        raise KeyError
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["file"]


def test_a_folder_that_is_not_there_is_an_error_in_words(way: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"), write_atomically(tmp_path / "none" / "x"):
        pass


def test_a_kill_while_writing_leaves_nothing(tmp_path: Path) -> None:
    if files._unnamed(tmp_path) is None:
        pytest.skip("this file system has no files without a name")
    code = (
        "import os, sys; from npuc.files import write_atomically\n"
        "with write_atomically(sys.argv[1]) as out:\n"
        "    out.write(bytes(4 << 20)); out.flush(); os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "file")], check=False)
    assert done.returncode == -9 and os.listdir(tmp_path) == []


def test_a_folder_that_may_not_be_looked_into_is_an_error_in_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(Path, "is_file", refuse)
    with pytest.raises(FileMissingError, match="cannot be read: Permission denied"):
        existing_model(tmp_path / "model.onnx")


@pytest.mark.parametrize(
    ("given", "words"),
    [(b"abc", ""), (b"", "gives nothing, and a schedule is needed"), (b"abcd", "is too large")],
)
def test_a_short_text_may_come_through_a_pipe(tmp_path: Path, given: bytes, words: str) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(FileMissingError, match="is a pipe or a device"):
        existing_file(path)
    writer = Thread(target=path.write_bytes, args=(given,))
    writer.start()
    try:
        if not words:
            assert read_short(path, 3, "a schedule", ScheduleError) == given
            return
        with pytest.raises(ScheduleError, match=words):
            read_short(path, 3, "a schedule", ScheduleError)
    finally:
        writer.join()


def test_a_short_text_is_a_file_like_others(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"abcd")
    assert read_short(tmp_path / "a.yaml", 4, "a schedule", ScheduleError) == b"abcd"
    with pytest.raises(ScheduleError, match="is too large for a schedule"):
        read_short(tmp_path / "a.yaml", 3, "a schedule", ScheduleError)
    with pytest.raises(FileMissingError, match="does not exist"):
        read_short(tmp_path / "b.yaml", 3, "a schedule", ScheduleError)
