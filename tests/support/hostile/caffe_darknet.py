"""A Caffe and a Darknet network with their weights, and damage to them: mutation `number` is always the same bytes."""

from __future__ import annotations

import random
from functools import cache

import numpy as np

from npuc.frontend.caffe.wire import encode_model
from support.hostile import mutation
from support.networks.caffe import layer, net
from support.oracles import darknet as reference

CFG = "[net]\nwidth=8\nheight=8\nchannels=4\n"
CAFFE_TEXT = net(
    {"x": (1, 4, 8, 8)},
    layer("Convolution", "x", "c", "convolution_param { num_output: 4 kernel_size: 3 pad: 1 }"),
    layer("BatchNorm", "c", "c", name="bn"),
    layer("Scale", "c", "c", "scale_param { bias_term: true }", name="s"),
    layer("Pooling", "c", "p", "pooling_param { pool: AVE kernel_size: 3 stride: 2 pad: 1 }"),
    layer("Slice", "p", "a b", "slice_param { slice_point: 1 }"),
    layer("Reshape", "b", "r", "reshape_param { shape { dim: 0 dim: -1 } }"),
    layer("PriorBox", "p x", "q", "prior_box_param { min_size: 3 aspect_ratio: 2 }"),
    layer("InnerProduct", "r", "i", "inner_product_param { num_output: 3 }"),
    layer("Softmax", "i", "y"),
)
DARKNET_TEXT = (
    CFG
    + """[convolutional]
batch_normalize=1
filters=8
size=3
pad=1
activation=leaky
[maxpool]
size=2
stride=2
[route]
layers=-1
groups=2
group_id=1
[upsample]
stride=2
[shortcut]
from=0
activation=mish
[reorg]
stride=2
[connected]
output=3
activation=linear
[softmax]
"""
)


def _blobs() -> dict[str, list[np.ndarray]]:
    rng = np.random.default_rng(0)

    def make(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    return {
        "c": [make(4, 4, 3, 3), make(4)],
        "bn": [make(4), np.abs(make(4)), np.ones(1, np.float32)],
        "s": [make(4), make(4)],
        "i": [make(3, 75), make(3)],
    }


@cache
def files() -> dict[str, tuple[bytes, bytes]]:
    """Structure and weights, by suffix of what is damaged."""
    numbers = reference.Numbers(0)
    reference.run(DARKNET_TEXT, np.zeros((1, 4, 8, 8), np.float32), numbers)
    return {
        "prototxt": (CAFFE_TEXT.encode(), encode_model(_blobs())),
        "cfg": (DARKNET_TEXT.encode(), numbers.file()),
    }


_WORDS = (
    b"-1",
    b"0",
    b"99999999999",
    b"1e30",
    b"nan",
    b"{",
    b"}",
    b'"',
    b":",
    b"=",
    b"[",
    b"\n",
    b"2147483648",
    b"x",
)


def mutated(data: bytes, number: int) -> bytes:
    """Mutation `number` of a file: damaged bytes, or a number in a text that is now another one."""
    rng = random.Random(number)
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        if not found:
            break
        if rng.random() < 0.5:
            rng.choice(mutation.BYTES)(found, rng)
            continue
        digits = [i for i, byte in enumerate(found) if 48 <= byte < 58] or [0]
        at = rng.choice(digits)
        found[at : at + 1] = rng.choice(_WORDS)
    return bytes(found)
