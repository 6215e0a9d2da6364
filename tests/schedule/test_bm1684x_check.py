"""The rules of the BM1684X: programs of the scheduler keep them all, and a planted fault of each kind is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import quantize_network
from npuc.ir import result_names, top
from npuc.program.bm1684x.bmodel import Bmodel, read_bmodel
from npuc.program.bm1684x.commands import BANK_BYTES, LANE_BYTES, Command, Engine, encode
from npuc.program.bm1684x.listing import streams
from npuc.program.model import ChipSubgraph
from npuc.schedule.bm1684x.check import check_program
from npuc.target import load_target

TARGET = load_target("bm1684x")
Edit = Callable[[dict[str, int]], None]


@pytest.fixture(scope="module")
def program() -> Bmodel:
    """A convolution, a depthwise one, a table, a pool and a sum, of more than 64 channels."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> np.ndarray:
        return rng.uniform(-0.5, 0.5, shape).astype(np.float32)

    x = lang.input("x", (1, 3, 24, 20))
    y = lang.conv(x, weights(80, 3, 3, 3), weights(80), strides=2, pads=1, name="a")
    z = lang.sigmoid(lang.conv(y, weights(80, 1, 3, 3), weights(80), pads=1, group=80, name="b"), name="c")
    graph = lang.build({"y": lang.max_pool(y + z, kernel=2, strides=2, name="p")})
    ranges = {port.name: (-1.0, 1.5) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-3.0, 4.0))
    done = compile_program(
        quantize_network(graph, ranges, None, TARGET).graph, TARGET, CompileOptions(npu_only=True)
    )
    (chip,) = (part for part in done.model.subgraphs if isinstance(part, ChipSubgraph))
    return read_bmodel(chip.program)


def changed(model: Bmodel, engine: Engine, form: str, edit: Edit, which: int = 0) -> Bmodel:
    """The program with one command of a form changed."""
    queue = streams(model)[engine]
    chosen = [number for number, command in enumerate(queue) if command.form.name == form][which]
    data = bytearray()
    for number, command in enumerate(queue):
        values = dict(command.values)
        if number == chosen:
            edit(values)
        data += encode(command.form.name, **{k: v for k, v in values.items() if k not in command.form.fixed})
    data += bytes(-len(data) % 128)
    return replace(model, tiu=bytes(data)) if engine == "tiu" else replace(model, gdma=bytes(data))


def add(**fields: int) -> Edit:
    def edit(values: dict[str, int]) -> None:
        for name, amount in fields.items():
            values[name] += amount

    return edit


def put(**fields: int) -> Edit:
    return lambda values: values.update(fields)


def test_a_program_keeps_the_rules(program: Bmodel) -> None:
    assert check_program(program) == []


@pytest.mark.parametrize(
    ("engine", "form", "edit", "rule"),
    [
        ("tiu", "CONV", add(opd0_addr=16), "alignment"),
        ("tiu", "CONV", add(opd1_addr=4), "alignment"),
        ("tiu", "CONV", add(opd0_addr=LANE_BYTES), "lanes"),
        ("tiu", "CONV", add(opd1_addr=LANE_BYTES), "lanes"),
        ("tiu", "CONV", put(opd0_up_pad=0), "window"),
        ("tiu", "CONV", put(res_op_x_str=0), "stride"),
        ("tiu", "CONV", put(res0_addr=LANE_BYTES - 64, opd1_addr=0), "lane"),
        ("tiu", "CONV", lambda values: values.update(res0_addr=values["opd0_addr"]), "overlap"),
        ("tiu", "PORD", add(opd0_addr=32), "alignment"),
        ("tiu", "PORD", add(opd2_addr=2), "alignment"),
        ("tiu", "PORD", add(opd1_addr=LANE_BYTES), "lanes"),
        ("tiu", "RQ", add(opd1_addr=16), "alignment"),
        ("tiu", "RQ", put(opd0_prec=0), "type"),
        ("tiu", "RQ", add(res0_addr=LANE_BYTES), "lanes"),
        ("tiu", "RQ", lambda values: values.update(res0_addr=values["opd0_addr"]), "overlap"),
        ("tiu", "AR", put(res0_h=0), "size"),
        ("tiu", "AR", lambda values: values.update(res0_addr=values["res0_addr"] - 8, res0_str=0), "alignment"),
        ("tiu", "SG", add(opd0_addr=16), "alignment"),
        ("tiu", "SG", put(res0_addr=64 * LANE_BYTES, opd1_addr=64 * LANE_BYTES), "address"),
        ("tiu", "SG", lambda values: values.update(tsk_eu_typ=5, opd0_addr=values["res0_addr"] | BANK_BYTES - 256), "banks"),
        ("tiu", "SG", put(res0_prec=4), "type"),
        ("tiu", "RQ", put(cmd_id_dep=5000), "wait"),
        ("tiu", "RQ", put(cmd_id=77), "count"),
        ("gdma", "TENSOR", put(src_wstride=200), "stride"),
        ("gdma", "TENSOR", put(src_csize=0), "size"),
        ("gdma", "TENSOR", put(dst_start_addr_h8=1, dst_start_addr_l32=0), "ddr"),
        ("gdma", "TENSOR", add(dst_start_addr_l32=LANE_BYTES - 128), "lane"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(program: Bmodel, engine: Engine, form: str, edit: Edit, rule: str) -> None:
    found = check_program(changed(program, engine, form, edit))
    assert rule in {violation.rule for violation in found}, list(map(str, found))


def without_waits(command: Command) -> bytes:
    values = {name: value for name, value in command.values.items() if name not in command.form.fixed}
    return encode(command.form.name, **{**values, "cmd_id_dep": 0})


@pytest.mark.parametrize("engine", ["tiu", "gdma"])
def test_a_missing_wait_is_a_race(program: Bmodel, engine: Engine) -> None:
    data = b"".join(without_waits(command) for command in streams(program)[engine])
    data += bytes(-len(data) % 128)
    found = check_program(replace(program, tiu=data) if engine == "tiu" else replace(program, gdma=data))
    assert {violation.rule for violation in found} == {"race"}


def test_each_single_wait_matters(program: Bmodel) -> None:
    """A wait that is one too early is found, wherever the one before it does not wait as long."""
    queue = streams(program)["tiu"]
    waits = [0, *(command.values["cmd_id_dep"] for command in queue)]
    raised = [number for number in range(len(queue)) if waits[number + 1] > waits[number]]
    assert len(raised) > 2
    for number in raised:
        form = queue[number].form.name
        which = [i for i, command in enumerate(queue) if command.form.name == form].index(number)
        previous = queue[number - 1].values["cmd_id_dep"] if number else 0
        damaged = changed(program, "tiu", form, put(cmd_id_dep=previous), which)
        assert "race" in {violation.rule for violation in check_program(damaged)}
