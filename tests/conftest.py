"""Fixtures that all tests share."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from support.cached_compiler import OBJECTS
from support.paths import ROOT, SHARED
from support.shared_models import SHARED_MODELS, report, untested


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder in which compiled C objects are kept; worker processes have it from the process that starts them."""
    if OBJECTS not in os.environ:
        os.environ[OBJECTS] = folder = tempfile.mkdtemp(prefix="npuc-objects-")
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))


@pytest.fixture(scope="session")
def root() -> Path:
    """The root of the repository."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real models and images beside the repository; tests that need it skip where it is absent."""
    if not (SHARED / "models").is_dir():
        pytest.skip("the folder of shared models is not here")
    return SHARED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the shared models that no test knows; count blocks of the documentation and items of vendors' documents."""
    lines = report(untested(SHARED_MODELS))
    if lines:
        terminalreporter.section("untested models")
    for line in lines:
        terminalreporter.write_line(line)
    entries = [entry for group in terminalreporter.stats.values() for entry in group]
    properties = [pair for entry in entries for pair in getattr(entry, "user_properties", ())]
    if blocks := sum(int(str(value)) for name, value in properties if name == "executed blocks"):
        terminalreporter.section("documentation")
        terminalreporter.write_line(f"{blocks} blocks of tutorials and other pages executed")
    if any("test_compat_examples" in getattr(entry, "nodeid", "") for entry in entries):
        from support.compat_examples import summary

        terminalreporter.section("vendors' documents")
        for line in summary():
            terminalreporter.write_line(line)


@pytest.fixture(scope="session", autouse=True)
def no_cache() -> None:
    """Tests leave the cache folder of whoever runs them alone."""
    os.environ["NPUC_CACHE"] = "off"
