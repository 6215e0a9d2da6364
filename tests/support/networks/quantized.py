"""Integer networks for tests of exports: float networks quantized with the ranges of a few random inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine import FloatEngine
from npuc.engine.floating import ALL_TENSORS
from npuc.ir import Graph
from npuc.quant import SCHEMES, quantize
from npuc.quant.scheme import Scheme

FLOAT_SCALE = replace(SCHEMES["int8"], requant=Kind.FLOAT_SCALE)
ARITHMETICS: dict[str, Scheme] = {
    "float_scale": FLOAT_SCALE,
    "float_scale uint8": replace(SCHEMES["uint8"], requant=Kind.FLOAT_SCALE),
    "single_rounding": SCHEMES["int8"],
    "single_rounding 15": replace(SCHEMES["int8"], multiplier_bits=15),
    "single_even": replace(SCHEMES["int8"], requant=Kind.SINGLE_EVEN),
    "pow2": SCHEMES["pow2"],
    "double_rounding": SCHEMES["tflite"],
    "int16": SCHEMES["int16"],
    "int4 weights": SCHEMES["int4-weights"],
    "uint8 weights": SCHEMES["uint8-weights"],
}
"""Schemes with every requantization kind and every width."""


def seen_ranges(graph: Graph, count: int = 2) -> dict[str, tuple[float, float]]:
    """The least and the largest value of every float tensor over a few random inputs."""
    engine, ranges = FloatEngine(graph, fetch=ALL_TENSORS, threads=1), {}
    for seed in range(count):
        inputs = random_inputs(graph, seed=seed)
        for name, array in {**inputs, **engine.run(inputs)}.items():
            if array.dtype.kind == "f" and array.size:
                low, high = ranges.get(name, (np.inf, -np.inf))
                ranges[name] = min(low, float(array.min())), max(high, float(array.max()))
    return ranges


def quantized_on_random_data(graph: Graph, scheme: Any = FLOAT_SCALE) -> Graph:
    """The integer network of a float one."""
    return quantize(graph, seen_ranges(graph), scheme)


def _random(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


_SPREAD = 3.0
"""Random inputs are in [0, 1): what follows shall see both signs."""


def _spread(x: Any) -> Any:
    return lang.mul(lang.sub(x, 0.5), _SPREAD)


def _function(name: str, x: Any) -> Any:
    return getattr(lang, name)(_spread(x))


def _moved(x: Any) -> Any:
    rows = lang.permute(x[:, 2:6, :, :6], order=(0, 2, 1, 3))
    return lang.pad(rows, pads=(0, 0, 1, 1, 0, 0, 1, 1), mode="constant", value=0.25)


def _gates(directions: int, gates: int) -> tuple[Array, Array, Array]:
    rows = 4 * gates
    return _random(directions, rows, 8), _random(directions, rows, 4), _random(directions, 2 * rows)


FUNCTIONS = ("sigmoid", "tanh", "gelu", "silu", "hard_swish", "elu", "leaky_relu", "exp")
FUNCTIONS += ("softmax", "layer_norm", "rms_norm", "l2_norm")
IMAGE, ROWS, STEPS = (1, 8, 12, 12), (6, 16), (5, 2, 8)

Case = tuple[tuple[tuple[int, ...], ...], Callable[..., Any]]
CASES: dict[str, Case] = {
    "conv": ((IMAGE,), lambda x: lang.conv(x, _random(6, 8, 3, 3), _random(6), pads=1)),
    "conv, relu6": (
        (IMAGE,),
        lambda x: lang.conv(
            x, _random(8, 8, 3, 3), _random(8), pads=1, strides=2, relu=True, relu_limit=6.0
        ),
    ),
    "depthwise": ((IMAGE,), lambda x: lang.conv(x, _random(8, 1, 3, 3), group=8, relu=True)),
    "deconv": ((IMAGE,), lambda x: lang.deconv(x, _random(8, 4, 3, 3), _random(4), strides=2, pads=1)),
    "matmul": ((ROWS,), lambda x: lang.matmul(x, _random(16, 10), _random(10))),
    "matmul of rank 3": (((2, 6, 16),), lambda x: lang.matmul(x, _random(16, 10), _random(10))),
    "matmul of activations": (((2, 6, 16), (2, 16, 5)), lambda a, b: lang.matmul(_spread(a), b)),
    "add": ((IMAGE, IMAGE), lambda a, b: lang.add(_spread(a), b, relu=True)),
    "sub": ((IMAGE, IMAGE), lambda a, b: lang.sub(_spread(a), b)),
    "mul": ((IMAGE, IMAGE), lambda a, b: lang.mul(_spread(a), b)),
    "max": ((IMAGE, IMAGE), lambda a, b: lang.max(_spread(a), b)),
    "average pool": ((IMAGE,), lambda x: lang.avg_pool(x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "max pool": ((IMAGE,), lambda x: lang.max_pool(x, kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1))),
    "mean": ((IMAGE,), lambda x: lang.reduce(_spread(x), kind="mean", axes=(2, 3))),
    "sum": ((ROWS,), lambda x: lang.reduce(_spread(x), kind="sum", axes=(1,))),
    "largest": ((ROWS,), lambda x: lang.reduce(_spread(x), kind="max", axes=(1,))),
    "argmax": ((ROWS,), lambda x: lang.arg(_spread(x), max=True, axis=1)),
    "concat": ((IMAGE, IMAGE), lambda a, b: lang.concat([_spread(a), b], axis=1)),
    "slice, permute, pad": ((IMAGE,), _moved),
    "nearest": ((IMAGE,), lambda x: lang.resize(x, sizes=(1, 8, 24, 24), mode="nearest")),
    "bilinear": ((IMAGE,), lambda x: lang.resize(x, sizes=(1, 8, 18, 24), mode="linear")),
    "depth to space": ((IMAGE,), lambda x: lang.depth_to_space(x, block=2, mode="DCR")),
    **{name: ((ROWS,), partial(_function, name)) for name in FUNCTIONS},
    "clip": ((ROWS,), lambda x: lang.clip(_spread(x), min=-0.4, max=0.9)),
    "prelu": ((IMAGE,), lambda x: lang.prelu(_spread(x), np.abs(_random(8, 1, 1)))),
    "instance norm": ((IMAGE,), lambda x: lang.instance_norm(x, np.abs(_random(8)), _random(8))),
    "group norm": ((IMAGE,), lambda x: lang.group_norm(x, np.abs(_random(8)), _random(8), groups=2)),
    "lstm": ((STEPS,), lambda x: lang.lstm(_spread(x), *_gates(1, 4), hidden=4)[0]),
    "gru": ((STEPS,), lambda x: lang.gru(_spread(x), *_gates(2, 3), hidden=4, direction="bidirectional")[0]),
    "rnn": ((STEPS,), lambda x: lang.rnn(_spread(x), *_gates(1, 1), hidden=4)[0]),
}  # fmt: skip
"""Networks of about one op each: the shapes of their inputs, and what is computed of them."""


def case_network(name: str) -> Graph:
    """The float network of a case."""
    shapes, function = CASES[name]
    inputs = [lang.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    return lang.build({"y": function(*inputs)})


QUICK = (
    "conv, relu6",
    "depthwise",
    "deconv",
    "matmul of rank 3",
    "matmul of activations",
    "add",
    "mul",
    "average pool",
    "mean",
)
QUICK += ("concat", "slice, permute, pad", "bilinear", "gelu", "softmax", "layer_norm", "prelu", "lstm")
"""Cases of the default suite."""


def case_parameters() -> list[Any]:
    """All cases for pytest; those that are not quick ones are slow tests."""
    return [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
