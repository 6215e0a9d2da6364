"""The walkthroughs of CONTRIBUTING.md work: each is a patch, applied to a copy of the tree, run, and counted.

A patch `tests/walkthroughs/NAME.patch` is what `git diff` writes, below a few lines of its own:

    Add a flag: `npuc doctor --missing`.

    Python files of npuc: 2
    Test: tests/cli/test_cli_doctor_missing.py

The number is the most files of src/ that such a change may touch; the tests (several have blanks between them) are those that
the patch brings, and have to fail without it. Code in the section of CONTRIBUTING.md behind `<!-- walkthrough: NAME -->` is
code of the patch. For a patch that changes C, generated files are written again and the native core is built in the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.paths import ROOT
from support.tree_copy import build_native, environment_of, generate

FOLDER = Path(__file__).parent / "walkthroughs"
MOST_FILES = {"op": 2, "instruction": 3, "flag": 2, "target": 0, "ladder-step": 2}
"""What is promised of each; a patch may not raise its own number."""
PATCHES = [FOLDER / f"{name}.patch" for name in MOST_FILES]


@dataclass(frozen=True)
class Walkthrough:
    """A patch and what its first lines say."""

    path: Path
    most_files: int
    tests: tuple[str, ...]
    files: tuple[str, ...]

    @staticmethod
    def read(path: Path) -> Walkthrough:
        """Read a patch."""
        text = path.read_text(encoding="utf-8")
        head = text[: text.index("diff --git ")]
        number = re.search(r"^Python files of npuc: (\d+)$", head, re.MULTILINE)
        test = re.search(r"^Test: (.+)$", head, re.MULTILINE)
        assert number and test, f"{path.name} does not say how many files it touches, and which test shows it"
        return Walkthrough(
            path,
            int(number[1]),
            tuple(test[1].split()),
            tuple(re.findall(r"^diff --git a/(\S+) b/", text, re.MULTILINE)),
        )

    @property
    def python_files(self) -> list[str]:
        """The Python files of npuc that it touches."""
        return [file for file in self.files if file.startswith("src/") and file.endswith(".py")]

    @property
    def changes_c(self) -> bool:
        """Whether the native core has to be built for it."""
        return any(file.startswith("native/") for file in self.files)

    def lines(self) -> set[str]:
        """The lines of files as the patch leaves them, as far as it shows them, without blanks around."""
        body = self.path.read_text(encoding="utf-8").partition("diff --git ")[2]
        return {line[1:].strip() for line in body.splitlines() if line[:1] in ("+", " ")}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of the sources and the tests."""
    folder = tmp_path / "tree"
    folder.mkdir()
    unwanted = shutil.ignore_patterns("__pycache__", ".hypothesis", "golden_files")
    for name in ("src", "tests", "examples", "native"):
        shutil.copytree(ROOT / name, folder / name, ignore=unwanted)
    for name in ("pyproject.toml", "CMakeLists.txt"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def apply(tree: Path, patch: Path, *options: str) -> None:
    """Apply a patch; a repository around the copy is none of its business."""
    environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(tree.parent)}
    done = subprocess.run(
        ["git", "apply", "-C1", *options, str(patch)],
        cwd=tree,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{patch.name} does not fit the sources: make it anew.\n{done.stderr}"


def passes(
    tree: Path, tests: tuple[str, ...], library: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run tests of the copy on the sources of the copy."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command, cwd=tree, env=environment_of(tree, library), capture_output=True, text=True
    )


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_walkthrough_works_and_touches_few_files(path: Path, tree: Path) -> None:
    walkthrough = Walkthrough.read(path)
    assert len(walkthrough.python_files) <= walkthrough.most_files <= MOST_FILES[path.stem]
    apply(tree, path)
    library = None
    if walkthrough.changes_c:
        generate(tree)
        library = build_native(tree)
    done = passes(tree, walkthrough.tests, library)
    assert done.returncode == 0, done.stdout[-4000:]
    # Without the change of npuc, the test fails: it is a test of it.
    apply(tree, path, "--reverse", "--exclude=tests/*")
    failed = passes(tree, walkthrough.tests)
    assert failed.returncode != 0, failed.stdout[-4000:]


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_what_the_guide_shows_is_in_the_patch(path: Path) -> None:
    guide = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    _, mark, behind = guide.partition(f"<!-- walkthrough: {path.stem} -->")
    assert mark, f"CONTRIBUTING.md has no section for {path.name}"
    section = re.split(r"^## ", behind, maxsplit=2, flags=re.MULTILINE)[1]
    blocks = re.findall(r"^```(?:python|yaml|c)\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    shown = {line.strip() for block in blocks for line in block.splitlines()} - {"", "..."}
    assert shown, "the section shows no code"
    assert shown <= Walkthrough.read(path).lines()


def test_every_patch_is_tested() -> None:
    """A patch that needs more than a test run, such as the native core built anew, has a `test_NAME.py` beside it."""
    own = {path.stem.removeprefix("test_") for path in FOLDER.glob("test_*.py")}
    assert {path.stem for path in FOLDER.glob("*.patch")} == set(MOST_FILES) | own
