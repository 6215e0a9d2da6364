"""Constants of the BM1684X that are loaded while earlier layers compute, and lines of single elements."""

from __future__ import annotations

from npuc.program.bm1684x.commands import LANE_BYTES
from npuc.schedule.bm1684x.cycles import timeline
from npuc.schedule.bm1684x.layout import LocalTensor
from npuc.schedule.bm1684x.memory import Buffer, LaneMemory, share_bank
from npuc.schedule.bm1684x.order import hoisted, ordered
from npuc.schedule.bm1684x.prefetch import prefetched
from npuc.schedule.bm1684x.work import COPY_FROM_OPERAND, Address, Builder, Operand, constant

HALF = 131072


def _program() -> tuple[Builder, list[Buffer]]:
    """A long command, and behind it one that reads constants, which lie where the first one wrote."""
    build = Builder()
    shape = (1, 64, 1, HALF // 2)
    build.elementwise(COPY_FROM_OPERAND, shape, Operand(0, "i8", size=HALF // 2), constant(3, "i8"))
    source = Address("coefficients", 0)
    build.move(source, Address("local", 0), (1, 64, 1, 4096), (0, 4096, 1, 1), (0, 4096, 1, 1))
    target, given = LocalTensor(HALF, (1, 64, 1, 4096)), Operand(0, "i8", size=4096)
    build.elementwise(COPY_FROM_OPERAND, target.shape, Operand(HALF, "i8", size=4096), given)
    return build, [Buffer(0, HALF // 2, 0, 1), Buffer(0, 4096, 1, 3), Buffer(HALF, 4096, 2, 3)]


def test_constants_move_to_bytes_that_are_free_before() -> None:
    build, buffers = _program()
    late = timeline(ordered(hoisted(build.issues)))
    moved = prefetched(build.issues, buffers, LANE_BYTES)
    soon = timeline(ordered(hoisted(moved)))
    assert soon.total < late.total
    load = moved[1]
    assert load.target is not None and load.target.offset >= HALF // 2
    assert load.writes == (("local", load.target.offset, load.target.offset + 4096),)
    assert moved[2].values["opd0_addr"] == load.target.offset
    assert moved[2].values["res0_addr"] == HALF
    assert moved[0] == build.issues[0]


def test_constants_stay_where_no_other_bytes_are_free() -> None:
    build, buffers = _program()
    full = Buffer(HALF // 2, LANE_BYTES - HALF // 2, 0, 3)
    moved = prefetched(build.issues, [*buffers[:2], full], LANE_BYTES)
    load = moved[1]
    assert load.target is not None and load.target.offset + 4096 <= HALF // 2


def test_bytes_are_taken_in_other_banks_if_there_are_any() -> None:
    memory = LaneMemory(LANE_BYTES)
    first = memory.take(100)
    apart = memory.take(100, apart=[(first, first + 100)])
    assert not share_bank((first, first + 100), (apart, apart + 100))
    small = LaneMemory(8192)
    first = small.take(100)
    assert small.take(100, apart=[(first, first + 100)]) != first
