"""Releases of ONNX Runtime that cannot take a provider from a library are refused by name."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from npuc.errors import MissingExtraError
from npuc.integrations import onnxruntime as provider


@pytest.mark.parametrize("version", ["1.22.1", "1.23.0"])
def test_a_release_that_is_too_old_is_refused(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", SimpleNamespace(__version__=version))
    with pytest.raises(MissingExtraError, match=f"1.23.1, and this is {version}"):
        provider.register()


@pytest.mark.parametrize("version", ["1.23.1", "1.24.0.dev20251031003", "2.0"])
def test_a_later_one_is_taken(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = SimpleNamespace(__version__=version)
    monkeypatch.setitem(sys.modules, "onnxruntime", runtime)
    assert provider._runtime() is runtime
