"""What a test registers is gone after it."""

from __future__ import annotations

import pytest

from npuc.evaluate.data import DATASETS
from npuc.evaluate.measuring import METRICS


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (DATASETS, METRICS):
        registry.names()
        monkeypatch.setattr(registry, "_things", dict(registry._things))
