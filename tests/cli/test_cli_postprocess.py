"""`--add-postprocess` of import and compile: what it says, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.program.file import load_compiled
from npuc.runtime import Runner


@pytest.fixture
def model(root: Path) -> Path:
    return root / "examples/digits.onnx"


def test_an_import_is_checked_without_it(npuc: Any, model: Path, tmp_path: Path) -> None:
    done = npuc("import", model, "-o", tmp_path / "digits.mlir", "--add-postprocess", "topk:k=3")
    assert done.status == 0 and "values 1x3xf32, indices 1x3xi64" in done.out, done.out
    assert "NOT CHECKED" not in done.out


def test_a_compiled_model_has_it_inside(npuc: Any, model: Path, root: Path, tmp_path: Path) -> None:
    for name, options in (("plain", []), ("best", ["--add-postprocess", "topk:k=3"])):
        done = npuc(
            "compile",
            model,
            "--target",
            "edge-4t",
            "--random",
            "-O",
            1,
            "-o",
            tmp_path / f"{name}.npu",
            *options,
        )
        assert done.status == 0, done.err
    assert "it is post-processing, which stays float. To leave it to your own program" in done.out
    assert "plugin" not in done.out
    with np.load(root / "examples/digits_samples.npz") as samples:
        image = samples["image"][:1].astype(np.float32)
    with Runner(load_compiled(tmp_path / "plain.npu")) as plain, Runner(tmp_path / "best.npu") as best:
        scores, found = plain.run(image)["logits"], best.run(image)
    order = np.argsort(-scores, axis=1, kind="stable")[:, :3]
    np.testing.assert_array_equal(found["values"], np.take_along_axis(scores, order, 1))
    np.testing.assert_array_equal(found["indices"], order)


def test_what_does_not_fit_is_refused(npuc: Any, model: Path, tmp_path: Path) -> None:
    for text, words in (("yolov5", "rank 2"), ("yolo", "has no 'yolo'"), ("topk:k=0", "k is 0")):
        done = npuc("import", model, "-o", tmp_path / "x.mlir", "--add-postprocess", text)
        assert done.status == 2 and words in done.err, done.err
        assert not (tmp_path / "x.mlir").exists()
    integers = tmp_path / "i.mlir"
    assert npuc("quantize", model, "--target", "edge-4t", "--random", "-o", integers).status == 0
    done = npuc(
        "compile", integers, "--target", "edge-4t", "-o", tmp_path / "x.npu", "--add-postprocess", "topk"
    )
    assert done.status == 2 and "--add-postprocess cannot be followed" in done.err
