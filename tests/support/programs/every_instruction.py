"""A program that has every instruction, for what has to hold of each: refusals, the sanitizer, cycles."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arithmetic.dtypes import pack_integers
from npuc.arithmetic.piecewise import DIRECTORY, SEGMENT
from npuc.program.custom_kernels import KERNELS, KernelCall, register
from npuc.program.isa import DTYPES, INSTRUCTIONS, SPARSE
from support.programs.instructions import Draft, machine

KERNEL = "test.hostile"
LOCAL = 32 << 10
"""Bytes of local memory; most of them are in use."""


def reverse(call: KernelCall) -> None:
    """A kernel that reads all that it is given."""
    assert call.b is not None and call.constants is not None and call.parameters[0] == 0
    total = int(call.b.sum()) + int(call.constants.sum())
    call.y[:] = total % 256
    call.y[: call.x.size] = call.x[::-1][: call.y.size]


if KERNEL not in KERNELS:
    register(KERNEL, reverse)


def _recurrent_constants(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Those of an LSTM of 3 inputs and 2 units: biases, multipliers and shifts, tables, weights."""
    parts = [
        rng.integers(-(1 << 30), 1 << 30, 8).astype(np.int64),
        rng.integers(1 << 20, 1 << 22, 16).astype(np.int32),
        np.full(8, 30, np.int32),
        np.arange(3 * 513, dtype=np.int16) * 20,
        rng.integers(-128, 128, 8 * 5).astype(np.int8),
    ]
    return np.concatenate([part.view(np.uint8) for part in parts])


def _quantized_lstm_constants(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Those of a layer of 3 inputs, 2 cells and 2 projected outputs, with peepholes and layer norms."""
    scale = [1 << 30, 33]
    words = [*scale * 8, *scale * 3, *[*scale, 7] * 4, *scale, 3, *scale, -4, 100]
    parts = [
        np.array(words, np.int32),
        rng.integers(-(1 << 14), 1 << 14, 8 + 8 + 8 + 2).astype(np.int32),
        rng.integers(-32768, 32768, 8 + 3 * 2).astype(np.int16),
        rng.integers(-128, 128, 8 * 3 + 8 * 2 + 2 * 2).astype(np.int8),
    ]
    return np.concatenate([part.view(np.uint8) for part in parts])


def _sparse_weights(rng: np.random.Generator) -> np.ndarray[Any, Any]:
    """Those of 8 outputs, 4 inputs and 3 x 3 taps of which 2:4 are kept, the first two of each block."""
    values = rng.integers(-128, 128, (8, 2, 9)).astype(np.int8)
    positions = np.broadcast_to(np.arange(2)[:, None], values.shape)
    return np.concatenate([values.view(np.uint8).reshape(-1), pack_integers(positions, 2)])


def _piecewise_table() -> np.ndarray[Any, Any]:
    """One polynomial for all numbers: y = x."""
    return np.concatenate([np.zeros(DIRECTORY // 8), np.eye(SEGMENT)[2]])


def everything() -> Draft:
    """A program that has every instruction but the barrier, on small operands, and the forms of some that have other operands."""
    rng = np.random.default_rng(0)
    d = Draft(machine(f"{LOCAL}B", banks=4, compute__sparsity=["2:4"]))
    x = d.put(rng.integers(-128, 128, 256).astype(np.int8))
    w = d.put(rng.integers(-128, 128, 288).astype(np.int8), constant=True)
    ints = np.concatenate([np.arange(64) % 4, [1 << 30] * 8, [40] * 8]).astype(np.int32)
    numbers, table, words = (
        d.put(ints, constant=True),
        d.put(np.arange(1026, dtype=np.int16)),
        d.put(np.arange(513)),
    )
    gates = d.put(_recurrent_constants(rng), constant=True)
    cells = d.put(_quantized_lstm_constants(rng), constant=True)
    exps = d.put(np.full(256, 1 << 30, np.int32))
    stage = {
        "kind": 1,
        "count": 1,
        "multiplier": numbers + 256,
        "shift": numbers + 288,
        "lo": -128,
        "hi": 127,
    }
    window = {
        "n": 1, "h": 4, "w": 4, "c": 4, "out_h": 4, "out_w": 4, "kernel": (3, 3), "stride": (1, 1), "dilation": (1, 1),
        "pad": (1, 1),
    }  # fmt: skip
    dense = {"size": (1, 2, 4, 8), "a_stride": (64, 32, 8, 1), "b_stride": (0, 0, 0, 1)}
    ranges = {"lo": -128, "hi": 127}
    last: dict[str, Any] = {"y_dtype": 0}
    more: dict[str, dict[str, Any]] = {
        "conv": {
            **window, **stage, "weight": w, "bias": numbers, "groups": 1, "out_c": 8, "y_stride": 9, "count": 8,
            "table": table, "y_dtype": 2,
        },
        "recurrent": {
            "steps": 2, "batch": 2, "inputs": 3, "hidden": 2, "gates": 4, "cell_bits": 11, "limit": 32768, "constants": gates,
            "first_h": x + 64, "first_state": x + 96, "last_h": d.room(4), "last_state": d.room(8), "y_stride": 6,
            "multiplier": 1 << 30, "shift": 40, **ranges,
        },
        "quantized_lstm": {
            "steps": 2, "batch": 2, "inputs": 3, "cells": 2, "outputs": 2, "x_step": 3, "x_sample": 8, "y_step": 2, "y_sample": 5,
            "norm": 1, "projected": 1, "integer_bits": 4, "peephole_rows": 1, "constants": cells,
        },
        "matmul": {"b": x + 64, "batch": 2, "m": 3, "k": 4, "cols": 5, "a_step": 12, "b_step": 0, **stage},
        "copy": {"bytes": 1, "size": (1, 1, 2, 2, 4, 4), "x_stride": (0, 0, 1, 32, 8, 2), "y_stride": (0, 0, 32, 16, 4, 1)},
        "fill": {"bytes": 4, "count": 9, "value": 7},
        "gather": {"index": numbers, "bytes": 2, "outer": 2, "x_size": 4, "y_size": 6, "inner": 3},
        "add": {**dense, "b": x, "kind": 1, "multiplier": (5, 6, 7), "shift": (1, 2, 3), **ranges},
        "mul": {**dense, "b": x, **stage},
        "requant": {"elements": 50, **stage},
        "table": {"outer": 2, "channels": 2, "inner": 5, "table": table, "y_dtype": 2},
        "cast": {"elements": 16, "y_dtype": 5, "scale": 0x3F800000},
        "minmax": {**dense, "b": x, "larger": 1, **ranges},
        "max_pool": window,
        "avg_pool": {**window, **stage, "kind": 3, "count": 9, "shift": numbers},
        "reduce": {"outer": 2, "reduced": 4, "inner": 3, **stage},
        "topk": {"largest": 1, "outer": 2, "reduced": 9, "inner": 3, "k": 4},
        "softmax": {
            "rows": 2, "width": 9, "coarse": exps, "fine": exps, "multiplier": 1 << 30, "shift": 20, "rounding": 2, **ranges,
        },
        "norm": {
            "rows": 2, "width": 9, "center": 1, "row_modulus": 1, "column_divisor": 1, "entries": 9, "gain": numbers,
            "bias": words, "shift": 8, "rounding": 2, **ranges,
        },
        "resize": {
            **dict(list(window.items())[:6]), "rows": numbers, "columns": numbers, "bits": 8, "rounding": 1,
        },
        "custom": {
            "kernel": tuple(KERNEL.encode().ljust(32, b"\0")), "x_bytes": 64, "b": x + 64, "b_bytes": 32,
            "constants": numbers, "constant_bytes": 64, "y_bytes": 64, "work": 64, "bytes": 1, "parameters": range(16),
        },
        "custom_local": {
            "kernel": tuple(KERNEL.encode().ljust(32, b"\0")), "x_bytes": 64, "b": x + 64, "b_bytes": 32,
            "constants": numbers, "constant_bytes": 128, "y_bytes": 64, "workspace": d.room(256), "workspace_bytes": 200,
            "work": 64, "bytes": 1,
        },
        "custom_global": {
            "kernel": tuple(KERNEL.encode().ljust(32, b"\0")), "x": 0, "x_bytes": 64, "x_segment": 2, "b": 64, "b_bytes": 32,
            "b_segment": 2, "constants": numbers, "constant_bytes": 128, "y": 0, "y_segment": 1, "y_bytes": 64,
            "workspace": 1024, "workspace_bytes": 512, "workspace_segment": 1, "local_workspace": d.room(256),
            "local_workspace_bytes": 200, "work": 64, "traffic": 160, "bytes": 1,
        },
    }  # fmt: skip
    for instruction in INSTRUCTIONS:
        if instruction.queue not in ("matrix", "vector"):
            continue
        fields: dict[str, Any] = {"y": d.room(512)}
        if instruction.name != "fill":
            fields["x"] = x
        if any(field.name == "y_dtype" for field in instruction.fields):
            fields |= last
        d.emit(instruction.name, **fields | more[instruction.name])
        if any(field.far for field in instruction.fields):
            d.load(1, 0, fields["y"], 64)
        d.fetch(fields["y"], (64,), np.int8)
    sparse = {
        "flags": SPARSE,
        "sparse_n": 2,
        "sparse_m": 4,
        "weight": d.put(_sparse_weights(rng), constant=True),
    }
    d.emit("conv", **more["conv"] | sparse | {"x": x, "y": d.room(512)})
    reals = d.put(rng.normal(size=64).astype(np.float32))
    types = {"x_dtype": DTYPES.index("f32"), "y_dtype": DTYPES.index("f32")}
    pieces = {"table": d.put(_piecewise_table(), constant=True), "pieces": 1}
    d.emit("table", x=reals, outer=4, channels=1, inner=16, y=reals, **types, **pieces)
    d.fetch(reals, (64,), np.float32)
    return d
