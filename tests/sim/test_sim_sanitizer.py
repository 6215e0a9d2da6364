"""Planted bugs: the sanitizer finds each, names both instructions, and says nothing of sound programs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from npuc.errors import SimulationError
from npuc.program.isa import BY_NAME
from npuc.program.model import Allocation
from npuc.sim.sanitize import MOST, Access, Finding
from support.programs.every_instruction import everything
from support.programs.instructions import Draft, machine

MATRIX = 2
NOTHING = (0, 0, 0, 0)


def upon(**counts: int) -> tuple[int, ...]:
    """Waits by the names of queues."""
    return tuple(counts.get(name, 0) for name in ("load", "store", "matrix", "vector"))


def pipeline(first: Any = None, second: Any = None, third: Any = None) -> Draft:
    """load x; y = requant(x); store y; load into x again. The waits of the last three can be replaced."""
    d = Draft()
    x = d.put(np.arange(64, dtype=np.int8), wait=NOTHING)
    multiplier = d.put(np.array([1 << 30], np.int32), constant=True, wait=NOTHING)
    shift = d.put(np.array([30], np.int32), constant=True, wait=NOTHING)
    y = d.room(64)
    d.emit(
        "requant", wait=upon(load=3) if first is None else first, x=x, elements=64, y=y, kind=1, count=1,
        multiplier=multiplier, shift=shift, lo=-128, hi=127, layer=1,
    )  # fmt: skip
    d.fetch(y, (64,), np.int8, wait=upon(vector=1) if second is None else second)
    d.load(2, 0, x, 64, wait=upon(vector=1) if third is None else third)
    return d


def test_a_sound_program_has_no_findings() -> None:
    d = pipeline()
    assert d.sanitize() == [] and d.sanitize(allocations=True) == []
    np.testing.assert_array_equal(d.run()[0], np.arange(64))


def test_every_instruction_waits_for_all_before_and_is_sound() -> None:
    d = everything()
    findings = [f for f in d.sanitize() if f.fault != "unwritten"]  # stores take 64 bytes of shorter results
    assert findings == []


def test_a_read_that_does_not_wait_for_its_load_is_a_race() -> None:
    (found,) = pipeline(first=upon(load=2)).sanitize()
    assert (found.fault, found.operand, found.bytes) == ("race", "shift", 4)
    assert found.access.instruction == 3 and found.access.opcode == "requant" and not found.access.write
    assert (
        found.other is not None
        and found.other.instruction == 2
        and found.other.opcode == "load"
        and found.other.write
    )
    assert found.access.layer == "layer 'second'" and found.other.layer == "layer 'first'"
    assert "nothing orders the two" in str(found)


def test_a_store_that_does_not_wait_is_a_race() -> None:
    (found,) = pipeline(second=NOTHING).sanitize()
    assert found.fault == "race" and found.access.opcode == "store" and found.bytes == 64
    assert found.other is not None and found.other.opcode == "requant"


def test_a_load_over_what_is_still_read_is_a_race() -> None:
    (found,) = pipeline(third=NOTHING).sanitize()
    assert found.fault == "race" and found.access.write
    assert found.other is not None and (found.other.opcode, found.other.write) == ("requant", False)


def test_order_is_transitive() -> None:
    """The last load waits for the store alone, which waits for the requant that reads."""
    assert pipeline(third=upon(store=1)).sanitize() == []


def test_a_byte_that_nobody_wrote_is_found() -> None:
    d = Draft()
    x = d.put(np.zeros(10, np.int8))
    d.fetch(x, (13,), np.int8)
    (found,) = d.sanitize()
    assert (found.fault, found.address, found.bytes, found.operand) == ("unwritten", x + 10, 3, "local")
    assert found.other is None and "nothing has written" in str(found)


def test_the_workspace_is_unwritten_until_it_is_stored_to() -> None:
    d = Draft()
    x = d.put(np.zeros(32, np.int8))
    d.emit("store", segment=1, offset=100, local=x, size=(1, 1, 1, 32))
    d.load(1, 96, d.room(64), 40)
    (found,) = d.sanitize()
    assert (found.fault, found.place, found.address, found.bytes) == ("unwritten", "'workspace'", 96, 8)


def test_a_load_of_dram_that_does_not_wait_for_its_store_is_a_race() -> None:
    d = Draft()
    x = d.put(np.zeros(32, np.int8))
    d.emit("store", segment=1, offset=0, local=x, size=(1, 1, 1, 32))
    d.load(1, 16, d.room(16), 16, wait=NOTHING)
    (found,) = d.sanitize()
    assert found.fault == "race" and found.place == "'workspace'" and found.bytes == 16


def test_bytes_beside_each_other_are_apart() -> None:
    """Two engines write every other byte of one range: no race, and one byte further a race."""
    for shift, faults in ((1, []), (2, ["race"])):
        d = Draft()
        x, y = d.put(np.zeros(32, np.int8)), d.room(64)
        d.emit(
            "copy", wait=upon(load=1), x=x, y=y, bytes=1, size=(1, 1, 1, 1, 1, 16), x_stride=(0,) * 5 + (1,),
            y_stride=(0,) * 5 + (2,),
        )  # fmt: skip
        d.emit(
            "load", wait=NOTHING, segment=2, offset=0, local=y + shift, size=(1, 1, 16, 1), far_stride=(0, 0, 1),
            near_stride=(0, 0, 2),
        )  # fmt: skip
        assert [f.fault for f in d.sanitize()] == faults


def test_in_place_is_no_race_with_itself() -> None:
    d = pipeline()
    fields = d.streams[0][3].view(BY_NAME["requant"].dtype)
    fields["y"] = fields["x"]
    d.streams[0] = d.streams[0][:4]
    assert d.sanitize() == []


@pytest.mark.parametrize(
    ("allocation", "faults"),
    [
        (Allocation("x", 0, 0, 64, 0, 5), []),
        (Allocation("x", 0, 0, 63, 0, 5), ["outside"] * 3),  # the load, the requant, the load
        (Allocation("x", 0, 0, 64, 1, 5), ["outside"]),  # the first load comes too early
        (Allocation("x", 0, 0, 64, 0, 2), ["outside"] * 2),  # the last two too late
        (Allocation("x", 1, 0, 64, 0, 5), ["outside"] * 3),  # of another core
    ],
)
def test_an_access_outside_of_its_allocation_is_found(allocation: Allocation, faults: list[str]) -> None:
    d = pipeline()
    d.allocations[0] = allocation
    found = d.sanitize(allocations=True)
    assert [f.fault for f in found] == faults
    assert all(f.operand in ("x", "local") for f in found)


def test_a_transfer_may_span_objects_and_an_operand_may_not() -> None:
    d = Draft()
    x = d.put(np.zeros(128, np.int8))
    d.allocations = [Allocation("a", 0, x, 64, 0, 9), Allocation("b", 0, x + 64, 64, 0, 9)]
    d.emit("fill", y=x + 32, bytes=1, count=64, value=0)
    (found,) = d.sanitize(allocations=True)
    assert (found.fault, found.access.opcode, found.address, found.bytes) == ("outside", "fill", x + 64, 32)


def two_cores(barrier: bool, wait: bool = True, writer: int = 0) -> Draft:
    """One core stores to the workspace, the other one loads it."""
    d, reader = Draft(machine(compute__cores=2), cores=2), 1 - writer
    x = d.put(np.arange(64, dtype=np.int8), core=writer)
    d.emit("store", core=writer, segment=1, offset=0, local=x, size=(1, 1, 1, 64))
    for core in range(2):
        for queue in ("load", "store", "matrix", "vector") if barrier else ():
            d.emit("barrier", core=core, queue=queue, wait=NOTHING, number=1)
    y = d.room(64, core=reader)
    # Behind its own store queue's barrier, which is behind the store of the other core.
    d.load(1, 0, y, 64, core=reader, wait=upon(store=1) if barrier and wait else NOTHING)
    d.fetch(y, (64,), np.int8, core=reader, wait=upon(load=2 if barrier else 1))
    return d


@pytest.mark.parametrize("writer", [0, 1])
def test_a_barrier_orders_cores(writer: int) -> None:
    d = two_cores(barrier=True, writer=writer)
    assert d.sanitize() == []
    np.testing.assert_array_equal(d.run()[0], np.arange(64))


@pytest.mark.parametrize("barrier", [False, True])
def test_cores_without_order_race(barrier: bool) -> None:
    """Without a barrier, or with one that the load does not stand behind."""
    (found,) = two_cores(barrier, wait=False).sanitize()
    assert found.fault == "race" and found.access.core == 1
    assert found.other is not None and (found.other.core, found.other.opcode) == (0, "store")


def test_cores_that_never_meet_are_an_error() -> None:
    d = two_cores(barrier=True)
    d.streams[1] = [row for row in d.streams[1] if row[0] != 3 or row[1] != MATRIX]
    with pytest.raises(SimulationError, match="not every core comes to this barrier"):
        d.run()


def test_findings_are_bounded() -> None:
    d = Draft()
    for _ in range(MOST + 20):
        d.emit("store", wait=NOTHING, segment=3, offset=0, local=0, size=(1, 1, 1, 8))
    assert len(d.sanitize()) == MOST


def test_an_allocation_that_the_alignment_does_not_allow() -> None:
    d = pipeline()
    place = d.allocations[0]
    d.allocations[0] = replace(place, address=place.address + 8, size=place.size - 8)
    misaligned = [f for f in d.sanitize(allocations=True) if f.fault == "misaligned"]
    assert [(f.address, f.operand) for f in misaligned] == [(place.address + 8, place.name)]
    assert "begin at no multiple of the target's alignment" in str(misaligned[0])


def test_findings_say_who_does_what_where() -> None:
    reader = Access(1, 7, "conv", "stem", False)
    writer = Access(0, 3, "load", "stem", True)
    finding = Finding("race", "npu1", "local memory", 0x40, 16, "x", reader, writer)
    place = "16 bytes at 64 of local memory (x)"
    words = {
        "unwritten": ", and nothing has written them before",
        "outside": ", which are not inside a live allocation",
        "misaligned": ", which begin at no multiple of the target's alignment",
        "race": ", and instruction 3 of core 0 (load, stem) writes them too; nothing orders the two",
    }
    for fault, rest in words.items():
        told = str(replace(finding, fault=fault))
        assert told == f"instruction 7 of core 1 (conv, stem) reads {place}{rest}"
