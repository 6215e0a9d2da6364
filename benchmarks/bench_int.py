"""Graph mode against ONNX Runtime, whole networks: its int8 on the equivalent QDQ model, and its float.

Three programs of the same network with the same calibration images take turns on the same threads; a time is the best
(and the median) of many runs of batch 1, from float input to float output, so that quantization at the border counts for
both. ONNX Runtime's int8 is the better of signed and unsigned activations on this CPU. `ratio` is npuc's time over the
other's, by the best times: below 1 npuc is ahead. The ResNet-50 has the true shapes and random weights.

    python benchmarks/bench_int.py [--threads 1,2] [--models resnet20,...] [--seconds 6] [--profile]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper
from peers import CACHE, MODELS, SHARED, fixed, quantize_ort, session

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.engine import IntegerEngine
from npuc.flow import ImportOptions, import_model
from npuc.kernels import isa
from npuc.quant import quantize

BAR = 1.5
SAMPLES = 4


@dataclass(frozen=True)
class Network:
    """A network of the benchmark."""

    name: str
    shape: tuple[int, ...]
    source: Callable[[], Path]
    scale: float = 1.0

    def samples(self, count: int) -> list[Array]:
        """Inputs; what they show does not change how long a network takes."""
        random = np.random.default_rng(0)
        return [(random.standard_normal(self.shape) * self.scale).astype(np.float32) for _ in range(count)]


def resnet50() -> Path:
    """ResNet-50 (version 1.5) for 224 x 224 with random weights that keep the signal's size."""
    path = CACHE / "resnet50.onnx"
    if path.exists():
        return path
    random = np.random.default_rng(0)
    nodes: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []

    def add(kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"{kind.lower()}{len(nodes)}"
        nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def weight(array: Array) -> str:
        name = f"w{len(weights)}"
        weights.append(onnx.numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def conv(x: str, inputs: int, outputs: int, kernel: int, stride: int, gain: float = 2.0) -> str:
        deviation = (gain / (inputs * kernel**2)) ** 0.5
        w = weight(random.standard_normal((outputs, inputs, kernel, kernel)) * deviation)
        b = weight(random.standard_normal(outputs) * 0.1)
        pad = [(kernel - 1) // 2] * 4
        return add("Conv", [x, w, b], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pad)

    x = add("Relu", [conv("input", 3, 64, 7, 2)])
    x = add("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            y = add("Relu", [conv(x, inputs, width, 1, 1)])
            y = add("Relu", [conv(y, width, width, 3, stride)])
            y = conv(y, width, width * 4, 1, 1, gain=0.5)
            if block == 0:
                x = conv(x, inputs, width * 4, 1, stride, gain=1.0)
            x = add("Relu", [add("Add", [y, x])])
            inputs = width * 4
    x = add("Flatten", [add("GlobalAveragePool", [x])])
    x = add("Gemm", [x, weight(random.standard_normal((2048, 1000)) * 0.02), weight(np.zeros(1000))])
    graph = helper.make_graph(
        nodes,
        "resnet50",
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, [1, 3, 224, 224])],
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, [1, 1000])],
        weights,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return path


NETWORKS = {
    network.name: network
    for network in (
        Network("resnet20", (1, 3, 32, 32), lambda: MODELS / "cifar10_resnet20.onnx"),
        Network("resnet50", (1, 3, 224, 224), resnet50),
        Network("mobilenet_v2", (1, 3, 224, 224), lambda: MODELS / "mobilenet_v2.onnx"),
        Network("yolox_nano", (1, 3, 416, 416), lambda: MODELS / "yolox_nano.onnx", 60.0),
    )
}


def prepare(network: Network) -> tuple[Path, dict[str, Path], Any]:
    """The float file, ONNX Runtime's two int8 files, and npuc's integer program."""
    source = network.source()
    prepared = fixed(source, network.shape, CACHE / f"{network.name}.fixed.onnx")
    samples = network.samples(SAMPLES)
    files = {
        kind: quantize_ort(
            prepared, CACHE / f"{network.name}.speed.{kind}.onnx", samples, signed=kind == "i8"
        )
        for kind in ("u8", "i8")
    }
    name = onnx.load(source, load_external_data=False).graph.input[0].name
    graph = import_model(source, ImportOptions(input_shapes={name: network.shape}))
    table = calibrate(graph, samples, "max", threads=1)
    return prepared, files, quantize(graph, {key: (e.min, e.max) for key, e in table.items()})


def measure(programs: dict[str, Callable[[], Any]], seconds: float) -> dict[str, list[float]]:
    """The times of each program, in turns of some runs; a pause lets the threads of the last one go to sleep."""
    times: dict[str, list[float]] = {name: [] for name in programs}
    for run in programs.values():
        run()
    end = time.perf_counter() + seconds * len(programs)
    while time.perf_counter() < end:
        for name, run in programs.items():
            time.sleep(0.01)
            run()
            stop = time.perf_counter() + min(0.25, seconds / 8)
            while True:
                start = time.perf_counter()
                run()
                now = time.perf_counter()
                times[name].append(now - start)
                if now > stop:
                    break
    return times


def compare(
    network: Network, threads: int, seconds: float, prepared: tuple[Path, dict[str, Path], Any]
) -> None:
    """One line of the table for each program."""
    source, files, program = prepared
    x = network.samples(1)[0]
    engine = IntegerEngine(program, threads=threads)
    entry = program.inputs[0].name
    floating = session(source, threads)
    quantized = {kind: session(path, threads) for kind, path in files.items()}
    key = floating.get_inputs()[0].name

    trial = measure({k: lambda s=s: s.run(None, {key: x}) for k, s in quantized.items()}, seconds / 4)
    best = min(trial, key=lambda kind: min(trial[kind]))
    measured = measure(
        {
            "npuc": lambda: engine.run({entry: x}),
            "int8": lambda: quantized[best].run(None, {key: x}),
            "float": lambda: floating.run(None, {key: x}),
        },
        seconds,
    )
    least = {name: min(times) * 1e3 for name, times in measured.items()}
    middle = {name: statistics.median(times) * 1e3 for name, times in measured.items()}
    ratio = least["npuc"] / least["int8"]
    verdict = "ahead" if ratio < 1 else "within" if ratio <= BAR else "BEHIND"
    print(
        f"{network.name:<14}{threads:>3}"
        + "".join(f"{least[n]:>10.2f}{middle[n]:>8.2f}" for n in ("npuc", "int8", "float"))
        + f"{ratio:>9.2f}{middle['npuc'] / middle['int8']:>8.2f}{least['npuc'] / least['float']:>8.2f}"
        + f"   {verdict} ({best})",
        flush=True,
    )


def profile(network: Network, threads: int, prepared: tuple[Path, dict[str, Path], Any]) -> None:
    """Where npuc's time goes: by kind of op, and the longest layers."""
    program = prepared[2]
    engine = IntegerEngine(program, threads=threads)
    inputs = {program.inputs[0].name: network.samples(1)[0]}
    runs = [engine.profile(inputs) for _ in range(30)]
    best = [(run[0][0], min(seconds for _, seconds in run)) for run in zip(*runs, strict=True)]
    total = sum(seconds for _, seconds in best)
    kinds: dict[str, list[float]] = {}
    for name, seconds in best:
        kinds.setdefault(name.split()[0], []).append(seconds)
    print(f"\n{network.name}, {threads} threads: {total * 1e3:.2f} ms in {len(best)} steps")
    for kind, times in sorted(kinds.items(), key=lambda item: -sum(item[1])):
        print(f"  {kind:<22}{len(times):>4}{sum(times) * 1e3:>9.3f} ms{sum(times) / total:>8.1%}")
    for name, seconds in sorted(best, key=lambda step: -step[1])[:10]:
        print(f"    {seconds * 1e3:>8.3f} ms  {name}")


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--models", default=",".join(NETWORKS))
    parser.add_argument("--seconds", type=float, default=6.0, help="for each program")
    parser.add_argument("--profile", action="store_true", help="also npuc's time by kind of op")
    arguments = parser.parse_args()
    if not SHARED.is_dir():
        print(f"skipped: {SHARED} with the models is not there")
        return
    threads = [int(word) for word in arguments.threads.split(",")]
    networks = [NETWORKS[name] for name in arguments.models.split(",")]
    print(
        f"milliseconds, best and median; npuc's kernels are {isa()}; the bar is {BAR} x ONNX Runtime's int8"
    )
    print(
        f"{'':<14}{'thr':>3}{'npuc':>10}{'':>8}{'ORT int8':>10}{'':>8}{'ORT float':>10}{'':>8}"
        f"{'/int8':>9}{'(med)':>8}{'/float':>8}"
    )
    programs = {}
    for network in networks:
        programs[network.name] = prepare(network)
        for count in threads:
            compare(network, count, arguments.seconds, programs[network.name])
    if arguments.profile:
        for network in networks:
            for count in threads:
                profile(network, count, programs[network.name])


if __name__ == "__main__":
    main()
