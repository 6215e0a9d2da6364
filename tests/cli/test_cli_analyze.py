"""`npuc analyze`: sentences, files, and what is said to those who use it wrongly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from npuc.quant.config import QuantizationConfig


@pytest.fixture
def data(here: Path) -> Path:
    np.savez("data.npz", x=np.random.default_rng(0).random((12, 3, 8, 8), np.float32))
    return here / "data.npz"


def test_findings_are_told_and_files_are_written(npuc: Any, model: Path, data: Path) -> None:
    done = npuc(
        "analyze", model, "--data", data, "--scheme", "uint8", "--hybrid", "h.yaml", "--plot", "p.svg",
        "--histogram", "r",
    )  # fmt: skip
    assert done.status == 0, done.err
    assert "dB from float" in done.out and "Try: " in done.out and "What to try first:" in done.out
    assert "bits carried" in done.out and "#" in done.out
    assert ElementTree.fromstring(Path("p.svg").read_text()).tag.endswith("svg")
    config = QuantizationConfig.load("h.yaml")
    assert config.scheme == "uint8" and config.layers
    again = npuc("quantize", model, "--data", data, "--config", "h.yaml", "-o", "h.mlir")
    assert again.status == 0, again.err
    assert "i16" in Path("h.mlir").read_text()


def test_json_has_it_all(npuc: Any, model: Path, data: Path) -> None:
    done = npuc("analyze", model, "--data", data, "--json", "--hybrid", "h.yaml")
    assert done.status == 0, done.err
    found = json.loads(done.out)
    assert found["samples"] == 12 and found["output_sqnr"] > 10
    severities = [finding["severity"] for finding in found["findings"]]
    assert severities == sorted(severities, reverse=True)
    assert {"x", "r"} & {tensor["name"] for tensor in found["tensors"]}
    assert all(0 <= tensor["entropy"] <= 1 for tensor in found["tensors"])
    assert found["hybrid"]["file"] == "h.yaml"


def test_what_was_quantized_before_is_analyzed_as_it_is(npuc: Any, model: Path, data: Path) -> None:
    assert npuc("quantize", model, "--data", data, "-o", "q.mlir", "-q").status == 0
    done = npuc("analyze", model, "--quantized", "q.mlir", "--data", data, "--hybrid", "h.yaml")
    assert done.status == 0, done.err
    own, given = QuantizationConfig.load("q.quant.yaml"), QuantizationConfig.load("h.yaml")
    assert set(own.layers) <= set(given.layers)
    here = npuc("analyze", model, "--data", data)
    first = [text.splitlines()[1] for text in (here.out, done.out)]
    assert first[0] == first[1]


def test_ranges_may_come_from_a_table(npuc: Any, program: Path, data: Path) -> None:
    assert npuc("calibrate", program, "--data", data, "--method", "max", "-o", "t.cali", "-q").status == 0
    table = Path("t.cali").read_text().splitlines()
    narrow = ["r 0.05 0.0 0.05" if line.startswith("r ") else line for line in table]
    assert narrow != table
    Path("t.cali").write_text("\n".join(narrow) + "\n")
    done = npuc("analyze", program, "--data", data, "--table", "t.cali")
    assert done.status == 0, done.err
    assert "1. r: clipping" in done.out and "--tensor-method r=max" in done.out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "there are no ranges"),
        (["--data", "nowhere"], "nowhere"),
        (["--data", "data.npz", "--quantized", "model.onnx"], "not an integer network"),
        (["--data", "data.npz", "--quantized", "missing.mlir"], "does not exist"),
        (["--data", "data.npz", "--quantized", "q.mlir", "--method", "max"], "brings its own ranges"),
        (["--data", "data.npz", "--histogram", "nope"], "no tensor 'nope'"),
        (["--data", "data.npz", "--scheme", "bf16"], "no integers"),
        (["--data", "data.npz", "--hybrid", "nowhere/h.yaml"], "nowhere"),
    ],
)
def test_mistakes_are_told(npuc: Any, model: Path, data: Path, arguments: list[str], words: str) -> None:
    done = npuc("analyze", model, *arguments)
    assert done.status == 2 and words in done.err, done.err


def test_an_integer_network_without_data_is_an_error(npuc: Any, model: Path, data: Path) -> None:
    assert npuc("quantize", model, "--data", data, "-o", "q.mlir", "-q").status == 0
    done = npuc("analyze", model, "--quantized", "q.mlir")
    assert done.status == 2 and "no data" in done.err


def test_a_model_with_its_own_quantization_is_refused(npuc: Any, here: Path, data: Path) -> None:
    scale, zero = (
        numpy_helper.from_array(np.array(v), n) for v, n in ((np.float32(0.01), "s"), (np.int8(0), "z"))
    )
    weight = numpy_helper.from_array(np.ones((2, 3, 1, 1), np.float32), "w")
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Conv", ["d", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, 1, [1, c, 8, 8]) for n, c in (("x", 3), ("y", 2))]
    graph = helper.make_graph(nodes, "own", ends[:1], ends[1:], [scale, zero, weight])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, "own.onnx")
    done = npuc("analyze", "own.onnx", "--data", data)
    assert done.status == 2 and "brings its own quantization" in done.err
