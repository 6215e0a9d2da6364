"""The code of the migration pages runs as it is printed, block after block in one folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from PIL import Image

from npuc.compat.install import install
from npuc.compat.registry import NAMES, vendor_named
from support.compat_examples import run_command_line, run_program, split_lines
from support.networks.small_onnx import image_model
from support.paths import ROOT

PAGES = {"migrate-tpu-mlir.md": "tpumlir", "migrate-acuity.md": "acuity", "migrate-qubee.md": "qubee"}
_BLOCK = re.compile(r"^```(bash|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def prepare(folder: Path) -> None:
    """`model.onnx`, `cat.png` and some `images` for it."""
    model = image_model()
    onnx.save(model, str(folder / "model.onnx"))
    sides = [axis.dim_value for axis in model.graph.input[0].type.tensor_type.shape.dim]
    (folder / "images").mkdir()
    rng = np.random.default_rng(0)
    for name in ("cat.png", *(f"images/{number}.png" for number in range(4))):
        Image.fromarray(rng.integers(0, 256, (sides[2], sides[3], 3), np.uint8)).save(folder / name)


@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    vendor = PAGES[page]
    paths = [str(install(vendor_named(vendor), tmp_path / "tools").packages)]
    blocks = _BLOCK.findall((ROOT / "docs" / page).read_text(encoding="utf-8"))
    assert len(blocks) >= 4
    for kind, text in blocks:
        if kind == "python":
            done = run_program(text, paths)
            assert done.returncode == 0, f"{text}\n{done.stderr}"
            continue
        for line in split_lines(text):
            assert run_command_line(vendor, line) == 0, line


@pytest.mark.parametrize("name", NAMES)
def test_the_installation_of_a_page_gives_its_commands_and_packages(name: str, tmp_path: Path) -> None:
    vendor = vendor_named(name)
    text = (ROOT / "docs" / vendor.page).read_text(encoding="utf-8")
    block = text.partition("```")[2].partition("```")[0].removeprefix("bash\n")
    assert "npuc compat install" in block
    looked = " ".join(vendor.commands)
    script = f"{block}\nexport\nfor command in {looked}; do command -v $command; done\n"
    own = {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=tmp_path,
        env=os.environ | own | {"PYTHONPATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    for command in vendor.commands:
        assert any(line.startswith(str(tmp_path)) and line.endswith(f"/bin/{command}") for line in lines), (
            command
        )
    if vendor.modules:
        assert f'PYTHONPATH="{tmp_path}/tools/python' in done.stdout
