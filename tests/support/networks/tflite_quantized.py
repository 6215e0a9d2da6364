"""A small quantized TensorFlow Lite network of the usual layers, in int8 or uint8, with scales measured on random data.

int8 as the converter writes it today: a zero point for activations, symmetric weights with a scale each channel. uint8 as
quantization-aware training wrote it for years: zero points for activations and weights, per-tensor scales.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from support.networks.tflite import Net

SHAPE = (1, 10, 10, 8)
_WINDOW: dict[str, Any] = {
    "StrideH": 1,
    "StrideW": 1,
    "DilationHFactor": 1,
    "DilationWFactor": 1,
    "Padding": 0,
}
_SCALES = {"conv": 0.031, "depthwise": 0.027, "add": 0.045, "dense": 0.09}


class _Layers:
    def __init__(self, dtype: str, seed: int, spread: float) -> None:
        self.net, self.dtype, self.random = Net(), dtype, np.random.default_rng(seed)
        self.spread = spread
        self.middle = 128 if dtype == "ui8" else 0

    def weights(self, shape: tuple[int, ...], axis: int, step: float) -> tuple[Any, Array]:
        """Integer weights of about `step * 50` in size, and their scales."""
        count = shape[axis]
        if self.dtype == "ui8":
            zero = 121
            integers = np.clip(np.round(self.random.normal(zero, 40, shape)), 1, 255).astype(np.uint8)
            return self.net.constant(integers, (step, zero)), np.full(count, step, np.float32)
        scales = (step * self.random.uniform(0.5, 1.5, count)).astype(np.float32)
        if self.spread > 1:
            scales = (step * np.geomspace(1 / self.spread, 1, count)).astype(np.float32)
        integers = np.clip(np.round(self.random.normal(0, 45, shape)), -127, 127).astype(np.int8)
        return self.net.constant(integers, (scales.tolist(), 0, axis)), scales

    def bias(self, reach: float, scale: float, scales: Array) -> Any:
        """Biases in the scale of the sum."""
        unit = np.float32(scale) * scales
        integers = np.round(self.random.uniform(-reach, reach, len(scales)) / unit).astype(np.int32)
        given = [float(unit[0])] if self.dtype == "ui8" else unit.tolist()
        return self.net.constant(integers, (given, 0, 0))


def quantized_network(dtype: str, seed: int = 0, softmax: bool = True, spread: float = 1.0) -> bytes:
    """A file: convolution, depthwise convolution, sum, average pool, fully connected layer, softmax.

    The largest scale of a channel's int8 weights is `spread` times the smallest.
    """
    layers = _Layers(dtype, seed, spread)
    net, low = layers.net, -128 + layers.middle
    zero = 3 + layers.middle
    x = net.input("x", SHAPE, dtype, (0.02, zero))
    weight, scales = layers.weights((16, 3, 3, 8), 0, 0.0006 if spread == 1 else 0.005)
    a = net.op(
        "CONV_2D", [x, weight, layers.bias(1.5, 0.02, scales)], dtype, "Conv2DOptions", (_SCALES["conv"], low),
        **_WINDOW, FusedActivationFunction=1,
    )  # fmt: skip
    weight, scales = layers.weights((1, 3, 3, 16), 3, 0.003 if spread == 1 else 0.006)
    b = net.op(
        "DEPTHWISE_CONV_2D", [a, weight, layers.bias(0.5, _SCALES["conv"], scales)], dtype, "DepthwiseConv2DOptions",
        (_SCALES["depthwise"], zero), DepthMultiplier=1, **_WINDOW,
    )  # fmt: skip
    c = net.op("ADD", [a, b], dtype, "AddOptions", (_SCALES["add"], zero))
    d = net.op(
        "AVERAGE_POOL_2D", [c], dtype, "Pool2DOptions", (_SCALES["add"], zero), FilterHeight=10, FilterWidth=10,
        StrideH=10, StrideW=10, Padding=1,
    )  # fmt: skip
    d = net.op("RESHAPE", [d, net.constant(np.array([1, 16], np.int32))], dtype, "", (_SCALES["add"], zero))
    weight, scales = layers.weights((10, 16), 0, 0.01)
    if dtype == "i8":
        weight = net.constant(weight.data, (0.01, 0))
        scales = np.full(10, 0.01, np.float32)
    e = net.op(
        "FULLY_CONNECTED", [d, weight, layers.bias(0.8, _SCALES["add"], scales[:1].repeat(10))], dtype,
        "FullyConnectedOptions", (_SCALES["dense"], zero),
    )  # fmt: skip
    y = net.op("SOFTMAX", [e], dtype, "SoftmaxOptions", (1 / 256, low), Beta=1.0) if softmax else e
    return net.data({"y": y})


def inputs(dtype: str, count: int, seed: int = 1) -> list[dict[str, Array]]:
    """Inputs of the network."""
    random = np.random.default_rng(seed)
    kind = np.uint8 if dtype == "ui8" else np.int8
    ends = (0, 256) if dtype == "ui8" else (-128, 128)
    return [{"x": random.integers(*ends, SHAPE).astype(kind)} for _ in range(count)]
