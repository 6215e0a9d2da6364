"""The commands on a network of one layer: no plural of one, no two full stops, no share of nothing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper

_ONE = re.compile(r"(?<![\w.,/-])1 (\w+)")
_SINGULAR = {
    "is",
    "this",
    "as",
    "was",
    "has",
    "axis",
    "its",
    "class",
    "less",
    "ms",
    "us",
    "s",
    "pass",
    "bias",
    "TOPS",
}
_STOPS = re.compile(r"[\w'\")]\.\.(\s|$)")


def test_one_of_everything(npuc: Any, here: Path) -> None:
    info = [helper.make_tensor_value_info(name, 1, [1, 3, 4, 4]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"], name="relu")], "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, str(here / "m.onnx"))
    np.save(here / "one.npy", np.ones((1, 3, 4, 4), np.float32))
    np.save(here / "bad.npy", np.ones((1, 2), np.float32))
    runs = [
        npuc("import", "m.onnx", "-o", "m.mlir"),
        npuc("show", "m.mlir"),
        npuc("inspect", "m.onnx", "--target", "edge-1t"),
        npuc("calibrate", "m.mlir", "--data", "one.npy", "-o", "m.cali", "--save-stats", "s.npz"),
        npuc("quantize", "m.mlir", "--data", "one.npy", "-o", "q.mlir"),
        npuc("compile", "m.mlir", "--target", "edge-1t", "--random", "-o", "m.npu"),
        npuc("profile", "m.npu"),
        npuc("objdump", "m.npu"),
        npuc("run", "m.npu", "--random"),
        npuc("diff", "m.mlir", "q.mlir", "--data", "one.npy"),
        npuc("analyze", "m.mlir", "--data", "one.npy"),
        npuc("calibrate", "m.mlir", "--data", "bad.npy"),
    ]
    assert [run.status for run in runs] == [0] * 11 + [2]
    for run in runs:
        text = run.out + run.err
        wrong = [word for word in _ONE.findall(text) if word.endswith("s") and word not in _SINGULAR]
        assert not wrong, (wrong, text)
        assert not _STOPS.search(text), text
        assert "of 0 MACs" not in text, text
