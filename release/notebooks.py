"""Tutorials as notebooks: `make notebooks` writes examples/*.ipynb from the pages of docs/.

A notebook is its page: prose becomes text cells, each command a `%%bash` cell, each Python block a cell, a file a `%%writefile`
cell, and a picture the file that the cells before it have written. What the page says that a block prints is the output of its
cell. So a tutorial is written in one place; `tests/test_notebooks.py` fails for a notebook that is older than its page, and runs
the cells.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = {
    "classify.ipynb": "tutorial-classify.md",
    "detect.ipynb": "tutorial-detect.md",
    "your_own_chip.ipynb": "tutorial-chip.md",
}
_SETUP = """\
# The cells below write files: they work in a folder of their own, with a copy of the examples.
import os
import shutil
import sys
import tempfile
from pathlib import Path

examples = Path.cwd()
os.chdir(tempfile.mkdtemp(prefix="npuc-notebook-"))
shutil.copytree(examples, "examples", ignore=shutil.ignore_patterns("*.ipynb"))
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["COLUMNS"] = "120"
"""
_PART = re.compile(
    r"(?:^<!-- (?P<way>file|append): (?P<name>\S+) -->\n+)?^```(?P<kind>\w*)\n(?P<body>.*?)^```$"
    r"|^!\[(?P<alt>[^\]]+)\]\(images/(?P<picture>[\w.-]+)\)$",
    re.MULTILINE | re.DOTALL,
)
_LINK = re.compile(r"(?<=\]\()(?=[\w-]+\.md)")


def notebook(page: Path) -> dict[str, Any]:
    """The notebook of a page, with the outputs that the page has."""
    cells = [*_cells(page)]
    for number, cell in enumerate(cells):
        cell["id"] = f"{page.stem}-{number}"
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(page: Path) -> Iterator[dict[str, Any]]:
    text = page.read_text(encoding="utf-8")
    title, _, text = text.partition("\n")
    yield _prose(
        f"{title}\n\nWritten by `make notebooks` from [{page.name}]({page.name}); run it in `examples/`."
    )
    yield _code(_SETUP)
    place = 0
    waiting: dict[str, Any] | None = None
    for part in _PART.finditer(text):
        if prose := text[place : part.start()].strip():
            yield from _flushed(waiting)
            waiting = None
            yield _prose(prose)
        place = part.end()
        if waiting is not None and part["kind"] == "text":
            waiting["outputs"] = _printed(part["body"])
            continue
        yield from _flushed(waiting)
        waiting = None
        if part["picture"]:
            yield _picture(part["picture"])
        elif part["name"]:
            more = "-a " if part["way"] == "append" else ""
            yield _code(f"%%writefile {more}{part['name']}\n{part['body']}")
        elif part["kind"] == "console":
            for command in re.split(r"^(?=\$ )", part["body"], flags=re.MULTILINE):
                if command:
                    line, _, printed = command.partition("\n")
                    yield _code(f"%%bash\n{line.removeprefix('$ ')}", _printed(printed.strip("\n") + "\n"))
        elif part["kind"] == "python":
            waiting = _code(part["body"])
        else:
            yield _prose(part[0])
    yield from _flushed(waiting)
    if prose := text[place:].strip():
        yield _prose(prose)


def _flushed(waiting: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    if waiting is not None:
        yield waiting


def _prose(text: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": _lines(_LINK.sub("../docs/", text))}


def _code(text: str, outputs: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "metadata": {},
        "outputs": outputs or [],
        "source": _lines(text.rstrip("\n")),
    }


def _printed(text: str) -> list[dict[str, Any]]:
    return [{"name": "stdout", "output_type": "stream", "text": _lines(text)}] if text.strip() else []


def _picture(name: str) -> dict[str, Any]:
    """A cell that shows the file which earlier cells wrote, and the picture of the page as its output."""
    path = ROOT / "docs" / "images" / name
    if path.suffix == ".svg":
        shown, data = "SVG", {"image/svg+xml": _lines(path.read_text(encoding="utf-8"))}
    else:
        shown, data = "Image", {"image/png": base64.b64encode(path.read_bytes()).decode()}  # type: ignore[dict-item]
    output = {"data": data, "metadata": {}, "output_type": "display_data"}
    return _code(f'from IPython.display import {shown}, display\n\ndisplay({shown}("{name}"))', [output])


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def main(arguments: list[str]) -> int:
    """Write the notebooks, or say which are not up to date."""
    stale = 0
    for name, page in NOTEBOOKS.items():
        text = json.dumps(notebook(ROOT / "docs" / page), indent=1, ensure_ascii=False, sort_keys=True) + "\n"
        path = ROOT / "examples" / name
        if "--check" not in arguments:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            stale += 1
            print(f"examples/{name} is not what docs/{page} says: make notebooks")
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
