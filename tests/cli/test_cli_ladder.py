"""`npuc quantize --ladder` and `--accuracy-drop`: the path is printed, and what cannot be is refused in a sentence."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from npuc.ir import load_graph
from npuc.quant.prequantized import integer_types

_EXAMPLES = Path(__file__).parents[2] / "examples"
_DIGITS, _SAMPLES = _EXAMPLES / "digits.onnx", _EXAMPLES / "digits_samples.npz"
_SHARED = Path(__file__).parents[3] / "shared"


def test_steps_are_climbed_and_the_path_is_printed(npuc: Any, here: Path) -> None:
    line = ("quantize", _DIGITS, "--calib", _SAMPLES, "--max-count", 96, "--ladder", "mixed,equalize")
    line += ("--scheme", "pow2")
    done = npuc(*line, "-o", "a.mlir")
    assert done.status == 0, done.err
    lines = [one.split()[1] for one in done.out.splitlines() if one.startswith("  ladder")]
    assert lines == ["default:", "equalize:", "mixed:"]
    assert "dB, kept (" in done.out and "left out (" in done.out
    again = npuc(*line, "-o", "b.mlir", "--json")
    assert [step_result["name"] for step_result in json.loads(again.out)["path"]] == ["equalize", "mixed"]
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()
    assert Path("a.mlir").read_text() == Path("b.mlir").read_text().replace("b.safetensors", "a.safetensors")


def test_the_default_is_what_it_was(npuc: Any, here: Path) -> None:
    for name, more in (("a", ()), ("b", ("--ladder", "default"))):
        done = npuc("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 24, *more, "-o", f"{name}.mlir")
        assert done.status == 0 and "  ladder" not in done.out
    assert Path("a.safetensors").read_bytes() == Path("b.safetensors").read_bytes()


def test_a_stated_scheme_is_not_mixed_unless_that_is_asked_for(npuc: Any, here: Path) -> None:
    from npuc.cli.ladder import LadderOptions
    from npuc.quant.ladder.sequence import STEPS
    from npuc.registries import isolated

    with isolated():
        STEPS.remove(*(set(STEPS) - {"equalize", "mixed"}))
        assert LadderOptions("all").requested
        line = (
            "quantize",
            _DIGITS,
            "--data",
            _SAMPLES,
            "--max-count",
            24,
            "--scheme",
            "int8",
            "-o",
            "q.mlir",
        )
        assert "mixed" not in npuc(*line, "--ladder", "all").out
        assert "mixed" in npuc(*line, "--ladder", "mixed").out


def test_an_accuracy_is_reached_at_the_fewest_cycles(npuc: Any, here: Path) -> None:
    line = (
        "quantize",
        _DIGITS,
        "--data",
        _SAMPLES,
        "--max-count",
        48,
        "--eval-count",
        100,
        "--metric",
        "top1",
    )
    done = npuc(
        *line, "--accuracy-drop", 2, "--ladder", "mixed", "--frontier", "f.json", "-o", "q.mlir", "--json"
    )
    assert done.status == 0, done.err
    assert "calibrated on the data that measures it" in done.err
    found = json.loads(Path("f.json").read_text())
    path = json.loads(done.out)["path"]
    measured = [stop["words"] for stop in path if "figure" in stop]
    assert measured == [point["what"] for point in found["points"]]
    (best,) = [point for point in found["points"] if point["chosen"]]
    assert best["cycles"] == min(point["cycles"] for point in found["points"] if point["met"])
    # Loads are what costs here: weights of 4 bits pay.
    assert (
        best["met"] and best["cycles"] < 0.9 * found["points"][0]["cycles"] and "i4 weights" in best["what"]
    )
    # What is claimed is confirmed by samples that had no part in the choice, and both figures are shown.
    assert found["samples"] == 80 and found["samples_held_back"] == 20
    assert best["held_back"]["confirmed"] and best["held_back"]["high"] > best["held_back"]["lost"]
    assert path[-1]["words"] == best["what"] and path[-1]["confirmed"]
    assert path[-1]["held_back"]["samples"] == 20
    assert "20 held-back samples are few: the drop on others may be" in done.err


def test_what_8_bits_lack_is_made_up_for_by_types(npuc: Any, here: Path) -> None:
    line = (
        "quantize",
        _DIGITS,
        "--data",
        _SAMPLES,
        "--max-count",
        48,
        "--eval-count",
        40,
        "--metric",
        "cosine",
    )
    done = npuc(*line, "--accuracy-drop", 5e-5, "--ladder", "mixed", "--frontier", "f.svg", "-o", "q.mlir")
    assert done.status == 0, done.err
    assert "not enough" in done.out.splitlines()[1] and "chosen" in done.out
    assert "40 labelled samples are too few to hold some back" in done.err and "held-back" not in done.out
    assert Path("f.svg").read_text().startswith("<svg")
    refused = npuc(*line, "--accuracy-drop", 1e-7, "--ladder", "equalize", "-o", "r.mlir")
    assert refused.status == 2 and "at best" in refused.err and "'mixed'" in refused.err
    assert not Path("r.mlir").exists()


@pytest.mark.parametrize(
    "options, words",
    [
        (("--data", _SAMPLES, "--ladder", "soar"), "there is no step 'soar'"),
        (("--data", _SAMPLES, "--ladder", "all,mixed"), "stand alone"),
        (("--data", _SAMPLES, "--ladder", ","), "no step is named"),
        (("--random", "--ladder", "mixed"), "--random rules that out"),
        (("--data", _SAMPLES, "--no-tune", "--ladder", "mixed"), "--no-tune rules that out"),
        (("--data", _SAMPLES, "--metric", "top1"), "--metric goes with --accuracy-drop"),
        (("--data", _SAMPLES, "--calib", _SAMPLES), "one and the same"),
        (("--calib", _SAMPLES, "--accuracy-drop", "1"), "nothing to measure on"),
        (("--data", _SAMPLES, "--accuracy-drop", "1", "--metric", "top11"), "there is no metric"),
        (("--data", _SAMPLES, "--accuracy-drop", "1", "--metric", "sqnr"), "nothing can be lost of it"),
        (("--data", _SAMPLES, "--accuracy-drop", "1", "--frontier", "f.png"), "neither an .svg nor a .json"),
        (("--data", _SAMPLES, "--ladder", "mixed", "--torch-device", "tpu"), "cannot be 'tpu'"),
        (("--data", _SAMPLES, "--torch-device", "cuda:99"), "there is no 'cuda:99' here"),
        (("--data", _SAMPLES, "--ladder", "mixed", "--max-count", "1"), "too few"),
        (("--data", _SAMPLES, "--ladder", "mixed", "--scheme", "bf16"), "nothing to climb for"),
    ],
)
def test_mistakes_are_said_in_a_sentence(npuc: Any, here: Path, options: tuple[Any, ...], words: str) -> None:
    done = npuc("quantize", _DIGITS, *options, "-o", "q.mlir")
    assert done.status == 2 and words in done.err
    assert not Path("q.mlir").exists()


def test_compile_climbs_too_and_an_integer_network_does_not(npuc: Any, here: Path) -> None:
    line = ("compile", _DIGITS, "--target", "edge-4t", "--calib", _SAMPLES, "--max-count", 32, "-q")
    assert npuc(*line, "--ladder", "mixed", "-o", "q.npu").status == 0
    assert npuc("quantize", _DIGITS, "--data", _SAMPLES, "--max-count", 16, "-o", "q.mlir", "-q").status == 0
    done = npuc("compile", "q.mlir", "--target", "edge-4t", "--ladder", "mixed", "--eval-count", 3)
    assert done.status == 2
    done = npuc("compile", "q.mlir", "--target", "edge-4t", "--ladder", "mixed")
    assert done.status == 2 and "--ladder cannot be followed" in done.err


def test_resnet20_gets_types_for_a_few_cycles(npuc: Any, here: Path) -> None:
    model, data = _SHARED / "models/onnx/cifar10_resnet20.onnx", _SHARED / "data/cifar10/calib"
    if not model.is_file() or not data.is_dir():
        pytest.skip("the shared models and data are not here")
    scale = ",".join(str(1 / deviation) for deviation in (58.395, 57.12, 57.375))
    shape = ("--input-shape", "1,3,32,32", "--mean", "123.675,116.28,103.53", "--scale", scale)
    assert npuc("import", model, *shape, "--no-check", "-o", "net.mlir", "-q").status == 0
    done = npuc(
        "quantize",
        "net.mlir",
        "--calib",
        data,
        "--max-count",
        64,
        "--ladder",
        "mixed",
        "-o",
        "q.mlir",
        "--json",
    )
    assert done.status == 0, done.err
    (step_result,) = json.loads(done.out)["path"]
    assert (
        step_result["name"] == "mixed"
        and step_result["kept"]
        and step_result["after"] > step_result["before"] + 0.3
    )
    kinds = [kind.dtype.name for kind in integer_types(load_graph(Path("q.mlir"))).values()]
    assert 0 < kinds.count("i16") < 0.75 * len(kinds)
