"""Schedules as data and as text: what is printed is read back, and gives the same bytes."""

from __future__ import annotations

import itertools
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import Compilation, CompileOptions
from npuc.codegen.encode import encode_schedule
from npuc.errors import CompileError, ScheduleError
from npuc.flow import compile_network, quantize_network
from npuc.ir import result_names, top
from npuc.program.instructions import Conv
from npuc.schedule import Schedule
from npuc.schedule.artifact import BarrierStep, ComputeStep, LoadStep, StoreStep
from npuc.schedule.listing import diff, listing, load_listing, parse_listing, save_listing
from npuc.target import load_target


@cache
def compiled(target: str, level: int = 1, size: int = 96) -> Compilation:
    """A small network with a branch, a softmax, and tiles on a machine with several cores."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Array:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = lang.input("an image", (1, 3, size, size))
    y = lang.conv(x, weights(8, 3, 3, 3), pads=1, relu=True, name='stem "#1"')
    y = y + lang.conv(y, weights(8, 8, 1, 1), name="block")
    y = lang.reduce(y, kind="mean", axes=(2, 3), keepdims=False, name="pool")
    graph = lang.build({"scores": lang.softmax(y, axis=1, name="softmax")})
    ranges = {port.name: (-1.0, 1.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-4.0, 4.0))
    machine = load_target(target)
    integers = quantize_network(graph, ranges, None, machine).graph
    return compile_network(integers, machine, CompileOptions(level), "small")


def schedule_for(target: str, level: int = 1) -> Schedule:
    (part,) = compiled(target, level).parts
    return part.schedule


CASES = [("edge-1t", 0), ("edge-1t", 2), ("server-32t", 1)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_listing_is_read_back_and_gives_the_same_program(case: tuple[str, int], tmp_path: Path) -> None:
    found = schedule_for(*case)
    save_listing(found, tmp_path / "npu.txt")
    again = load_listing(tmp_path / "npu.txt")
    assert again == found and listing(again) == listing(found) and diff(again, found) == []
    (part,) = compiled(*case).model.subgraphs[1:2]
    assert [one.tobytes() for one in encode_schedule(again)] == [one.tobytes() for one in part.streams]
    assert again.allocations == part.allocations and again.memory == found.memory
    assert again.search is None and again.layers[0].op is None


def test_steps_name_tiles_operands_and_what_they_wait_for() -> None:
    found = schedule_for("server-32t")
    assert len(found.cores) == 4 and found.groups[0].tiles > 1
    kinds = {type(step) for core in found.cores for step in core.steps}
    assert kinds == {LoadStep, StoreStep, ComputeStep, BarrierStep}
    tiles = [
        {step.tile_number for step in core.steps if isinstance(step, ComputeStep) and step.layer == 0}
        for core in found.cores
    ]
    assert sorted(set.union(*tiles)) == list(range(found.groups[0].tiles))
    assert sum(map(len, tiles)) == found.groups[0].tiles  # each on one core
    text = listing(found)
    assert 'layer 0 "stem \\"#1\\"" conv' in text and "barrier number=1  # all cores" in text
    assert " wait load>=" in text and " multicast  # group 0: " in text


def test_rows_of_all_pieces_are_those_of_the_result() -> None:
    found = schedule_for("edge-1t", 0)
    rows = [
        step.tile.rows
        for step in found.cores[0].steps
        if isinstance(step, ComputeStep) and step.layer == 0 and step.tile is not None
    ]
    assert rows[0][0] == 0 and rows[-1][1] == 96
    assert all(one[1] == other[0] for one, other in itertools.pairwise(rows))


def test_a_difference_is_shown_with_the_step_around_it() -> None:
    found = schedule_for("edge-1t", 0)
    text = listing(found)
    other = parse_listing(text.replace("kernel=3,3", "kernel=3,1", 1))
    shown = [line for line in diff(found, other) if line[0] in "+-" and line[:3] not in ("---", "+++")]
    assert len(shown) == 2 and "kernel=3,3" in shown[0] and "kernel=3,1" in shown[1]


def test_a_number_that_does_not_fit_names_the_layer() -> None:
    found = schedule_for("edge-1t", 0)
    core = found.cores[0]
    at = next(
        i
        for i, step in enumerate(core.steps)
        if step.instructions and isinstance(step.instructions[0].instruction, Conv)
    )
    step = core.steps[at]
    issued = step.instructions[0]
    conv = issued.instruction
    assert isinstance(conv, Conv) and isinstance(step, ComputeStep)
    window = replace(conv.window, kernel=(1 << 20, 1))
    wrong = replace(step, instructions=(replace(issued, instruction=replace(conv, window=window)),))
    steps = (*core.steps[:at], wrong, *core.steps[at + 1 :])
    with pytest.raises(CompileError, match="conv") as caught:
        encode_schedule(replace(found, cores=(replace(core, steps=steps),)))
    assert "stem" in str(caught.value.where)


@pytest.mark.parametrize(
    "change",
    [
        ("npuc schedule listing 1", "npuc schedule"),
        ("layer 0 ", "layer 7 "),
        ("buffer=0 ", "buffer=999 "),
        ("const=", "nobody="),
        ("out=1", "out=99"),
        ("wait load>=", "wait lead>="),
        ("kernel=3,3", "kernel=3"),
        ("kernel=3,3", "kernal=3,3"),
        ("size=", "size=zz"),
        ("  compute ", "  compete "),
        ('target="', 'target='),
        ("scale=", "scale=1.0 scale="),
        ("in0=", "in0=-5 in1="),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_not_understood_is_an_error(change: tuple[str, str]) -> None:
    text = listing(schedule_for("edge-1t", 0))
    assert change[0] in text
    with pytest.raises(ScheduleError):
        parse_listing(text.replace(*change, 1))


def test_a_listing_that_is_cut_anywhere_is_an_error_or_a_schedule() -> None:
    lines = listing(schedule_for("edge-1t", 0)).split("\n")
    for end in range(0, len(lines), 7):
        try:
            parse_listing("\n".join(lines[:end]))
        except ScheduleError:
            continue
