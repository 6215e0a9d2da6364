"""What npuc says is English: right numbers of things, one full stop, options that there are, and a true size of the install."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

import pytest

from npuc.errors import EngineError, UsageError
from npuc.words import counted, plural

_FOREIGN = {"--extensions", "--external_delegate_path", "--force-reinstall", "--no-deps"}
"""Options of other programs."""


def test_numbers_of_things() -> None:
    assert [counted(n, "layer") for n in (0, 1, 2)] == ["0 layers", "1 layer", "2 layers"]
    assert counted(1, "sample", "was", "were") == "1 sample was"
    assert counted(2, "entry", "has", "have") == "2 entries have"
    assert [plural(noun) for noun in ("axis", "box", "class", "array")] == [
        "axes",
        "boxes",
        "classes",
        "arrays",
    ]


def test_a_paragraph_has_one_full_stop_after_each_sentence() -> None:
    assert UsageError("it fails (too large.).", fix="Make it smaller..").paragraph() == (
        "it fails (too large.). Make it smaller."
    )
    assert UsageError("'x' is wrong: it is so.. Really", fix="See ../x or ..").paragraph() == (
        "'x' is wrong: it is so. Really. See ../x or .."
    )


def test_a_network_that_the_float_engine_refuses_is_the_users() -> None:
    assert EngineError("no").exit_status == 2


def test_every_option_that_a_message_names_exists(root: Path) -> None:
    known = set(re.findall(r"--[a-z][a-z0-9-]*", (root / "docs" / "cli.md").read_text())) | _FOREIGN
    unknown = {}
    for path in sorted((root / "src" / "npuc").rglob("*.py")):
        if "compat" in path.parts:  # these are options of the vendors' tools
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
                for option in re.findall(r"(?<![\w-])--[a-z][a-z0-9_-]*", node.value):
                    if option not in known:
                        unknown[f"{path.relative_to(root)}:{node.lineno}"] = option
    assert not unknown


def test_a_bare_preprocess_is_an_option_with_a_value(root: Path) -> None:
    texts = "\n".join(path.read_text() for path in (root / "src" / "npuc").rglob("*.py"))
    assert "--preprocess options" not in texts


def test_the_readme_states_the_size_of_the_install(
    root: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.syspath_prepend(str(root / "benchmarks"))
    sys.modules.pop("install_size", None)
    import install_size  # type: ignore[import-not-found,unused-ignore]

    stated = re.search(r"It takes (\d+) MB", (root / "README.md").read_text())
    assert stated and int(stated[1]) <= install_size.LIMIT <= 290
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(bytes(3 << 20))
    (tmp_path / "b").write_bytes(b"1")
    found = install_size.by_package(tmp_path)
    assert list(found) == ["a", "b"] and install_size.megabytes(found["a"]) in (3, 4)
