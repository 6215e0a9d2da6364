"""From a schedule of the BM1684X to a `.bmodel` file: every command gets its addresses and becomes bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from npuc.program.bm1684x.bmodel import COEFFICIENTS, PAGE, Bmodel, BmodelTensor
from npuc.program.bm1684x.commands import LANE_BYTES, LOCAL_BASE, encode
from npuc.schedule.bm1684x.order import Ordered
from npuc.schedule.bm1684x.scheduler import ChipSchedule
from npuc.schedule.bm1684x.work import Address

Port = tuple[str, tuple[int, ...], float]
"""Of an input or output: its name, shape and scale."""


def encode_chip(schedule: ChipSchedule, name: str, inputs: Sequence[Port], outputs: Sequence[Port]) -> Bmodel:
    """The program of a subgraph."""
    coefficients = schedule.coefficients + bytes(-len(schedule.coefficients) % PAGE)
    activations_at = COEFFICIENTS + len(coefficients)
    bases = {"coefficients": COEFFICIENTS, "activations": activations_at}
    streams = {"tiu": bytearray(), "gdma": bytearray()}
    counts = {"tiu": 0, "gdma": 0}
    for command in schedule.commands:
        engine = command.issue.engine
        streams[engine] += command_bytes(command, bases)
        counts[engine] += 1
    streams["tiu"] += encode("TIU_END", cmd_id=counts["tiu"] + 1)
    streams["gdma"] += encode("GDMA_END", cmd_id=counts["gdma"] + 1, cmd_id_en=1)
    for stream in streams.values():
        stream += bytes(-len(stream) % 128)

    def tensors(ports: Sequence[Port], places: Sequence[int]) -> tuple[BmodelTensor, ...]:
        return tuple(
            BmodelTensor(title, "i8", activations_at + place, shape, prod(shape), scale)
            for (title, shape, scale), place in zip(ports, places, strict=True)
        )

    return Bmodel(
        name,
        tensors(inputs, schedule.inputs),
        tensors(outputs, schedule.outputs),
        coefficients,
        activations_at,
        max(PAGE, schedule.activations + -schedule.activations % PAGE),
        bytes(streams["tiu"]),
        counts["tiu"] + 1,
        bytes(streams["gdma"]),
        counts["gdma"] + 1,
    )


def command_bytes(command: Ordered, bases: Mapping[str, int]) -> bytes:
    """A command with its number, its wait, and its addresses in DDR by where the two regions of it begin."""
    issue = command.issue
    values = dict(issue.values)
    for side, address in (("src", issue.source), ("dst", issue.target)):
        if address is not None:
            at = _number(address, bases)
            values |= {f"{side}_start_addr_l32": at & 0xFFFFFFFF, f"{side}_start_addr_h8": at >> 32}
    return encode(issue.form, cmd_id=command.number, cmd_id_dep=command.waits_for, cmd_id_en=1, **values)


def _number(address: Address, bases: Mapping[str, int]) -> int:
    if address.space == "local":
        return LOCAL_BASE + address.lane * LANE_BYTES + address.offset
    return bases[address.space] + address.offset
