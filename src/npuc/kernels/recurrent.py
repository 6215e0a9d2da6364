"""LSTM, GRU and simple recurrent layers of integers, one direction of one layer.

`recurrent_parameters` folds scales and biases into the integers of docs/arithmetic-recurrent.md; `run_recurrent` runs a
sequence. Gates are in the kernel's order (LSTM: input, forget, cell, output; GRU: update, reset, new);
`from_onnx_order` brings ONNX's LSTM rows (input, output, forget, cell) there.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arithmetic.functions import sigmoid
from npuc.arithmetic.requantization import quantize_multiplier, round_away
from npuc.arrays import Array
from npuc.kernels.calls import call, check_zero_point, code, contiguous, empty
from npuc.kernels.tables import table16
from npuc.kernels.tape import copy

MULTIPLIER_BITS = 23
MAX_SHIFT = 46
GATE_SCALE = 2.0**-12
RESET_SCALE = 2.0**-20
UNIT_SCALE = 2.0**-15
"""Of what comes out of a table: Q0.15."""
NO_LIMIT = 32768
"""Arguments of gates are clamped to 16 bits only."""
GATES = {"rnn": 1, "gru": 3, "lstm": 4}
"""Gates of each cell, each with a row for every unit."""
Function = Callable[[Array], Array]
_FUNCTIONS: dict[str, tuple[Function, ...]] = {
    "rnn": (np.tanh,),
    "gru": (sigmoid, np.tanh),
    "lstm": (sigmoid, np.tanh, np.tanh),
}
"""Of gates, of new values and of cells, as far as a cell has them."""


class RawRecurrent(ctypes.Structure):
    """`npuc_recurrent` of native/include/npuc/vector.h."""

    _fields_ = (
        *(
            (name, ctypes.c_int32)
            for name in ("gates", "linear_before_reset", "coupled", "reverse", "cell_bits", "limit")
        ),
        *((name, ctypes.c_int64) for name in ("steps", "batch", "inputs", "hidden", "projected", "y_stride")),
        *(
            (name, ctypes.c_int32)
            for name in ("x_dtype", "x_zero_point", "h_dtype", "h_zero_point", "lo", "hi")
        ),
        *(
            (name, ctypes.c_void_p)
            for name in ("w", "r", "multiplier_x", "multiplier_h", "shift", "bias", "bias_h")
        ),
        *((name, ctypes.c_void_p) for name in ("peephole", "multiplier_c")),
        *((name, ctypes.c_void_p) for name in ("projection", "multiplier_p", "shift_p")),
        *((name, ctypes.c_void_p) for name in ("sigmoid", "tanh", "cell_tanh")),
        *((name, ctypes.c_int32) for name in ("out_multiplier", "out_shift")),
    )


@dataclass(frozen=True, eq=False)
class RecurrentParameters:
    """A layer ready to run: weights (gates * hidden rows), its integers and its tables."""

    cell: str
    """`lstm`, `gru` or `rnn`."""
    w: Array
    r: Array
    multiplier_x: Array
    multiplier_h: Array
    shift: Array
    bias: Array
    tables: Array
    """Of gates (not of an RNN), of new values, and of an LSTM of cells."""
    out_multiplier: int
    out_shift: int
    limit: int = NO_LIMIT
    """Arguments of gates are clamped to ±limit."""
    bias_h: Array | None = None
    """GRU with `linear_before_reset`: of the new gate, behind the reset."""
    linear_before_reset: bool = False
    cell_bits: int = 0
    coupled: bool = False
    """LSTM: the forget gate is 1 less the input gate."""
    peephole: Array | None = None
    """LSTM: 3 * hidden, of the input, forget and output gate."""
    multiplier_c: Array | None = None
    projection: Array | None = None
    """LSTM: outputs x hidden, from what the units give to h."""
    multiplier_p: Array | None = None
    shift_p: Array | None = None

    @property
    def hidden(self) -> int:
        """Units of the layer."""
        return int(self.r.shape[0]) // GATES[self.cell]

    @property
    def width(self) -> int:
        """Elements of h: as many as units, unless they are projected."""
        return int(self.r.shape[1])

    @property
    def sigmoid(self) -> Array | None:
        """The table of gates."""
        return None if self.cell == "rnn" else self.tables[0]

    @property
    def tanh(self) -> Array:
        """The table of new values."""
        table: Array = self.tables[0 if self.cell == "rnn" else 1]
        return table

    @property
    def cell_tanh(self) -> Array | None:
        """The table of cells."""
        return self.tables[2] if self.cell == "lstm" else None


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
    coupled: bool = False,
    peephole: Array | None = None,
    projection: Array | None = None,
    scale_p: float | Array = 1.0,
    clip: float = 0.0,
    functions: Sequence[Function] | None = None,
    gate_scale: float = GATE_SCALE,
    unit_scale: float = UNIT_SCALE,
) -> RecurrentParameters:
    """The integers of a layer: `w` (gates * hidden, inputs) and `r` (gates * hidden, outputs) quantized, biases real.

    `projection` (outputs, hidden) is quantized with `scale_p`; `peephole` is real, 3 * hidden; `clip` limits the arguments of
    gates, 0 does not. `functions` are those of gates, new values and cells, sigmoid and tanh unless given; a simple layer may
    have other scales of its argument and its result than usual.
    """
    gates = GATES.get(cell)
    if gates is None:
        raise ValueError(f"there is no cell {cell!r}; there are {', '.join(GATES)}")
    hidden = w.shape[0] // gates if w.ndim == 2 else 0
    given = (hidden, hidden) if projection is None else projection.shape
    if r.shape != (gates * hidden, given[0]) or w.shape[0] != r.shape[0] or given[1:] != (hidden,):
        raise ValueError(f"the weights of an {cell} cannot have the shapes {w.shape} and {r.shape}")
    for name, weight in (
        ("w", w),
        ("r", r),
        ("the projection", np.zeros(0, int) if projection is None else projection),
    ):
        if not np.issubdtype(weight.dtype, np.integer) or (
            weight.size and np.abs(weight.astype(np.int64)).max() > 32767
        ):
            raise ValueError(f"{name} must be integers of magnitude up to 32767")
    if not 0 <= cell_bits <= 15:
        raise ValueError(f"a cell of 16 bits has 0 to 15 bits behind the point, not {cell_bits}")
    rows = w.shape[0]
    apart = np.arange(rows) >= 2 * hidden if cell == "gru" and linear_before_reset else np.zeros(rows, bool)
    target = np.where(apart, RESET_SCALE, gate_scale)
    real_x = scale_x * np.broadcast_to(np.asarray(scale_w, np.float64), (rows,)) / target
    real_h = scale_h * np.broadcast_to(np.asarray(scale_r, np.float64), (rows,)) / target
    if not (np.isfinite(real_x).all() and np.isfinite(real_h).all() and min(real_x.min(), real_h.min()) > 0):
        raise ValueError("every scale must be a positive number")
    real_c = np.zeros(rows)
    peepholes = None
    if peephole is not None:
        peephole_scale = max(float(np.abs(peephole).max(initial=0.0)) / 32767, 2.0**-40)
        peepholes = np.ascontiguousarray(
            round_away(np.asarray(peephole, np.float64) / peephole_scale), np.int16
        )
        real_c[np.arange(rows) // hidden != 2] = 2.0**-cell_bits * peephole_scale / gate_scale
    largest = np.maximum(np.maximum(real_x, real_h), real_c)
    shift = np.array([_shift(real) for real in largest], np.int32)
    up = 2.0**shift
    together = np.where(apart, bias_w, np.asarray(bias_w, np.float64) + bias_r)
    out_multiplier, out_shift = quantize_multiplier((2.0**-30 if cell == "lstm" else unit_scale) / scale_h)
    real_p = np.zeros(0)
    if projection is not None:
        real_p = UNIT_SCALE * np.broadcast_to(np.asarray(scale_p, np.float64), projection.shape[:1]) / scale_h
    shift_p = np.array([_shift(real) for real in real_p], np.int32)
    used = functions or _FUNCTIONS[cell]
    scales = (gate_scale, gate_scale, 2.0**-cell_bits)[: len(used)]
    tables = [table16(f, scale, 0, unit_scale, 0) for f, scale in zip(used, scales, strict=True)]
    return RecurrentParameters(
        cell=cell,
        w=np.ascontiguousarray(w, np.int16),
        r=np.ascontiguousarray(r, np.int16),
        multiplier_x=round_away(real_x * up).astype(np.int32),
        multiplier_h=round_away(real_h * up).astype(np.int32),
        shift=shift,
        bias=_wide(together / target * up),
        tables=np.stack(tables),
        out_multiplier=out_multiplier,
        out_shift=out_shift,
        limit=min(int(round_away(np.array(clip / gate_scale))), NO_LIMIT) if clip > 0 else NO_LIMIT,
        bias_h=_wide((np.asarray(bias_r, np.float64) / target * up)[2 * hidden :]) if apart.any() else None,
        linear_before_reset=bool(apart.any()),
        cell_bits=cell_bits,
        coupled=coupled,
        peephole=peepholes,
        multiplier_c=None if peepholes is None else _three(round_away(real_c * up).astype(np.int32)),
        projection=None if projection is None else np.ascontiguousarray(projection, np.int16),
        multiplier_p=None if projection is None else round_away(real_p * 2.0**shift_p).astype(np.int32),
        shift_p=None if projection is None else shift_p,
    )


def _three(rows: Array) -> Array:
    """Of the rows of four gates those that peepholes go to: input, forget and output."""
    i, f, _, o = np.split(rows, 4)
    return np.concatenate([i, f, o])


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

    `h` of type `dtype` is zero unless given, and so is `cell_state` (int16). The h of a GRU follows from its state.
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
    shape, inner = (batch, p.width), (batch, p.hidden)
    states = (("h", h, shape, out), ("the state", cell_state, inner, np.dtype(np.int16)))
    for name, given, shape_of_it, kind in states:
        if given is not None and (given.shape != shape_of_it or given.dtype != kind):
            raise ValueError(
                f"{name} must be {kind.name} of {shape_of_it}, not {given.dtype.name} of {given.shape}"
            )
    # The kernel leaves the end of the sequence in both, so they start as copies, also when a tape is played again.
    start, state = empty(shape, out), empty(inner, np.int16)
    copy(start, np.full(shape, zero_h, out) if h is None else h)
    copy(state, np.zeros(inner, np.int16) if cell_state is None else cell_state)
    limits = np.iinfo(out)
    raw = RawRecurrent(
        gates=GATES[p.cell],
        linear_before_reset=p.linear_before_reset,
        coupled=p.coupled,
        reverse=reverse,
        cell_bits=p.cell_bits,
        limit=p.limit,
        steps=steps,
        batch=batch,
        inputs=x.shape[2],
        hidden=p.hidden,
        projected=0 if p.projection is None else p.width,
        y_stride=batch * p.width,
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
        "peephole",
        "multiplier_c",
        "projection",
        "multiplier_p",
        "shift_p",
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
    if p.projection is None or p.multiplier_p is None:
        return True
    most = (
        np.abs(p.projection.astype(np.int64)).sum(axis=1).astype(object)
        * 32768
        * p.multiplier_p.astype(object)
    )
    return max(most, default=0) <= quarter


def from_onnx_order(rows: Array, cell: str) -> Array:
    """Rows in ONNX's order of gates (LSTM: i, o, f, c; GRU: z, r, h) in the kernel's.

    >>> from_onnx_order(np.array([0, 1, 2, 3]), "lstm").tolist()
    [0, 2, 3, 1]
    """
    if cell != "lstm":
        return rows
    i, o, f, c = np.split(rows, 4)
    return np.concatenate([i, f, c, o])


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
