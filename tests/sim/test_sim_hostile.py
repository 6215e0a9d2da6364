"""Programs that mean harm: whatever a record says, the answer is an error that names it, never a crash."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.errors import SimulationError
from npuc.program.isa import BY_OPCODE, NONE, RECORD
from npuc.sim import calls
from npuc.sim.machine import machine_of
from support.programs.every_instruction import LOCAL, everything
from support.programs.instructions import Draft


class Machine:
    """A simulator without a model around it."""

    def __init__(self, d: Draft) -> None:
        model = d.compiled()
        self.stream = model.subgraphs[0].streams[0]  # type: ignore[union-attr]
        self.machine = machine_of(d.target)
        self.segments = [
            np.array(model.weights), np.zeros(4096, np.uint8), np.frombuffer(bytes(d.input), np.uint8).copy(),
            np.zeros(model.segments[3].size, np.uint8),
        ]  # fmt: skip
        constants = self.segments[0]
        self.handle = calls.function("npuc_sim_create")(1, LOCAL, 256, constants.ctypes.data, constants.size)
        self.findings = (calls.RawFinding * 4)()

    def run(self, stream: Array) -> list[tuple[int, calls.RawError]]:
        """Statuses of instruction mode, sanitizer and cycle mode."""
        program, found = calls.Program([stream], self.segments), ctypes.c_int64()
        count = int(program.counts[0])
        times = [np.zeros(count + 1, np.int64) for _ in range(3)]
        allocation = calls.RawAllocation(0, 0, 9000, 0, count)
        results = []
        for name, arguments in (
            ("npuc_sim_run", (self.handle, program.address, 1)),
            (
                "npuc_sim_sanitize",
                (self.handle, program.address, 1, ctypes.addressof(allocation), 1, ctypes.addressof(self.findings), 4,
                 ctypes.addressof(found)),
            ),
            (
                "npuc_sim_cycles",
                (ctypes.addressof(self.machine), program.address, *(t.ctypes.data for t in times), ctypes.addressof(found)),
            ),
            ("npuc_sim_cost", (ctypes.addressof(self.machine), program.streams[0].ctypes.data, count, times[0].ctypes.data)),
        ):  # fmt: skip
            error = calls.RawError(core=-1, instruction=-1)
            status = calls.function(name)(*arguments, ctypes.addressof(error))
            results.append((status, error))
        return results


def test_the_program_that_is_mutated_runs() -> None:
    d = everything()
    results = Machine(d).run(d.compiled().subgraphs[0].streams[0])  # type: ignore[union-attr]
    for status, error in results:
        assert status == 0, (error.instruction, error.message)


EDGES = (
    0,
    1,
    2,
    3,
    5,
    8,
    127,
    255,
    256,
    4095,
    16383,
    LOCAL,
    65535,
    2**24,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**63,
)


def mutated(rng: np.random.Generator, stream: Array) -> Array:
    changed = stream.copy()
    for _ in range(rng.integers(1, 4)):
        row = changed[rng.integers(len(changed))]
        fields = BY_OPCODE[row[0]].dtype.fields if row[0] in BY_OPCODE else None
        match rng.integers(5):
            case 0:
                row[rng.integers(RECORD)] ^= 1 << rng.integers(8)
            case 1:
                row[:] = rng.integers(0, 256, RECORD)
                row[0] = rng.choice(list(BY_OPCODE))
            case _ if fields:  # one number of one field
                name = str(rng.choice([name for name in fields if name != "opcode"]))
                base = fields[name][0].base
                at = int(fields[name][1]) + base.itemsize * int(
                    rng.integers(fields[name][0].itemsize // base.itemsize)
                )
                value = int(EDGES[rng.integers(len(EDGES))]) + int(rng.integers(-2, 3))
                row[at : at + base.itemsize] = list(
                    (value % 2 ** (8 * base.itemsize)).to_bytes(base.itemsize, "little")
                )
    return changed


def test_2000_mutations_never_crash() -> None:
    rng = np.random.default_rng(7)
    target = Machine(everything())
    refused = 0
    for _ in range(2000):
        stream = mutated(rng, target.stream)
        for status, error in target.run(stream):
            if status:
                refused += 1
                assert error.message
                assert 0 <= error.instruction < len(stream)
    assert refused > 2000  # of 8000 answers


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"x": LOCAL - 10},
            rf"\(conv\): x takes bytes {LOCAL - 10} to {LOCAL + 54} of local memory, which has {LOCAL}",
        ),
        ({"groups": 3}, "4 and 8 channels do not divide into 3 groups"),
        ({"kind": 9}, "9 is no requantization kind"),
        ({"bias": 2}, "bias, at 2, is not aligned to its 4 bytes"),
        ({"y": 0}, "y overlaps x"),
        ({"wait": (99, 0, 0, 0)}, "waits for 99 instructions of queue 0"),
        ({"queue": 3}, "conv cannot be in queue 3"),
        ({"flags": 1}, "flags are 0x1"),
        ({"weight": NONE}, "weight is not there"),
        ({"kernel": (0, 3)}, "weight has no elements"),
        ({"lo": 5, "hi": 4}, "the output stage makes no sense"),
    ],
)
def test_an_error_names_the_instruction_and_its_layer(change: dict[str, Any], words: str) -> None:
    d = everything()
    index = next(i for i, row in enumerate(d.streams[0]) if row[0] == 8)
    record = d.streams[0][index].view(BY_OPCODE[8].dtype)
    record["layer"] = 1
    for name, value in change.items():
        record[name] = value
    with pytest.raises(SimulationError, match=words) as caught:
        d.run()
    assert f"instruction {index} of core 0" in str(caught.value) and "layer 'second'" in str(caught.value)


def test_the_constants_are_never_written() -> None:
    d = Draft()
    at = d.put(np.zeros(4, np.int8), constant=True)
    d.emit("store", segment=0, offset=0, local=at, size=(1, 1, 1, 4))
    with pytest.raises(SimulationError, match="writes to the constants"):
        d.run()


def test_a_sum_that_could_leave_its_accumulator_is_refused() -> None:
    d = everything()
    d.run()
    d.constants[320:324] = (2**31 - 1).to_bytes(4, "little")  # the first bias
    with pytest.raises(SimulationError, match="a sum of channel 0 could leave the 32-bit accumulator"):
        d.run()
