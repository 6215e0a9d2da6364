"""Notebooks: they say what their tutorials say, and their cells run in Jupyter and print it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import tutorials
from support.paths import ROOT

sys.path.insert(0, str(ROOT / "release"))
import notebooks

FILES = sorted((ROOT / "examples").glob("*.ipynb"))


def _written(cell: Any) -> str:
    return "".join(
        "".join(output.get("text", "")) for output in cell["outputs"] if output.get("name") == "stdout"
    )


def test_notebooks_are_those_of_the_tutorials() -> None:
    assert [path.name for path in FILES] == sorted(notebooks.NOTEBOOKS)
    done = subprocess.run(
        [sys.executable, "release/notebooks.py", "--check"], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_page_becomes_cells_in_its_order(tmp_path: Path) -> None:
    page = tmp_path / "tutorial-small.md"
    page.write_text(
        "# Small\n\nSee [more](more.md#x).\n\n<!-- file: a.yaml -->\n\n```yaml\na: 1\n```\n\n"
        "```console\n$ npuc one\nfirst\n\n$ npuc two\n```\n\n```python\nprint(3)\n```\n\n```text\n3\n```\n\nEnd.\n"
    )
    cells = notebooks.notebook(page)["cells"]
    sources = ["".join(cell["source"]) for cell in cells]
    assert sources[2:] == [
        "See [more](../docs/more.md#x).",
        "%%writefile a.yaml\na: 1",
        "%%bash\nnpuc one",
        "%%bash\nnpuc two",
        "print(3)",
        "End.",
    ]
    assert [_written(cell) for cell in cells[4:7]] == ["first\n", "", "3\n"]
    assert len({cell["id"] for cell in cells}) == len(cells)


@pytest.mark.slow
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_says(path: Path, record_property: Any) -> None:
    nbformat = pytest.importorskip("nbformat", reason="nbclient is not installed: make test-notebooks")
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed: make test-notebooks")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed: make test-notebooks")
    book = nbformat.read(path, as_version=4)
    nbformat.validate(book)
    said = json.loads(path.read_text(encoding="utf-8"))["cells"]
    client = nbclient.NotebookClient(book, timeout=300, resources={"metadata": {"path": str(path.parent)}})
    client.execute()
    blocks = 0
    for before, after in zip(said, book.cells, strict=True):
        if before["cell_type"] != "code":
            continue
        blocks += 1
        if not "".join(before["source"]).startswith("%%writefile"):
            printed = "".join(line.rstrip() + "\n" for line in _written(after).strip("\n").splitlines())
            assert tutorials.same(_written(before), printed), after
        shown = [set(output["data"]) for output in before["outputs"] if "data" in output]
        assert all(
            kinds <= set(output["data"]) for kinds, output in zip(shown, after["outputs"], strict=False)
        )
        assert len(shown) <= len(after["outputs"])
    record_property("executed blocks", blocks)
