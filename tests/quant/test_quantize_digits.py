"""The demo network under every scheme: accuracy, determinism, names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.calib.table import CalibrationTable
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.flow import import_model, load_model, quantize_network, save_graph
from npuc.ir import Graph
from npuc.quant import SCHEMES, quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.report import effective_yaml, is_integer

LOSS = {"int4-weights": 0.08, "pow2": 0.02}
"""The share of samples that a scheme may lose; 1 % where nothing is stated."""


@pytest.fixture(scope="module")
def samples(root: Path) -> tuple[Array, Array]:
    with np.load(root / "examples/digits_samples.npz") as file:
        return file["image"], file["label"]


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    return import_model(root / "examples/digits.onnx")


@pytest.fixture(scope="module")
def table(digits: Graph, samples: tuple[Array, Array]) -> CalibrationTable:
    return calibrate(digits, [image[None] for image in samples[0][:50]], threads=1)


def accuracy(engine: FloatEngine | IntegerEngine, samples: tuple[Array, Array]) -> float:
    images, labels = samples
    scores = [engine.run({"image": image[None]})["logits"].argmax() for image in images]
    return float(np.mean(np.array(scores) == labels))


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
def test_accuracy_is_kept(digits: Graph, samples: Any, table: CalibrationTable, scheme: str) -> None:
    made = quantize(digits, table, SCHEMES[scheme])
    made.verify()
    assert made.notes == []
    exact = accuracy(FloatEngine(digits, threads=1), samples)
    assert accuracy(IntegerEngine(made), samples) >= exact - LOSS.get(scheme, 0.01)


def test_a_network_is_the_same_bytes_twice_and_reads_back(
    digits: Graph, samples: Any, table: CalibrationTable, tmp_path: Path
) -> None:
    files = []
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        paths = save_graph(quantize(digits, table), tmp_path / folder / "d.mlir")
        files.append([path.read_bytes() for path in paths])
    assert files[0] == files[1]
    again = load_model(tmp_path / "a/d.mlir")
    assert is_integer(again) and not is_integer(digits)
    inputs = {"image": samples[0][:1]}
    expected = IntegerEngine(quantize(digits, table), fetch=["stem/relu"], raw=True).run(inputs)
    for name, array in IntegerEngine(again, fetch=["stem/relu"], raw=True).run(inputs).items():
        np.testing.assert_array_equal(array, expected[name])


def test_threads_do_not_change_a_bit(digits: Graph, samples: Any, table: CalibrationTable) -> None:
    made = quantize(digits, table)
    inputs = {"image": samples[0][:1]}
    one, two = (IntegerEngine(made, fetch=ALL_TENSORS, threads=n, raw=True).run(inputs) for n in (1, 2))
    assert one.keys() == two.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], two[name])


def test_names_survive(digits: Graph, table: CalibrationTable) -> None:
    made = quantize(digits, table)
    assert set(digits.tensor_names()) <= set(made.tensor_names())
    assert [port.name for port in made.outputs] == ["logits"]
    assert [port.name for port in made.inputs] == ["image"]


def test_layers_mix(digits: Graph, samples: Any, table: CalibrationTable) -> None:
    config = QuantizationConfig(
        types={"add": "int16"}, layers={"stem*": "int16-weights", "logits": "float", "widen/relu": "pow2"}
    )
    done = quantize_network(digits, table, config)
    kinds = {layer.name: (layer.integer, layer.reason) for layer in done.outcome.layers}
    assert kinds["logits"] == (False, "as asked")
    assert done.outcome.integer == len(digits.tensor_names()) - 1
    exact = accuracy(FloatEngine(digits, threads=1), samples)
    assert accuracy(IntegerEngine(done.graph), samples) >= exact - 0.02


def test_the_effective_configuration_gives_the_same_network(
    digits: Graph, table: CalibrationTable, tmp_path: Path
) -> None:
    config = QuantizationConfig(layers={"stem*": {"weight": "i16"}, "logits": "float", "pool": "int16"})
    done = quantize_network(digits, table, config)
    path = tmp_path / "q.yaml"
    path.write_text(effective_yaml(digits, done.outcome, done.scheme_of, ["made by a test"]))
    assert "# as asked" in path.read_text()
    again = quantize_network(digits, table, QuantizationConfig.load(path))
    assert str(again.graph.module) == str(done.graph.module)


def test_weights_shrink(digits: Graph, table: CalibrationTable) -> None:
    sizes = {
        name: quantize_network(digits, table, QuantizationConfig(scheme=name)).outcome
        for name in ("int16-weights", "int8", "int4-weights")
    }
    after = [found.bytes_after for found in sizes.values()]
    assert after == sorted(after, reverse=True) and after[-1] < sizes["int8"].bytes_before / 4
