"""What a user gives is used, or its fate is told: options given twice, odd preprocessing, NaN, two ways to prepare a picture."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def pictures(folder: Path, count: int, first: int = 0) -> Path:
    folder.mkdir()
    rng = np.random.default_rng(first)
    for index in range(first, first + count):
        Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save(folder / f"{index}.png")
    return folder


def test_several_places_of_data_are_taken_one_after_the_other(npuc: Any, program: Path) -> None:
    pictures(Path("a"), 2)
    pictures(Path("b"), 3, 10)
    done = npuc("calibrate", program, "--data", "a", "--data", "b", "-o", "t.cali", "--json")
    assert done.status == 0 and json.loads(done.out)["samples"] == 5
    assert done.err.count("no preprocessing attached") == 1
    few = npuc("calibrate", program, "--data", "a", "--data", "b", "--max-count", 4, "--seed", 1, "--json")
    assert json.loads(few.out)["samples"] == 4
    for command in (
        ["quantize", program, "-o", "q.mlir"],
        ["compile", program, "--target", "edge-4t", "-o", "q.npu"],
    ):
        done = npuc(*command, "--data", "a", "--data", "b", "--no-tune")
        assert done.status == 0 and "samples: 5" in done.out


def test_data_for_each_input(npuc: Any, two: Path) -> None:
    np.save("ids.npy", np.arange(15).reshape(5, 3) % 6)
    np.save("x.npy", np.full((5, 3, 2), 7, np.float32))
    done = npuc("calibrate", two, "--data", "ids=ids.npy", "--data", "x=x.npy", "--method", "max", "--json")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["samples"] == 5
    assert {one["name"]: one["max"] for one in found["tensors"]}["x"] == 7
    for wrong, words in (
        (["ids=ids.npy"], "no data for input 'x'"),
        (["ids=ids.npy", "x.npy"], "INPUT=PATH for all"),
    ):
        done = npuc("calibrate", two, *[part for one in wrong for part in ("--data", one)])
        assert done.status == 2 and words in done.err
    np.save("x.npy", np.ones((2, 3, 2), np.float32))
    done = npuc("calibrate", two, "--data", "ids=ids.npy", "--data", "x=x.npy")
    assert done.status == 2 and "'ids' has 5, 'x' has 2" in done.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["eval", "model.onnx", "--data", "a", "--data", "b"],
        ["compile", "model.onnx", "--random", "--target", "edge-4t", "--target", "edge-1t", "-o", "x.npu"],
        ["run", "model.onnx", "--random", "--seed", "1", "--seed", "2"],
        ["import", "model.onnx", "--scale", "1", "--scale", "2"],
        ["import", "model.onnx", "--mean", "x:1", "--mean", "x:2"],
        ["quantize", "model.onnx", "-o", "q.mlir", "--accuracy-drop", "1", "--data", "a", "--data", "b"],
    ],
)
def test_one_value_is_given_once(npuc: Any, model: Path, arguments: list[str]) -> None:
    done = npuc(*arguments)
    assert done.status == 2 and ("given 2 times" in done.err or "twice" in done.err or "names 2" in done.err)


def test_flags_and_lists_may_repeat(npuc: Any, model: Path) -> None:
    np.save("x.npy", np.zeros((1, 3, 8, 8), np.float32))
    done = npuc("run", model, "--input", "x.npy", "--input", "x.npy", "-q", "-q", "--json")
    assert done.status == 0 and json.loads(done.out)["samples"] == 2


def test_preprocessing_that_is_odd_is_refused_or_told(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "--scale", "0,0,0")
    assert done.status == 2 and "--scale" in done.err and "factor of 0" in done.err
    assert npuc("import", model, "--scale", "1,0,1").status == 2
    done = npuc("import", model, "--resize-dims", "4,4")
    assert done.status == 2 and "8 x 8" in done.err
    done = npuc("import", model, "--resize-dims", "12,10", "--no-check")
    assert done.status == 0 and "resized to 12 x 10, and the middle 8 x 8 pixels" in done.err
    said = npuc("import", model, "--resize-dims", "12,10", "--crop", "8,8", "--no-check")
    assert said.status == 0 and "middle" not in said.err


@pytest.mark.parametrize("form", ["model.onnx", "q.mlir", "q.npu"])
def test_values_that_are_no_numbers_are_told(npuc: Any, program: Path, form: str) -> None:
    if form != "model.onnx":
        assert npuc("quantize", program, "--random", "-o", "q.mlir", "-q").status == 0
        assert npuc("compile", "q.mlir", "--target", "edge-4t", "-o", "q.npu", "-q").status == 0
    data = np.zeros((1, 3, 8, 8), np.float32)
    data[0, 0, :2, 0] = np.nan
    data[0, 1, 0, 0] = np.inf
    np.save("x.npy", data)
    done = npuc("run", form, "--input", "x.npy")
    assert done.status == 0
    assert "2 of 192 values of input 'x' are NaN" in done.err
    assert "1 of 192 values of input 'x' is infinite" in done.err
    np.save("x.npy", np.nan_to_num(data))
    assert "NaN" not in npuc("run", form, "--input", "x.npy").err


@pytest.mark.parametrize("data", [("--random",), ("--data", "p"), ("--input", "p/0.png")])
def test_networks_that_prepare_pictures_differently_get_the_same_pictures(
    npuc: Any, model: Path, data: tuple[str, ...]
) -> None:
    pictures(Path("p"), 3)
    arithmetic = ("--mean", "120,110,100", "--scale", "0.02", "--no-check", "-q")
    assert npuc("import", model, *arithmetic, "-o", "plain.mlir").status == 0
    assert npuc("import", model, *arithmetic, "--fuse-preprocess", "-o", "fused.mlir").status == 0
    done = npuc("diff", "plain.mlir", "fused.mlir", *data, "--json")
    assert (
        done.status == 0
        and "prepare images for input 'x' differently (mean 120,110,100 against 0" in done.err
    )
    found = json.loads(done.out)
    assert found["prepared_differently"]["x"].startswith("mean 120,110,100 against 0, scale 0.02 against 1")
    assert found["outputs"][0]["accumulated"]["sqnr"] in ("inf", None) or (
        found["outputs"][0]["accumulated"]["sqnr"] > 80
    )
    # The mean of another network: what is told is how far the results are apart, and why.
    assert npuc("import", model, "--scale", "0.02", "--no-check", "-q", "-o", "other.mlir").status == 0
    done = npuc("diff", "plain.mlir", "other.mlir", *data, "--json")
    assert done.status == 0 and "mean 120,110,100 against 0)" in done.err
    assert json.loads(done.out)["outputs"][0]["accumulated"]["sqnr"] < 30
    same = npuc("diff", "plain.mlir", "plain.mlir", *data)
    assert same.status == 0 and "differently" not in same.err
    assert npuc("diff", "plain.mlir", "model.onnx", *data).status == 0


def test_the_outputs_come_first(npuc: Any, program: Path) -> None:
    assert npuc("quantize", program, "--random", "-o", "q.mlir", "-q").status == 0
    assert npuc("compile", "q.mlir", "--target", "edge-4t", "-o", "q.npu", "-q").status == 0
    assert npuc("run", "q.npu", "--random", "--dump-layers", "dump", "-q").status == 0
    for first, second in ((program, "q.mlir"), (program, "q.npu"), ("q.mlir", "q.npu"), ("dump", "q.mlir")):
        data = () if first == "dump" else ("--random",)
        done = npuc("diff", first, second, *data, "--limit", 1, "--sort", "order")
        assert done.status == 0, done.err
        lines = done.out.splitlines()
        assert lines[0].startswith("output ") and lines[1].startswith("scores ") and lines[2] == ""
        assert lines[3].startswith("layer ")
        as_json = npuc("diff", first, second, *data, "--limit", 1, "--json")
        assert [one["name"] for one in json.loads(as_json.out)["outputs"]] == ["scores"]
