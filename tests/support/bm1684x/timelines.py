"""The time of a program by the vendor's own figures: cycles of single commands, and its timeline of both engines.

The vendor's timeline knows steps: in each, both engines run side by side, and the next begins when both are done. So it takes
longer than a program whose commands wait for single commands.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import accumulate

from npuc.program.bm1684x.bmodel import Bmodel
from npuc.program.bm1684x.commands import Command
from npuc.program.bm1684x.listing import streams
from support.bm1684x.calls import call_of
from support.sophgo import judge

Queues = Mapping[str, Sequence[Command]]
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


def queues_of(model: Bmodel) -> Queues:
    """The commands of both engines."""
    return {
        str(engine): [command for command in queue if not command.form.name.endswith("END")]
        for engine, queue in streams(model).items()
    }


def in_order(queues: Queues) -> list[Command]:
    """The commands of both queues, each as late as the first command that waits for it."""
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


def steps_of(queues: Queues, cycles: Mapping[str, Sequence[int]]) -> list[list[Command]]:
    """Commands that run side by side and none of which waits for another: of all such cuts one that takes the fewest cycles.

    The cheapest way to each pair of places in the two queues, by the steps that end there. Of those that begin at a pair, the
    ones are looked at in which one engine takes so many commands and the other as many as fit beside them.
    """
    sums = {engine: [0, *accumulate(cycles[engine])] for engine in queues}
    deps = {engine: [command.values["cmd_id_dep"] for command in queue] for engine, queue in queues.items()}
    end = len(queues["tiu"]), len(queues["gdma"])
    cost: dict[tuple[int, int], int] = {(0, 0): 0}
    came: dict[tuple[int, int], tuple[int, int]] = {}
    waiting = [(0, 0, 0)]
    while waiting:
        _, i, j = heappop(waiting)
        if (i, j) == end:
            break
        most_i, most_j = i, j
        while most_i < end[0] and deps["tiu"][most_i] <= j:
            most_i += 1
        while most_j < end[1] and deps["gdma"][most_j] <= i:
            most_j += 1
        tiu, gdma = sums["tiu"], sums["gdma"]
        ways = {
            (a, min(most_j, bisect_right(gdma, gdma[j] + tiu[a] - tiu[i]) - 1)) for a in range(i, most_i + 1)
        }
        ways |= {
            (min(most_i, bisect_right(tiu, tiu[i] + gdma[b] - gdma[j]) - 1), b) for b in range(j, most_j + 1)
        }
        for a, b in ways - {(i, j)}:
            total = cost[i, j] + max(tiu[a] - tiu[i], gdma[b] - gdma[j])
            if total < cost.get((a, b), 1 << 60):
                if (a, b) not in cost:
                    heappush(waiting, (a + b, a, b))
                cost[a, b], came[a, b] = total, (i, j)
    steps = []
    at = end
    while at != (0, 0):
        before = came[at]
        steps.append([*queues["tiu"][before[0] : at[0]], *queues["gdma"][before[1] : at[1]]])
        at = before
    return steps[::-1]


def program_time(model: Bmodel) -> VendorTime:
    """Of a program."""
    queues = queues_of(model)
    commands = in_order(queues)
    cycles = judge(encode=[call_of(command) for command in commands])["cycles"]
    ends: dict[str, list[int]] = {"tiu": [0], "gdma": [0]}
    own: dict[str, list[int]] = {"tiu": [], "gdma": []}
    for command, spent in zip(commands, cycles, strict=True):
        engine = command.form.engine
        begin = max(ends[engine][-1], ends[OTHER[engine]][command.values["cmd_id_dep"]])
        ends[engine].append(begin + spent)
        own[engine].append(spent)
    steps = [[call_of(command) for command in step] for step in steps_of(queues, own)]
    total, moved = vendor_totals(judge(timeline=steps)["timeline"])
    return VendorTime(max(ends["tiu"][-1], ends["gdma"][-1]), total, moved, own)


def vendor_totals(text: str) -> tuple[int, int]:
    """Cycles and bytes of DDR of a timeline that the vendor printed; a transfer within DDR reads and writes it."""
    found, moved = _TOTAL.search(text), _MOVED.search(text)
    assert found and moved, text[-500:]
    loaded, stored, within = map(int, moved.groups())
    return int(found.group(1)), loaded + stored + 2 * within
