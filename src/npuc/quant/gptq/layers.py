"""Layers in the matrix form of the algorithm: the inputs of a layer, and its weights to a matrix and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.ir import Graph, top, value_name
from npuc.quant.gptq.solve import rounded_together
from npuc.quant.layers import IntegerLayer

_LEAST_INPUTS = 4
"""A sum of fewer inputs has too few weights to compensate errors."""
_MOST_INPUTS = 8192
"""The square of this many numbers is 512 MiB."""
_ROWS = 4096
"""The largest number of positions of one sample that are used, evenly spread."""


def is_dense(layer: IntegerLayer) -> bool:
    """Whether the algorithm applies: a convolution or matmul whose sums have enough inputs, but not too many."""
    real = layer.float_op
    if isinstance(real, top.Deconv):
        return False
    inputs = layer.weight.size // layer.weight.shape[layer.axis]
    flat = not isinstance(real, top.MatMul) or layer.weight.ndim == 2
    return flat and _LEAST_INPUTS <= inputs <= _MOST_INPUTS


def rounded(layer: IntegerLayer, moments: Array) -> Array:
    """The weights of a layer rounded together, given the second moments of its inputs, a matrix for each group."""
    matrix = _matrix(layer, layer.weight)
    scale = _matrix(layer, np.broadcast_to(layer.scale, layer.weight.shape))[:, :1]
    parts = [
        rounded_together(weight, steps, moment, layer.lowest, layer.highest)
        for weight, steps, moment in zip(
            np.split(matrix, len(moments)), np.split(scale, len(moments)), moments, strict=True
        )
    ]
    return _back(layer, np.concatenate(parts))


def _matrix(layer: IntegerLayer, weight: Array) -> Array:
    """The weights as a matrix of outputs x inputs."""
    return np.moveaxis(weight, layer.axis, 0).reshape(weight.shape[layer.axis], -1)


def _back(layer: IntegerLayer, matrix: Array) -> Array:
    shape = list(layer.weight.shape)
    first = shape.pop(layer.axis)
    return np.moveaxis(matrix.reshape(first, *shape), 0, layer.axis)


def second_moments(
    quantized: Graph, layers: Sequence[IntegerLayer], samples: Sequence[Mapping[str, Array]], threads: int
) -> dict[str, Array]:
    """For the input x of each layer in the integer network, the sum of x x^T over the positions of the samples.

    A layer with groups has such a matrix for each of them: a depthwise convolution one for each channel.
    """
    names = {layer.name: value_name(layer.integer_op.x) for layer in layers}
    engine = IntegerEngine(quantized, fetch=list(dict.fromkeys(names.values())), threads=threads, raw=True)
    moments: dict[str, Array] = {}
    for sample in samples:
        values = engine.run(sample)
        for layer in layers:
            integers = np.asarray(values[names[layer.name]], np.float32)
            rows = _rows(layer, integers - np.float32(layer.x.zero_point))
            groups = layer.float_op.group if isinstance(layer.float_op, top.Conv) else 1
            parts = np.moveaxis(rows.reshape(len(rows), groups, -1), 0, 1)
            moments[layer.name] = moments.get(layer.name, 0.0) + parts.transpose(0, 2, 1) @ parts
    return moments


def _rows(layer: IntegerLayer, x: Array) -> Array:
    """The inputs of every sum (or of some, evenly spread) as rows, in the order of the weights."""
    real = layer.float_op
    if isinstance(real, top.MatMul):
        rows = x.reshape(-1, x.shape[-1])
        return rows[:: max(1, len(rows) // _ROWS)]
    kh, kw = layer.weight.shape[2:]
    top_, left, bottom, right = real.pads
    padded = np.pad(x, ((0, 0), (0, 0), (top_, bottom), (left, right)))
    dh, dw = real.dilations
    windows = np.lib.stride_tricks.sliding_window_view(
        padded, ((kh - 1) * dh + 1, (kw - 1) * dw + 1), axis=(2, 3)
    )[:, :, :: real.strides[0], :: real.strides[1], ::dh, ::dw]
    # Positions first, then the weights' own order: channel, row, column.
    n, c, h, w = windows.shape[:4]
    every = max(1, int(np.ceil(np.sqrt(n * h * w / _ROWS))))
    part = windows[:, :, ::every, ::every]
    return np.ascontiguousarray(part.transpose(0, 2, 3, 1, 4, 5)).reshape(-1, c * kh * kw)
