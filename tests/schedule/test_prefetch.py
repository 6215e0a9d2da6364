"""Loads run ahead as far as there is room: the example of npuc.schedule.prefetch."""

from __future__ import annotations

from npuc.schedule.layers import BLOCK
from npuc.schedule.prefetch import place
from npuc.schedule.steps import Buffer, Compute, ConstantSlice, Load, Work


def test_weights_come_a_step_ahead_and_two_places_are_used_in_turn() -> None:
    work = Work()
    results = [work.buffer("R0", 3 * BLOCK), work.buffer("R1", 3 * BLOCK)]
    weights = [work.buffer(f"W{n}", 2 * BLOCK) for n in range(3)]
    touched: list[list[Buffer]] = [
        [results[0], weights[0]],
        [results[0], results[1], weights[1]],
        [results[1], weights[2]],
    ]
    for number, buffers in enumerate(touched):
        work.steps.append(Compute(0, (), {}))
        for buffer in buffers:
            buffer.touch(number)
        work.loads.append(Load(0, weights[number], 0, 2 * BLOCK, ConstantSlice(0, (0, 0)), 0, number))
    addresses = place(work, 10 * BLOCK)
    assert [load.issue for load in work.loads] == [0, 0, 1]
    assert [addresses[one] // BLOCK for one in weights] == [8, 6, 8]
    assert [addresses[one] // BLOCK for one in results] == [0, 3]
