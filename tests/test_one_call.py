"""`npuc.compile`: the whole way in one call, with the bytes of the command, for every form in which a target may be named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import npuc
from npuc.cli.app import run_command
from npuc.errors import CalibrationDataError, FileMissingError, NpucError, UnknownTargetError, UsageError
from npuc.flow import import_model

EXAMPLES = Path(__file__).parents[1] / "examples"
MODEL, SAMPLES = EXAMPLES / "digits.onnx", EXAMPLES / "digits_samples.npz"


def test_the_call_gives_the_bytes_of_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPUC_CACHE", str(tmp_path / "cache"))
    command = [
        "compile", str(MODEL), "--calib", str(SAMPLES), "--target", "edge-4t", "-o", str(tmp_path / "digits.npu"), "-q",
    ]  # fmt: skip
    assert run_command(command) == 0
    npuc.compile(MODEL, SAMPLES, target="edge-4t").save(tmp_path / "call.npu")
    assert (tmp_path / "call.npu").read_bytes() == (tmp_path / "digits.npu").read_bytes()


@pytest.mark.parametrize("form", ["name", "fingerprint", "arch.json"])
def test_a_vendors_machine_in_every_form(tmp_path: Path, form: str) -> None:
    target: Any = {"name": "DPUCZDX8G_ISA1_B4096", "fingerprint": "0x0101000016010407"}.get(form)
    if target is None:
        target = tmp_path / "arch.json"
        target.write_text(json.dumps({"fingerprint": "0x0101000016010407"}))
    samples = np.load(SAMPLES)["image"]
    done = npuc.compile(import_model(MODEL), [{"image": image[None]} for image in samples[:8]], target=target)
    assert done.model.target["name"] == "dpuczdx8g-b4096-like"
    assert done.run(samples[:1])["logits"].argmax() == np.load(SAMPLES)["label"][0]


@pytest.mark.parametrize(
    ("model", "data", "target", "error", "words"),
    [
        (
            7,
            SAMPLES,
            "edge-4t",
            UsageError,
            "int is neither the path of a model nor a graph.*npuc.from_torch",
        ),
        ("none.onnx", SAMPLES, "edge-4t", FileMissingError, "does not exist"),
        (MODEL, None, "edge-4t", UsageError, "no ranges to quantize with"),
        (MODEL, 7, "edge-4t", NpucError, "int is no calibration data"),
        (MODEL, SAMPLES, "edge-5t", UnknownTargetError, "did you mean 'edge-4t'"),
        (MODEL, [np.zeros((3, 3), np.float32)], "edge-4t", CalibrationDataError, "takes shape .1, 1, 8, 8."),
    ],
)
def test_mistakes_are_told_in_one_sentence(
    model: Any, data: Any, target: str, error: type[NpucError], words: str
) -> None:
    with pytest.raises(error, match=words):
        npuc.compile(model, data, target=target)
