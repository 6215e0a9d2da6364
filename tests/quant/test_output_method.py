"""The range method of outputs: scores that a sigmoid outside of the network follows lose less there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.sources import Source, open_data
from npuc.cli.app import run_command
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import QuantizationError, UsageError
from npuc.flow import Quantized, quantize_network, quantize_on_data
from npuc.ir import Graph, top
from npuc.quant.config import QuantizationConfig
from npuc.quant.ladder.run import PipelineOptions
from npuc.quant.tuning import output_overrides
from support.graphs import build


def scores() -> Graph:
    """A product whose results reach far beyond where a sigmoid is flat."""
    weight = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32) * 6

    def body(b: Any, x: Any) -> Any:
        product = b(top.MatMul, x, weight, np.zeros(6, np.float32), transpose_b=False, name="score")
        return b(top.Reshape, product, shape=(1, 2, 3), name="y")

    return build({"x": (1, 8)}, body)


def samples(seed: int = 1) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal((1, 8)).astype(np.float32)} for _ in range(16)]


def quantized(graph: Graph, method: str | None, ladder: PipelineOptions | None = None) -> Quantized:
    config = QuantizationConfig(scheme="int8", output_method=method)
    source: Source = open_data(graph, samples())
    return quantize_on_data(graph, source, config, method="max", ladder=ladder, threads=1)[0]


def error(graph: Graph, integers: Graph) -> float:
    exact, got = FloatEngine(graph, threads=1), IntegerEngine(integers)
    pairs = [(exact.run(sample)["y"], got.run(sample)["y"]) for sample in samples(2)]
    return float(np.mean([np.square(_sigmoid(a) - _sigmoid(b)) for a, b in pairs]))


def _sigmoid(x: Array) -> Array:
    level: Array = 1 / (1 + np.exp(-x.astype(np.float64)))
    return level


@pytest.mark.parametrize("ladder", [None, PipelineOptions(("ranges",))])
def test_scores_lose_less_behind_a_sigmoid(ladder: PipelineOptions | None) -> None:
    graph = scores()
    plain, chosen = (error(graph, quantized(graph, method, ladder).graph) for method in (None, "sigmoid"))
    assert chosen < 0.75 * plain


def test_tensors_that_are_only_moved_to_an_output_have_its_method() -> None:
    assert output_overrides(scores(), "sigmoid") == {"y": "sigmoid", "score": "sigmoid"}
    assert output_overrides(scores(), None) == {}


def test_a_table_has_its_own_ranges_and_a_method_has_to_exist() -> None:
    graph = scores()
    with pytest.raises(QuantizationError, match="output_method: the ranges of outputs are chosen on data"):
        quantize_network(graph, {"x": (-1, 1)}, QuantizationConfig(output_method="sigmoid"))
    with pytest.raises(UsageError, match="no range method 'sigmoids'"):
        quantized(graph, "sigmoids")


@pytest.mark.parametrize("tune", ["--tune", "--no-tune"])
def test_the_command_takes_the_method(root: Path, tmp_path: Path, tune: str) -> None:
    words = [
        "quantize",
        str(root / "examples/digits.onnx"),
        "--data",
        str(root / "examples/digits_samples.npz"),
    ]
    for name, more in (("plain", ()), ("chosen", ("--output-method", "percentile:ratio=0.5"))):
        end = [tune, "--scheme", "int8", "--max-count", "8", "-o", str(tmp_path / f"{name}.mlir")]
        assert run_command([*words, *end, *more]) == 0
    assert (tmp_path / "plain.mlir").read_text() != (tmp_path / "chosen.mlir").read_text()
