"""`npuc sign`, `npuc verify`, and `--key` of `npuc run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from support.programs.files import saved
from support.programs.keys import write_keys


def test_without_the_package(npuc: Any, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives", None)
    saved(here / "plain.npu")
    (here / "key.pem").write_text("a key")
    done = npuc("sign", "plain.npu", "--key", "key.pem", "-o", "signed.npu")
    assert done.status == 2 and "pip install 'npuc[sign]'" in done.err
    assert "sound, not signed" in npuc("verify", "plain.npu").out


def test_sign_and_verify(npuc: Any, here: Path) -> None:
    pytest.importorskip("cryptography")
    private, public = write_keys(here, 1)
    _, other = write_keys(here, 2)
    saved(here / "plain.npu")
    assert "signed by 8a88e3dd" in npuc("sign", "plain.npu", "--key", private, "-o", "signed.npu").out
    assert "which is not verified (--key)" in npuc("verify", "signed.npu").out
    done = npuc("verify", "signed.npu", "--key", public)
    assert done.status == 0 and "not verified" not in done.out
    for model, key, words in (
        ("signed.npu", other, "error[E105]"),
        ("plain.npu", public, "is not signed"),
        ("plain.npu", here / "nowhere.pem", "E101"),
    ):
        done = npuc("verify", model, "--key", key)
        assert done.status == 2 and words in done.err
    done = npuc("run", "plain.npu", "--random", "--key", public)
    assert done.status == 2 and "is not signed" in done.err
