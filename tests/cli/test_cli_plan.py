"""`npuc quantize --plan` and `--expected-drop`: what steps are expected to give, and a ladder that ends when that is enough."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuc.quant.ladder import plan

_EXAMPLES = Path(__file__).parents[2] / "examples"
_DIGITS, _SAMPLES = _EXAMPLES / "digits.onnx", _EXAMPLES / "digits_samples.npz"
_LINE = ("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 48, "--scheme", "int4-weights")


def test_a_plan_is_printed_and_nothing_is_written(npuc: Any, here: Path) -> None:
    done = npuc(*_LINE, "--plan", "--ladder", "gptq,adaquant", "--expected-drop", 100)
    assert done.status == 0, done.err
    for words in ("SQNR", "top-1 lost", "memory", "gptq", "adaquant", "expected to be met after 'default'"):
        assert words in done.out, done.out
    assert "measured on 16 samples" in done.out and "expected of 48 samples" in done.out
    assert list(here.iterdir()) == []
    content = json.loads(npuc(*_LINE, "--plan", "--json").out)
    assert content["kind"] == "few bits" and content["samples"] == 16
    names = [step["name"] for step in content["steps"]]
    assert names[0] == "default" and "adaquant" in names and "mixed" not in names


def test_a_step_without_results_promises_nothing(
    npuc: Any, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = plan._measured()
    monkeypatch.setattr(plan, "_measured", lambda: {**measured, "steps": []})
    line = ("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 48, "--plan", "--ladder", "gptq")
    (step,) = [one for one in json.loads(npuc(*line, "--json").out)["steps"] if one["name"] == "gptq"]
    (row,) = [one for one in npuc(*line).out.splitlines() if one.startswith("  gptq")]
    assert step["pairs"] == 0 and row.split()[1:3] == ["unknown", "unknown"] and row.endswith("none")


def test_a_step_that_does_not_apply_says_so(npuc: Any, here: Path) -> None:
    done = npuc("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 16, "--plan", "--ladder", "positions")
    assert "  positions nothing to do under this scheme" in done.out.splitlines(), done.out


def test_steps_of_the_default_scheme_stand_on_results(npuc: Any, here: Path) -> None:
    done = npuc("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 48, "--plan", "--json")
    known = {
        step["name"]: step["pairs"] for step in json.loads(done.out)["steps"] if step["name"] != "default"
    }
    assert all(known[name] > 0 for name in ("equalize", "smooth", "ranges", "gptq", "adaquant", "mixed")), (
        known
    )


def test_the_ladder_ends_when_the_expected_loss_is_small_enough(npuc: Any, here: Path) -> None:
    done = npuc(*_LINE, "--ladder", "ranges,gptq", "--expected-drop", 100, "-o", "a.mlir")
    assert done.status == 0, done.err
    lines = [one for one in done.out.splitlines() if one.startswith("  ladder")]
    assert len(lines) == 2 and "default:" in lines[0] and "are enough" in lines[1], lines
    done = npuc(*_LINE, "--ladder", "ranges,gptq", "--expected-drop", 0, "-o", "a.mlir")
    assert "gptq:" in done.out and "ranges:" in done.out


def test_what_cannot_be_planned_is_refused(npuc: Any, here: Path) -> None:
    done = npuc("quantize", _DIGITS, "--random", "--plan")
    assert done.status == 2 and "typical data" in done.err
    done = npuc(*_LINE, "--ladder", "gptq", "--expected-drop", 1, "--accuracy-drop", 1)
    assert done.status == 2 and "--expected-drop is for data without labels" in done.err
    done = npuc(*_LINE, "--expected-drop", 1)
    assert done.status == 2 and "--expected-drop" in done.err and "--ladder" in done.err
