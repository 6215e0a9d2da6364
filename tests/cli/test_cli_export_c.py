"""`npuc export c`: a folder with an application, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest


@pytest.fixture
def digits(npuc: Any, here: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A compiled model."""
    monkeypatch.setenv("NPUC_CACHE", "off")
    made = npuc(
        "compile",
        root / "examples/digits.onnx",
        "--target",
        "edge-4t",
        "--random",
        "-O",
        "0",
        "-o",
        "d.npu",
        "-q",
    )
    assert made.status == 0
    return here / "d.npu"


def test_an_application_is_written(npuc: Any, here: Path, digits: Path) -> None:
    done = npuc("export", "c", digits, "-o", "app")
    assert done.status == 0 and "make && ./app sample" in done.out
    assert (here / "app/model.npu").read_bytes() == digits.read_bytes()
    assert {"Makefile", "CMakeLists.txt", "main.c", "README.md"} <= {
        path.name for path in (here / "app").iterdir()
    }
    assert "@" not in (here / "app/Makefile").read_text().replace("$@", "").replace("@mkdir", "").replace(
        "(@D)", ""
    )
    assert npuc("export", "c", digits, "-o", "app").status == 2


def test_the_standalone_form_has_no_model_file(npuc: Any, here: Path, digits: Path) -> None:
    done = npuc("export", "c", digits, "-o", "app", "--standalone")
    assert done.status == 0 and done.out.rstrip().endswith("./app")
    assert not list((here / "app").rglob("*.npu")) and (here / "app/model_data.c").is_file()


def test_a_sample_of_ones_own(npuc: Any, here: Path, digits: Path) -> None:
    image = np.random.default_rng(0).random((1, 1, 8, 8)).astype(np.float32)
    np.savez("sample.npz", image=image)
    assert npuc("export", "c", digits, "-o", "app", "--sample", "sample.npz").status == 0
    assert (here / "app/sample/input0.bin").read_bytes() == image.tobytes()
    np.savez("other.npz", picture=image)
    refused = npuc("export", "c", digits, "-o", "other", "--sample", "other.npz")
    assert refused.status == 2 and "E401" in refused.err and not (here / "other").exists()


def test_what_is_no_compiled_model_is_refused(npuc: Any, here: Path, root: Path) -> None:
    refused = npuc("export", "c", root / "examples/digits.onnx", "-o", "app")
    assert refused.status == 2 and "E102" in refused.err
    assert npuc("export", "c", "missing.npu", "-o", "app").status == 2
