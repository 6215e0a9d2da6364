"""Whole networks and random ones on the BM1684X: the bits of graph mode in the vendor's functional model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from npuc.calib.calibration import calibrate
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import ImportOptions, network_to_quantize, quantize_network
from npuc.ir import dtype_of, shape_of
from npuc.program.model import ChipSubgraph, CpuSubgraph
from npuc.target import load_target
from support.networks.backend import network
from support.sophgo import assert_equal_on_chip, libraries

TARGET = load_target("bm1684x")
RANDOM = 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "on_cpu"),
    [
        ("cifar10_resnet20", (1, 3, 32, 32), 0),
        ("mobilenet_v2", (1, 3, 224, 224), 0),
        ("squeezenet_v1.1", (1, 3, 227, 227), 2),
        ("ultraface_rfb_320", (1, 3, 240, 320), 1),
        ("yolox_nano", (1, 3, 416, 416), 0),
        ("ppocrv3_text_det", (1, 3, 320, 320), 0),
    ],
)
def test_a_network_has_the_bits_of_graph_mode(
    shared: Path, name: str, shape: tuple[int, ...], on_cpu: int
) -> None:
    libraries()
    path = shared / "models" / "onnx" / f"{name}.onnx"
    graph = network_to_quantize(
        path, ImportOptions(input_shapes={"x": shape} if name.startswith("pp") else {})
    )
    rng = np.random.default_rng(1)
    samples = [rng.normal(size=shape).astype(np.float32) for _ in range(2)]
    quantized = quantize_network(graph, calibrate(graph, samples, "max", threads=1), None, TARGET).graph
    done = compile_program(quantized, TARGET)
    hosts = [part for part in done.model.subgraphs if isinstance(part, CpuSubgraph)]
    assert sum(len(part.reasons) for part in hosts) == on_cpu
    port = quantized.inputs[0]
    assert_equal_on_chip(quantized, done, {port.name: rng.normal(size=shape).astype(np.float32)})


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(RANDOM))
def test_a_random_network_has_the_bits_of_graph_mode(seed: int) -> None:
    libraries()
    graph, ranges = network(seed)
    quantized = quantize_network(graph, ranges, None, TARGET).graph
    done = compile_program(quantized, TARGET, CompileOptions(island_threshold=0))
    rng = np.random.default_rng(seed)
    inputs = {}
    for port in quantized.inputs:
        low, high = ranges.get(port.name, (-1.0, 1.0))
        drawn = rng.uniform(low, high, shape_of(port.value))
        inputs[port.name] = drawn.astype(dtype_of(port.value.type).numpy)
    chips = [part for part in done.model.subgraphs if isinstance(part, ChipSubgraph)]
    if not chips:
        pytest.skip("none of it has commands of the chip")
    assert_equal_on_chip(quantized, done, inputs, distinct=1)
