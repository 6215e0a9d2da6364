"""The prose: links lead somewhere, commands exist, and every page can be found from the index."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer

from npuc.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")))
WRITTEN = [
    page for page in PAGES if "Written by `make docs`" not in (ROOT / page).read_text(encoding="utf-8")
]
"""The pages that people write; the others are checked where they are generated."""
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")


def _read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def _links(page: str) -> list[str]:
    """The targets of a page's links that are not addresses on the web."""
    targets = _LINK.findall(_FENCE.sub("", _read(page)))
    return [target for target in targets if not re.match(r"[a-z]+:", target)]


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def _commands(text: str) -> list[str]:
    """The `npuc ...` command lines in the code of a text: lines of fenced blocks, and whole spans."""
    joined = text.replace("\\\n", " ")
    lines = [line for block in _FENCE.findall(joined) for line in block.splitlines()]
    spans = re.findall(r"`([^`\n]+)`", _FENCE.sub("", joined))
    stripped = [line.removeprefix("$ ") for line in (*lines, *spans)]
    return [line for line in stripped if line.startswith("npuc ")]


def _complaint(line: str) -> str:
    """What is wrong with a command line: an unknown command or option; empty if nothing is."""
    command: Any = typer.main.get_command(app)
    words = shlex.split(line)[1:]
    while words and hasattr(command, "commands"):
        if words[0] not in command.commands:
            return f"there is no command '{words[0]}'"
        command = command.commands[words.pop(0)]
    known = {
        option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)
    }
    own = words[: words.index("--")] if "--" in words else words
    for word in own:
        name = word.split("=")[0]
        if re.match(r"--?[a-z]", name) and name not in known | {"--help", "-h"}:
            return f"there is no option '{name}'"
    return ""


@pytest.mark.parametrize("page", PAGES)
def test_relative_links_resolve(page: str) -> None:
    for link in _links(page):
        path, _, anchor = link.partition("#")
        target = (ROOT / page).parent / path if path else ROOT / page
        assert target.exists(), f"{page} links to {link}, which is not there"
        assert not anchor or anchor in _anchors(target), (
            f"{page} links to {link}, but no heading is called that"
        )


@pytest.mark.parametrize("page", WRITTEN)
def test_commands_exist(page: str) -> None:
    for line in _commands(_read(page)):
        assert not _complaint(line), f"{page}: '{line}': {_complaint(line)}"


def test_the_readme_shows_commands() -> None:
    assert len(_commands(_read("README.md"))) >= 5
    assert _complaint("npuc imports x.onnx") and _complaint("npuc tensors frobnicate x")
    assert _complaint("npuc import x.onnx --outptu y") and not _complaint("npuc tensors stats x.npz")


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for name in re.findall(r"(?:^|`)make ([a-z][a-z-]*)", _read(page), re.MULTILINE):
            assert name in targets, f"{page}: there is no 'make {name}'"


def test_every_page_is_in_the_index() -> None:
    linked = {link.partition("#")[0] for link in _links("docs/index.md")}
    pages = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").glob("**/*.md")}
    assert pages - {"index.md"} <= linked


def test_prose_names_files_that_exist() -> None:
    """`src/npuc/ir/top/activation.py` and the like: a moved file takes its mention along."""
    for page in PAGES:
        for name in re.findall(r"`((?:src|tests|examples|native|benchmarks)/[\w./-]+)`", _read(page)):
            assert (ROOT / name).exists(), f"{page} speaks of {name}, which is not there"
