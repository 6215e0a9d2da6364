"""A call of every op of `npuc.lang`, and of other forms of some, for tests of what runs them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from npuc import lang
from npuc.arrays import Array
from npuc.ir import Graph

RNG = np.random.default_rng(3)


def values(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


W = values(6, 4, 3, 3)
P = lang.input("p", (1, 4, 6, 6))
M = lang.input("m", (2, 8))
B = lang.input("b", (2, 8), "i1")
I = lang.input("i", (2, 3), "i64")  # noqa: E741
S = lang.input("s", (5, 2, 8))

CASES: dict[str, Callable[[], Any]] = {
    **{
        name: (lambda name=name: getattr(lang, name)(M))
        for name in [
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "ceil",
            "celu",
            "cos",
            "cosh",
            "elu",
            "erf",
            "exp",
            "floor",
            "gelu",
            "hard_sigmoid",
            "hard_swish",
            "leaky_relu",
            "log",
            "log_softmax",
            "mish",
            "neg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "selu",
            "sigmoid",
            "sign",
            "silu",
            "sin",
            "sinh",
            "softmax",
            "softplus",
            "softsign",
            "sqrt",
            "tan",
            "tanh",
            "thresholded_relu",
            "l2_norm",
            "layer_norm",
            "rms_norm",
        ]
    },
    **{
        name: (lambda name=name: getattr(lang, name)(M, 2.0))
        for name in ["add", "sub", "mul", "div", "max", "min", "mod", "pow"]
    },
    "arg": lambda: lang.arg(M, axis=1),
    "attention": lambda: lang.attention(
        values(1, 2, 4, 8), values(1, 2, 5, 8), values(1, 2, 5, 8), scale=0.3
    ),
    "avg_pool": lambda: lang.avg_pool(P, kernel=2, strides=2),
    "batch_norm": lambda: lang.batch_norm(P, values(4), values(4), values(4), np.ones(4, np.float32)),
    "cast": lambda: lang.cast(M, to="i32"),
    "clip": lambda: lang.clip(M, min=-1, max=1),
    "compare": lambda: lang.compare(M, 0.0, mode="less"),
    "concat": lambda: lang.concat([M, values(2, 3)], axis=1),
    "conv": lambda: lang.conv(P, W, pads=1),
    "cumsum": lambda: lang.cumsum(M, axis=1),
    "deconv": lambda: lang.deconv(P, values(4, 2, 2, 2), strides=2),
    "depth_to_space": lambda: lang.depth_to_space(P, block=2),
    "dequantize": lambda: lang.dequantize(lang.quantize(M, 0.1, np.uint8(3)), 0.1, np.uint8(3)),
    "expand": lambda: lang.expand(M, shape=(3, 2, 8)),
    "gather": lambda: lang.gather(M, I, axis=1),
    "gather_elements": lambda: lang.gather_elements(M, I, axis=1),
    "gather_nd": lambda: lang.gather_nd(M, np.zeros((3, 1), np.int64)),
    "grid_sample": lambda: lang.grid_sample(P, values(1, 5, 5, 2)),
    "group_norm": lambda: lang.group_norm(P, groups=2),
    "gru": lambda: lang.gru(S, values(1, 9, 8), values(1, 9, 3), hidden=3),
    "instance_norm": lambda: lang.instance_norm(P),
    "logical": lambda: lang.logical(B, B, mode="and"),
    "lrn": lambda: lang.lrn(P, size=3),
    "lstm": lambda: lang.lstm(S, values(1, 12, 8), values(1, 12, 3), hidden=3),
    "matmul": lambda: lang.matmul(M, values(8, 3), values(3)),
    "max_pool": lambda: lang.max_pool(P, kernel=(3, 3), pads=(1, 1), strides=2),
    "not_": lambda: lang.not_(B),
    "one_hot": lambda: lang.one_hot(I, [0.0, 1.0], depth=4),
    "pad": lambda: lang.pad(M, pads=(0, 1, 0, 2)),
    "permute": lambda: lang.permute(P, order=(0, 2, 3, 1)),
    "prelu": lambda: lang.prelu(P, values(4, 1, 1)),
    "quantize": lambda: lang.quantize(M, 0.1, np.int8(3), to="i8"),
    "quantized_lstm": lambda: lang.quantized_lstm(
        S,
        RNG.integers(-128, 128, (12, 8)).astype(np.int8),
        RNG.integers(-128, 128, (12, 3)).astype(np.int8),
        np.zeros((2, 12), np.int32),
        time_major=True,
        x_parameters=(0.02, 0.0),
        y_parameters=(0.01, 0.0),
        integer_bits=4,
        first_h=0,
        gate_scales=[1 << 30, 34] * 8,
        hidden_scale=(1 << 30, 53, 0),
    ),
    "reduce": lambda: lang.reduce(P, kind="mean", axes=(2, 3)),
    "reshape": lambda: lang.reshape(M, shape=(4, 4)),
    "resize": lambda: lang.resize(P, sizes=(1, 4, 12, 12), mode="linear"),
    "rnn": lambda: lang.rnn(S, values(1, 3, 8), values(1, 3, 3), hidden=3),
    "scale": lambda: lang.scale(P, values(4), values(4)),
    "scatter_elements": lambda: lang.scatter_elements(M, I, values(2, 3), axis=1),
    "scatter_nd": lambda: lang.scatter_nd(M, np.zeros((1, 1), np.int64), values(1, 8)),
    "shuffle_channel": lambda: lang.shuffle_channel(P, group=2),
    "slice": lambda: lang.slice(M, offset=(0, 1), steps=(1, 2), shape=(2, 3)),
    "space_to_depth": lambda: lang.space_to_depth(P, block=2),
    "split": lambda: lang.split(M, axis=1, sizes=(3, 5)),
    "tile": lambda: lang.tile(M, repeats=(2, 1)),
    "topk": lambda: lang.topk(M, k=2),
    "where": lambda: lang.where(B, M, 0.0),
}

V = lang.input("v", (1, 2, 5, 7))

MORE: dict[str, Callable[[], Any]] = {
    "avg_pool:pads": lambda: lang.avg_pool(V, kernel=3, strides=2, pads=1),
    "avg_pool:counts pads": lambda: lang.avg_pool(V, kernel=3, strides=2, pads=1, count_include_pad=True),
    "avg_pool:ceil": lambda: lang.avg_pool(V, kernel=2, strides=2, ceil_mode=True),
    "max_pool:ceil": lambda: lang.max_pool(V, kernel=2, strides=2, ceil_mode=True),
    "max_pool:dilated": lambda: lang.max_pool(V, kernel=2, dilations=2, pads=(0, 1, 1, 0)),
    "conv:grouped": lambda: lang.conv(V, values(4, 1, 3, 3), values(4), group=2, pads=(0, 1, 2, 0), dilations=(1, 2)),
    "conv:relu6": lambda: lang.conv(V, values(4, 2, 3, 3), relu=True, relu_limit=6.0),
    "deconv:pads": lambda: lang.deconv(
        V, values(2, 3, 3, 3), values(3), strides=2, pads=(1, 0, 0, 1), output_padding=1
    ),
    "deconv:grouped": lambda: lang.deconv(V, values(2, 2, 2, 2), group=2, strides=(2, 1), dilations=(1, 2)),
    "depth_to_space:CRD": lambda: lang.depth_to_space(P, block=2, mode="CRD"),
    "cumsum:reverse": lambda: lang.cumsum(M, axis=1, reverse=True, exclusive=True),
    "gather:negative": lambda: lang.gather(V, np.array([[-1, 0]]), axis=3),
    "gelu:tanh": lambda: lang.gelu(M, tanh=True),
    "grid_sample:border": lambda: lang.grid_sample(V, values(1, 3, 4, 2), padding="border", align_corners=True),
    "gru:linear": lambda: lang.gru(S, values(2, 9, 8), values(2, 9, 3), values(2, 18), hidden=3,
                                   direction="bidirectional", linear_before_reset=True),
    "lstm:reverse": lambda: lang.lstm(S, values(1, 12, 8), values(1, 12, 3), values(1, 24), hidden=3,
                                      direction="reverse"),
    "pad:reflect": lambda: lang.pad(V, pads=(0, 0, 2, 3, 0, 0, 1, 4), mode="reflect"),
    "pad:edge": lambda: lang.pad(V, pads=(0, 0, 2, 3, 0, 0, 1, 4), mode="edge"),
    "quantize:channels": lambda: lang.quantize(
        M, np.linspace(0.05, 0.2, 8, dtype=np.float32), np.arange(8, dtype=np.uint8)
    ),
    **{
        f"reduce:{kind}": (lambda kind=kind: lang.reduce(V, kind=kind, axes=(1, 3), keepdims=False))
        for kind in ("sum", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum_exp")
    },
    **{
        f"resize:{mode} {coordinates}": (
            lambda mode=mode, coordinates=coordinates: lang.resize(
                V, sizes=(1, 2, 9, 4), mode=mode, coordinates=coordinates
            )
        )
        for mode in ("nearest", "linear", "cubic")
        for coordinates in ("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel")
    },
    "slice:backwards": lambda: lang.slice(M, offset=(1, 7), steps=(-1, -2), shape=(2, 4)),
    "arg:last": lambda: lang.arg(lang.round(M), axis=1, select_last=True, keepdims=False),
}  # fmt: skip


def network_of(name: str, make: Callable[[], Any]) -> Graph:
    """The network of one call; its results are called y0, y1, ..."""
    called = make()
    results = called if isinstance(called, tuple) else (called,)
    outputs = {f"y{index}": tensor for index, tensor in enumerate(results)}
    if name == "attention":  # of constants alone
        outputs["y0"] = lang.add(outputs["y0"], lang.reduce(M, kind="sum", axes=(0, 1)))
    return lang.build(outputs)
