"""Constants that run ahead of barriers: how far, by hand, and in one order where cores load together."""

from __future__ import annotations

from npuc.schedule.barriers import order_queues
from npuc.schedule.layers import Tensor
from npuc.schedule.steps import Compute, ConstantSlice, Fence, Load, Work

TENSOR = Tensor("t", (1, 64), "i8", 1)


def work(sizes: list[int], rooms: list[int], patience: int = 0, multicast: bool = False) -> Work:
    """Groups of one step of 1,000 cycles each: a load of constants, a barrier (but for the first), a load of a tensor."""
    found = Work(runs_ahead=True, rate=1.0, patience=patience)
    for number, (size, room) in enumerate(zip(sizes, rooms, strict=True)):
        constants, rows = found.buffer(f"constants {number}", size), found.buffer(f"rows {number}", 64)
        source = ConstantSlice(number, (0, 0))
        found.loads.append(
            Load(number, constants, 0, size, source, 0, number, issue=room, multicast=multicast)
        )
        if number:
            found.loads.append(Fence(number, number))
        found.loads.append(Load(number, rows, 0, 64, TENSOR, 0, number, ready=number, issue=number))
        found.steps.append(Compute(number, (), {}))
    found.times = [1000.0 * number for number in range(len(sizes) + 1)]
    return found


def order(done: Work) -> list[str]:
    """What is issued, in order."""
    loads = [done.loads[number] for number in done.queue()]
    return ["barrier" if isinstance(load, Fence) else load.buffer.name for load in loads]


def test_constants_come_ahead_as_far_as_there_is_time() -> None:
    # While the first group is at work there are 1,000 cycles: 100 and 300 of constants fit, 900 more do not.
    done = work([100, 300, 900], [0, 0, 0])
    order_queues([done])
    assert order(done) == [
        "constants 0", "rows 0", "constants 1", "barrier", "rows 1", "constants 2", "barrier", "rows 2",
    ]  # fmt: skip


def test_tensors_wait_for_constants_as_long_as_they_are_told_to() -> None:
    done = work([100, 300, 900], [0, 0, 0], patience=500)
    order_queues([done])
    assert order(done)[2:5] == ["constants 1", "constants 2", "barrier"]


def test_constants_that_are_needed_come_whatever_they_take() -> None:
    done = work([100, 5000, 100], [0, 0, 0])
    order_queues([done])
    assert order(done)[:4] == ["constants 0", "rows 0", "constants 1", "barrier"]


def test_no_constants_come_before_there_is_room() -> None:
    done = work([100, 100, 100], [0, 0, 2])
    order_queues([done])
    assert order(done)[3:] == ["barrier", "rows 1", "constants 2", "barrier", "rows 2"]


def test_cores_that_load_together_have_one_order() -> None:
    # The second core has room for the last constants only when its second step is done.
    cores = [work([100, 100, 100], rooms, multicast=True) for rooms in ([0, 0, 0], [0, 0, 2])]
    order_queues(cores)
    assert order(cores[0]) == order(cores[1])
    assert order(cores[0])[3:6] == ["barrier", "rows 1", "constants 2"]
