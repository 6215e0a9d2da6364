"""The native planners refuse what is out of range, and the drawing of a plan is SVG."""

from __future__ import annotations

import ctypes
from xml.etree import ElementTree

import numpy as np
import pytest

from npuc.errors import InternalError
from npuc.schedule.memory import Buffer, core, plan, plan_svg
from npuc.schedule.memory.core import Items


def items(**changes: object) -> Items:
    arrays: dict[str, object] = {
        "sections": 3,
        "first": [0, 1, 3],
        "start": [0, 1, 2],
        "end": [2, 2, 3],
        "size": [4, 5, 6],
        "alignment": [1, 2],
        "low": [0, 0],
        "high": [100, 100],
    } | changes
    wide = {
        name: np.array(v, np.int64)
        for name, v in arrays.items()
        if name in ("size", "alignment", "low", "high")
    }
    narrow = {name: np.array(v, np.int32) for name, v in arrays.items() if name in ("first", "start", "end")}
    return Items(sections=arrays["sections"], **narrow, **wide)  # type: ignore[arg-type]


ORDER = np.array([0, 1], np.int32)


def test_sound_items_are_placed() -> None:
    peak, address = core.greedy(items(), ORDER, False)
    assert (peak, address.tolist()) == (10, [0, 4])
    assert core.climb(items(), ORDER, 0, 1000)[0] == 9  # the larger item below: 6, and 5 + 4
    found, address, _ = core.search(items(), ORDER, 0, 9, 1000)
    assert found and address.tolist() == [5, 0]
    assert core.search(items(), ORDER, core.PRESSED, 8, 1000)[0] is False


@pytest.mark.parametrize(
    "changes",
    [
        {"sections": 2}, {"sections": 0}, {"first": [0, 1, 4]}, {"first": [0, 2, 1]}, {"first": [1, 1, 3]},
        {"first": [0, 0, 3]}, {"start": [-1, 1, 2]}, {"start": [2, 1, 2]}, {"end": [4, 2, 3]}, {"size": [0, 5, 6]},
        {"size": [4, 5, 1 << 62]}, {"alignment": [0, 1]}, {"alignment": [1 << 53, 1]}, {"low": [-1, 0]},
        {"high": [1 << 60, 1]}, {"high": [-1, 1]},
    ],
)  # fmt: skip
def test_unsound_items_are_refused(changes: dict[str, object]) -> None:
    for call in (
        lambda bad: core.greedy(bad, ORDER, False),
        lambda bad: core.climb(bad, ORDER, 0, 10),
        lambda bad: core.search(bad, ORDER, 0, 100, 10),
    ):
        with pytest.raises(InternalError):
            call(items(**changes))


@pytest.mark.parametrize("order", [[0, 0], [0, 2], [-1, 0]])
def test_an_order_is_a_permutation(order: list[int]) -> None:
    with pytest.raises(InternalError):
        core.greedy(items(), np.array(order, np.int32), False)


def test_limits_are_hard() -> None:
    assert core.greedy(items(high=[3, 100]), ORDER, False)[0] == -1
    assert core.search(items(high=[3, 100]), ORDER, 0, 100, 1000)[0] is False


def test_the_structure_is_that_of_the_header() -> None:
    assert ctypes.sizeof(items().raw()) == 16 + 7 * ctypes.sizeof(ctypes.c_void_p)


def test_a_drawing_is_well_formed_and_names_every_buffer() -> None:
    buffers = [Buffer('a<&"\x00b', 4, 0, 2), Buffer("b", 2, 1, 3), Buffer("c", 40, 2, 4)]
    root = ElementTree.fromstring(plan_svg(plan(buffers)))
    titles = [node.text or "" for node in root.iter("{http://www.w3.org/2000/svg}title")]
    assert len(titles) == 3 and titles[0].startswith('a<&"') and "40 bytes" in titles[2]
    assert len(list(root.iter("{http://www.w3.org/2000/svg}rect"))) == 4  # and the background
    ElementTree.fromstring(plan_svg(plan([])))


def _drawn(rng: np.random.Generator) -> Items:
    """Three to five small items: some with a step (two parts of different sizes), some with a twin, some with limits."""
    parts: list[list[tuple[int, int, int]]] = []
    frames: list[tuple[int, int, int]] = []
    while len(parts) < 3:
        start = int(rng.integers(0, 3))
        middle = start + int(rng.integers(1, 3))
        item = [(start, middle, int(rng.integers(1, 5)))]
        if rng.random() < 0.6:
            item.append((middle, middle + 1, int(rng.integers(1, 5))))
        low = int(rng.choice([0, 0, 0, 2, 3]))
        frame = int(rng.choice([1, 1, 2])), low, low + int(rng.choice([6, 9, 100]))
        for _ in range(int(rng.choice([1, 1, 2]))):
            parts.append(item)
            frames.append(frame)
    parts, frames = parts[:5], frames[:5]
    flat = [part for item in parts for part in item]
    ends = np.cumsum([0, *(len(item) for item in parts)])
    return items(
        sections=max(end for _, end, _ in flat),
        first=ends,
        start=[part[0] for part in flat],
        end=[part[1] for part in flat],
        size=[part[2] for part in flat],
        alignment=[frame[0] for frame in frames],
        low=[frame[1] for frame in frames],
        high=[frame[2] for frame in frames],
    )


def _sound(problem: Items, address: list[int], capacity: int) -> bool:
    """Whether items lie within their limits and nowhere one on the other, part by part."""
    used = []
    for item, at in enumerate(address):
        rows = range(problem.first[item], problem.first[item + 1])
        height = max(int(problem.size[row]) for row in rows)
        if (
            at < problem.low[item]
            or at % problem.alignment[item]
            or at + height > min(problem.high[item], capacity)
        ):
            return False
        used += [(item, at, row) for row in rows]
    for a, x, i in used:
        for b, y, j in used:
            meets = problem.start[i] < problem.end[j] and problem.start[j] < problem.end[i]
            if a < b and meets and x < y + problem.size[j] and y < x + problem.size[i]:
                return False
    return True


def _exists(problem: Items, capacity: int) -> bool:
    """By brute force: every address of every item."""

    def place(address: list[int]) -> bool:
        if not _sound(problem, address, capacity):
            return False
        return len(address) == problem.count or any(place([*address, at]) for at in range(capacity))

    return place([])


@pytest.mark.parametrize("seed", range(60))
def test_the_search_finds_what_there_is_and_nothing_else(seed: int) -> None:
    """Steps in buffers, twins, lower and upper limits: found at a capacity if and only if some placement exists."""
    problem = _drawn(np.random.default_rng(seed))
    order = np.arange(problem.count, dtype=np.int32)
    for capacity in range(3, 14):
        exists = _exists(problem, capacity)
        for mode in (0, core.PRESSED, core.TWINS, core.PRESSED | core.TWINS):
            found, address, _ = core.search(problem, order, mode, capacity, 100_000)
            assert found is exists, (capacity, mode)
            assert not found or _sound(problem, [int(at) for at in address], capacity), (
                capacity,
                mode,
                address,
            )
        if exists:
            break
