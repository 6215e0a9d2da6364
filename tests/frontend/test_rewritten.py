"""Files that bring their own quantization, on targets with another arithmetic: where their layers run, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.engine import IntegerEngine
from npuc.flow import Quantized, compile_network, network_to_quantize, quantize_network
from npuc.ir import Graph, npu
from npuc.ir.dtypes import QuantType, dtype_of, quant_of
from npuc.quant.config import QuantizationConfig
from npuc.quant.from_target import fitted
from npuc.quant.parameters import stored_bias
from npuc.quant.rewritten import differences
from npuc.quant.scheme import SCHEMES
from npuc.quant.target_encoding import TargetEncoding
from npuc.runtime.runner import Runner
from npuc.target import load_target
from npuc.transform.drop_quantization import StoredConstant
from support.networks.tflite import run_litert
from support.networks.tflite_quantized import inputs, quantized_network

TARGETS = ("zhouyi-x2-like", "bm1684x-like", "vipnano-like", "aries-like")


def _source(dtype: str, folder: Path, spread: float = 1.0) -> Graph:
    path = folder / "model.tflite"
    path.write_bytes(quantized_network(dtype, spread=spread))
    return network_to_quantize(path)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_every_layer_runs_on_the_npu(dtype: str, target: str, tmp_path: Path) -> None:
    """But for the border, where the file's integers become the target's."""
    graph, machine = _source(dtype, tmp_path), load_target(target)
    done = quantize_network(graph, None, None, machine)
    assert all(layer.integer for layer in done.outcome.layers), done.outcome.layers
    compiled = compile_network(done.graph, machine)
    sides = [name for name in compiled.partition.reasons if "stated" not in name]
    assert not [name for name in sides if not name.endswith(("/real", "/integers"))], (
        compiled.partition.reasons
    )
    with Runner(compiled.model) as runner:
        engine = IntegerEngine(done.graph, threads=1)
        for feed in inputs(dtype, 2):
            np.testing.assert_array_equal(runner.run(feed)["y"], engine.run(feed)["y"])


@pytest.mark.parametrize("target", TARGETS[:3])
@pytest.mark.parametrize("dtype", ["i8", "ui8"])
def test_the_results_of_layers_stay_within_a_step(dtype: str, target: str, tmp_path: Path) -> None:
    graph, machine = _source(dtype, tmp_path), load_target(target)
    done = quantize_network(graph, None, None, machine)
    found = differences(quantize_network(graph).graph, done.graph, inputs(dtype, 4))
    exact = dtype == "ui8" and target == "vipnano-like"
    limit = 1e-3 if exact else 1.01
    # A machine of 8 bits has no exact form of weights with a zero point.
    rounded = dtype == "ui8" and target == "bm1684x-like"
    assert found.worst[1] < (4 if rounded else limit), found
    data = quantized_network(dtype)
    engine = IntegerEngine(done.graph, threads=1)
    for feed in inputs(dtype, 4):
        away = np.abs(engine.run(feed)["y"].astype(int) - run_litert(data, feed)["y"].astype(int)).max()
        assert away <= (0 if exact else 24), away


def _notes(done: Quantized) -> str:
    return " | ".join(done.outcome.notes)


def test_what_it_cost_is_said(tmp_path: Path) -> None:
    graph = _source("i8", tmp_path, spread=30)
    notes = _notes(quantize_network(graph, None, None, load_target("vipnano-like")))
    assert "8 of 8 layers are written in numbers that vipnano-like has" in notes
    assert "differ from LiteRT's by at most 1 step on 2 random inputs" in notes
    assert (
        "16 bits, because the 8 bits of vipnano-like would move" in notes
        and "'--scheme uint8' keeps 8 bits" in notes
    )
    # A target that has all of it says nothing.
    assert not _notes(quantize_network(graph, None, None, load_target("edge-4t")))


def test_the_option_that_a_note_names_keeps_8_bits(tmp_path: Path) -> None:
    asked = QuantizationConfig(scheme="uint8")
    done = quantize_network(_source("i8", tmp_path, spread=30), None, asked, load_target("vipnano-like"))
    layers = [op for op in done.graph.ops if isinstance(op, npu.Conv | npu.MatMul)]
    assert {dtype_of(op.weight.type).name for op in layers} == {"ui8"}
    assert {dtype_of(op.x.type).name for op in layers} == {"ui8"}
    assert "by more than one" in _notes(done)


def test_integers_of_another_storage_are_the_same_ones() -> None:
    nano, aries = TargetEncoding(load_target("vipnano-like")), TargetEncoding(load_target("aries-like"))
    assert nano.activation(QuantType.of("i8", 0.3, -5)) == QuantType.of("ui8", 0.3, 123)
    assert nano.activation(QuantType.of("ui8", 0.3, 7)) == QuantType.of("ui8", 0.3, 7)
    # Without zero points a range from 0 has half of the steps.
    one = aries.activation(QuantType.of("i8", 0.1, -128))
    assert one.zero_point == 0 and one.scale == pytest.approx(25.5 / 127)


def test_weights_in_the_form_of_a_target() -> None:
    random = np.random.default_rng(0)
    integers = random.integers(60, 190, (6, 4, 3, 3)).astype(np.uint8)
    small = StoredConstant(integers, np.array([0.01], np.float32), np.array([125]), 0)
    scheme = SCHEMES["int8"]
    signed = TargetEncoding(load_target("bm1684x-like"))
    assert not signed.weights_fit(small)
    made, scales, zero = signed.weights(small, 0, scheme, None, 1.0, 0.0)
    np.testing.assert_array_equal(made, integers.astype(int) - 125)
    assert zero == 0 and scales.tolist() == [float(np.float32(0.01))]
    # Differences beyond 127: only the channels that have some are rounded anew.
    integers[2, 0, 0, 0] = 255
    made, scales, zero = signed.weights(small, 0, scheme, None, 1.0, 0.0)
    assert (scales > 0.0101).tolist() == [False, False, True, False, False, False]
    np.testing.assert_array_equal(made[[0, 1, 3, 4, 5]], integers[[0, 1, 3, 4, 5]].astype(int) - 125)
    # A scale each channel, where there is one a tensor.
    each = StoredConstant(made, scales.astype(np.float32), np.zeros(6, np.int64), 0)
    nano = TargetEncoding(load_target("vipnano-like"))
    assert not nano.weights_fit(each)
    again, one, zero = nano.weights(each, 0, scheme, None, 1.0, 0.0)
    assert again.dtype == np.uint8 and one.size == 1
    real = one[0] * (again.astype(float) - zero)
    assert np.abs(real - made * scales.reshape(-1, 1, 1, 1)).max() <= 0.51 * one[0]


def test_inputs_of_reals_need_no_border(tmp_path: Path) -> None:
    made = quantize_network(_source("ui8", tmp_path), None, None, load_target("vipnano-like")).graph
    assert not any(isinstance(op, npu.Requant) for op in made.ops)
    assert {kind.dtype.name for op in made.ops for v in op.results if (kind := quant_of(v))} == {"ui8"}


def test_a_huge_bias_of_one_channel_does_not_cost_the_others() -> None:
    """Biases of 16 bits share one unit: a channel of tiny weights takes a coarser scale for it."""
    machine = load_target("zhouyi-x2-like")
    scheme = fitted(replace(SCHEMES["int8"], requant="single_even"), machine)
    integers = np.random.default_rng(0).integers(-100, 101, (3, 4, 1, 1)).astype(np.int8)
    scales, bias = np.array([1e-2, 1e-2, 1e-7]), np.array([0.31, -0.77, 2.0])
    plain = stored_bias(bias / (0.02 * scales), scheme)
    made, wide, zero = TargetEncoding.levelled((integers, scales, 0), 0, scheme, bias, 0.02, 0.03)
    better = stored_bias(bias / (0.02 * wide), scheme)
    assert zero == 0 and wide[:2].tolist() == [1e-2, 1e-2] and wide[2] > 1e-7
    np.testing.assert_array_equal(made[:2], integers[:2])
    errors = [np.abs(b * 0.02 * s - bias).max() / 0.03 for b, s in ((plain, scales), (better, wide))]
    assert errors[0] > 0.5 and errors[1] < 0.26, errors
