"""Every shared ONNX model in a session of ONNX Runtime with the provider, against `npuc run` of the same network."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from npuc.calib.calibration import calibrate
from npuc.calib.random_inputs import random_inputs
from npuc.calib.sources import open_data
from npuc.calib.table import CalibrationTable, save_table
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import compile_network, network_to_quantize, quantize_network
from npuc.frontend.options import ImportOptions
from npuc.integrations import onnxruntime as provider
from npuc.integrations.onnxruntime import compile_request
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.prequantized import is_quantized
from npuc.runtime import Runner
from npuc.target import load_target
from support.paths import SHARED

ort = pytest.importorskip("onnxruntime", minversion="1.23")
MODELS = sorted((SHARED / "models/onnx").glob("*.onnx"))
pytestmark = pytest.mark.slow


def fixed(path: Path) -> Any:
    """Session options that give every named axis but the batch a size."""
    settings = ort.SessionOptions()
    for value in onnx.load(path, load_external_data=False).graph.input:
        for axis, dim in enumerate(value.type.tensor_type.shape.dim):
            if axis and dim.dim_param not in ("", "?"):
                settings.add_free_dimension_override_by_name(dim.dim_param, 96)
    return settings


def simplified(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The model as ONNX Runtime hands it over."""
    original = compile_request.compile_request

    def keep(request: Path) -> None:
        shutil.copy(request / "model.onnx", folder / "simplified.onnx")
        original(request)

    with monkeypatch.context() as patch:
        patch.setattr(compile_request, "compile_request", keep)
        provider.session(path, {"cache": "off"}, fixed(path))
    return folder / "simplified.onnx"


def compare(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, target_name: str = "edge-4t") -> Any:
    """A session against a program of the whole network; the report of the session."""
    target = load_target(target_name)
    view = simplified(path, folder, monkeypatch)
    shapes, _ = compile_request._static_shapes(onnx.load(view), 1)
    graph = rewritten_for(network_to_quantize(view, ImportOptions(input_shapes=shapes)), target, "float")
    options = {"level": "0", "target": target_name, "cache_dir": str(folder / "cache")}
    ranges: CalibrationTable | None = None
    if not is_quantized(graph):
        samples = [random_inputs(graph, seed) for seed in range(2)]
        ranges = calibrate(graph, open_data(graph, samples), "max")
        save_table(ranges, folder / "model.cali")
        options["calibration"] = str(folder / "model.cali")
    integers = quantize_network(graph, ranges, None, target).graph
    judge = Runner(compile_network(integers, target, CompileOptions(level=0)).model)
    session = provider.session(path, options, fixed(path))
    report = provider.report(session)
    for seed in range(3):
        inputs = random_inputs(graph, 10 + seed)
        expected = judge.run(inputs)
        names = [value.name for value in session.get_outputs()]
        for name, value in zip(names, session.run(None, inputs), strict=True):
            if report.rest:
                size = max(1.0, float(np.abs(expected[name]).max()))
                np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5 * size, err_msg=name)
            else:
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
    return report


@pytest.mark.parametrize("path", MODELS, ids=lambda path: path.stem)
def test_a_shared_model_has_the_bits_of_npuc_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception as error:
        pytest.skip(f"ONNX Runtime itself does not run it: {error}")
    try:
        report = compare(path, tmp_path, monkeypatch)
    except compile_request.Unsupported as why:
        assert "has no fixed size" in why.reason
        report = provider.report(provider.session(path, {"cache": "off"}))
        assert {node.reason for node in report.nodes} == {why.reason}
        return
    assert report.npu_share > 0.5, str(report)
