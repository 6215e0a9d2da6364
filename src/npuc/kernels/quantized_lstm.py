"""TFLite's integer LSTM by the native core."""

from __future__ import annotations

import ctypes

import numpy as np

from npuc.arithmetic.quantized_lstm import QuantizedLstm
from npuc.arrays import Array
from npuc.kernels.calls import call, contiguous, empty

_NUMBERS = ("coupled", "integer_bits", "cell_clip", "first_h")
_SIZES = (
    *("steps", "batch", "inputs", "cells", "outputs", "x_step", "x_sample", "y_step", "y_sample"),
    "peephole_rows",
)
_ARRAYS = (
    *("scales_x", "scales_h", "scales_c", "norm_scales", "hidden", "projected"),
    *("bias_x", "bias_h", "norm_bias", "projection_bias", "norm_weight", "peephole", "w", "r", "projection"),
)


class RawQuantizedLstm(ctypes.Structure):
    """`npuc_quantized_lstm` of native/include/npuc/vector.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in _NUMBERS),
        *((name, ctypes.c_int64) for name in _SIZES),
        *((name, ctypes.c_void_p) for name in _ARRAYS),
    )


def run_quantized_lstm(
    x: Array, layer: QuantizedLstm, *, time_major: bool = False, threads: int = 1
) -> Array:
    """The outputs of all steps for x, int8, of samples x steps x inputs; or of steps x samples x inputs."""
    if x.ndim != 3 or x.shape[2] != layer.weight.shape[1] or x.dtype != np.int8:
        raise ValueError(
            f"x must be int8 of rank 3 with {layer.weight.shape[1]} inputs, not {x.dtype} of {x.shape}"
        )
    steps, batch = x.shape[:2] if time_major else (x.shape[1], x.shape[0])
    inputs, outputs = x.shape[2], layer.outputs
    constants = layer.constants()
    raw = RawQuantizedLstm(
        coupled=layer.is_coupled,
        integer_bits=layer.integer_bits,
        cell_clip=layer.cell_clip,
        first_h=layer.first_h,
        steps=steps,
        batch=batch,
        inputs=inputs,
        cells=layer.cells,
        outputs=outputs,
        x_step=inputs * (batch if time_major else 1),
        x_sample=inputs * (1 if time_major else steps),
        y_step=outputs * (batch if time_major else 1),
        y_sample=outputs * (1 if time_major else steps),
        peephole_rows=layer.peephole_rows,
        **{name: array.ctypes.data for name, array in constants.items()},
    )
    raw.arrays = constants  # what has the pointers lives as long as they do
    y = empty((*x.shape[:2], outputs), np.int8)
    call("npuc_quantized_lstm_run", "pppi", raw, contiguous(x), y, threads)
    return y
