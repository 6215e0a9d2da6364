"""The integer kernels, layer by layer, against ONNX Runtime's QLinearConv on the same layer in the same run.

Layers are those of ResNet-50, MobileNetV2 (224 x 224) and YOLOX-nano (416 x 416), weights signed and per channel. npuc
has signed activations, ONNX Runtime unsigned ones: on x86 its signed kernels are many times slower, and this is to be a
fair race. Both get their activations channels-last (ONNX Runtime by its own channels_last kernel), write to memory that
is there already, and take turns; a time is the best of many, for the machine may be shared. `peak` is what one large
product reaches in the same run, times the threads; it is close to the bound (AVX-512 VNNI: 64 multiply-adds an
instruction, one or two a cycle; AVX2: 16, two a cycle).

    python benchmarks/bench_kernels.py [--threads 1,2] [--models resnet50,...] [--kind double] [--seconds 0.3]
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

from npuc import native
from npuc.arrays import Array
from npuc.kernels import ConvPlan, Requant, isa
from npuc.kernels.tape import Tape, recording


@dataclass(frozen=True)
class Layer:
    """A convolution with square kernel and `same`-like padding."""

    size: int
    inputs: int
    outputs: int
    kernel: int = 1
    stride: int = 1
    groups: int = 1

    @property
    def pad(self) -> int:
        """Padding on every side."""
        return (self.kernel - 1) // 2

    @property
    def out(self) -> int:
        """Height and width of the output."""
        return (self.size + 2 * self.pad - self.kernel) // self.stride + 1

    @property
    def operations(self) -> int:
        """Multiplications and additions, each one operation."""
        return 2 * self.out**2 * self.outputs * self.inputs // self.groups * self.kernel**2

    def __str__(self) -> str:
        kind = "dw" if self.groups > 1 else f"{self.inputs:4d}"
        return f"{self.size:3d}² {kind:>4} → {self.outputs:4d}  {self.kernel}x{self.kernel}/{self.stride}"


def resnet50() -> list[Layer]:
    """Version 1.5: the stride is in the 3 x 3."""
    layers = [Layer(224, 3, 64, 7, 2)]
    size, inputs = 56, 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            stride = 2 if block == 0 and width > 64 else 1
            layers += [
                Layer(size, inputs, width),
                Layer(size, width, width, 3, stride),
                Layer(size // stride, width, width * 4),
            ]
            if block == 0:
                layers.append(Layer(size, inputs, width * 4, 1, stride))
            size, inputs = size // stride, width * 4
    return [*layers, Layer(1, 2048, 1000)]


def mobilenetv2() -> list[Layer]:
    """Width 1.0."""
    layers = [Layer(224, 3, 32, 3, 2)]
    size, inputs = 112, 32
    for factor, width, blocks, first in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            stride = first if block == 0 else 1
            hidden = inputs * factor
            if factor > 1:
                layers.append(Layer(size, inputs, hidden))
            layers.append(Layer(size, hidden, hidden, 3, stride, hidden))
            size //= stride
            layers.append(Layer(size, hidden, width))
            inputs = width
    return [*layers, Layer(7, 320, 1280), Layer(1, 1280, 1000)]


def yolox_nano() -> list[Layer]:
    """Backbone, neck and head; depthwise-separable blocks, width 0.25, depth 0.33."""
    layers = [Layer(208, 12, 16, 3)]

    def separable(size: int, inputs: int, outputs: int, kernel: int = 3, stride: int = 1) -> None:
        layers.append(Layer(size, inputs, inputs, kernel, stride, inputs))
        layers.append(Layer(size // stride, inputs, outputs))

    def csp(size: int, inputs: int, outputs: int, blocks: int) -> None:
        half = outputs // 2
        layers.extend([Layer(size, inputs, half), Layer(size, inputs, half)])
        for _ in range(blocks):
            layers.append(Layer(size, half, half))
            separable(size, half, half)
        layers.append(Layer(size, outputs, outputs))

    for size, inputs, blocks in ((208, 16, 1), (104, 32, 3), (52, 64, 3)):
        separable(size, inputs, inputs * 2, 3, 2)
        csp(size // 2, inputs * 2, inputs * 2, blocks)
    separable(26, 128, 256, 3, 2)
    layers.extend([Layer(13, 256, 128), Layer(13, 512, 256)])
    csp(13, 256, 256, 1)
    layers.append(Layer(13, 256, 128))
    csp(26, 256, 128, 1)
    layers.append(Layer(26, 128, 64))
    csp(52, 128, 64, 1)
    separable(52, 64, 64, 3, 2)
    csp(26, 128, 128, 1)
    separable(26, 128, 128, 3, 2)
    csp(13, 256, 256, 1)
    for size, inputs in ((52, 64), (26, 128), (13, 256)):
        layers.append(Layer(size, inputs, 64))
        for _ in range(4):
            separable(size, 64, 64)
        layers.extend([Layer(size, 64, 80), Layer(size, 64, 4), Layer(size, 64, 1)])
    return layers


MODELS = {"resnet50": resnet50, "mobilenetv2": mobilenetv2, "yolox_nano": yolox_nano}


def ours(
    layer: Layer, x: Array, weight: Array, scale: Array, kind: str, threads: int
) -> tuple[Callable[[], Any], Array]:
    """The layer in npuc, ready to run, and where its output is."""
    mantissa, exponent = np.frexp(scale.astype(np.float64))
    shift = 31 - exponent
    requant = Requant(
        kind,
        multiplier=np.int64(np.minimum(np.round(mantissa * 2.0**31), 2**31 - 1)),
        shift=-exponent if kind == "pow2" else shift,
        scale=scale,
        lo=-128,
        hi=127,
    )
    plan = ConvPlan(
        weight, np.zeros(layer.outputs, np.int32), x_dtype=np.int8, y_dtype=np.int8, requant=requant, x_zero_point=3,
        strides=(layer.stride,) * 2, pads=(layer.pad,) * 4, groups=layer.groups,
    )  # fmt: skip
    out = plan.run(x)
    tape = Tape(np.empty)
    with recording(tape):  # as graph mode calls it: arguments prepared once
        plan.run(x, threads, out)
    (call,) = tape.calls
    out[...] = 99

    def run() -> None:
        assert call() == 0 and tape.kept  # the tape owns what the addresses in the call point to

    run()  # what is compared below is what the timed call wrote
    return run, out


def theirs(
    layer: Layer, x: Array, weight: Array, scale: Array, threads: int
) -> tuple[Callable[[], None], Array]:
    """The layer in ONNX Runtime, ready to run, and its output."""
    constants = {
        "xs": np.float32(1), "xz": np.uint8(131), "w": weight, "ws": scale.astype(np.float32),
        "wz": np.zeros(layer.outputs, np.int8), "ys": np.float32(1), "yz": np.uint8(128),
        "b": np.zeros(layer.outputs, np.int32),
    }  # fmt: skip
    node = helper.make_node(
        "QLinearConv", ["x", *constants], ["y"], domain="com.microsoft", channels_last=1,
        strides=[layer.stride] * 2, pads=[layer.pad] * 4, group=layer.groups, kernel_shape=[layer.kernel] * 2,
    )  # fmt: skip
    shape = (1, layer.out, layer.out, layer.outputs)
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, shape)],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    value = ort.OrtValue.ortvalue_from_numpy((x.view(np.uint8) ^ 128).copy())
    result = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.uint8))
    binding.bind_ortvalue_input("x", value)
    binding.bind_ortvalue_output("y", result)
    session.run_with_iobinding(binding)
    return lambda: session.run_with_iobinding(binding), result.numpy().astype(int) - 128


def race(runners: list[Callable[[], Any]], seconds: float) -> list[float]:
    """The best time of each, taking turns."""
    best = [math.inf] * len(runners)
    end = time.perf_counter() + seconds
    turns = 0
    while turns < 5 or time.perf_counter() < end:
        for index, runner in enumerate(runners):
            for _ in range(3):
                start = time.perf_counter()
                runner()
                best[index] = min(best[index], time.perf_counter() - start)
        turns += 1
    return best


def peak(threads: int) -> float:
    """Operations a second of a large product with next to no output stage: what the multiply-adds can do here."""
    x, weight = np.ones((1, 1, 192, 2048), np.int8), np.ones((256, 2048, 1, 1), np.int8)
    plan = ConvPlan(weight, x_dtype=np.int8)
    out = plan.run(x)
    return threads * 2 * 192 * 2048 * 256 / race([lambda: plan.run(x, 1, out)], 0.5)[0]


def main() -> None:
    """Print a table for each model and thread count."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--kind", default="double_rounding")
    parser.add_argument("--seconds", type=float, default=0.2)
    arguments = parser.parse_args()
    rng = np.random.default_rng(0)
    print(f"{native.find()}\n{isa()}, output stage `{arguments.kind}`, ONNX Runtime {ort.__version__}")
    summary = []
    for threads in map(int, arguments.threads.split(",")):
        top = peak(threads)
        print(f"\n{threads} thread{'s' * (threads > 1)}: one large product reaches {top / 1e9:.0f} GOP/s")
        for name in arguments.models.split(","):
            totals = np.zeros(2)
            ratios = []
            print(f"\n{name:34} {'npuc µs':>9} {'ORT µs':>9} {'GOP/s':>7} {'of peak':>7} {'npuc/ORT':>8}")
            for layer, count in Counter(MODELS[name]()).items():
                shape = (layer.outputs, layer.inputs // layer.groups, layer.kernel, layer.kernel)
                x = rng.integers(-128, 127, (1, layer.size, layer.size, layer.inputs), endpoint=True).astype(
                    np.int8
                )
                weight = rng.integers(-127, 127, shape, endpoint=True).astype(np.int8)
                scale = np.float32(0.004 / math.sqrt(np.prod(shape[1:])) * rng.uniform(0.5, 1, layer.outputs))
                run, out = ours(layer, x, weight, scale, arguments.kind, threads)
                other, result = theirs(layer, x, weight, scale, threads)
                apart = int(np.abs(out.astype(int) - result).max())
                assert apart <= 1, f"{layer}: outputs are {apart} steps apart"
                a, b = race([run, other], arguments.seconds)
                totals += np.array([a, b]) * count
                ratios.append((a / b, count))
                speed = layer.operations / a
                print(
                    f"{count:2d} x {layer!s:29} {a * 1e6:9.1f} {b * 1e6:9.1f} "
                    f"{speed / 1e9:7.1f} {speed / top:7.0%} {a / b:8.2f}"
                )
            mean = math.exp(sum(math.log(r) * n for r, n in ratios) / sum(n for _, n in ratios))
            summary.append((name, threads, totals[0] / totals[1], mean))
            print(
                f"{'all layers':34} {totals[0] * 1e6:9.0f} {totals[1] * 1e6:9.0f} {'':15} {totals[0] / totals[1]:8.2f}"
                f"   (geometric mean {mean:.2f})"
            )
    print(f"\n{'model':14} {'threads':>7} {'total':>7} {'mean':>7}   npuc's time / ONNX Runtime's")
    for name, threads, total, mean in summary:
        print(f"{name:14} {threads:7d} {total:7.2f} {mean:7.2f}")


if __name__ == "__main__":
    main()
