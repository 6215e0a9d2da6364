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


def test_the_runtime_is_a_package_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A small wheel split in two: each file in one of them, nothing of the compiler in the runtime, the same bytes again."""
    import zipfile

    monkeypatch.syspath_prepend(str(ROOT / "release"))
    import split  # type: ignore[import-not-found,unused-ignore]

    source = ROOT / "src"
    files = [path for path in source.rglob("*.py") if "__pycache__" not in path.parts]
    whole = tmp_path / "npuc-0.1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(whole, "w") as archive:
        for path in files:
            archive.write(path, path.relative_to(source).as_posix())
        archive.writestr("npuc/_native/libnpuc.so", b"library")
        archive.writestr("npuc/_native/src/conv.c", b"source")
        archive.writestr(
            "npuc-0.1.0.dist-info/METADATA", "Metadata-Version: 2.4\nName: npuc\nVersion: 0.1.0\n\n→\n"
        )
        archive.writestr("npuc-0.1.0.dist-info/entry_points.txt", "[console_scripts]\nnpuc = npuc.cli:main\n")
    made = [split.split(whole, "manylinux_2_17_x86_64", tmp_path / name) for name in ("one", "two")]
    for once, again in zip(*made, strict=True):
        assert once.read_bytes() == again.read_bytes()
    runtime, compiler = ({*zipfile.ZipFile(path).namelist()} for path in made[0])
    assert not {name for name in runtime & compiler if not name.startswith("npuc-")}
    assert {"npuc/__init__.py", "npuc/runtime/runner.py", "npuc/_native/libnpuc.so"} <= runtime
    assert {"npuc/flow/__init__.py", "npuc/ir/graph.py", "npuc/_native/src/conv.c"} <= compiler
    assert not any(name.startswith(("npuc/ir/", "npuc/quant/", "npuc/cli/")) for name in runtime)
    metadata = zipfile.ZipFile(made[0][1]).read("npuc-0.1.0.dist-info/METADATA").decode()
    assert "Requires-Dist: npuc-runtime==0.1.0" in metadata and metadata.endswith("→\n")


def test_a_second_build_that_differs_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Archives by their digests, the source distribution too; other files of the folder do not count."""
    monkeypatch.syspath_prepend(str(ROOT / "release"))
    import digests  # type: ignore[import-not-found,unused-ignore]

    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        for name in ("npuc-0.1.0.tar.gz", "npuc-0.1.0-py3-none-any.whl", "notes.txt"):
            (folder / name).write_text(name)
    (two / "notes.txt").write_text("other")
    assert digests.differences(digests.digests(one), digests.digests(two)) == []
    digests.write_list(one)
    assert digests.listed(one) == digests.digests(one)
    checked = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=one)
    assert checked.returncode == 0
    (two / "npuc-0.1.0.tar.gz").write_text("changed")
    assert digests.differences(digests.digests(one), digests.digests(two)) == ["npuc-0.1.0.tar.gz"]
    (one / "npuc-0.1.0.tar.gz").write_text("changed")
    done = _run("release/check.py", str(one))
    assert done.returncode == 1 and "not what SHA256SUMS says: npuc-0.1.0.tar.gz" in done.stderr
