"""A plugin of pytest: which probes each test hits, and its CPU seconds, written file by file to where records are kept."""

from __future__ import annotations

import builtins
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support.faults.records import Record, digest, save


class Recorder:
    """Looks at the marks after each test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.hits = np.frombuffer(builtins.__npuc_hits__, np.uint8)  # type: ignore[attr-defined]
        self.failed: set[str] = set()
        self.tests: list[tuple[str, float, np.ndarray]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Tests that fail or are skipped judge nothing."""
        if report.outcome != "passed":
            self.failed.add(report.nodeid)

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Any:
        """Run one test between two looks; write the record of a file after its last test."""
        self.hits[:] = 0
        start = sum(os.times()[:4])
        wall = time.monotonic()
        yield
        seconds = max(sum(os.times()[:4]) - start, min(time.monotonic() - wall, 0.001))
        # a copy: threads and processes that a test has left behind may still write
        self.tests.append((item.nodeid, seconds, np.flatnonzero(self.hits.copy())))
        if nextitem is None or nextitem.path != item.path:
            passed = [test for test in self.tests if test[0] not in self.failed]
            name = item.path.relative_to(item.config.rootpath).as_posix()
            save(self.folder, Record(name, digest(item.path), passed))
            self.tests = []


def pytest_configure(config: pytest.Config) -> None:
    """Switch it on where probes are."""
    folder = os.environ.get("NPUC_PROBES")
    if folder:
        config.pluginmanager.register(Recorder(Path(folder)))
