"""Fixtures that all tests share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models and images beside the repository; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared"
    if not (folder / "models").is_dir():
        pytest.skip("the folder of shared models is not here")
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_cache() -> None:
    """Tests leave the cache folder of whoever runs them alone."""
    os.environ["NPUC_CACHE"] = "off"
