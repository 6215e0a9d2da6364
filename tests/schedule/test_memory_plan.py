"""Memory plans keep every promise: no overlap, alignment, fixed positions, aliases, limits; and the exact ones are exact."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.errors import MemoryPlanError
from npuc.schedule.memory import Banks, Buffer, MemoryPlan, plan

STEPS = 300_000
OPTIONS = settings(deadline=None, derandomize=True, max_examples=150)


def check(found: MemoryPlan, buffers: Sequence[Buffer], aliases: Sequence[Sequence[str]] = ()) -> None:
    """Everything that is true of every plan, pair by pair."""
    together = {frozenset((a, b)) for group in aliases for a in group for b in group}
    at = found.addresses
    assert list(at) == [b.name for b in buffers]
    for i, b in enumerate(buffers):
        assert at[b.name] >= 0 and at[b.name] % b.alignment == 0
        assert b.fixed is None or at[b.name] == b.fixed
        for o in buffers[:i]:
            if frozenset((b.name, o.name)) in together:
                assert at[b.name] == at[o.name]
            elif b.start < o.end and o.start < b.end:
                assert at[b.name] + b.size <= at[o.name] or at[o.name] + o.size <= at[b.name]
    assert found.size == max(at[b.name] + b.size for b in buffers)
    assert found.lower_bound <= found.size
    assert found.proven or found.lower_bound < found.size


@st.composite
def buffer_lists(
    draw: st.DrawFn, most: int = 24, alignments: Sequence[int] = (1, 1, 4, 6, 16)
) -> list[Buffer]:
    found = []
    for k in range(draw(st.integers(1, most))):
        start = draw(st.integers(-3, 12))
        found.append(
            Buffer(
                f"b{k}",
                draw(st.integers(1, 40)),
                start,
                start + draw(st.integers(1, 8)),
                draw(st.sampled_from(alignments)),
            )
        )
    return found


def smallest(buffers: Sequence[Buffer]) -> int:
    """By brute force: some order of placing everything on top of what is there is the best."""
    best = 1 << 60
    for order in permutations(buffers):
        at: dict[str, int] = {}
        peak, placed = 0, []
        for b in order:
            floor = max(
                (at[o.name] + o.size for o in placed if b.start < o.end and o.start < b.end), default=0
            )
            at[b.name] = -(-floor // b.alignment) * b.alignment
            peak = max(peak, at[b.name] + b.size)
            placed.append(b)
            if peak >= best:
                break
        best = min(best, peak)
    return best


def test_more_buffers_than_the_search_takes_stay_open() -> None:
    # At most 10 units are alive, but 13 are not enough: the search proves that of a few such buffers, and takes no step here.
    buffers = [
        Buffer(f"{name}{at}", size, at + start, at + end, fixed=4 if name == "x" else None)
        for at in range(0, 15_000, 10)
        for name, size, start, end in (("x", 4, 0, 10), ("a", 6, 0, 5), ("b", 5, 5, 10), ("c", 1, 5, 10))
    ]
    assert len(buffers) > 4096
    with pytest.raises(MemoryPlanError, match="no plan was found that fits 13"):
        plan(buffers, capacity=13, steps=STEPS)


@OPTIONS
@given(buffer_lists())
def test_a_plan_keeps_its_promises(buffers: list[Buffer]) -> None:
    check(plan(buffers, steps=STEPS), buffers)


@OPTIONS
@given(buffer_lists(most=6, alignments=(1, 1, 3, 4)))
def test_a_proven_plan_of_few_buffers_is_the_smallest(buffers: list[Buffer]) -> None:
    found = plan(buffers, steps=STEPS)
    check(found, buffers)
    assert found.proven
    assert found.size == smallest(buffers)


def test_the_search_proves_that_a_bound_cannot_be_reached() -> None:
    # 10 units are alive at most, but below the fixed buffer there is room for 4 of them only.
    buffers = [
        Buffer("x", 4, 0, 10, fixed=4),
        Buffer("a", 6, 0, 5),
        Buffer("b", 5, 5, 10),
        Buffer("c", 1, 5, 10),
    ]
    found = plan(buffers)
    assert (found.size, found.proven) == (14, True)
    assert plan(buffers, capacity=100).lower_bound == 10
    with pytest.raises(MemoryPlanError, match="proven"):
        plan(buffers, capacity=13)


def test_steps_that_do_not_suffice_are_said() -> None:
    buffers = [Buffer(f"b{k}", 7 + k * 37 % 50, k * 13 % 40, k * 13 % 40 + 3 + k % 9) for k in range(80)]
    best = plan(buffers, steps=10)
    assert not best.proven
    with pytest.raises(MemoryPlanError, match=r"smallest plan found has .* more steps"):
        plan(buffers, capacity=best.size - 1, steps=10)


@OPTIONS
@given(buffer_lists(alignments=(1, 4)), st.data())
def test_aliases_share_an_address(buffers: list[Buffer], data: st.DataObject) -> None:
    names = [b.name for b in buffers]
    groups = [data.draw(st.lists(st.sampled_from(names), min_size=1, max_size=4, unique=True))]
    check(plan(buffers, aliases=groups, steps=STEPS), buffers, groups)


@OPTIONS
@given(buffer_lists(most=12), st.data())
def test_fixed_buffers_stay_where_they_are(buffers: list[Buffer], data: st.DataObject) -> None:
    free = plan(buffers, steps=STEPS)
    lift = data.draw(st.sampled_from((0, 48, 96)))  # a multiple of every alignment
    chosen = data.draw(st.sets(st.sampled_from(range(len(buffers))), max_size=3))
    pinned = [
        Buffer(
            b.name,
            b.size,
            b.start,
            b.end,
            b.alignment,
            free.addresses[b.name] + lift if k in chosen else None,
        )
        for k, b in enumerate(buffers)
    ]
    check(plan(pinned, steps=STEPS), pinned)


@OPTIONS
@given(buffer_lists(most=16))
def test_a_capacity_is_kept_or_refused(buffers: list[Buffer]) -> None:
    size = plan(buffers, steps=STEPS).size
    found = plan(buffers, capacity=size + 5, steps=STEPS)
    check(found, buffers)
    assert found.size <= size + 5
    with pytest.raises(MemoryPlanError):
        plan(buffers, capacity=plan(buffers, steps=STEPS).lower_bound - 1)


def test_in_place_saves_memory_where_it_may_be_used() -> None:
    buffers = [Buffer("x", 100, 0, 2), Buffer("y", 60, 1, 4), Buffer("z", 30, 2, 4)]
    assert plan(buffers).size == 160
    found = plan(buffers, may_alias=[("x", "y")])
    assert found.size == 100 and found.proven
    assert found.addresses["x"] == found.addresses["y"]
    # Where sharing would cost more it is not done.
    long = [
        Buffer("a", 10, 0, 1),
        Buffer("b", 10, 5, 6),
        Buffer("c", 10, 0, 1, fixed=10),
        Buffer("d", 10, 5, 6, fixed=0),
    ]
    assert plan(long, may_alias=[("a", "b")]).size == 20


def test_banks_keep_buffers_apart_where_there_is_room() -> None:
    buffers = [Buffer("x", 30, 0, 2), Buffer("w", 30, 0, 2), Buffer("y", 30, 1, 3), Buffer("t", 20, 0, 3)]
    wish = Banks(64, (("x", "w"), ("x", "y")))
    tight = plan(buffers, banks=wish)
    assert tight.size == 110
    roomy = plan(buffers, capacity=256, banks=wish)
    check(roomy, buffers)
    assert roomy.shared == ()
    banks = {n: set(range(a // 64, (a + 29) // 64 + 1)) for n, a in roomy.addresses.items() if n != "t"}
    assert not banks["x"] & banks["w"] and not banks["x"] & banks["y"]


def test_a_buffer_can_be_bound_to_a_bank() -> None:
    buffers = [Buffer("x", 30, 0, 2), Buffer("y", 30, 0, 2, bank=1), Buffer("z", 40, 0, 2, bank=1)]
    found = plan(buffers, banks=Banks(70))
    check(found, buffers)
    assert {found.addresses["y"], found.addresses["z"]} <= set(range(70, 111)) and found.addresses["x"] == 0


@pytest.mark.parametrize(
    ("buffers", "options", "words"),
    [
        ([Buffer("x", 0, 0, 1)], {}, "'x'.*size of 0"),
        ([Buffer("x", 1 << 70, 0, 1)], {}, "'x'.*makes no sense"),
        ([Buffer("x", 4, 2, 2)], {}, "'x'.*never alive"),
        ([Buffer("x", 4, 0, 1 << 70)], {}, "'x'.*lifetime"),
        ([Buffer("x", 4, 0, 1, alignment=0)], {}, "'x'.*alignment of 0"),
        ([Buffer("x", 4, 0, 1, fixed=-4)], {}, "'x'.*fixed address of -4"),
        ([Buffer("x", 4, 0, 1, 8, fixed=4)], {}, "'x'.*not a multiple"),
        ([Buffer("x", 4, 0, 1), Buffer("x", 4, 0, 1)], {}, "two buffers"),
        ([Buffer("x", 9, 0, 1)], {"capacity": 8}, "'x'.*9 bytes do not fit a memory of 8"),
        ([Buffer("x", 4, 0, 1, fixed=6)], {"capacity": 8}, "'x'.*at 6 do not fit"),
        ([Buffer("x", 6, 0, 1), Buffer("y", 6, 0, 1)], {"capacity": 8}, "at least 12 bytes"),
        ([Buffer("x", 4, 0, 3, fixed=0), Buffer("y", 4, 2, 4, fixed=2)], {}, "'x' at 0 and 'y' at 2"),
        (
            [Buffer("x", 4, 0, 3, fixed=0), Buffer("y", 4, 2, 4, fixed=2)],
            {"aliases": [("x", "y")]},
            "'x', 'y' must be at two places",
        ),
        ([Buffer("x", 4, 0, 1)], {"aliases": [("x", "nobody")]}, "'nobody'"),
        ([Buffer("x", 4, 0, 1, bank=1)], {}, "no banks"),
        ([Buffer("x", 9, 0, 1, bank=1)], {"banks": Banks(8)}, "do not fit a bank"),
        ([Buffer("x", 4, 0, 1)], {"banks": Banks(8, (("x", "y"),))}, "'y'"),
        ([Buffer("x", 4, 0, 1)], {"capacity": -1}, "capacity of -1"),
    ],
)  # fmt: skip
def test_what_is_impossible_is_said(buffers: list[Buffer], options: dict[str, object], words: str) -> None:
    with pytest.raises(MemoryPlanError, match=words):
        plan(buffers, **options)  # type: ignore[arg-type]


def test_no_buffers_need_no_memory() -> None:
    assert plan([]).size == 0


def test_the_same_input_gives_the_same_plan() -> None:
    buffers = [Buffer(f"b{k}", 7 + k * 37 % 50, k * 13 % 40, k * 13 % 40 + 3 + k % 9) for k in range(80)]
    assert plan(buffers, steps=STEPS) == plan(buffers, steps=STEPS)
