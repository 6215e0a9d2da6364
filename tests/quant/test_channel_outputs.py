"""Outputs with one scale a channel: small channels beside large ones keep their bits, and every engine computes the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.sources import Source, open_data
from npuc.cli.quantization import QuantizationRequest
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import Quantized, quantize_network, quantize_on_data
from npuc.ir import Graph, npu, result_names, top
from npuc.quant.channel_outputs import endings, scaled
from npuc.quant.config import QuantizationConfig
from npuc.sim import Simulator, sanitize
from npuc.target import load_target
from support.graphs import build
from support.programs.host_models import file_of, run_in_c

SIZES = np.array([1.0, 0.3, 0.1, 0.01])
"""The output channels differ in magnitude by a factor of 100."""


def network(last: str = "conv", relu: bool = False) -> Graph:
    """A convolution, then a layer whose output channels differ in magnitude."""
    random = np.random.default_rng(0)
    common = {"strides": [1, 1], "dilations": [1, 1], "group": 1}

    def weight(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32)

    def body(b: Any, x: Any) -> Any:
        hidden = b(
            top.Conv, x, weight(8, 3, 3, 3), weight(8), pads=[1] * 4, name="hidden", relu=True, **common
        )
        sizes = SIZES.astype(np.float32)
        if last == "conv":
            kernel = weight(4, 8, 1, 1) * sizes[:, None, None, None]
            return b(top.Conv, hidden, kernel, weight(4) * sizes, pads=[0] * 4, name="y", relu=relu, **common)
        if last == "deconv":
            kernel = weight(8, 4, 2, 2) * sizes[:, None, None]
            more = {**common, "strides": [2, 2], "pads": [0] * 4, "output_padding": [0, 0]}
            return b(top.Deconv, hidden, kernel, weight(4) * sizes, name="y", **more)
        flat = b(top.Reshape, hidden, shape=(1, 8 * 6 * 5), name="flat")
        return b(top.MatMul, flat, weight(240, 4) * sizes, weight(4) * sizes, transpose_b=False, name="y")

    return build({"x": (1, 3, 6, 5)}, body)


def samples(count: int = 12, seed: int = 1) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [{"x": random.standard_normal((1, 3, 6, 5)).astype(np.float32)} for _ in range(count)]


def data(graph: Graph) -> Source:
    return open_data(graph, samples())


def quantized(graph: Graph, **fields: Any) -> Quantized:
    config = QuantizationConfig(**{"scheme": "int8", **fields})
    return quantize_on_data(graph, data(graph), config, load_target("edge-4t"), "max")[0]


def sqnr_by_channel(graph: Graph, integers: Graph) -> Array:
    """Of each output channel, in dB, on samples that calibration has not seen."""
    engines = FloatEngine(graph), IntegerEngine(integers)
    pairs = [[engine.run(sample)["y"] for engine in engines] for sample in samples(8, 2)]
    exact, got = (np.concatenate(part).astype(np.float64) for part in zip(*pairs, strict=True))
    axes = tuple(i for i in range(exact.ndim) if i != 1)
    return np.asarray(10 * np.log10((exact**2).sum(axes) / ((exact - got) ** 2).sum(axes)))


@pytest.mark.parametrize("last", ["conv", "deconv", "matmul"])
def test_small_channels_keep_their_bits(last: str) -> None:
    graph = network(last)
    shared = sqnr_by_channel(graph, quantized(graph).graph)
    own = sqnr_by_channel(graph, quantized(graph, per_channel_outputs=True).graph)
    assert shared.min() < 20 and own.min() > 24
    assert own[-1] > shared[-1] + 15 and (own > shared - 3).all()


@pytest.mark.parametrize(
    ("last", "scheme"), [("conv", "int8"), ("matmul", "int8"), ("deconv", "pow2"), ("conv", "tflite")]
)
def test_graph_mode_instruction_mode_and_c_compute_the_same_bits(last: str, scheme: str) -> None:
    graph = network(last)
    integers = quantized(graph, scheme=scheme, per_channel_outputs=True).graph
    done = compile_program(integers, load_target("edge-4t"), CompileOptions(island_threshold=0.0))
    on_npu = {result_names(op)[0] for part in done.partition.parts if part.device == "npu" for op in part.ops}
    assert "y/per_channel" in on_npu
    for sample in samples(3, 5):
        expected = IntegerEngine(integers).run(sample)["y"]
        np.testing.assert_array_equal(Simulator(done.model).run(sample)["y"], expected)
        output = {"y": np.zeros_like(expected)}
        assert run_in_c(file_of(done.model), sample, output) == ""
        np.testing.assert_array_equal(output["y"], expected)
    assert sanitize(done.model) == []


def test_the_scale_of_a_channel_is_its_factor_times_that_of_the_tensor() -> None:
    """y_c = (r_c * S) * (q - z): what a user who reads the integers has to compute."""
    integers = quantized(network(), per_channel_outputs=True).graph
    [back] = [op for op in integers.ops if isinstance(op, npu.Dequantize)]
    factor = next(integers.weights.array(name) for name in integers.weights if name.endswith("channel_scale"))
    sample = samples(1, 9)[0]
    kind = back.x.type.element_type
    result = IntegerEngine(integers, fetch=["y/per_channel"]).run(sample)
    q = np.round(result["y/per_channel"] / kind.scale + kind.zero_point)
    assert (q == np.clip(q, -128, 127)).all() and len(np.unique(q)) > 50
    scales = kind.scale * factor.astype(np.float64)
    np.testing.assert_array_equal(result["y"], (scales * (q - kind.zero_point)).astype(np.float32))


def test_the_float_network_is_the_same() -> None:
    graph = network(relu=True)
    changed = scaled(graph, {"y": np.array([1.0, 0.5, 0.125, 2.0**-7])})
    sample = samples(1)[0]
    np.testing.assert_array_equal(FloatEngine(changed).run(sample)["y"], FloatEngine(graph).run(sample)["y"])


def head(joined: bool) -> Graph:
    """The head of a detector: 2 anchors with 2 values each, whose channels are moved to the end, and perhaps a second one."""
    random = np.random.default_rng(3)
    common = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}
    sizes = SIZES.astype(np.float32)

    def scores(b: Any, x: Any, name: str) -> Any:
        weight = random.standard_normal((4, 3, 1, 1)).astype(np.float32) * sizes[:, None, None, None]
        y = b(top.Conv, x, weight, None, name=f"{name}/conv", **common)
        y = b(top.Reshape, y, shape=(1, 2, 2, 6, 5), name=f"{name}/anchors")
        y = b(top.Permute, y, order=(0, 1, 3, 4, 2), name=f"{name}/last")
        y = b(
            top.Slice,
            y,
            offset=(0, 1, 0, 0, 0),
            steps=(1, -1, 1, 1, 1),
            shape=(1, 2, 6, 5, 2),
            name=f"{name}/turned",
        )
        return b(top.Reshape, y, shape=(1, 60, 2), name=name)

    def body(b: Any, x: Any) -> Any:
        if not joined:
            return scores(b, x, "y")
        return b(top.Concat, [scores(b, x, "near"), scores(b, x, "far")], axis=1, name="y")

    return build({"x": (1, 3, 6, 5)}, body)


@pytest.mark.parametrize("joined", [False, True])
def test_channels_are_followed_through_ops_that_move_them(joined: bool) -> None:
    graph = head(joined)
    done = quantized(graph, per_channel_outputs=True)
    sample = samples(1, 6)[0]
    exact, got = FloatEngine(graph).run(sample)["y"], IntegerEngine(done.graph).run(sample)["y"]
    shared = IntegerEngine(quantized(graph).graph).run(sample)["y"]
    largest = [
        float(np.abs(exact[:, part, value]).max())
        for part in (slice(0, 30), slice(30, 60))
        for value in (0, 1)
    ]
    assert max(largest) > 50 * min(largest)
    errors = np.zeros((2, 4))
    parts = [np.s_[:, first : first + 30, value] for first in (0, 30) for value in (0, 1)]
    for row, values in enumerate((got, shared)):
        errors[row] = [np.abs(values[part] - exact[part]).max() / np.abs(exact[part]).max() for part in parts]
    assert errors[0].max() < 0.03 and errors[1].max() > 0.2
    compiled = compile_program(done.graph, load_target("edge-4t"), CompileOptions(island_threshold=0.0))
    np.testing.assert_array_equal(Simulator(compiled.model).run(sample)["y"], got)
    assert "per_channel_outputs" in done.graph.float_reasons["y"]


def test_notes_and_reasons_say_what_was_done() -> None:
    done = quantized(network(), per_channel_outputs=True)
    assert any("'y' has one scale for each of its 4 channels" in note for note in done.graph.notes)
    assert "per_channel_outputs" in done.graph.float_reasons["y"]


def test_outputs_whose_channels_are_alike_keep_one_scale() -> None:
    random = np.random.default_rng(0)
    common = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}
    weight = np.repeat(random.standard_normal((1, 3, 1, 1)), 4, 0).astype(np.float32)
    graph = build({"x": (1, 3, 6, 5)}, lambda b, x: b(top.Conv, x, weight, None, name="y", **common))
    done = quantized(graph, per_channel_outputs=True)
    assert [op.name for op in done.source.ops if op.name == "top.mul"] == []
    assert any("'y' keep one scale" in note for note in done.graph.notes)


def test_a_layer_that_is_named_by_its_output_keeps_what_is_said_of_it() -> None:
    done = quantized(network(), per_channel_outputs=True, layers={"y": "int16"})
    kinds = {result_names(op)[0]: scheme.activation for op, scheme in done.scheme_of.by_op.items() if scheme}
    assert kinds["y/per_channel"] == "i16" and kinds["hidden"] == "i8"


def test_data_that_can_be_read_once_serves_twice() -> None:
    graph = network()
    config = QuantizationConfig(scheme="int8", per_channel_outputs=True)
    once, _ = quantize_on_data(graph, open_data(graph, iter(samples())), config, None, "max")
    twice, _ = quantize_on_data(graph, data(graph), config, None, "max")
    np.testing.assert_array_equal(
        IntegerEngine(once.graph).run(samples(1, 4)[0])["y"],
        IntegerEngine(twice.graph).run(samples(1, 4)[0])["y"],
    )


def test_only_layers_with_weights_at_an_output_are_candidates() -> None:
    weight = np.ones((4, 3, 1, 1), np.float32)
    common = {"pads": [0] * 4, "strides": [1, 1], "dilations": [1, 1], "group": 1}

    def body(b: Any, x: Any) -> Any:
        read_twice = b(top.Conv, x, weight, None, name="read_twice", **common)
        limited = b(top.Conv, x, weight, None, name="limited", relu=True, relu_limit=6.0, **common)
        return {"a": read_twice, "b": b(top.Relu, read_twice, name="relu"), "c": limited}

    graph = build({"x": (1, 3, 4, 4)}, body)
    assert endings(graph) == ({}, [])
    with pytest.raises(QuantizationError, match="no output is made by a convolution"):
        source = open_data(graph, [{"x": np.ones((1, 3, 4, 4), np.float32)}])
        quantize_on_data(graph, source, QuantizationConfig(per_channel_outputs=True))


def test_ranges_without_data_are_refused() -> None:
    config = QuantizationConfig(per_channel_outputs=True)
    with pytest.raises(QuantizationError, match="measured on data") as caught:
        quantize_network(network(), dict.fromkeys(("x", "hidden", "y"), (-1.0, 1.0)), config)
    assert "Give data" in str(caught.value)


def test_the_command_line_has_it() -> None:
    request = QuantizationRequest(per_channel_outputs=True)
    assert request.config_for(network()).per_channel_outputs
    assert not QuantizationRequest().config_for(network()).per_channel_outputs
