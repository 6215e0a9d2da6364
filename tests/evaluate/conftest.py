"""What a test registers is gone after it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from npuc.registries import isolated


@pytest.fixture(autouse=True)
def registries() -> Iterator[None]:
    with isolated():
        yield
