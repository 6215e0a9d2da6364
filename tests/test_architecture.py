"""The levels of docs/architecture.md hold: a package imports packages of lower levels only."""

from __future__ import annotations

from pathlib import Path

import pytest

from npuc.cli import architecture
from npuc.cli.architecture import LEVEL_OF, Import, all_imports, imports, modules, package_of

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"


def violations(found: list[Import]) -> list[str]:
    """In words, the imports that do not lead to a lower level, and packages that are on none."""
    wrong = []
    for one in found:
        importer, imported = package_of(one.importer), package_of(one.imported)
        if not importer or importer == imported or not imported:
            continue
        missing = [name for name in (importer, imported) if name not in LEVEL_OF]
        if missing:
            wrong.append(f"{missing[0]} is on no level of npuc.cli.architecture.LEVELS ({one})")
        elif LEVEL_OF[imported] >= LEVEL_OF[importer]:
            wrong.append(f"{one}: level {LEVEL_OF[imported]} from level {LEVEL_OF[importer]}")
    return wrong


def test_every_import_leads_to_a_lower_level() -> None:
    wrong = violations(all_imports(SOURCE))
    assert not wrong, "\n".join(wrong)


def test_every_package_is_on_one_level() -> None:
    there = {package_of(name) for name in modules(SOURCE)} - {""}
    assert there == set(LEVEL_OF)
    assert sum(len(level.packages) for level in architecture.LEVELS) == len(LEVEL_OF)


@pytest.mark.parametrize(
    "text",
    [
        "from npuc.flow import import_model",
        "from npuc import flow",
        "import npuc.flow",
        "def late():\n    from npuc.flow import import_model",
        "import_module('npuc.flow')",
        "TABLE = {'model': 'npuc.flow'}",
        "import_module(f'npuc.flow.{name}')",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from npuc.flow import Quantized",
    ],
)
def test_an_import_is_seen_in_every_form(text: str) -> None:
    found = list(imports("npuc.ir.graph", text, {"npuc.flow": None}))
    assert [one.imported for one in found] == ["npuc.flow"]
    assert violations(found)


def test_an_import_of_the_same_level_is_refused() -> None:
    assert violations([Import("npuc.quant.lower", 1, "npuc.codegen.host")])
    assert not violations([Import("npuc.quant.lower", 1, "npuc.ir.graph")])
    assert not violations([Import("npuc.quant.lower", 1, "npuc.quant.scheme")])


def test_a_package_on_no_level_is_named() -> None:
    assert violations([Import("npuc.cellar.wine", 3, "npuc.ir")]) == [
        "cellar is on no level of npuc.cli.architecture.LEVELS (npuc.cellar.wine, line 3, imports npuc.ir)"
    ]
