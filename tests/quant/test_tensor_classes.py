"""Some classes of tensors only: weights, activations or biases are rounded, and layers compute in float."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import yaml

from npuc.arrays import Array
from npuc.codegen.compile_model import compile_program
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.errors import QuantizationError
from npuc.flow import needs_ranges, quantize_network
from npuc.ir import Graph, npu, parse_graph, print_graph, tensor_type, top
from npuc.program.model import NpuSubgraph
from npuc.quant.config import QuantizationConfig
from npuc.quant.parameters import quantize_array, quantize_weight
from npuc.quant.report import effective_yaml, weight_bytes
from npuc.quant.scheme import Scheme
from npuc.quant.tensor_classes import dequantized_weights
from npuc.sim import Simulator
from npuc.target import load_target

RNG = np.random.default_rng(5)
RANGES = {"x": (-1.0, 1.0), "c": (0.0, 6.0), "y": (-9.0, 9.0)}


WEIGHTS = {
    "w": RNG.normal(size=(8, 3, 3, 3)).astype(np.float32),
    "b": RNG.normal(size=8).astype(np.float32),
    "m": RNG.normal(size=(288, 5)).astype(np.float32),
}


def network(others: Mapping[str, Array] = MappingProxyType({})) -> Graph:
    graph = Graph.empty([("x", tensor_type((1, 3, 6, 6), "f32"))])
    w, b, m = (graph.add_weight(name, array) for name, array in {**WEIGHTS, **others}.items())
    window: dict[str, Any] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1)}
    conv = top.Conv.make(graph.inputs[0].value, w.output, b.output, relu=True, name="c", **window)
    flat = top.Reshape.make(conv.y, shape=(1, 288), name="f")
    product = top.MatMul.make(flat.results[0], m.output, None, name="y")
    for op in (w, b, m, conv, flat, product):
        graph.block.add_op(op)
    graph.set_outputs([("y", product.y)])
    return graph


def quantized(graph: Graph, target: str | None = None, **options: Any) -> Any:
    machine = None if target is None else load_target(target)
    return quantize_network(graph, RANGES, QuantizationConfig(options=options), machine)


def sample() -> dict[str, Array]:
    return {"x": RNG.uniform(-1, 1, (1, 3, 6, 6)).astype(np.float32)}


def test_weights_alone_are_integers_and_layers_multiply_what_they_stand_for() -> None:
    graph = network()
    config = QuantizationConfig(options={"classes": ["weights"], "weight": "i4"})
    assert not needs_ranges(graph, config)
    done = quantize_network(graph, {}, config)
    assert weight_bytes(done.graph) < weight_bytes(graph) / 3.5
    assert done.outcome.integer == 0
    assert all("weights alone are quantized" in layer.reason for layer in done.outcome.layers)

    scheme, real = Scheme(weight="i4"), {}
    for name, axis in (("w", 0), ("m", 1)):
        integers, scales = quantize_weight(WEIGHTS[name], axis, scheme)
        spread = scales.astype(np.float32).reshape((-1, 1, 1, 1) if name == "w" else (1, -1))
        real[name] = integers.astype(np.float32) * spread
        np.testing.assert_array_equal(real[name], dequantized_weights(WEIGHTS[name], axis, scheme))
    exact = network(real)
    x = sample()
    wanted = FloatEngine(exact).run(x)["y"]
    np.testing.assert_allclose(IntegerEngine(done.graph).run(x)["y"], wanted, rtol=1e-5, atol=1e-4)
    # The file keeps the integers, and reads back the same.
    again = parse_graph(print_graph(done.graph), done.graph.weights)
    np.testing.assert_array_equal(IntegerEngine(again).run(x)["y"], IntegerEngine(done.graph).run(x)["y"])


def test_activations_alone_are_rounded_to_their_types() -> None:
    graph, x = network(), sample()
    done = quantized(graph, classes=["activations"])
    values = IntegerEngine(done.graph, fetch=ALL_TENSORS).run(x)
    kind = next(
        op.to for op in done.graph.ops if isinstance(op, npu.Quantize) and op.x is done.graph.block.args[0]
    )
    rounded = (quantize_array(x["x"], kind).astype(np.float64) - kind.zero_point) * kind.scale
    np.testing.assert_allclose(
        FloatEngine(graph, fetch=["c"]).run({"x": rounded.astype(np.float32)})["c"], values["c"], atol=1e-5
    )
    steps = IntegerEngine(done.graph).run(x)["y"] / 18.0 * 255
    np.testing.assert_allclose(steps, np.rint(steps), atol=1e-3)
    assert abs(steps).max() <= 128


def test_a_bias_alone_is_rounded_to_steps_of_its_sum() -> None:
    graph, x = network(), sample()
    coarse = quantized(graph, classes=["bias"], bias_significant_bits=4)
    fine = quantized(graph, classes=["bias"])
    exact = FloatEngine(graph).run(x)["y"]
    errors = [float(np.abs(IntegerEngine(done.graph).run(x)["y"] - exact).max()) for done in (fine, coarse)]
    assert errors[0] < 0.01 < errors[1]


def test_what_was_asked_for_is_in_the_effective_configuration() -> None:
    graph = network()
    done = quantized(graph, classes=["weights", "bias"])
    text = effective_yaml(done.source, done.outcome, done.scheme_of)
    again = quantize_network(graph, RANGES, QuantizationConfig.model_validate(yaml.safe_load(text)))
    x = sample()
    np.testing.assert_array_equal(
        IntegerEngine(again.graph).run(x)["y"], IntegerEngine(done.graph).run(x)["y"]
    )


def test_weights_alone_compute_in_the_short_floats_of_a_target() -> None:
    graph, x = network(), sample()
    target = load_target("bm1684x-like")
    done = quantize_network(graph, {}, QuantizationConfig(options={"classes": ["weights"]}), target)
    assert done.outcome.counts() == "3 bf16, 0 float"
    conv = next(op for op in done.graph.ops if isinstance(op, npu.FloatConv))
    stored = done.graph.constant(conv.weight)
    real = dequantized_weights(graph.weights.array("w"), 0, Scheme())
    np.testing.assert_array_equal(stored, real.astype(stored.dtype))
    model = compile_program(done.graph, target).model
    assert any(isinstance(part, NpuSubgraph) for part in model.subgraphs)

    edge = quantize_network(
        graph, {}, QuantizationConfig(options={"classes": ["weights"]}), load_target("edge-4t")
    )
    assert edge.outcome.counts() == "3 float"
    on_cpu = compile_program(edge.graph, load_target("edge-4t")).model
    assert not any(isinstance(part, NpuSubgraph) for part in on_cpu.subgraphs)
    expected = IntegerEngine(edge.graph).run(x)["y"]
    np.testing.assert_allclose(Simulator(on_cpu).run(x)["y"], expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_array_equal(
        IntegerEngine(edge.graph).run(x)["y"],
        IntegerEngine(quantized(graph, classes=["weights"]).graph).run(x)["y"],
    )


@pytest.mark.parametrize("classes", [[], ["weight"], "weights,bais", 3])
def test_a_class_that_is_not_there_is_named(classes: Any) -> None:
    with pytest.raises(QuantizationError, match="weights, activations, bias"):
        quantized(network(), classes=classes)
