"""`visual.py` serves its page to this machine alone, and tells a port that is taken."""

from __future__ import annotations

import socket
import threading
import time
from argparse import Namespace
from urllib.request import urlopen

import pytest

from npuc.compat.tpumlir import visual_command
from npuc.errors import OutputError


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


def test_a_port_that_is_taken_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(visual_command, "page", lambda options: "")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        options = Namespace(host="127.0.0.1", port=taken.getsockname()[1], manual_run=False)
        with pytest.raises(OutputError, match="cannot listen"):
            visual_command._serve(options)
