"""How long a program takes: cycles of each command by the vendor's own cycle table, and both engines side by side.

The formulas reproduce the figures that the vendor's library gives for single commands (docs/bm1684x.md). A command starts when
the one before it in its queue is done and the command of the other engine that it waits for is too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from npuc.arrays import ceil_div
from npuc.program.bm1684x.commands import BANK_BYTES, LANES, TYPE_CODES
from npuc.schedule.bm1684x.order import Ordered, any_share_bank
from npuc.schedule.bm1684x.work import Address, Issue

_LOAD, _STORE, _INSIDE = Fraction(540167, 10000), Fraction(409782, 10000), Fraction(260771, 10000)
"""Bytes a cycle: DDR to lanes, lanes to DDR, and within either."""
_SHORT = 256
"""Bytes that a shorter run counts as."""
_SPAN = 4096
"""DDR is at its full speed if a command spans four times so many bytes of it; at a quarter if it spans fewer than that."""
_BYTES = {0: 1, 1: 2, 2: 4, 3: 2, 4: 4, 5: 2}


@dataclass(frozen=True)
class ChipTime:
    """When the commands of a program run."""

    total: int
    busy: dict[str, int]
    """Cycles in which each engine works."""
    spans: tuple[tuple[int, int], ...]
    """Begin and end of each command, in the order of the program."""


def timeline(commands: Sequence[Ordered]) -> ChipTime:
    """Both engines, each in order, with their waits."""
    ends: dict[str, list[int]] = {"tiu": [0], "gdma": [0]}
    busy = {"tiu": 0, "gdma": 0}
    spans = []
    for command in commands:
        engine = command.issue.engine
        other = ends["gdma" if engine == "tiu" else "tiu"]
        begin = max(ends[engine][-1], other[command.waits_for])
        cycles = cycles_of(command.issue)
        busy[engine] += cycles
        ends[engine].append(begin + cycles)
        spans.append((begin, begin + cycles))
    return ChipTime(max(ends["tiu"][-1], ends["gdma"][-1]), busy, tuple(spans))


def cycles_of(issue: Issue) -> int:
    """Those of one command."""
    if issue.source is not None and issue.target is not None:
        return _transfer(issue, issue.source, issue.target)
    values = issue.values
    n, c, h, w = (values[f"res0_{axis}"] for axis in "nchw")
    rows = n * ceil_div(c, LANES)
    size = _BYTES[values.get("res0_prec", 0)]
    match issue.form:
        case "CONV":
            kernel = values["opd1_h"] * values["opd1_w"]
            return rows * ceil_div(h * w, 4) * kernel * ceil_div(values["opd0_c"], LANES)
        case "PORD":
            strided = values["res_op_y_str"] > 1 and values["res_op_x_str"] > 1
            kernel = values["opd1_h"] * values["opd1_w"]
            return rows * ceil_div(h * w, 64 // size) * kernel * (3 if strided else 1)
        case "RQ":
            same = values["opd0_addr"] // BANK_BYTES == values["res0_addr"] // BANK_BYTES
            return rows * ceil_div(h * w, 16) * (2 if same else 1)
        case "BC":
            return rows
        case "SG":
            return rows * h * w * (3 if any_share_bank(*issue.reads, *issue.writes) else 2) // 2
    return rows * _elementwise(issue, h * w)


def _elementwise(issue: Issue, elements: int) -> int:
    """An AR command on one row of channels: by its widest operand; twice as long in place or with strides along w."""
    values = issue.values
    names = ["res0", *(f"opd{i}" for i in range(values["tsk_opd_num"]) if not values.get(f"opd{i}_const"))]
    widest = max(_BYTES[values[f"{name}_prec"]] for name in names)
    places = [values[f"{name}_addr"] for name in names[1:]]
    slow = values["res0_addr"] in places or any(values.get(f"{name}_w_str", 1) > 1 for name in names)
    return ceil_div(elements * widest, 64) * (2 if slow else 1)


def _transfer(issue: Issue, source: Address, target: Address) -> int:
    values = issue.values
    size = 4 if values["src_data_format"] == TYPE_CODES["i32"] else 1
    counts = [values[f"src_{axis}size"] for axis in "nchw"]
    strides = {side: [values[f"{side}_{axis}stride"] for axis in "nchw"] for side in ("src", "dst")}
    run, runs = counts[3], counts[0] * counts[1]
    if any(stride[3] != 1 for stride in strides.values()):
        run, runs = 1, prod(counts)
    elif counts[2] > 1 and any(stride[2] != counts[3] for stride in strides.values()):
        runs *= counts[2]
    else:
        run *= counts[2]
    slowness = Fraction(1)
    for side, address in (("src", source), ("dst", target)):
        if address.space != "local" and not (side == "src" and values.get("fill_constant_en")):
            pairs = list(zip(counts, strides[side], strict=True))
            last = next(((count - 1) * stride for count, stride in pairs if count > 1), 0)
            slowness *= Fraction(4, min(4, max(1, ceil_div(last * size, _SPAN))))
    local = source.space == "local", target.space == "local"
    rate = _LOAD if local == (False, True) else _STORE if local == (True, False) else _INSIDE
    return int(runs * max(_SHORT, run * size) * slowness / rate)
