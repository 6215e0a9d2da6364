"""Whole networks and random ones on the BM1684X: the bits of graph mode in the vendor's functional model."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.flow import ImportOptions, network_to_quantize, quantize_network
from npuc.ir import dtype_of, shape_of
from npuc.program.bm1684x.bmodel import read_bmodel
from npuc.program.model import ChipSubgraph, CpuSubgraph
from npuc.schedule.bm1684x.cycles import timeline
from npuc.target import load_target
from support.bm1684x.timelines import program_time
from support.networks.backend import network
from support.sophgo import assert_equal_on_chip, libraries

TARGET = load_target("bm1684x")
RANDOM = 100


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "shape", "on_cpu"),
    [
        ("digits", (1, 1, 8, 8), 0),
        ("cifar10_resnet20", (1, 3, 32, 32), 0),
        ("mobilenet_v2", (1, 3, 224, 224), 0),
        ("squeezenet_v1.1", (1, 3, 227, 227), 0),
        ("ultraface_rfb_320", (1, 3, 240, 320), 0),
        ("yolox_nano", (1, 3, 416, 416), 0),
        ("ppocrv3_text_det", (1, 3, 320, 320), 0),
    ],
)
def test_a_network_has_the_bits_of_graph_mode(
    root: Path, shared: Path, name: str, shape: tuple[int, ...], on_cpu: int
) -> None:
    libraries()
    text = name.startswith("pp")
    path = (
        root / "examples" / "digits.onnx" if name == "digits" else shared / "models" / "onnx" / f"{name}.onnx"
    )
    graph = network_to_quantize(path, ImportOptions(input_shapes={"x": shape} if text else {}))
    rng = np.random.default_rng(1)
    draw = partial(page, shape) if text else lambda rng: rng.normal(size=shape).astype(np.float32)
    samples = [draw(rng) for _ in range(2)]
    quantized = quantize_network(graph, calibrate(graph, samples, "max", threads=1), None, TARGET).graph
    done = compile_program(quantized, TARGET)
    hosts = [part for part in done.model.subgraphs if isinstance(part, CpuSubgraph)]
    assert sum(len(part.reasons) for part in hosts) == on_cpu
    port = quantized.inputs[0]
    assert_equal_on_chip(quantized, done, {port.name: draw(rng)}, distinct=10)
    check_cycles(done)


def page(shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Words on a bright ground: a network that looks for text finds some."""
    _, _, h, w = shape
    image = Image.fromarray(rng.integers(150, 256, (h // 8, w // 8, 3), np.uint8)).resize((w, h))
    canvas = ImageDraw.Draw(image)
    for line in range(5):
        word = "".join(rng.choice(list("ABCDEFGHKLMNPRSTabcdefghkmn23456789"), 9))
        font = ImageFont.load_default(int(rng.integers(24, 44)))
        canvas.text((int(rng.integers(5, 60)), 10 + line * h // 5), word, (0, 0, 60), font)
    pixels = np.asarray(image, np.float32).transpose(2, 0, 1)[None] / 255
    mean, deviation = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32)[
        :, None, :, None, None
    ]
    scaled: Array = (pixels - mean) / deviation
    return scaled


def check_cycles(done: Compilation) -> None:
    """What is predicted is within 5 % of what the vendor's cycles of the same commands give, with single waits and in steps."""
    programs = [part.program for part in done.model.subgraphs if isinstance(part, ChipSubgraph)]
    for part, program in zip(done.chips, programs, strict=True):
        time = program_time(read_bmodel(program))
        predicted = timeline(part.schedule.commands).total
        assert abs(predicted / time.waits - 1) < 0.05
        assert time.moved == part.schedule.moved
        assert time.waits <= time.steps
        print(f"predicted {predicted:,}, by the vendor's cycles {time.waits:,}, by its steps {time.steps:,}")


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
