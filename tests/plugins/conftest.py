"""Plugins change what npuc knows: every test here gets registries of its own, which are put back afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from importlib import import_module
from pkgutil import walk_packages

import pytest

import npuc
from npuc.errors import MissingExtraError
from npuc.frontend.onnx import subgraphs
from npuc.ir.subgraph_rules import SUBGRAPH_RULES
from npuc.plugins import loading
from npuc.registries import isolated


@cache
def _load_all() -> None:
    """So that what a test finds does not depend on those before it."""
    for module in walk_packages(npuc.__path__, "npuc."):
        if not module.name.endswith("__main__"):
            with suppress(MissingExtraError):
                import_module(module.name)


@pytest.fixture(autouse=True)
def own_registries() -> Iterator[None]:
    _load_all()
    plugins, patterns, joins = dict(loading._LOADED), list(subgraphs.RULES), list(SUBGRAPH_RULES)
    # Tests of other rooms may have loaded plugins in this process.
    loading._LOADED.clear()
    with isolated():
        yield
    loading._LOADED.clear()
    loading._LOADED.update(plugins)
    subgraphs.RULES[:] = patterns
    SUBGRAPH_RULES[:] = joins
