"""How late loads may come: by hand, with a channel that stores share, and what memory that leaves in use."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from npuc.schedule.layers import Tensor
from npuc.schedule.load_deadlines import Times, latest_issues, needed_memory
from npuc.schedule.steps import Buffer, Compute, ConstantSlice, Load, Store, Work

TENSOR = Tensor("t", (1, 64), "i8", 1)


def work(needs: list[int], kinds: str, size: int = 64) -> Work:
    """Steps, `c` for one that computes and `s` for one that stores, and loads of `size` bytes that steps need."""
    found = Work()
    out = found.buffer("out", 64)
    steps: list[Any] = [
        Compute(0, (), {}) if kind == "c" else Store(0, out, 0, 64, TENSOR, 0) for kind in kinds
    ]
    found.steps.extend(steps)
    for number in range(len(kinds)):
        out.touch(number)
    for need in needs:
        buffer = found.buffer(f"for {need}", size)
        buffer.touch(need)
        found.loads.append(Load(0, buffer, 0, size, ConstantSlice(0, (0, 0)), 0, need))
    return found


def times(steps: list[tuple[int, int]], loads: list[tuple[int, int]], latency: int = 10) -> Times:
    spans = np.array(loads, np.int64).reshape(-1, 2)
    return Times(np.array(steps, np.int64), spans, spans[:, 1] - spans[:, 0], latency)


STEPS = [(100, 200), (200, 300), (300, 400), (400, 500)]


def test_a_load_comes_as_the_step_that_needs_it_begins() -> None:
    # 20 cycles of data and 10 of latency before cycle 400: issued when the steps that end by 370 are done.
    assert latest_issues(work([3], "cccc"), times(STEPS, [(0, 20)]), 0) == [2]
    assert latest_issues(work([3], "cccc"), times(STEPS, [(0, 20)]), 80) == [1]
    assert latest_issues(work([3], "cccc"), times(STEPS, [(0, 20)], latency=190), 0) == [0]


def test_a_load_comes_before_the_one_behind_it() -> None:
    # Both are for the step at 400: the second takes 120 cycles, so the first has to begin by 260.
    assert latest_issues(work([3, 3], "cccc"), times(STEPS, [(0, 20), (20, 140)]), 0) == [1, 1]


def test_a_load_that_came_late_is_not_asked_for_earlier_than_it_came() -> None:
    # Its data was there at 450, and the step began at 400 all the same: with the first rows of it.
    assert latest_issues(work([3], "cccc"), times(STEPS, [(430, 450)]), 0) == [3]


def test_stores_take_the_channel_first() -> None:
    # The store of 300 to 400 is in the way of 20 cycles of data before 400: they come before 300.
    assert latest_issues(work([3], "ccsc"), times(STEPS, [(0, 20)]), 0) == [1]


def test_what_waited_for_the_decoder_takes_its_own_time_only() -> None:
    # The data of the second came from 20 on, and was decoded from 100 to 140.
    assert latest_issues(work([1, 3], "cccc"), times(STEPS, [(0, 100), (20, 140)]), 0)[1] == 1
    spans = times(STEPS, [(0, 100), (20, 140)])
    own = Times(spans.steps, spans.loads, np.array([100, 40]), 10)
    assert latest_issues(work([1, 3], "cccc"), own, 0)[1] == 2


def test_memory_in_use_follows_from_the_issues() -> None:
    made = work([1, 3], "cccc", size=1000)
    assert needed_memory(made, [0, 0]) == 64 + 2 * 1024
    assert needed_memory(made, [1, 2]) == 64 + 1024
    cast(Buffer, made.buffers[0]).last = -1  # nothing touches it
    assert needed_memory(made, [1, 2]) == 1024
