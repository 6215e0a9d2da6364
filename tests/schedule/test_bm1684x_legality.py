"""The rules for single commands of the BM1684X against what the vendor's own encoder asserts.

Random commands get one field changed. What the vendor refuses must break a rule of ours; what we refuse and the vendor does
not must be of those rules that the vendor does not check.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from npuc.program.bm1684x.commands import LANE_BYTES, Command
from npuc.schedule.bm1684x.check import Broken, access_of
from support.bm1684x.calls import call_of
from support.bm1684x.draws import FAMILIES, draws
from support.sophgo import judge, libraries

OURS_ALONE = {"overlap", "lane", "address", "banks"}
"""Rules that the vendor's encoder checks for no command."""
STRICTER = {("AR", "lanes"), ("BC", "lanes"), ("PORD", "alignment")}
"""And rules that it does not check for these: operands of AR on different lanes, results of BC on others than lane 0, and results
of PORD at addresses that are no multiples of 64."""


def changes(command: Command) -> list[tuple[str, int]]:
    """Fields with values that may be wrong."""
    values = command.values
    found: list[tuple[str, int]] = []
    for name in ("opd0_addr", "opd1_addr", "opd2_addr", "res0_addr"):
        constant = values.get(name.replace("addr", "const"), 0)
        if name not in values or constant or (name == "opd1_addr" and _has_no_second(command)):
            continue
        if name == "opd2_addr" and (command.form.name != "PORD" or values["tsk_eu_typ"]):
            continue
        found += [(name, values[name] + step) for step in (1, 2, 4, 16, 32, 64, LANE_BYTES)]
    # The vendor derives the height and width of a window's result, and splits a transfer of several images itself.
    axes = "nc" if "res_op_y_str" in values else "nchw"
    found += [(f"res0_{axis}", 0) for axis in axes if f"res0_{axis}" in values]
    found += [(name, 0) for name in ("res_op_y_str", "res_op_x_str") if name in values]
    if command.form.name == "RQ":
        found.append(("opd0_prec", 0))
    for side in ("dst",) if values.get("fill_constant_en") else ("src", "dst"):
        found += [(f"{side}_wstride", stride) for stride in (0, 128, 129, 200) if f"{side}_wstride" in values]
    found += [(name, 0) for name in ("src_csize", "src_hsize", "src_wsize") if name in values]
    return found


def _has_no_second(command: Command) -> bool:
    return command.values.get("tsk_opd_num") == 1 or (
        command.form.name == "PORD" and command.values["tsk_eu_typ"] == 4
    )


def verdicts(family: str, count: int) -> Counter[tuple[str, str, str | None, str | None]]:
    """How often a change of a field broke which rule of ours, and which assertion of theirs."""
    rng = np.random.default_rng(len(family))
    damaged, names = [], []
    for draw in draws(family, count, seed=2):
        for command in draw.commands:
            options = changes(command)
            name, value = options[int(rng.integers(0, len(options)))]
            damaged.append(Command(command.form, {**command.values, name: value}))
            names.append(name)
    refusals = judge(legal=[call_of(command) for command in damaged])["refusals"]
    found: Counter[tuple[str, str, str | None, str | None]] = Counter()
    for command, name, theirs in zip(damaged, names, refusals, strict=True):
        ours = None
        try:
            access_of(command)
        except Broken as broken:
            ours = broken.rule
        found[command.form.name, name, ours, theirs] += 1
    return found


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_what_the_vendor_refuses_breaks_a_rule(family: str) -> None:
    libraries()
    found = verdicts(family, 40)
    missed = [entry for entry in found if entry[3] and not entry[2]]
    assert not missed
    alone = {(entry[0], entry[2]) for entry in found if entry[2] and not entry[3]}
    assert not {entry for entry in alone if entry[1] not in OURS_ALONE} - STRICTER
