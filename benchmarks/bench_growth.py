"""How the time and the memory of a compilation grow with the number of layers.

A network of residual blocks (3 x 3 convolutions of 8 channels on 16 x 16 pixels, and additions) is quantized and compiled in a
process of its own for each length. `s` is the CPU time of the compilation alone, at the level given; `MB` is by how much the
memory of the process grows at its peak. The exponent is that of the time from the length before: 1 is linear.

    python benchmarks/bench_growth.py [--layers 100,1000,...] [--target edge-4t] [--level 2]
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuc.calib.sources import random_data
from npuc.codegen.compile_model import CompileOptions
from npuc.flow import compile_network, network_to_quantize, quantize_network, ranges_from, schemes_of
from npuc.target import Target, load_target

_CHANNELS, _PIXELS = 8, 16
_BLOCK = 3
"""Layers of a block: two convolutions and an addition."""


def residual_network(layers: int, pixels: int = _PIXELS) -> onnx.ModelProto:
    """So many layers, about, on an image of some pixels in each direction; every convolution has weights of its own."""
    random = np.random.default_rng(0)
    nodes, weights, x = [], [], "x"
    for block in range(max(1, layers // _BLOCK)):
        y = x
        for conv in range(2):
            name = f"w{block}_{conv}"
            values = random.standard_normal((_CHANNELS, _CHANNELS, 3, 3)) * 0.008
            weights.append(numpy_helper.from_array(values.astype(np.float32), name))
            out = f"c{block}_{conv}"
            nodes.append(helper.make_node("Conv", [y, name], [out], pads=[1] * 4, kernel_shape=[3, 3]))
            y = out
        nodes.append(helper.make_node("Add", [x, y], [f"a{block}"]))
        x = f"a{block}"
    shape = [1, _CHANNELS, pixels, pixels]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("x", x)]
    graph = helper.make_graph(nodes, "growth", ports[:1], ports[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


def measure(layers: int, target: Target, level: int, pixels: int = _PIXELS) -> tuple[float, float, int]:
    """CPU seconds of a compilation, megabytes that it adds to the peak, and the bytes of its instructions."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "growth.onnx"
        onnx.save(residual_network(layers, pixels), path)
        graph = network_to_quantize(path, None)
    ranges = ranges_from(graph, random_data(graph, 1, 0), schemes_of(graph, None, target), "max")
    network = quantize_network(graph, ranges, None, target).graph
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident("VmRSS")
    began = time.process_time()
    done = compile_network(network, target, CompileOptions(level))
    seconds = time.process_time() - began
    added = _resident("VmHWM") - before
    streams = [stream for part in done.model.subgraphs for stream in getattr(part, "streams", ())]
    return seconds, added, sum(stream.nbytes for stream in streams)


def _resident(what: str) -> float:
    """Megabytes of this process in memory, now or at most, as Linux counts them."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith(what))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", default="100,300,1000,3000,10000")
    parser.add_argument("--target", default="edge-4t")
    parser.add_argument("--level", type=int, default=2)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one is not None:
        print(*measure(given.one, load_target(given.target), given.level))
        return
    print(f"{'layers':>8s} {'s':>8s} {'ms/layer':>9s} {'MB':>8s} {'stream KB':>9s} {'exponent':>9s}")
    last: tuple[int, float] | None = None
    for layers in map(int, given.layers.split(",")):
        options = ["--one", str(layers), "--target", given.target, "--level", str(given.level)]
        said = subprocess.run(
            [sys.executable, __file__, *options], check=True, capture_output=True, text=True
        )
        seconds, memory, stream = map(float, said.stdout.split())
        power = f"{math.log(seconds / last[1]) / math.log(layers / last[0]):9.2f}" if last else ""
        print(
            f"{layers:8d} {seconds:8.2f} {1e3 * seconds / layers:9.2f} {memory:8.0f} {stream / 1e3:9.0f} {power}",
            flush=True,
        )
        last = layers, seconds


if __name__ == "__main__":
    main()
