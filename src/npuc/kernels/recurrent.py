"""LSTM and GRU of integers, one direction of one layer.

`recurrent_parameters` folds scales and biases into the integers of docs/arithmetic-recurrent.md; `run_recurrent` runs a
sequence. Gates are in the kernel's order (LSTM: input, forget, cell, output; GRU: update, reset, new);
`from_onnx_order` brings ONNX's LSTM rows (input, output, forget, cell) there.
"""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.functions import sigmoid
from npuc.arithmetic.requantization import quantize_multiplier, round_away
from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty
from npuc.kernels.tables import table16
from npuc.kernels.tape import copy, do

MULTIPLIER_BITS = 23
MAX_SHIFT = 46
GATE_SCALE = 2.0**-12
RESET_SCALE = 2.0**-20


class RawRecurrent(ctypes.Structure):
    """`npuc_recurrent` of native/include/npuc/vector.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("gates", "linear_before_reset", "reverse", "cell_bits")),
        *((name, ctypes.c_int64) for name in ("steps", "batch", "inputs", "hidden")),
        *(
            (name, ctypes.c_int32)
            for name in ("x_dtype", "x_zero_point", "h_dtype", "h_zero_point", "lo", "hi")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("w", "r", "multiplier_x", "multiplier_h", "shift", "bias", "bias_h")
        ),
        *((name, ctypes.c_void_p) for name in ("sigmoid", "tanh", "cell_tanh")),
        *((name, ctypes.c_int32) for name in ("out_multiplier", "out_shift")),
    )


@dataclass(frozen=True, eq=False)
class RecurrentParameters:
    """A layer ready to run: weights (gates * hidden rows), its integers and its tables."""

    cell: str
    w: Array
    r: Array
    multiplier_x: Array
    multiplier_h: Array
    shift: Array
    bias: Array
    bias_h: Array | None
    cell_bits: int
    linear_before_reset: bool
    out_multiplier: int
    out_shift: int
    state_multiplier: int
    """GRU: from the first output to the first state."""
    state_shift: int
    sigmoid: Array
    tanh: Array
    cell_tanh: Array

    @property
    def hidden(self) -> int:
        """Units of the layer."""
        return int(self.r.shape[1])


def recurrent_parameters(
    cell: str,
    w: Array,
    r: Array,
    *,
    scale_w: float | Array,
    scale_r: float | Array,
    bias_w: Array,
    bias_r: Array,
    scale_x: float,
    scale_h: float,
    cell_bits: int = 11,
    linear_before_reset: bool = False,
) -> RecurrentParameters:
    """The integers of a layer: `w` (gates * hidden, inputs) and `r` (gates * hidden, hidden) quantized, biases real."""
    gates = {"lstm": 4, "gru": 3}.get(cell)
    if gates is None:
        raise ValueError(f"there is no cell {cell!r}; there are lstm and gru")
    if w.ndim != 2 or r.ndim != 2 or r.shape[0] != gates * r.shape[1] or w.shape[0] != r.shape[0]:
        raise ValueError(f"the weights of an {cell} cannot have the shapes {w.shape} and {r.shape}")
    for name, weight in (("w", w), ("r", r)):
        if not np.issubdtype(weight.dtype, np.integer) or (
            weight.size and np.abs(weight.astype(np.int64)).max() > 32767
        ):
            raise ValueError(f"{name} must be integers of magnitude up to 32767")
    if not 0 <= cell_bits <= 15:
        raise ValueError(f"a cell of 16 bits has 0 to 15 bits behind the point, not {cell_bits}")
    rows, hidden = w.shape[0], r.shape[1]
    apart = np.arange(rows) >= 2 * hidden if cell == "gru" and linear_before_reset else np.zeros(rows, bool)
    target = np.where(apart, RESET_SCALE, GATE_SCALE)
    real_x = scale_x * np.broadcast_to(np.asarray(scale_w, np.float64), (rows,)) / target
    real_h = scale_h * np.broadcast_to(np.asarray(scale_r, np.float64), (rows,)) / target
    if not (np.isfinite(real_x).all() and np.isfinite(real_h).all() and min(real_x.min(), real_h.min()) > 0):
        raise ValueError("every scale must be a positive number")
    shift = np.array([_shift(max(a, b)) for a, b in zip(real_x, real_h, strict=True)], np.int32)
    up = 2.0**shift
    together = np.where(apart, bias_w, np.asarray(bias_w, np.float64) + bias_r)
    out_multiplier, out_shift = quantize_multiplier((2.0**-30 if cell == "lstm" else 2.0**-15) / scale_h)
    state_multiplier, state_shift = quantize_multiplier(scale_h * 2.0**15)
    return RecurrentParameters(
        cell=cell,
        w=np.ascontiguousarray(w, np.int16),
        r=np.ascontiguousarray(r, np.int16),
        multiplier_x=round_away(real_x * up).astype(np.int32),
        multiplier_h=round_away(real_h * up).astype(np.int32),
        shift=shift,
        bias=_wide(together / target * up),
        bias_h=_wide((np.asarray(bias_r, np.float64) / target * up)[2 * hidden :]) if apart.any() else None,
        cell_bits=cell_bits,
        linear_before_reset=bool(apart.any()),
        out_multiplier=out_multiplier,
        out_shift=out_shift,
        state_multiplier=state_multiplier,
        state_shift=state_shift,
        sigmoid=table16(sigmoid, GATE_SCALE, 0, 2.0**-15, 0),
        tanh=table16(np.tanh, GATE_SCALE, 0, 2.0**-15, 0),
        cell_tanh=table16(np.tanh, 2.0**-cell_bits, 0, 2.0**-15, 0),
    )


def run_recurrent(
    x: Array,
    parameters: RecurrentParameters,
    h: Array | None = None,
    cell_state: Array | None = None,
    *,
    zero_x: int = 0,
    zero_h: int = 0,
    dtype: Any = np.int8,
    lo: int | None = None,
    hi: int | None = None,
    reverse: bool = False,
    threads: int = 1,
) -> tuple[Array, Array, Array]:
    """Run x (steps, batch, inputs): all outputs, the last h and the last state (the cell, or the GRU's Q0.15 state).

    `h` of type `dtype` is zero unless given; `cell_state` (int16) likewise, for a GRU it follows from h.
    """
    p = parameters
    if x.ndim != 3 or x.shape[2] != p.w.shape[1]:
        raise ValueError(f"x must be (steps, batch, {p.w.shape[1]}), not {x.shape}")
    out = np.dtype(dtype)
    code_x, code_h = code(x.dtype, "x"), code(out, "h")
    check_zero_point(zero_x, x.dtype, "x")
    check_zero_point(zero_h, out, "h")
    for name, kind, zero in (("x", x.dtype, zero_x), ("h", out, zero_h)):
        if kind == np.int16 and zero != 0:
            raise ValueError(f"{name} of 16 bits must have zero point 0, not {zero}")
    steps, batch, _ = x.shape
    shape = (batch, p.hidden)
    for name, given, kind in (("h", h, out), ("the state", cell_state, np.dtype(np.int16))):
        if given is not None and (given.shape != shape or given.dtype != kind):
            raise ValueError(
                f"{name} must be {kind.name} of {shape}, not {given.dtype.name} of {given.shape}"
            )
    # The kernel leaves the end of the sequence in both, so they start as copies, also when a tape is played again.
    start, state = empty(shape, out), empty(shape, np.int16)
    copy(start, np.full(shape, zero_h, out) if h is None else h)
    if cell_state is None and p.cell == "gru":
        do(_first_state, start, zero_h, p.state_multiplier, p.state_shift, state)
    else:
        copy(state, np.zeros(shape, np.int16) if cell_state is None else cell_state)
    limits = np.iinfo(out)
    raw = RawRecurrent(
        gates=4 if p.cell == "lstm" else 3,
        linear_before_reset=p.linear_before_reset,
        reverse=reverse,
        cell_bits=p.cell_bits,
        steps=steps,
        batch=batch,
        inputs=x.shape[2],
        hidden=p.hidden,
        x_dtype=code_x,
        x_zero_point=zero_x,
        h_dtype=code_h,
        h_zero_point=zero_h,
        lo=int(limits.min) if lo is None else lo,
        hi=int(limits.max) if hi is None else hi,
        out_multiplier=p.out_multiplier,
        out_shift=p.out_shift,
    )
    for name in (
        "w",
        "r",
        "multiplier_x",
        "multiplier_h",
        "shift",
        "bias",
        "bias_h",
        "sigmoid",
        "tanh",
        "cell_tanh",
    ):
        array = getattr(p, name)
        setattr(raw, name, None if array is None else array.ctypes.data)
    raw.keep = p  # the memory behind the pointers lives as long as they do
    y = empty((steps, *shape), out)
    call("npuc_recurrent_run", "pppppi", raw, contiguous(x), start, state, y, threads)
    return y, start, state


def has_room(parameters: RecurrentParameters, reach_x: int, reach_h: int) -> bool:
    """Whether no sum can leave 62 bits, for inputs and outputs that differ by at most these from their zero points."""
    p, quarter = parameters, 1 << 60
    for weight, multiplier, reach in ((p.w, p.multiplier_x, reach_x), (p.r, p.multiplier_h, reach_h)):
        most = np.abs(weight.astype(np.int64)).sum(axis=1).astype(object) * reach * multiplier.astype(object)
        if max(most, default=0) > quarter:
            return False
    return True


def from_onnx_order(rows: Array, cell: str) -> Array:
    """Rows in ONNX's order of gates (LSTM: i, o, f, c; GRU: z, r, h) in the kernel's.

    >>> from_onnx_order(np.array([0, 1, 2, 3]), "lstm").tolist()
    [0, 2, 3, 1]
    """
    if cell != "lstm":
        return rows
    i, o, f, c = np.split(rows, 4)
    return np.concatenate([i, f, c, o])


def _first_state(h: Array, zero_h: int, multiplier: int, shift: int, state: Array) -> None:
    """sat16(half_up((q_h - z_h) * m0, shift0))."""
    half = 1 << (shift - 1) if shift else 0
    state[...] = np.clip(((h.astype(np.int64) - zero_h) * multiplier + half) >> shift, -32768, 32767)


def _shift(real: float) -> int:
    """The shift of a 23-bit multiplier, at most 46, so that the sums and the rounding term keep to 62 bits."""
    shift = MULTIPLIER_BITS - math.frexp(real)[1]
    if shift < 0:
        raise ValueError(f"a gate's multiplier of {real:g} is too large")
    return min(shift, MAX_SHIFT)


def _wide(values: Array) -> Array:
    if values.size and np.abs(values).max() >= 2.0**60:
        raise ValueError("a bias is too large for the scale of its gate")
    return np.ascontiguousarray(round_away(values).astype(np.int64))
