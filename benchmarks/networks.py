"""Networks to schedule: well-known ones built here with random weights, and the trained ones of `../shared/models/onnx`.

The built ones stand in for files that are not at hand. Batch normalization counts as folded, so that a convolution has a
bias; weights are normal with the variance that keeps activations in range, from a seed of the network's own. `integer` gives
any of them with 8-bit integers; ranges come from random samples, since only shapes matter for a schedule. Results are kept
under build/bench/networks.

    python benchmarks/networks.py [NAME ...]     prints parameters and MACs
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine.floating import FloatEngine
from npuc.flow import ImportOptions, expanded, import_model, network_to_quantize, quantize_network
from npuc.ir import Graph, load_graph, save_graph
from npuc.quant.config import QuantizationConfig

ROOT = Path(__file__).resolve().parents[1]
MODELS = ROOT.parent / "shared" / "models" / "onnx"
CACHE = ROOT / "build" / "bench" / "networks"
_SAMPLES = 2


class Builder:
    """An ONNX graph that grows node by node; every method returns the name of its result."""

    def __init__(self, name: str, height: int, width: int) -> None:
        self.name = name
        self.rng = np.random.default_rng(crc32(name.encode()))
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.channels = {"image": 3}
        self.inputs = [helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, 3, height, width))]

    def node(self, kind: str, *operands: str, channels: int | None = None, **attributes: Any) -> str:
        """Any node with one result."""
        output = f"{kind.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, operands, [output], name=output, **attributes))
        self.channels[output] = self.channels.get(operands[0], 0) if channels is None else channels
        return output

    def constant(self, value: Array) -> str:
        """A weight."""
        name = f"weight_{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def normal(self, *shape: int, deviation: float) -> str:
        """A random weight."""
        return self.constant(self.rng.normal(0, deviation, shape).astype(np.float32))

    def conv(
        self, x: str, out: int, kernel: int, stride: int = 1, *, groups: int = 1, pad: int | None = None,
        gain: float = 2.0, act: str = "",
    ) -> str:  # fmt: skip
        """A convolution with bias, and what follows it."""
        inner = self.channels[x] // groups
        weight = self.normal(out, inner, kernel, kernel, deviation=(gain / (inner * kernel**2)) ** 0.5)
        bias = self.normal(out, deviation=0.05)
        pads = [kernel // 2 if pad is None else pad] * 4
        y = self.node(
            "Conv", x, weight, bias, channels=out, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads, group=groups
        )  # fmt: skip
        return self.activate(y, act)

    def activate(self, x: str, act: str) -> str:
        """Relu, relu6, silu or nothing."""
        if act == "relu6":
            return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))
        if act == "silu":
            return self.node("Mul", x, self.node("Sigmoid", x))
        return self.node("Relu", x) if act else x

    def linear(self, x: str, inputs: int, outputs: int, gain: float = 1.0) -> str:
        """x W + b over the last axis."""
        product = self.node("MatMul", x, self.normal(inputs, outputs, deviation=(gain / inputs) ** 0.5))
        return self.node("Add", product, self.normal(outputs, deviation=0.02))

    def reshape(self, x: str, *shape: int) -> str:
        """Another shape."""
        return self.node("Reshape", x, self.constant(np.array(shape, np.int64)))

    def model(self, *outputs: str) -> onnx.ModelProto:
        """The finished model."""
        results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
        graph = helper.make_graph(self.nodes, self.name, self.inputs, results, self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def resnet50() -> onnx.ModelProto:
    """ResNet-50, the form with the stride in the 3 x 3 convolution."""
    b = Builder("resnet50", 224, 224)
    x = b.conv("image", 64, 7, 2, act="relu")
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    for stage, blocks in enumerate((3, 4, 6, 3)):
        width = 64 << stage
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            shortcut = x if block else b.conv(x, 4 * width, 1, stride, gain=1.0)
            y = b.conv(x, width, 1, act="relu")
            y = b.conv(y, width, 3, stride, act="relu")
            y = b.conv(y, 4 * width, 1, gain=0.5)
            x = b.node("Relu", b.node("Add", y, shortcut))
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.model(b.linear(x, 2048, 1000))


def yolov5s() -> onnx.ModelProto:
    """YOLOv5s of release 6 and later at 640 x 640, up to the three heads' raw outputs."""
    b = Builder("yolov5s", 640, 640)

    def conv(x: str, out: int, kernel: int = 1, stride: int = 1, pad: int | None = None) -> str:
        return b.conv(x, out, kernel, stride, pad=pad, act="silu")

    def concat(*parts: str) -> str:
        return b.node("Concat", *parts, channels=sum(b.channels[part] for part in parts), axis=1)

    def c3(x: str, out: int, depth: int, shortcut: bool = True) -> str:
        inside, two = conv(x, out // 2), conv(x, out // 2)
        for _ in range(depth):
            inner = conv(conv(inside, out // 2), out // 2, 3)
            inside = b.node("Add", inside, inner) if shortcut else inner
        return conv(concat(inside, two), out)

    def sppf(x: str, out: int) -> str:
        parts = [conv(x, b.channels[x] // 2)]
        for _ in range(3):
            parts.append(b.node("MaxPool", parts[-1], kernel_shape=[5, 5], strides=[1, 1], pads=[2, 2, 2, 2]))
        return conv(concat(*parts), out)

    def upsample(x: str) -> str:
        scales = b.constant(np.array([1, 1, 2, 2], np.float32))
        return b.node(
            "Resize", x, "", scales, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
        )  # fmt: skip

    x = conv(conv("image", 32, 6, 2, pad=2), 64, 3, 2)
    x = conv(c3(x, 64, 1), 128, 3, 2)
    third = c3(x, 128, 2)
    fourth = c3(conv(third, 256, 3, 2), 256, 3)
    x = sppf(c3(conv(fourth, 512, 3, 2), 512, 1), 512)
    tenth = conv(x, 256)
    x = c3(concat(upsample(tenth), fourth), 256, 1, False)
    fourteenth = conv(x, 128)
    small = c3(concat(upsample(fourteenth), third), 128, 1, False)
    medium = c3(concat(conv(small, 128, 3, 2), fourteenth), 256, 1, False)
    large = c3(concat(conv(medium, 256, 3, 2), tenth), 512, 1, False)
    return b.model(*(b.conv(x, 255, 1, gain=1.0) for x in (small, medium, large)))


def efficientnet_lite0() -> onnx.ModelProto:
    """EfficientNet-lite0: relu6, no squeeze and excitation."""
    b = Builder("efficientnet_lite0", 224, 224)
    x = b.conv("image", 32, 3, 2, act="relu6")
    stages = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3), (6, 112, 3, 1, 5), (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    for expand, out, repeats, stride, kernel in stages:
        for repeat in range(repeats):
            inner = b.channels[x] * expand
            y = b.conv(x, inner, 1, act="relu6") if expand > 1 else x
            y = b.conv(y, inner, kernel, 1 if repeat else stride, groups=inner, act="relu6")
            y = b.conv(y, out, 1, gain=1.0)
            x = b.node("Add", y, x) if repeat else y
    x = b.conv(x, 1280, 1, act="relu6")
    x = b.node("Flatten", b.node("GlobalAveragePool", x))
    return b.model(b.linear(x, 1280, 1000))


def vit_s16() -> onnx.ModelProto:
    """ViT-S/16: 12 blocks of width 384 with 6 heads."""
    b = Builder("vit_s16", 224, 224)
    width, heads, tokens = 384, 6, 197
    each = width // heads

    def norm(x: str) -> str:
        gain = b.constant(b.rng.normal(1, 0.1, width).astype(np.float32))
        return b.node("LayerNormalization", x, gain, b.normal(width, deviation=0.1), axis=-1, epsilon=1e-6)

    def split(x: str, *order: int) -> str:
        return b.node("Transpose", b.reshape(x, 1, tokens, heads, each), perm=list(order))

    x = b.conv("image", width, 16, 16, pad=0, gain=1.0)
    x = b.node("Transpose", b.reshape(x, 1, width, tokens - 1), perm=[0, 2, 1])
    x = b.node("Concat", b.normal(1, 1, width, deviation=0.5), x, axis=1)
    x = b.node("Add", x, b.normal(1, tokens, width, deviation=0.5))
    scale = b.constant(np.float32(each**-0.5))
    for _ in range(12):
        y = norm(x)
        q, k, v = (b.linear(y, width, width) for _ in range(3))
        scores = b.node("Mul", b.node("MatMul", split(q, 0, 2, 1, 3), split(k, 0, 2, 3, 1)), scale)
        y = b.node("MatMul", b.node("Softmax", scores, axis=-1), split(v, 0, 2, 1, 3))
        y = b.reshape(b.node("Transpose", y, perm=[0, 2, 1, 3]), 1, tokens, width)
        x = b.node("Add", x, b.linear(y, width, width))
        y = b.node("Gelu", b.linear(norm(x), width, 4 * width))
        x = b.node("Add", x, b.linear(y, 4 * width, width))
    first = b.node("Gather", norm(x), b.constant(np.array(0, np.int64)), axis=1)
    return b.model(b.linear(first, width, 1000))


BUILT: dict[str, Callable[[], onnx.ModelProto]] = {
    make.__name__: make for make in (resnet50, yolov5s, efficientnet_lite0, vit_s16)
}
"""Networks made by code."""

TRAINED: dict[str, dict[str, tuple[int, ...]]] = {
    "mnist": {},
    "cifar10_resnet20": {"input": (1, 3, 32, 32)},
    "mobilenet_v2": {"input": (1, 3, 224, 224)},
    "squeezenet_v1.1": {},
    "shufflenet_v2_int8": {},
    "super_resolution": {"input": (1, 1, 224, 224)},
    "mediapipe_face_landmark": {},
    "ultraface_rfb_320": {},
    "yunet_n_320": {},
    "fastestdet": {},
    "yolox_nano": {},
    "ppocrv3_text_det": {"x": (1, 3, 320, 320)},
}
"""Files of `../shared/models/onnx`, with the input shapes that they leave open."""

NAMES = (*BUILT, *TRAINED)


def network(name: str) -> Graph:
    """A network in canonical form, with real numbers: one that brings its own quantization loses it."""
    if name in TRAINED:
        options = ImportOptions(input_shapes=TRAINED[name])
        return network_to_quantize(MODELS / f"{name}.onnx", options, force_float=True)
    path = CACHE / f"{name}.{os.getpid()}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        onnx.save(BUILT[name](), path)
        return expanded(import_model(path))
    finally:
        path.unlink(missing_ok=True)


def integer(name: str) -> Graph:
    """A network with 8-bit integers; from the cache if this file and the model are as they were."""
    stamp = hashlib.sha256(Path(__file__).read_bytes())
    if name in TRAINED:
        stamp.update((MODELS / f"{name}.onnx").read_bytes())
    path = CACHE / f"{name}.{stamp.hexdigest()[:12]}.mlir"
    if not path.exists():
        integers = quantized(network(name))
        folder = path.with_name(f"{path.stem}.{os.getpid()}")
        folder.mkdir(parents=True)
        save_graph(integers, folder / path.name)
        # The weights go first, so that a program that is there is complete.
        for suffix in (".safetensors", ".mlir"):
            os.replace((folder / path.name).with_suffix(suffix), path.with_suffix(suffix))
        folder.rmdir()
    return load_graph(path)


def quantized(graph: Graph) -> Graph:
    """The integer network of a float one."""
    engine, ranges = FloatEngine(graph, "all tensors"), {}
    for seed in range(_SAMPLES):
        inputs = random_inputs(graph, seed)
        for tensor, array in {**inputs, **engine.run(inputs)}.items():
            if array.dtype == np.float32 and array.size:
                low, high = ranges.get(tensor, (0.0, 0.0))
                ranges[tensor] = min(low, float(array.min())), max(high, float(array.max()))
    return quantize_network(graph, ranges, QuantizationConfig(scheme="int8")).graph


def size(graph: Graph) -> tuple[int, int]:
    """Parameters and multiply-accumulates."""
    from npuc.profile.summary import summarize

    summary = summarize(graph)
    return summary.parameters, summary.macs


if __name__ == "__main__":
    for wanted in sys.argv[1:] or NAMES:
        parameters, macs = size(network(wanted))
        print(f"{wanted:24s} {parameters / 1e6:8.2f} M parameters {macs / 1e9:8.3f} G MACs")
