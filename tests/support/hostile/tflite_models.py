"""Small TensorFlow Lite models, and damage to them: mutation `number` of a file is always the same bytes."""

from __future__ import annotations

import random
import struct
from functools import cache
from typing import Any

import numpy as np

from support.hostile import mutation
from support.networks.tflite import Net
from support.networks.tflite_lstm import Lstm

_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    7,
    127,
    128,
    255,
    65535,
    2**16,
    2**24,
    2**30,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32 - 4,
)


def _ints(*values: int) -> Any:
    return np.array(values, np.int32)


def _quantized() -> bytes:
    net = Net()
    x = net.input("x", (1, 6, 5, 4), "i8", (0.05, -3))
    rng = np.random.default_rng(0)
    weight = net.constant(rng.integers(-9, 9, (5, 3, 3, 4)).astype(np.int8), ([0.01] * 5, 0, 0))
    bias = net.constant(np.zeros(5, np.int32), ([0.0005] * 5, 0))
    window = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1}
    a = net.op("CONV_2D", [x, weight, bias], "i8", "Conv2DOptions", (0.1, 0), **window)
    b = net.op(
        "AVERAGE_POOL_2D", [a], "i8", "Pool2DOptions", (0.1, 0), FilterHeight=6, FilterWidth=5, Padding=1,
        StrideH=1, StrideW=1,
    )  # fmt: skip
    c = net.op("RESHAPE", [b, net.constant(_ints(1, 5))], "i8", "ReshapeOptions", (0.1, 0))
    return net.data(net.op("SOFTMAX", [c], "i8", "SoftmaxOptions", (1 / 256, -128), Beta=1.0))


def _movement() -> bytes:
    net = Net()
    x = net.input("x", (1, 6, 5, 4))
    a = net.op("PAD", [x, net.constant(_ints(0, 0, 1, 2, 3, 0, 0, 0).reshape(4, 2))])
    b = net.op(
        "STRIDED_SLICE", [a, *(net.constant(_ints(*v)) for v in ((0, 1, 0, 0), (1, 9, 8, 4), (1, 2, 1, 1)))],
        "f32", "StridedSliceOptions",
    )  # fmt: skip
    c = net.op("TILE", [b, net.constant(_ints(1, 2, 1, 1))])
    shape = net.op("SHAPE", [c], "i32", "ShapeOptions", OutType=2)
    d = net.op("FILL", [shape, net.constant(np.float32(2))])
    e = net.op("ADD", [c, d], "f32", "AddOptions")
    f = net.op(
        "SPACE_TO_BATCH_ND", [e, net.constant(_ints(2, 2)), net.constant(_ints(0, 0, 0, 0).reshape(2, 2))]
    )
    g = net.op("RANGE", [net.constant(np.int32(n)) for n in (0, 4, 1)], "i32")
    h = net.op("GATHER", [f, g], "f32", "GatherOptions", Axis=3)
    return net.data({"y": h, "z": net.op("TRANSPOSE", [h, net.constant(_ints(3, 1, 0, 2))])})


def _sparse() -> bytes:
    net = Net()
    x = net.input("x", (2, 8))
    y = net.op(
        "FULLY_CONNECTED",
        [x, net.constant(np.eye(8, dtype=np.float32)), None],
        "f32",
        "FullyConnectedOptions",
    )
    z = net.op("BROADCAST_TO", [y, net.constant(_ints(3, 2, 8))])
    return net.data(net.op("MEAN", [z, net.constant(_ints(0))], "f32", "ReducerOptions", KeepDims=True))


@cache
def files() -> dict[str, bytes]:
    # As many as have no divisor in common with the four kinds of mutations, so that each gets all of them.
    whole = Lstm(outputs=3, peephole=True, norm=True, cell_clip=1.0, projection_clip=0.5)
    return {
        "quantized": _quantized(),
        "movement": _movement(),
        "product": _sparse(),
        "lstm": Lstm().data(),
        "whole lstm": whole.data(),
    }


def mutated(original: bytes, number: int) -> bytes:
    """Mutation `number` of a file: cut short, bytes damaged, or words (offsets, counts, indices) replaced."""
    rng = random.Random(number)
    if number % 4 == 0:
        return original[: rng.randrange(len(original))]
    if number % 4 == 1:
        return mutation.mutated(original, 2 * number)
    data = bytearray(original)
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        at = rng.randrange(len(data) // 4) * 4
        near = struct.unpack_from("<I", data, at)[0] + rng.choice((-4, -1, 1, 4, 64))
        struct.pack_into("<I", data, at, rng.choice((*_NUMBERS, near % 2**32)))
    return bytes(data)
