"""Slow models of LSTM, GRU and simple recurrent layers, from docs/arithmetic-recurrent.md."""

from __future__ import annotations

from typing import Any

from support.oracles.integers import half_up


def sat16(x: int) -> int:
    """Clamp to int16."""
    return min(max(x, -32768), 32767)


def lookup(q: int, table: Any) -> int:
    """A 513-entry table."""
    entry, rest = divmod(q + 32768, 128)
    low, high = int(table[entry]), int(table[entry + 1])
    return low + half_up((high - low) * rest, 7)


def dot(a: list[int], b: Any) -> int:
    """An exact inner product."""
    return sum(x * int(y) for x, y in zip(a, b, strict=True))


def limited(p: Any, x: int) -> int:
    """A gate's argument within its limits."""
    return sat16(min(max(x, -p.limit), p.limit))


def gate(p: Any, k: int, x: list[int], h: list[int], more: int = 0) -> int:
    """The argument of gate row k; `more` is added before the rounding."""
    acc = dot(x, p.w[k]) * int(p.multiplier_x[k]) + dot(h, p.r[k]) * int(p.multiplier_h[k]) + int(p.bias[k])
    return limited(p, half_up(acc + more, int(p.shift[k])))


def peek(p: Any, place: int, cell: int) -> int:
    """What a cell adds through its peephole."""
    return 0 if p.peephole is None else int(p.peephole[place]) * cell * int(p.multiplier_c[place])


def lstm_step(p: Any, x: list[int], h: list[int], cell: list[int]) -> tuple[list[int], list[int]]:
    """Unclamped outputs without their zero point, and cells."""
    n, out, cells = len(cell), [], []
    for k in range(n):
        i = lookup(gate(p, k, x, h, peek(p, k, cell[k])), p.sigmoid)
        f = lookup(gate(p, n + k, x, h, peek(p, n + k, cell[k])), p.sigmoid)
        f = 2**15 - i if p.coupled else f
        g = lookup(gate(p, 2 * n + k, x, h), p.tanh)
        cells.append(sat16(half_up(f * cell[k] * 2 ** (15 - p.cell_bits) + i * g, 30 - p.cell_bits)))
        o = lookup(gate(p, 3 * n + k, x, h, peek(p, 2 * n + k, cells[-1])), p.sigmoid)
        out.append(o * lookup(cells[-1], p.cell_tanh))
    if p.projection is None:
        return [half_up(value * p.out_multiplier, p.out_shift) for value in out], cells
    units = [sat16(half_up(value, 15)) for value in out]
    sums = [dot(units, row) for row in p.projection]
    return [
        half_up(s * int(m), int(t)) for s, m, t in zip(sums, p.multiplier_p, p.shift_p, strict=True)
    ], cells


def rnn_step(p: Any, x: list[int], h: list[int], state: list[int]) -> tuple[list[int], list[int]]:
    """Unclamped outputs without their zero point; there is no inner state."""
    values = [lookup(gate(p, k, x, h), p.tanh) for k in range(len(h))]
    return [half_up(value * p.out_multiplier, p.out_shift) for value in values], state


def first_h(p: Any, state: list[int]) -> list[int]:
    """What the h of a GRU begins with, unclamped and without its zero point."""
    return [half_up(value * p.out_multiplier, p.out_shift) for value in state]


def gru_step(p: Any, x: list[int], h: list[int], state: list[int]) -> tuple[list[int], list[int]]:
    """Unclamped outputs without their zero point, and Q0.15 states."""
    n, out, states = len(h), [], []
    z = [lookup(gate(p, k, x, h), p.sigmoid) for k in range(n)]
    r = [lookup(gate(p, n + k, x, h), p.sigmoid) for k in range(n)]
    reset = [half_up(a * b, 15) for a, b in zip(r, h, strict=True)]
    for k in range(n):
        row = 2 * n + k
        if p.linear_before_reset:
            of_x = half_up(dot(x, p.w[row]) * int(p.multiplier_x[row]) + int(p.bias[row]), int(p.shift[row]))
            of_h = half_up(dot(h, p.r[row]) * int(p.multiplier_h[row]) + int(p.bias_h[k]), int(p.shift[row]))
            of_x, of_h = (min(max(v, -(2**30)), 2**30) for v in (of_x, of_h))
            before = limited(p, half_up(of_x * 2**15 + r[k] * of_h, 23))
        else:
            before = gate(p, row, x, reset)
        fresh = lookup(before, p.tanh)
        states.append(sat16(half_up((32768 - z[k]) * fresh + z[k] * state[k], 15)))
        out.append(half_up(states[-1] * p.out_multiplier, p.out_shift))
    return out, states


STEPS = {"lstm": lstm_step, "gru": gru_step, "rnn": rnn_step}
"""The step of each cell."""
