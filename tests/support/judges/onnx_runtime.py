"""ONNX Runtime as a judge of exported files: with and without its optimizations, with exact integer kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import onnxruntime as ort

from npuc.arrays import Array


def run_in_onnx_runtime(path: Path, inputs: Mapping[str, Array], optimized: bool = False) -> dict[str, Array]:
    """The outputs of a model by name."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    # Exact sums of integer products on processors without VNNI, too.
    options.add_session_config_entry("session.x64quantprecision", "1")
    levels = ort.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_ENABLE_ALL if optimized else levels.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [port.name for port in session.get_outputs()]
    return dict(zip(names, session.run(None, dict(inputs)), strict=True))
