"""The time of a program by the vendor's own figures: cycles of single commands, and its timeline of both engines.

The vendor's timeline knows steps: in each, both engines run side by side, and the next begins when both are done. A command that
waits for one of the same step begins a new step. So it takes longer than a program whose commands wait for single commands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npuc.program.bm1684x.bmodel import Bmodel
from npuc.program.bm1684x.commands import Command
from npuc.program.bm1684x.listing import streams
from support.bm1684x.calls import call_of
from support.sophgo import judge

OTHER = {"tiu": "gdma", "gdma": "tiu"}
_TOTAL = re.compile(r"TCYC\s*:\s*(\d+)")
_MOVED = re.compile(r"S2L:(\d+)\|dr\[1\] L2S:(\d+)\|dr\[2\] S2S:(\d+)")


@dataclass(frozen=True)
class VendorTime:
    """Cycles of a program."""

    waits: int
    """Each command as soon as it may, by the vendor's cycles of commands."""
    steps: int
    """By the vendor's timeline."""
    moved: int
    """Bytes of DDR that are read and written, by the vendor's count."""
    cycles: Mapping[str, Sequence[int]]
    """Of the commands of each engine."""


def in_order(model: Bmodel) -> list[Command]:
    """The commands of both queues, each as late as the first command that waits for it."""
    queues = {
        str(engine): [command for command in queue if not command.form.name.endswith("END")]
        for engine, queue in streams(model).items()
    }
    done = {"tiu": 0, "gdma": 0}
    order: list[Command] = []

    def upto(engine: str, number: int) -> None:
        while done[engine] < number:
            command = queues[engine][done[engine]]
            upto(OTHER[engine], command.values["cmd_id_dep"])
            order.append(command)
            done[engine] += 1

    for number in range(1, len(queues["tiu"]) + 1):
        upto("tiu", number)
    upto("gdma", len(queues["gdma"]))
    return order


def steps_of(commands: Sequence[Command]) -> list[list[Command]]:
    """Commands that run side by side, and none of which waits for another."""
    steps: list[list[Command]] = [[]]
    first, count = {"tiu": 1, "gdma": 1}, {"tiu": 0, "gdma": 0}
    for command in commands:
        engine = command.form.engine
        if command.values["cmd_id_dep"] >= first[OTHER[engine]]:
            steps.append([])
            first = {name: number + 1 for name, number in count.items()}
        steps[-1].append(command)
        count[engine] += 1
    return steps


def program_time(model: Bmodel) -> VendorTime:
    """Of a program."""
    commands = in_order(model)
    cycles = judge(encode=[call_of(command) for command in commands])["cycles"]
    steps = [[call_of(command) for command in step] for step in steps_of(commands)]
    total, moved = vendor_totals(judge(timeline=steps)["timeline"])
    ends: dict[str, list[int]] = {"tiu": [0], "gdma": [0]}
    own: dict[str, list[int]] = {"tiu": [], "gdma": []}
    for command, spent in zip(commands, cycles, strict=True):
        engine = command.form.engine
        begin = max(ends[engine][-1], ends[OTHER[engine]][command.values["cmd_id_dep"]])
        ends[engine].append(begin + spent)
        own[engine].append(spent)
    return VendorTime(max(ends["tiu"][-1], ends["gdma"][-1]), total, moved, own)


def vendor_totals(text: str) -> tuple[int, int]:
    """Cycles and bytes of DDR of a timeline that the vendor printed; a transfer within DDR reads and writes it."""
    found, moved = _TOTAL.search(text), _MOVED.search(text)
    assert found and moved, text[-500:]
    loaded, stored, within = map(int, moved.groups())
    return int(found.group(1)), loaded + stored + 2 * within
