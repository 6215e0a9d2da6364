"""Files of a command: none is left when it fails, links stay links, devices stay devices, a broken cache is told once."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import OutputError
from npuc.files import final_place, new_folder, writable, write_atomically
from npuc.flow import importing
from npuc.frontend.onnx import import_onnx
from support.networks.small_onnx import image_model


def test_an_import_whose_check_fails_writes_nothing(
    npuc: Any, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert npuc("import", model, "-q", "-o", "old.mlir").status == 0
    old = Path("old.mlir").read_bytes(), Path("old.safetensors").read_bytes()
    before = sorted(model.parent.iterdir())
    other = image_model()
    matrix = next(tensor for tensor in other.graph.initializer if tensor.name == "m")
    matrix.raw_data = (np.frombuffer(matrix.raw_data, np.float32) * -1).tobytes()
    monkeypatch.setattr(importing, "import_foreign", lambda path, options: import_onnx(other, options))
    done = npuc("import", model, "-o", "new.mlir")
    assert done.status == 2 and "E208" in done.err and "--no-check" in done.err
    assert "-> no file" in done.out and sorted(model.parent.iterdir()) == before
    assert npuc("import", model, "-o", "old.mlir").status == 2
    assert (Path("old.mlir").read_bytes(), Path("old.safetensors").read_bytes()) == old
    assert npuc("import", model, "-o", "new.mlir", "--no-check").status == 0 and Path("new.mlir").is_file()


def test_prepared_data_appears_whole_or_not_at_all(npuc: Any, program: Path) -> None:
    folder = Path("data")
    folder.mkdir()
    for index in range(3):
        np.save(folder / f"{index}.npy", np.zeros((1, 3, 8, 8), np.float32))
    (folder / "2.npy").write_bytes(b"no tensor")
    before = sorted(program.parent.iterdir())
    done = npuc("calib-data", program, "--data", "data", "--strict", "-o", "new/prepared")
    assert done.status == 2 and sorted(program.parent.iterdir()) == before
    Path("empty").mkdir()
    assert npuc("calib-data", program, "--data", "data", "--strict", "-o", "empty").status == 2
    assert list(Path("empty").iterdir()) == []
    assert npuc("calib-data", program, "--data", "data", "-o", "empty", "-q").status == 0
    assert len(list(Path("empty").iterdir())) == 2
    done = npuc("calib-data", program, "--data", "data", "-o", "new/prepared", "-q")
    assert done.status == 0 and len(list(Path("new/prepared").iterdir())) == 2
    assert npuc("calibrate", program, "--data", "new/prepared", "-o", "t.cali").status == 0


def test_a_link_stays_a_link(npuc: Any, model: Path) -> None:
    Path("store").mkdir()
    for name in ("m.mlir", "q.mlir", "q.npu", "t.cali", "out.npz"):
        Path(name).symlink_to(Path("store") / f"real-{name}")
    assert npuc("import", model, "-o", "m.mlir", "-q").status == 0
    assert npuc("calibrate", "m.mlir", "--random", "-o", "t.cali", "-q").status == 0
    assert npuc("quantize", "m.mlir", "--table", "t.cali", "-o", "q.mlir", "-q").status == 0
    assert npuc("compile", "q.mlir", "--target", "edge-4t", "-o", "q.npu", "-q").status == 0
    assert npuc("run", "q.npu", "--random", "-o", "out.npz", "-q").status == 0
    for name in ("m.mlir", "q.mlir", "q.npu", "t.cali", "out.npz"):
        assert Path(name).is_symlink() and (Path("store") / f"real-{name}").is_file()
    # Both ways lead to a program with its weights.
    assert npuc("show", "store/real-m.mlir").status == npuc("show", "m.mlir").status == 0
    assert npuc("run", "store/real-q.npu", "--random").status == 0


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    astray = tmp_path / "astray"
    astray.symlink_to(tmp_path / "no folder" / "file")
    for path in (loop, astray):
        with pytest.raises(OutputError, match=path.name), write_atomically(path) as out:
            out.write(b"x")
        assert path.is_symlink()
    with pytest.raises(OutputError, match="no folder"):
        writable(astray)
    plain = tmp_path / "plain"
    assert final_place(plain) == plain


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        with write_atomically(writable(pipe)) as out:
            out.write(b"whole")
        assert os.read(reading, 100) == b"whole" and pipe.is_fifo()
    finally:
        os.close(reading)


def test_a_folder_that_is_not_filled_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ValueError), new_folder(tmp_path / "a" / "b" / "c") as folder:
        (folder / "x").write_text("x")
        raise ValueError
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("old")
    with pytest.raises(OutputError, match="full"), new_folder(tmp_path / "full") as folder:
        (folder / "y").write_text("new")
    assert [path.name for path in tmp_path.rglob("*")] == ["full", "x"]


@pytest.mark.parametrize("kind", ["file", "read-only", "unwritable-entry"])
def test_a_broken_cache_folder_is_told_once(
    npuc: Any, program: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    cache = program.parent / "cache"
    if kind == "file":
        cache.write_text("no folder")
    elif kind == "read-only":
        monkeypatch.setattr(
            "npuc.schedule.cache.write_atomically",
            lambda path: (_ for _ in ()).throw(OutputError("cannot be written", where=str(path))),
        )
    else:
        cache.mkdir()
        (cache / "candidates").write_text("no folder")
    monkeypatch.setenv("NPUC_CACHE", str(cache))
    for _ in range(1 if kind == "unwritable-entry" else 2):
        done = npuc("compile", program, "--random", "--target", "edge-4t", "-o", "m.npu")
        assert done.status == 0 and Path("m.npu").is_file()
        assert done.err.count(f"note: the cache folder {cache} cannot be ") == 1
    monkeypatch.setenv("NPUC_CACHE", "off")
    assert "cache" not in npuc("compile", program, "--random", "--target", "edge-4t", "-o", "m.npu").err
