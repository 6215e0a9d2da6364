"""What a test registers is gone after it."""

from __future__ import annotations

import pytest

from npuc.datasets.data import DATASETS
from npuc.metrics.measuring import METRICS


@pytest.fixture(autouse=True)
def registries(monkeypatch: pytest.MonkeyPatch) -> None:
    for registry in (DATASETS, METRICS):
        registry.names()
        monkeypatch.setattr(registry, "_things", dict(registry._things))
