"""`npuc eval` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from PIL import Image

from support.networks.small_onnx import image_model


@pytest.fixture
def data(here: Path) -> Path:
    """Ten pictures with classes."""
    rng = np.random.default_rng(0)
    (here / "val").mkdir()
    lines = []
    for index in range(10):
        Image.fromarray(rng.integers(0, 256, (9, 9, 3), np.uint8)).save(here / "val" / f"{index}.png")
        lines.append(f"{index}.png {index % 5}")
    (here / "val.txt").write_text("\n".join(lines))
    return here / "val.txt"


def test_a_table_and_json(npuc: Any, model: Path, data: Path) -> None:
    onnx.save(image_model(seed=2), "other.onnx")
    arguments = ("eval", model, "other.onnx", "--data", data, "--metric", "top1,cosine", "--scale", "0.01")
    shown = npuc(*arguments)
    assert shown.status == 0 and "val.txt (list): 10 samples" in shown.out
    rows = shown.out.splitlines()
    assert rows[2].split()[:3] == ["figure", "model", "value"] and "95 % interval" in rows[2]
    assert rows[3].startswith("top1") and "model.onnx" in rows[3] and "%" in rows[3]
    result = json.loads(npuc(*arguments, "--json", "-o", "report.json").out)
    assert result["figures"][0]["models"][1]["difference"]["p_value"] <= 1
    assert result["figures"][1]["models"][0]["value"] == 1.0
    written = json.loads(Path("report.json").read_text())
    assert written["figures"] == result["figures"] and written["models"] == [str(model), "other.onnx"]


def test_a_journal(npuc: Any, model: Path, data: Path) -> None:
    arguments = ("eval", model, "--data", data, "--resume", "j", "--scale", "0.01")
    assert npuc(*arguments).status == 0
    assert "10 samples (10 from the journal)" in npuc(*arguments).out
    refused = npuc(*arguments, "--metric", "top1")
    assert refused.status == 2 and "with other options" in refused.err and "another file" in refused.err


def test_what_is_wrong_is_said(npuc: Any, model: Path, data: Path) -> None:
    for arguments, words in (
        (("eval", model), "--data"),
        (("eval", "--data", data), "MODEL"),
        (("eval", "none.onnx", "--data", data), "does not exist"),
        (("eval", model, "--data", "nowhere"), "nowhere: does not exist"),
        (("eval", model, model, "--data", data), "given twice"),
        (("eval", model, "--data", data, "--metric", "map"), "no boxes for it"),
        (("eval", model, "--data", data, "--metric", "top"), "Did you mean"),
        (("eval", model, "--data", data, "--dataset", "coco"), "no COCO annotations"),
        (("eval", model, "--data", data, "--postprocess", "yolo"), "--postprocess has no 'yolo'"),
        (("eval", model, "--data", data, "--postprocess", "yolox:x=1"), "--postprocess yolox: 'x=1'"),
        (("eval", model, "--data", data, "--resume", "no/j"), "there is no folder"),
        (("eval", model, "--data", data, "--cluster", "a", "--workers", "2"), "contradict"),
        (("eval", model, "--data", data, "--mean", "x"), "not a list of numbers"),
        (("eval", model, "--data", data, "--mean", "1", "--preprocess", "r.yaml"), "one or the other"),
        (("eval", model, "--data", data, "--preprocess", "r.yaml"), "r.yaml: does not exist"),
        (("eval", data, "--data", data), "val.txt"),
    ):
        outcome = npuc(*arguments)
        assert outcome.status == 2, arguments
        assert words in outcome.err, (arguments, outcome.err)


def test_bad_labels_and_pictures(npuc: Any, model: Path, data: Path, here: Path) -> None:
    data.write_text("0.png 1\n1.png 7\n")
    outcome = npuc("eval", model, "--data", data)
    assert (
        outcome.status == 2 and "1.png: its class is 7, and the model has scores for 5 classes" in outcome.err
    )
    data.write_text("0.png 1\n1.png\n")
    assert "line 2: '1.png' has no label" in npuc("eval", model, "--data", data).err
    data.write_text("0.png 1\n1.png 2\n")
    (here / "val" / "1.png").write_bytes(b"\x89PNG\r\n\x1a\nrubbish")
    outcome = npuc("eval", model, "--data", data)
    assert outcome.status == 2 and "1.png: cannot be decoded as an image" in outcome.err
    outcome = npuc("eval", model, "--data", data, "--skip-unreadable")
    assert (
        outcome.status == 0
        and "1 sample, 1 passed over" in outcome.out
        and "note: passed over" in outcome.err
    )
    (here / "val" / "0.png").write_bytes(b"")
    outcome = npuc("eval", model, "--data", data, "--skip-unreadable")
    assert outcome.status == 2 and "none of the 2 samples can be used" in outcome.err
