"""Every shared ONNX model in sessions of ONNX Runtime with the provider, in Python and in a C++ program, against `npuc run`.

Each model is run as it is (a float one with a calibration table) and in the QDQ form that `npuc export onnx` writes of it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
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
from npuc.export.onnx import export_onnx
from npuc.export.qdq import export_quantized_onnx
from npuc.flow import compile_network, import_model, network_to_quantize, quantize_network
from npuc.frontend.options import ImportOptions
from npuc.integrations import onnxruntime as provider
from npuc.integrations.onnxruntime import compile_request
from npuc.integrations.report import IntegrationReport
from npuc.ir import Graph
from npuc.ir.target_rewrites import rewritten_for
from npuc.quant.prequantized import is_quantized
from npuc.runtime import Runner
from npuc.target import load_target
from support.programs.ort_host import OrtHost, assert_same
from support.shared_models import known

ort = pytest.importorskip("onnxruntime", minversion="1.23.1")
MODELS = [path for path in known(["onnx", "transformers"]) if path.suffix == ".onnx"]
DEFAULT = {"mnist"}
"""Those that the default suite runs."""
TARGET = load_target("edge-4t")
SIZE = 96
"""Of every named axis but the batch."""


def named_axes(path: Path) -> dict[str, int]:
    """The named axes but the batch, and the size that they get."""
    return {
        dim.dim_param: SIZE
        for value in onnx.load(path, load_external_data=False).graph.input
        for axis, dim in enumerate(value.type.tensor_type.shape.dim)
        if axis and dim.dim_param not in ("", "?")
    }


def fixed(path: Path) -> Any:
    """Session options with these sizes."""
    settings = ort.SessionOptions()
    for name, size in named_axes(path).items():
        settings.add_free_dimension_override_by_name(name, size)
    return settings


def open_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """The inputs whose axes have no size, and the sizes that they get: 1 for a batch."""
    shapes = {}
    for value in onnx.load(path, load_external_data=False).graph.input:
        dims = value.type.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(
                dim.dim_value or (SIZE if axis else 1) for axis, dim in enumerate(dims)
            )
    return shapes


def readable(path: Path, folder: Path) -> Path:
    """The model, written again by npuc if ONNX Runtime cannot open it.

    Its operator set is too old, or axes are open: of PP-OCR's network ONNX Runtime 1.31 makes a Reshape that it then refuses, on
    some processors.
    """
    try:
        ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    except Exception:
        export_onnx(import_model(path, ImportOptions(input_shapes=open_shapes(path))), folder / path.name)
        return folder / path.name
    return path


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


@dataclass(frozen=True)
class Compiled:
    """A model, compiled as a whole as `npuc compile` does it."""

    graph: Graph
    """What is quantized."""
    integers: Graph
    judge: Runner
    table: Path | None
    """The ranges, if it was a float network."""


def compiled(path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Compiled:
    """The same network that a session hands over, with ranges of random samples if it has none."""
    view = simplified(path, folder, monkeypatch)
    shapes, _ = compile_request._static_shapes(onnx.load(view), 1)
    graph = rewritten_for(network_to_quantize(view, ImportOptions(input_shapes=shapes)), TARGET, "float")
    ranges: CalibrationTable | None = None
    table = None
    if not is_quantized(graph):
        table = folder / "model.cali"
        ranges = calibrate(graph, open_data(graph, [random_inputs(graph, seed) for seed in range(2)]), "max")
        save_table(ranges, table)
    integers = quantize_network(graph, ranges, None, TARGET).graph
    judge = Runner(compile_network(integers, TARGET, CompileOptions(level=0)).model)
    return Compiled(graph, integers, judge, table)


def compare(path: Path, whole: Compiled, folder: Path, cpp_host: OrtHost) -> IntegrationReport:
    """Sessions of both kinds against a program of the whole network; the report of the session."""
    options = {"level": "0", "target": TARGET.name, "cache_dir": str(folder / "cache")}
    if whole.table is not None:
        options["calibration"] = str(whole.table)
    session = provider.session(path, options, fixed(path))
    report = provider.report(session)
    names = [value.name for value in session.get_outputs()]
    for seed in range(3):
        inputs = random_inputs(whole.graph, 10 + seed)
        expected = whole.judge.run(inputs)
        results = session.run(None, inputs)
        for name, value in zip(names, results, strict=True):
            if report.rest:
                size = max(1.0, float(np.abs(expected[name]).max()))
                np.testing.assert_allclose(value, expected[name], rtol=0, atol=1e-5 * size, err_msg=name)
            else:
                np.testing.assert_array_equal(value, expected[name], err_msg=name)
    ordered = [inputs[value.name] for value in session.get_inputs()]
    host = cpp_host.run(
        path, ordered, folder, options, dimensions=named_axes(path), threads=2, environment={"PATH": ""}
    )
    assert "cannot be started" not in host.said, "the entry of the cache is not that of Python's session"
    assert_same(host, results)
    return report


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, marks=() if path.stem in DEFAULT else pytest.mark.slow, id=path.stem)
        for path in MODELS
    ],
)
def test_a_shared_model_has_the_bits_of_npuc_run(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpp_host: OrtHost
) -> None:
    path = readable(path, tmp_path)
    try:
        whole = compiled(path, tmp_path, monkeypatch)
    except compile_request.Unsupported as why:
        assert "has no fixed size" in why.reason
        report = provider.report(provider.session(path, {"cache": "off"}))
        assert {node.reason for node in report.nodes} == {why.reason}
        return
    report = compare(path, whole, tmp_path, cpp_host)
    assert report.npu_share > 0.5, str(report)
    if whole.table is None:
        return
    quantized = tmp_path / "quantized"
    quantized.mkdir()
    export_quantized_onnx(whole.integers, quantized / "qdq.onnx")
    whole = compiled(quantized / "qdq.onnx", quantized, monkeypatch)
    assert whole.table is None
    report = compare(quantized / "qdq.onnx", whole, quantized, cpp_host)
    assert report.npu_share > 0.5, str(report)
