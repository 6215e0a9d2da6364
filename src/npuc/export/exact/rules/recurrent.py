"""Recurrent layers, step by step: docs/arithmetic-recurrent.md."""

from __future__ import annotations

from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.export.exact.algebra import Algebra, Integers, T, int64
from npuc.export.exact.registry import Exact, computes, type_of
from npuc.export.exact.rounding import NoExactForm, half_up
from npuc.export.exact.rules.tables import interpolated
from npuc.ir import npu, shape_of
from npuc.ir.npu.recurrent import STATE

MOST_STEPS = 256
"""Every step is written out; a longer sequence would make a file that no tool loads."""


@computes(npu.LSTM, npu.GRU, npu.RNN)
def recurrent(op: npu.LSTM | npu.GRU | npu.RNN, exact: Exact) -> list[T]:
    """Directions side by side."""
    steps, batch, _ = shape_of(op.x)
    if steps > MOST_STEPS:
        raise NoExactForm(f"its {steps} steps would each be written out, and {MOST_STEPS} are allowed")
    a, kind = exact.algebra, type_of(op.parts[0])
    directions = range(shape_of(op.weight)[0])
    layers = [_Direction(op, exact, index) for index in directions]
    outputs = [layer.run(op.direction == "reverse" or layer.index == 1) for layer in layers]
    width = layers[0].width
    whole = a.concat([a.reshape(part[0], (steps, 1, batch, width)) for part in outputs], 1)
    results = [exact.stored(whole, kind)]
    for number, part in enumerate(op.parts[1:], start=1):
        state = 2 if number == 2 or (isinstance(op, npu.GRU) and op.state == STATE) else 1
        last = [a.reshape(output[state], (1, *shape_of(part)[1:])) for output in outputs]
        results.append(exact.stored(a.concat(last, 0), type_of(part)))
    return results


class _Direction:
    """One direction of a layer: its constants, and its steps."""

    def __init__(self, op: Any, exact: Exact, index: int) -> None:
        self.op, self.exact, self.a, self.index = op, exact, exact.algebra, index
        self.w, self.r = (self._rows(value) for value in (op.weight, op.recurrence))
        self.m_x, self.m_h, self.shift, self.bias = (
            self._rows(value) for value in (op.multiplier_x, op.multiplier_h, op.shift, op.bias)
        )
        self.tables = exact.array(op.tables).astype(np.int64)
        self.hidden, self.width = op.hidden, op.width
        self.h_type, self.x_type = type_of(op.parts[0]), type_of(op.x)

    def _rows(self, value: Any) -> Array:
        rows: Array = self.exact.array(value)[self.index].astype(np.int64)
        return rows

    def _product(self, x: T, reach: int, weight: Array) -> T:
        """Sums over the last axis with constant rows."""
        low, high = int(weight.min(initial=0)), int(weight.max(initial=0))
        matrix = np.ascontiguousarray(weight.T)
        return self.a.matmul(Integers(x, -reach, reach), Integers(matrix, low, high))

    def _state(self, value: Any, shape: tuple[int, ...]) -> T | None:
        if value is None:
            return None
        whole = self.exact.steps(value)
        return self.a.reshape(self.a.take(whole, int64([self.index]), 0), shape)

    def run(self, reverse: bool) -> tuple[T, T, T]:
        """All outputs, the last h and the last inner state, in int64 with their zero points."""
        a, op = self.a, self.op
        steps, batch, _ = shape_of(op.x)
        shape, inner = (batch, self.width), (batch, self.hidden)
        gates = self._product(self.exact.steps(op.x), self.exact.reach(op.x), self.w)
        h = None if isinstance(op, npu.GRU) else self._state(op.initial_h, shape)
        state = self._state(
            op.initial_c if isinstance(op, npu.LSTM) else op.initial_h if isinstance(op, npu.GRU) else None,
            inner,
        )
        if isinstance(op, npu.GRU) and state is not None:
            h = self._out(state)
        h = a.constant(np.zeros(shape, np.int64)) if h is None else h
        state = a.constant(np.zeros(inner, np.int64)) if state is None else state
        outputs: list[T] = [None] * steps
        for step in reversed(range(steps)) if reverse else range(steps):
            of_x = a.reshape(a.take(gates, int64([step]), 0), (batch, len(self.w)))
            h, state = self._step(of_x, h, state)
            outputs[step] = a.reshape(h, (1, *shape))
        zero = int64(self.h_type.zero_point)
        return a.add(a.concat(outputs, 0), zero), a.add(h, zero), state

    def _step(self, of_x: T, h: T, state: T) -> tuple[T, T]:
        op = self.op
        low, high = self.h_type.dtype.carrier.limits
        reach = max(high - self.h_type.zero_point, self.h_type.zero_point - low)
        if isinstance(op, npu.LSTM):
            return self._lstm(of_x, self._product(h, reach, self.r), state)
        if isinstance(op, npu.GRU):
            return self._gru(of_x, h, reach, state)
        acc = self._sum(of_x, self._product(h, reach, self.r), slice(None))
        return self._out(interpolated(self.a, self._argument(acc, self.shift), self.tables[0])), state

    def _part(self, x: T, rows: slice) -> T:
        """Some columns of a tensor."""
        return self.a.take(x, int64(np.arange(len(self.w))[rows]), 1)

    def _sum(self, of_x: T, of_h: T, rows: slice, more: T | None = None) -> T:
        """What is rounded to the arguments of gates: of_x and of_h have the columns `rows` already."""
        a = self.a
        acc = a.add(a.mul(of_x, self.m_x[rows]), a.mul(of_h, self.m_h[rows]))
        acc = a.add(acc, self.bias[rows])
        return acc if more is None else a.add(acc, more)

    def _argument(self, acc: T, shift: Array) -> T:
        return self._limited(half_up(self.a, acc, shift))

    def _limited(self, x: T) -> T:
        limit = self.op.limit
        return self.a.clip(x, int64(max(-limit, -32768)), int64(min(limit, 32767)))

    def _out(self, value: T) -> T:
        """h without its zero point."""
        multiplier, shift = self.op.parameters
        return self._bounded(half_up(self.a, self.a.mul(value, int64(multiplier)), shift))

    def _bounded(self, h: T) -> T:
        zero = self.h_type.zero_point
        return self.a.clip(h, int64(self.op.lo - zero), int64(self.op.hi - zero))

    def _gate(self, of_x: T, of_h: T, gate: int, table: int, more: T | None = None) -> T:
        rows = slice(gate * self.hidden, (gate + 1) * self.hidden)
        acc = self._sum(self._part(of_x, rows), self._part(of_h, rows), rows, more)
        return interpolated(self.a, self._argument(acc, self.shift[rows]), self.tables[table])

    def _lstm(self, of_x: T, of_h: T, cell: T) -> tuple[T, T]:
        a, op, n = self.a, self.op, self.hidden

        def peek(place: int, cells: T) -> T | None:
            if op.peephole is None:
                return None
            part = slice(place * n, (place + 1) * n)
            return a.mul(cells, self._rows(op.peephole)[part] * self._rows(op.multiplier_c)[part])

        bits = op.cell_bits
        i = self._gate(of_x, of_h, 0, 0, peek(0, cell))
        f = a.sub(int64(32768), i) if op.coupled else self._gate(of_x, of_h, 1, 0, peek(1, cell))
        g = self._gate(of_x, of_h, 2, 1)
        kept = a.mul(a.mul(f, cell), int64(1 << (15 - bits)))
        cell = _sat16(a, half_up(a, a.add(kept, a.mul(i, g)), 30 - bits))
        o = self._gate(of_x, of_h, 3, 0, peek(2, cell))
        units = a.mul(o, interpolated(a, cell, self.tables[2]))
        if op.projection is None:
            return self._out(units), cell
        projected = self._product(_sat16(a, half_up(a, units, 15)), 32768, self._rows(op.projection))
        scaled = a.mul(projected, self._rows(op.multiplier_p))
        return self._bounded(half_up(a, scaled, self._rows(op.shift_p))), cell

    def _gru(self, of_x: T, h: T, reach: int, state: T) -> tuple[T, T]:
        a, op, n = self.a, self.op, self.hidden
        new = slice(2 * n, 3 * n)
        of_h = self._product(h, reach, self.r)
        z, r = (self._gate(of_x, of_h, gate, 0) for gate in (0, 1))
        if op.linear_before_reset:
            own = a.add(a.mul(self._part(of_x, new), self.m_x[new]), self.bias[new])
            fed = a.add(a.mul(self._part(of_h, new), self.m_h[new]), self._rows(op.bias_h))
            own, fed = (
                a.clip(half_up(a, part, self.shift[new]), int64(-(1 << 30)), int64(1 << 30))
                for part in (own, fed)
            )
            before = self._limited(half_up(a, a.add(a.mul(own, int64(1 << 15)), a.mul(r, fed)), 23))
        else:
            reset = half_up(a, a.mul(r, h), 15)
            acc = self._sum(self._part(of_x, new), self._product(reset, reach, self.r[new]), new)
            before = self._argument(acc, self.shift[new])
        fresh = interpolated(a, before, self.tables[1])
        mixed = a.add(a.mul(a.sub(int64(32768), z), fresh), a.mul(z, state))
        state = _sat16(a, half_up(a, mixed, 15))
        return self._out(state), state


def _sat16(a: Algebra, x: T) -> T:
    return a.clip(x, int64(-32768), int64(32767))
