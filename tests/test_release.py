"""What a release carries beside the code: licences of others, a bill of materials, the files that people look for."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DECLARED = [
    re.match(r"[\w-]+", line).group().lower().replace("_", "-")  # type: ignore[union-attr]
    for line in tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
]


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True)


def test_the_page_of_licences_is_up_to_date() -> None:
    done = _run("release/licences.py", "--check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_dependency_has_a_licence_on_the_page() -> None:
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \|", (ROOT / "docs/third-party.md").read_text(), re.MULTILINE)
    assert set(DECLARED) <= {name for name, licence in rows if re.search(r"MIT|Apache-2.0|BSD", licence)}


def test_the_bill_of_materials_is_whole_and_always_the_same(tmp_path: Path) -> None:
    for name in ("one.json", "two.json"):
        done = _run("release/sbom.py", str(tmp_path / name))
        assert done.returncode == 0, done.stderr
    assert (tmp_path / "one.json").read_bytes() == (tmp_path / "two.json").read_bytes()
    bill = json.loads((tmp_path / "one.json").read_text())
    references = {component["bom-ref"] for component in bill["components"]}
    own = bill["metadata"]["component"]["bom-ref"]
    assert len(references) == len(bill["components"])
    for edge in bill["dependencies"]:
        assert edge["ref"] in references | {own} and set(edge["dependsOn"]) <= references
    assert {"numpy", "xdsl", "@dagrejs/dagre"} <= {component["name"] for component in bill["components"]}
    assert all(
        component["licenses"][0]["expression"] and component["version"] for component in bill["components"]
    )


def test_the_bill_of_materials_needs_a_file_name() -> None:
    done = _run("release/sbom.py")
    assert done.returncode == 2 and "usage" in done.stderr


@pytest.mark.parametrize(
    "name", ["CITATION.cff", ".pre-commit-config.yaml", *map(str, ROOT.glob(".github/**/*.yml"))]
)
def test_files_for_other_tools_are_yaml(name: str) -> None:
    assert yaml.safe_load((ROOT / name).read_text())


def test_hooks_before_a_commit_call_what_is_there() -> None:
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert all(
        hook["entry"].startswith((".venv/bin/ruff", ".venv/bin/python -m npuc.cli.gendocs")) for hook in hooks
    )
