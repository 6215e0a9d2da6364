"""`visual.py` opens the studio, or serves a page of its own, and tells a port that is taken."""

from __future__ import annotations

import socket
import threading
import time
from argparse import Namespace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl
from urllib.request import urlopen

import pytest

from npuc.compat.tpumlir import visual_command
from npuc.errors import MissingExtraError, OutputError
from npuc.studio import serving
from npuc.studio.studio import Sample


def test_the_page_is_made_when_it_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pages: list[str] = []
    monkeypatch.setattr(
        visual_command, "page", lambda options: pages.append("made") or "<html>the page</html>"
    )
    options = Namespace(host="127.0.0.1", port=0, manual_run=True)
    threading.Thread(target=visual_command._serve, args=(options,), daemon=True).start()
    told = ""
    for _ in range(200):
        told += capsys.readouterr().out
        if told:
            break
        time.sleep(0.02)
    assert told.startswith("http://127.0.0.1:") and not pages
    for _ in range(2):
        with urlopen(told.split()[0]) as answer:
            assert (
                answer.read() == b"<html>the page</html>"
                and "none" in answer.headers["Content-Security-Policy"]
            )
    assert pages == ["made"]


@pytest.mark.parametrize(("words", "tab"), [([], "numbers"), (["--manual_run"], "graph")])
def test_it_opens_the_studio_on_the_three_files(
    words: list[str], tab: str, studio_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(studio_files)
    opened: list[Any] = []
    monkeypatch.setattr(serving, "serve", lambda *call, **_: opened.append(call))
    files = ["--f32_mlir", "digits.onnx", "--quant_mlir", "digits.mlir", "--input", "digits_samples.npz"]
    assert visual_command.main([*files, "--port", "9999", *words]) == 0
    studio, port, start = opened[0]
    state = {"a": "digits.mlir", "b": "digits.onnx", "sample": "digits_samples.npz", "tab": tab}
    assert dict(parse_qsl(start)) == state and port == 9999
    rows = studio.compare(state["b"], state["a"], Sample(state["sample"]))["layers"]
    assert rows and all(row["cosine"] is None or row["cosine"] > 0.9 for row in rows)


def test_without_the_studio_a_plain_page_is_served(
    studio_files: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(*_: Any, **__: Any) -> None:
        raise MissingExtraError("the studio is served by uvicorn, which is not installed", fix="Install it")

    served: list[Namespace] = []
    monkeypatch.chdir(studio_files)
    monkeypatch.setattr(serving, "serve", missing)
    monkeypatch.setattr(visual_command, "_serve", served.append)
    files = ["--f32_mlir", "digits.onnx", "--quant_mlir", "digits.mlir", "--input", "digits_samples.npz"]
    assert visual_command.main(files) == 0 and len(served) == 1
    assert "visual.py shows a plain page: the studio is served by uvicorn" in capsys.readouterr().err
    monkeypatch.setattr(serving, "serve", lambda *_, **__: pytest.fail("the studio lets nobody else in"))
    assert visual_command.main([*files, "--host", "0.0.0.0"]) == 0 and len(served) == 2


def test_a_port_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visual_command, "page", lambda options: "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = Namespace(host="127.0.0.1", port=taken.getsockname()[1], manual_run=False)
        with pytest.raises(OutputError, match="cannot listen"):
            visual_command._serve(options)
