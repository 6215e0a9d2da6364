"""Cycle mode against numbers counted by hand, and its costs against the scheduler's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.errors import SimulationError
from npuc.program.instruction import decode
from npuc.program.isa import BY_OPCODE, COMPRESSED, NONE
from npuc.schedule.cost import Costs
from npuc.sim import costs
from npuc.sim.cycles import SubgraphTimeline, simulate_streams
from npuc.target import Target
from support.programs.every_instruction import everything
from support.programs.instructions import Draft, machine

NOTHING = (0, 0, 0, 0)
LATENCY = 200  # of edge-4t, which moves 16 bytes a cycle in bursts of 64


def played(d: Draft) -> SubgraphTimeline:
    return simulate_streams(d.target, [np.array(stream) for stream in d.streams])


def cost(name: str, target: Target | None = None, **fields: Any) -> int:
    d = Draft(target)
    d.emit(name, **fields)
    return int(costs(d.target, np.array(d.streams[0]))[0])


CONV = {
    "n": 1, "h": 10, "w": 10, "c": 20, "out_h": 8, "out_w": 9, "kernel": (3, 2), "groups": 1, "out_c": 40, "x_dtype": 0,
    "w_dtype": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "work"),
    [
        ({}, 3 * 2 * 6 * 9),  # 40 outputs in 3, 20 inputs in 2, 6 taps, 72 pixels in 9
        ({"x_dtype": 2}, 4 * 3 * 2 * 6 * 9),  # int16 at a quarter
        ({"groups": 4}, 4 * 1 * 1 * 6 * 9),
        ({"transposed": 1}, 3 * 2 * 6 * 13),  # 100 pixels of x in 13
        ({"groups": 20, "out_c": 20}, 2 * 6 * 9),  # depthwise: one input lane works
    ],
)
def test_a_convolution_costs_its_passes_over_the_array(changes: dict[str, Any], work: int) -> None:
    assert cost("conv", **CONV | changes) == 16 + work


@pytest.mark.parametrize(("mode", "work"), [("full", 2 * 1 * 9), ("vector", -(-72 * 20 * 6 // 128))])
def test_a_depthwise_convolution_by_the_machine(mode: str, work: int) -> None:
    target = machine(compute__array__depthwise=mode)
    assert cost("conv", target, **CONV | {"groups": 20, "out_c": 20}) == 16 + work


@pytest.mark.parametrize(
    ("name", "fields", "work"),
    [
        ("matmul", {"batch": 3, "m": 9, "k": 17, "cols": 33}, 3 * 3 * 2 * 2),
        ("copy", {"size": (1, 2, 3, 4, 5, 6)}, 6),  # 720 elements
        ("fill", {"count": 129}, 2),
        ("gather", {"outer": 2, "y_size": 5, "x_size": 9, "inner": 13}, 2),
        ("add", {"size": (2, 3, 4, 50)}, 10),
        ("mul", {"size": (1, 1, 1, 1)}, 1),
        ("minmax", {"size": (1, 1, 1, 128)}, 1),
        ("requant", {"elements": 1000}, 8),
        ("table", {"outer": 2, "channels": 3, "inner": 100}, 5),
        ("max_pool", {"n": 1, "out_h": 4, "out_w": 4, "c": 16, "kernel": (3, 3)}, 10),
        ("avg_pool", {"n": 1, "out_h": 4, "out_w": 4, "c": 16, "kernel": (2, 2)}, 6),
        ("reduce", {"outer": 2, "reduced": 64, "inner": 3}, 3),
        ("softmax", {"rows": 2, "width": 65}, 5),
        ("norm", {"rows": 2, "width": 64}, 4),
        ("resize", {"n": 1, "out_h": 4, "out_w": 4, "c": 8}, 4),
    ],
)
def test_what_an_instruction_costs(name: str, fields: dict[str, Any], work: int) -> None:
    assert cost(name, **fields) == 16 + work


def test_tables_have_units_of_their_own() -> None:
    fields = {"outer": 1, "channels": 1, "inner": 128}
    assert cost("table", machine(compute__table_units=4), **fields) == 16 + 32
    assert cost("table", machine(compute__table_units=0), **fields) == 16 + 1


@pytest.mark.parametrize(
    ("size", "far", "cycles"),
    [
        ((1, 1, 1, 1), (0, 0, 0), 4),  # a whole burst
        ((1, 1, 1, 640), (0, 0, 0), 40),
        ((1, 1, 4, 100), (0, 0, 100), 28),  # one run of 400 bytes: 7 bursts
        ((1, 1, 4, 100), (0, 0, 101), 32),  # four of two bursts
        ((1, 3, 4, 16), (0, 64, 16), 12),  # merges to the outside
        ((2, 3, 4, 16), (1000, 64, 16), 24),
        ((3, 1, 4, 16), (64, 7, 16), 12),  # an axis of one element is in nobody's way
    ],
)
def test_a_transfer_costs_its_runs_in_bursts(size: Any, far: Any, cycles: int) -> None:
    assert cost("load", size=size, far_stride=far) == cycles


def test_the_costs_are_those_of_the_scheduler() -> None:
    """The formulas exist twice, in C and in src/npuc/schedule/cost.py."""
    schedule = pytest.importorskip("npuc.schedule.cost")
    d = everything()
    stream = np.array(d.streams[0])
    known = schedule.Costs(d.target)
    for row, found in zip(stream, costs(d.target, stream), strict=True):
        record = row.view(BY_OPCODE[row[0]].dtype)[0]
        name = BY_OPCODE[row[0]].name
        if name in ("load", "store"):
            assert found == known.transfer(1, int(np.prod(record["size"])))
            continue
        assert found == known.cycles(decode(row.tobytes())[1]), name


def test_latency_is_hidden_and_the_channel_is_shared() -> None:
    """Three loads: issued one after another, data in turn; the second core's load waits for the channel."""
    d = Draft(machine(compute__cores=2), cores=2)
    for i in range(2):
        d.load(1, 0, 64 * i, 640, wait=NOTHING)
    d.load(1, 0, 0, 64, core=1, wait=NOTHING)
    found = played(d)
    assert found.cores[0].issue.tolist() == [0, 1]
    # Ready at 200 (core 0), 200 (core 1), 201 (core 0): equals are served by core.
    assert found.cores[0].start.tolist() == [200, 244] and found.cores[0].end.tolist() == [240, 284]
    assert found.cores[1].start.tolist() == [240] and found.cores[1].end.tolist() == [244]
    assert found.total == 284


def test_a_wait_starts_the_engine_and_engines_overlap() -> None:
    d = Draft(machine(banks=1, memory__dram__bandwidth="16GB/s"))
    d.load(1, 0, 0, 64, wait=NOTHING)  # 200 .. 204
    d.emit("fill", wait=(1, 0, 0, 0), y=0, bytes=1, count=1280, value=0)  # 204 .. 230
    d.emit("fill", wait=NOTHING, y=0, bytes=1, count=128, value=0)  # 230 .. 247, behind its queue
    d.emit("store", wait=(0, 0, 0, 1), segment=1, local=0, size=(1, 1, 1, 64))  # issued at 230
    found = played(d).cores[0]
    assert found.start.tolist() == [200, 204, 230, 430] and found.end.tolist() == [204, 230, 247, 434]


def test_a_barrier_waits_for_the_queue_of_every_core() -> None:
    d = Draft(machine(compute__cores=2), cores=2)
    for core, count in ((0, 128), (1, 12800)):
        d.emit("fill", core=core, wait=NOTHING, y=0, bytes=1, count=count, value=0)
        for queue in ("load", "store", "matrix", "vector"):
            d.emit("barrier", core=core, queue=queue, wait=NOTHING, number=1)
        d.emit("fill", core=core, wait=NOTHING, y=0, bytes=1, count=128, value=0)
    found = played(d)
    for core in found.cores:
        assert core.start[[1, 2, 3]].tolist() == [0, 0, 0]
        assert (core.start[4], core.end[5]) == (116, 116 + 17)


def test_transfers_behind_a_barrier_are_issued_when_it_opens() -> None:
    d = Draft(machine(compute__cores=2), cores=2)
    d.load(1, 0, 0, 64, wait=NOTHING)
    for core in range(2):
        d.emit("barrier", core=core, queue="load", wait=NOTHING, number=1)
        d.load(1, 0, 0, 64, core=core, wait=NOTHING)
    found = played(d)
    assert found.cores[0].end[1] == 204
    assert [core.issue[-1] for core in found.cores] == [204, 204]


def bank_program(address: int) -> Draft:
    """A fill of 20 cycles from 0 and a load of 40 data cycles from 10, in 16 banks of 4 KiB."""
    d = Draft(machine(memory__dram__latency="10cycles"))
    d.emit("fill", wait=NOTHING, y=0, bytes=1, count=512, value=0)  # 16 + 4
    d.load(1, 0, address, 640, wait=NOTHING)
    return d


def test_a_transfer_slows_an_engine_in_the_same_bank() -> None:
    assert played(bank_program(4096)).cores[0].end.tolist() == [20, 50]
    # 10 cycles of overlap, a quarter of the bank's 64 bytes a cycle.
    assert played(bank_program(1024)).cores[0].end.tolist() == [23, 50]


def test_an_engine_that_starts_during_a_transfer_is_slowed_too() -> None:
    d = Draft(machine(memory__dram__latency="10cycles"))
    d.load(1, 0, 0, 640, wait=NOTHING)  # data 10 .. 50
    d.emit("fill", wait=NOTHING, y=8192, bytes=1, count=128 * 4, value=0)  # 0 .. 20, elsewhere
    d.emit("fill", wait=NOTHING, y=1024, bytes=1, count=128 * 4, value=0)  # 20 .. 40, and 5 more
    found = played(d).cores[0]
    assert found.end.tolist() == [50, 20, 45]


def test_shared_memory_has_a_channel_of_its_own() -> None:
    data = machine().to_dict()
    data["memory"]["shared"] = {"size": "1MiB", "bandwidth": "64B/cycle"}
    d = Draft(Target.from_dict(data))
    d.load(255, 0, 0, 640, wait=NOTHING)
    d.load(1, 0, 0, 640, wait=NOTHING)
    d.load(255, 0, 0, 640, wait=NOTHING)
    found = played(d).cores[0]
    # The third has its data at 18, and finishes behind the second: transfers of a queue end in order.
    assert found.start.tolist() == [16, 201, 26] and found.end.tolist() == [26, 241, 241]


def compressed(size: int, stored: int) -> dict[str, Any]:
    """The fields of a load that decodes."""
    return {"segment": 0, "size": (1, 1, 1, size), "stored": stored, "flags": COMPRESSED, "wait": NOTHING}


def test_a_compressed_load_takes_the_longer_of_channel_and_decoder() -> None:
    target = machine(memory__weight_decoder="32B/cycle")
    known = Costs(target)
    for size, stored in ((6400, 5000), (6400, 1000), (33, 3)):
        fields = compressed(size, stored)
        wanted = max(-(-stored // 64) * 4, -(-size // 32))
        assert cost("load", target, **fields) == known.decoded(stored, size) == wanted


def test_the_channel_is_free_while_a_core_decodes() -> None:
    d = Draft(machine(memory__weight_decoder="32B/cycle"))
    d.emit("load", **compressed(6400, 640), local=0)  # 40 cycles of the channel, 200 of the decoder
    d.emit("load", **compressed(640, 500), local=8192)  # the decoder is free at 400; 32 cycles of the channel
    d.load(1, 0, 16384, 640, wait=NOTHING)  # behind them in the queue, and on the channel
    # Ready at 200, and the channel at 240.
    d.emit("store", wait=NOTHING, segment=1, local=32768, size=(1, 1, 1, 64))
    found = played(d).cores[0]
    assert found.start.tolist() == [200, 400, 432, 240] and found.end.tolist() == [400, 432, 472, 244]


def test_a_decoded_load_takes_its_own_rate_of_a_bank() -> None:
    d = Draft(machine(memory__dram__latency="10cycles", memory__weight_decoder="32B/cycle"))
    d.emit("fill", wait=NOTHING, y=0, bytes=1, count=512, value=0)  # 16 + 4
    d.emit("load", **compressed(640, 64), local=1024)  # 10 .. 30, 32 bytes a cycle
    assert played(d).cores[0].end.tolist() == [25, 30]


def test_what_cannot_be_played_is_an_error() -> None:
    d = Draft()
    d.emit("load", **compressed(64, 10), local=0)
    with pytest.raises(SimulationError, match="no weight decoder"):
        played(d)
    d = Draft()
    d.load(255, 0, 0, 64, wait=NOTHING)
    with pytest.raises(SimulationError, match="no shared memory"):
        played(d)
    d = Draft(machine(compute__cores=2), cores=2)
    d.emit("barrier", queue="load", wait=NOTHING, number=1)
    with pytest.raises(SimulationError, match="waits for ever"):
        played(d)
    d = Draft()
    d.emit("fill", y=NONE, bytes=1, count=1)
    with pytest.raises(SimulationError, match="y is not there"):
        played(d)
