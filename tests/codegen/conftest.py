"""The C reader as a program, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.programs.files import build_driver


@pytest.fixture(scope="session")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C reader with address and undefined-behaviour checks."""
    return build_driver(tmp_path_factory.mktemp("driver"))
