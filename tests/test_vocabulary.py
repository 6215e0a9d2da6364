"""Identifiers that were retired stay away: names of definitions, variables, attributes, arguments and modules."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
RETIRED: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "vocabulary.yaml").read_text(encoding="utf-8")
)


def identifiers(text: str) -> Iterator[tuple[int, str]]:
    """Every name that a module defines or uses, with its line; words in strings and comments are none."""
    for node in ast.walk(ast.parse(text)):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.ClassDef(name=name) | ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield line, name
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
                yield line, name
            case ast.keyword(arg=str(name)):
                yield line, name
            case ast.alias(name=dotted, asname=other):
                for name in (*dotted.split("."), other):
                    if name:
                        yield line, name
            case ast.ImportFrom(module=str(dotted)):
                for name in dotted.split("."):
                    yield line, name
            case _:
                pass


def found_in(place: str, text: str) -> list[str]:
    """In words, the retired identifiers of a module below `src/npuc`."""
    found = []
    for line, name in identifiers(text):
        entry = RETIRED.get(name)
        if entry is None or place in entry.get("except", ()):
            continue
        if any(place.startswith(one) for one in entry.get("only", [""])):
            found.append(f"{place}, line {line}: {name} is now {entry['now']}")
    return found


def test_no_retired_identifier_is_back() -> None:
    source = ROOT / "src" / "npuc"
    found = []
    for path in sorted(source.rglob("*.py")):
        place = path.relative_to(source).as_posix()
        found += found_in(place, path.read_text(encoding="utf-8"))
        found += [
            f"{place}: {part} is now {RETIRED[part]['now']}"
            for part in path.relative_to(source).with_suffix("").parts
            if part in RETIRED
            and place not in RETIRED[part].get("except", ())
            and any(place.startswith(folder) for folder in RETIRED[part].get("only", [""]))
        ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "class Workshop: pass",
        "from npuc.quant.ladder import Workshop",
        "x = y.Workshop",
        "def f(Workshop): pass",
        "f(Workshop=1)",
        "import npuc.Workshop as w",
    ],
)
def test_a_retired_identifier_is_seen(text: str) -> None:
    assert found_in("quant/x.py", text)


def test_words_in_texts_are_left_alone() -> None:
    assert not found_in("quant/x.py", "'Workshop'  # Workshop")
