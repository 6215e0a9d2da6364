"""Compiled models for the tests of the C side, and how their applications are built and run."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.frontend.options import ImportOptions
from npuc.images.preprocess import Preprocess
from npuc.ir import top
from npuc.program.model import CompiledModel
from npuc.target import Target, load_target
from support.cached_compiler import cached

TARGET = load_target("edge-4t")
STRICT = "-Wall -Wextra -Wpedantic -Werror"
CHECKS = "-O0 -g1 -fsanitize=address,undefined -fno-sanitize-recover=all"
IMAGE = Preprocess(
    mean=(120.0, 110.5, 100.25),
    scale=(0.017, 0.0175, 0.0171),
    keep_aspect_ratio=True,
    pad_value=114,
    pixel_format="bgr",
)


def compiled(
    path: Path,
    options: ImportOptions | None = None,
    compile_options: CompileOptions | None = None,
    target: Target = TARGET,
    *,
    anew: bool = False,
) -> CompiledModel:
    """A model file, quantized on random data unless it brings its own integers and is not to be quantized `anew`."""
    graph = network_to_quantize(path, options, force_float=anew)
    if any(isinstance(op, top.Quantize | top.Dequantize) for op in graph.ops):
        integers = quantize_network(graph, None, None, target).graph
        return compile_network(integers, target, compile_options or CompileOptions(1)).model
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    integers = quantize_network(graph, ranges, None, target).graph
    return compile_network(integers, target, compile_options or CompileOptions(1)).model


def image_network(path: Path) -> Path:
    """Convolutions (plain, depthwise, strided), a residual sum, pools and a matmul, on images of 20 x 24."""
    rng = np.random.default_rng(0)
    weights: list[onnx.TensorProto] = []
    nodes: list[onnx.NodeProto] = []

    def weight(name: str, *shape: int) -> str:
        array = (rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        weights.append(numpy_helper.from_array(array, name))
        return name

    def node(kind: str, inputs: list[str], output: str, **attributes: Any) -> str:
        nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    x = node(
        "Conv", ["image", weight("w1", 12, 3, 3, 3), weight("b1", 12)], "c1", pads=[1] * 4, strides=[2, 2]
    )
    x = node("Relu", [x], "r1")
    y = node("Conv", [x, weight("w2", 12, 1, 3, 3)], "c2", pads=[1] * 4, group=12)
    y = node("Add", [x, y], "sum")
    y = node("MaxPool", [y], "pool", kernel_shape=[2, 2], strides=[2, 2])
    y = node("Conv", [y, weight("w3", 20, 12, 1, 1), weight("b3", 20)], "c3")
    y = node("Sigmoid", [y], "gate")
    node("Conv", [y, weight("w4", 4, 20, 3, 3)], "map", pads=[1] * 4)
    y = node("Flatten", [node("GlobalAveragePool", [y], "mean")], "flat")
    node("MatMul", [y, weight("w5", 20, 7)], "scores")
    graph = helper.make_graph(
        nodes,
        "images",
        [helper.make_tensor_value_info("image", 1, [1, 3, 20, 24])],
        [
            helper.make_tensor_value_info("scores", 1, [1, 7]),
            helper.make_tensor_value_info("map", 1, [1, 4, 5, 6]),
        ],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def surroundings() -> dict[str, str]:
    """The preloads of `make sanitize` are for Python; these programs have their own."""
    return {key: value for key, value in os.environ.items() if key not in ("LD_PRELOAD", "MAKEFLAGS")}


def build(folder: Path, *targets: str, **variables: str) -> None:
    """Run the application's own make, warnings being errors."""
    settings = {"WARNINGS": STRICT, "CFLAGS": "-O1", "CC": "cc"} | variables
    settings["CC"] = cached(settings["CC"])
    given = [f"{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        ["make", "-s", *given, *targets],
        cwd=folder,
        capture_output=True,
        text=True,
        env=surroundings(),
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "warning" not in done.stderr


def run(folder: Path, *arguments: str | Path, program: str = "./app") -> tuple[int, str]:
    """Exit status, and what was printed."""
    done = subprocess.run(
        [program, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        env=surroundings(),
        timeout=120,
    )
    assert done.returncode >= 0 and "Sanitizer" not in done.stderr, done.stderr[-3000:]
    return done.returncode, done.stdout + done.stderr
