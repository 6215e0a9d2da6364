"""From a schedule to instruction streams: every instruction gets its addresses and becomes a record of bytes."""

from __future__ import annotations

import struct

import numpy as np

from npuc.arrays import Array
from npuc.errors import CompileError
from npuc.program.instruction import Place, packer
from npuc.program.isa import QUEUES, RECORD
from npuc.schedule.artifact import CoreSchedule, Schedule

_QUEUE = {name: number for number, name in enumerate(QUEUES)}


def encode_schedule(schedule: Schedule) -> tuple[Array, ...]:
    """The instruction stream of each core, (instructions, bytes of a record)."""
    return tuple(_stream(schedule, core) for core in schedule.cores)


def _stream(schedule: Schedule, core: CoreSchedule) -> Array:
    records = []
    for step, issued in core.instructions():
        instruction = issued.instruction
        numbers = instruction.numbers()
        for at in instruction.addresses:
            place = numbers[at]
            if isinstance(place, Place):
                numbers[at] = core.address(step, place)
        layer = schedule.first_layer + step.layer
        head = instruction.opcode, _QUEUE[issued.queue], issued.flags, layer, *issued.wait
        try:
            records.append(packer(instruction.name).pack(*head, *numbers))
        except struct.error as error:
            raise CompileError(
                f"an instruction '{instruction.name}' cannot hold its numbers: {error}",
                where=f"layer '{schedule.layers[step.layer].name}'",
            ) from error
    return np.frombuffer(b"".join(records), np.uint8).reshape(-1, RECORD)
