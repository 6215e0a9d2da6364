"""Inputs that take plain integers, and inputs whose scale is stated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from npuc.engine import FloatEngine
from npuc.errors import UnknownTensorError, UnsupportedTypeError
from npuc.flow import import_model
from npuc.ir import Graph, dtype_of
from npuc.transform.input_types import PLAIN_TYPES, with_input_types
from npuc.transform.quantized_inputs import with_quantized_inputs
from support.networks.small_onnx import image_model


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    onnx.save(image_model(), str(tmp_path / "net.onnx"))
    return import_model(tmp_path / "net.onnx")


@pytest.mark.parametrize("kind", PLAIN_TYPES)
def test_plain_integers_are_the_numbers_that_they_are(graph: Graph, kind: str) -> None:
    changed = with_input_types(graph, {"x": kind})
    assert dtype_of(changed.inputs[0].type).name == kind
    assert dtype_of(graph.inputs[0].type).name == "f32"
    pixels = np.random.default_rng(0).integers(0, 100, (1, 3, 8, 8)).astype(dtype_of(kind).numpy)
    expected = FloatEngine(graph).run({"x": pixels.astype(np.float32)})
    assert np.array_equal(FloatEngine(changed).run({"x": pixels})["scores"], expected["scores"])


def test_types_and_inputs_that_there_are_not(graph: Graph) -> None:
    with pytest.raises(UnsupportedTypeError, match="cannot take i32"):
        with_input_types(graph, {"x": "i32"})
    with pytest.raises(UnknownTensorError, match="no input 'y'"):
        with_input_types(graph, {"y": "ui8"})
    with pytest.raises(UnknownTensorError, match="no input 'y'"):
        with_quantized_inputs(graph, {"y": (1.0, 0)})


def test_a_stated_scale_rounds_the_input(graph: Graph) -> None:
    changed = with_quantized_inputs(graph, {"x": (1 / 64, 128)})
    x = np.random.default_rng(0).uniform(-3, 3, (1, 3, 8, 8)).astype(np.float32)
    steps = np.clip(np.rint(x * 64) + 128, 0, 255)
    expected = FloatEngine(graph).run({"x": ((steps - 128) / 64).astype(np.float32)})
    assert np.allclose(FloatEngine(changed).run({"x": x})["scores"], expected["scores"], atol=1e-5)
    assert with_quantized_inputs(changed, {"x": (1.0, 0)}).tensor_names() == changed.tensor_names()
