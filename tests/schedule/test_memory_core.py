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
