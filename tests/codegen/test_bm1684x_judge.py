"""Single commands of the BM1684X before three judges: the vendor's functional model, its encoder, and what its encoder asserts.

Commands are drawn at random through the code that emits them. Without the vendor's libraries a slow interpreter of ours runs a
whole program.
"""

from __future__ import annotations

from collections import Counter
from functools import cache

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine.integer import IntegerEngine
from npuc.flow import quantize_network
from npuc.ir import Graph, result_names, top
from npuc.ir.dtypes import quant_of
from npuc.program.bm1684x.bmodel import read_bmodel
from npuc.program.bm1684x.commands import DDR_BASE, Command, decode, encode
from npuc.program.bm1684x.listing import streams
from npuc.program.model import ChipSubgraph
from npuc.schedule.bm1684x.check import access_of
from npuc.target import load_target
from support.bm1684x.calls import call_of, free_fields
from support.bm1684x.draws import DDR, FAMILIES, Draw, draws, kind_of
from support.bm1684x.judge import digests, memory
from support.bm1684x.oracle import Memories
from support.sophgo import judge, libraries

TARGET = load_target("bm1684x")
SOME = 2
"""Draws of a family in the default run."""
EVERY = 4
"""Draws after which both memories are compared, all of their bytes."""
MANY = 200
"""Draws of a kind of command in `make test-sophgo`."""


def some(family: str) -> list[Draw]:
    """A few draws of a family."""
    return list(draws(family, SOME, seed=1))


@cache
def many(family: str) -> list[Draw]:
    """So many draws that each kind of command has 200."""
    counts: Counter[str] = Counter()
    found = []
    for draw in draws(family, 20 * MANY):
        found.append(draw)
        counts.update({kind_of(command) for command in draw.commands})
        if len(found) >= MANY and min(counts.values()) >= MANY:
            return found
    raise AssertionError(f"too few of {[kind for kind, count in counts.items() if count < MANY]}")


def words(command: Command) -> str:
    values = {name: value for name, value in command.values.items() if name not in command.form.fixed}
    return encode(command.form.name, **values).hex()


def check_results(given: list[Draw]) -> None:
    """The functional model leaves every byte of the memories as the oracle does; it may crash on commands that break a rule."""
    for command in (command for draw in given for command in draw.commands):
        access_of(command)
    request = [
        {"pokes": [(at, data.hex()) for at, data in draw.pokes], "commands": [(c.form.engine, words(c)) for c in draw.commands]}
        for draw in given
    ]  # fmt: skip
    found = iter(judge(execute=request, seed=5, ddr=DDR, every=EVERY)["digests"])
    memories = Memories(*memory(5, DDR))
    for number, draw in enumerate(given, 1):
        for at, data in draw.pokes:
            memories.ddr[at : at + len(data)] = np.frombuffer(data, np.uint8)
        memories.run(draw.commands)
        if number % EVERY == 0 or number == len(given):
            told = "\n".join(str(c) for draw in given[max(number - EVERY, 0) : number] for c in draw.commands)
            assert digests(memories.lanes, memories.ddr) == next(found), told


def check_bytes(given: list[Draw]) -> None:
    """The vendor's encoder makes the same bytes and asserts nothing."""
    commands = [command for draw in given for command in draw.commands]
    found = judge(encode=[call_of(command) for command in commands])
    for command, theirs in zip(commands, found["commands"], strict=True):
        same_bytes(command, bytes.fromhex(theirs))


def same_bytes(command: Command, theirs: bytes) -> None:
    """All bits but those that do not matter."""
    other = decode(command.form.engine, theirs)
    assert other.form is command.form and len(theirs) == command.form.size
    free = free_fields(command)
    different = {
        name: (value, other.values[name])
        for name, value in command.values.items()
        if value != other.values[name] and name not in free
    }
    assert not different, f"{command}: ours and theirs {different}"
    known = sum(((1 << field.bits) - 1) << field.at for field in command.form.fields.values())
    if command.values.get("fill_constant_en"):
        known |= ((1 << 64) - 1) << command.form.fields[
            "src_start_addr_l32"
        ].at  # words that hold what was there before
    assert not int.from_bytes(theirs, "little") & ~known, f"{command}: bits that npuc has no name for"


@pytest.mark.parametrize("family", FAMILIES)
def test_some_commands(family: str) -> None:
    libraries()
    given = some(family)
    check_results(given)
    check_bytes(given)


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_results_are_those_of_the_functional_model(family: str) -> None:
    libraries()
    check_results(many(family))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_bytes_are_those_of_the_vendor_s_encoder(family: str) -> None:
    libraries()
    check_bytes(many(family))


def test_a_whole_program_in_the_interpreter() -> None:
    """Without the vendor's libraries: commands in the order of their numbers give what graph mode gives."""
    graph = quantized()
    done = compile_program(graph, TARGET, CompileOptions(npu_only=True))
    (chip,) = (part for part in done.model.subgraphs if isinstance(part, ChipSubgraph))
    program = read_bmodel(chip.program)
    queues = {engine: iter(queue) for engine, queue in streams(program).items()}
    lanes, ddr = memory(3, program.activations_at - DDR_BASE + program.activations)
    start = program.coefficients_at - DDR_BASE
    ddr[start : start + len(program.coefficients)] = np.frombuffer(program.coefficients, np.uint8)
    x = np.random.default_rng(4).integers(-128, 128, program.inputs[0].shape).astype(np.int8)
    begin = program.inputs[0].address - DDR_BASE
    ddr[begin : begin + x.size] = x.reshape(-1).view(np.uint8)
    memories = Memories(lanes, ddr)
    memories.run(next(queues[command.issue.engine]) for command in done.chips[0].schedule.commands)
    port = program.outputs[0]
    at = port.address - DDR_BASE
    found = memories.ddr[at : at + port.size].view(np.int8).reshape(port.shape)
    inner = next(op for op in graph.ops if graph.inputs[0].value in op.operands)
    outer = next(op for op in graph.ops if graph.outputs[0].value in op.results)
    kind, out = quant_of(inner.results[0]), quant_of(outer.operands[0])
    assert kind is not None and out is not None
    wanted = IntegerEngine(graph).run(
        {"x": (x.astype(np.float32) - kind.zero_point) * np.float32(kind.scale)}
    )
    np.testing.assert_array_equal(
        (found.astype(np.float32) - out.zero_point) * np.float32(out.scale), wanted["y"]
    )
    assert len(np.unique(found)) > 50


def quantized() -> Graph:
    """Convolutions of more than 64 channels, a table, a pool, a sum."""

    def weights(seed: int, *shape: int) -> Array:
        return np.random.default_rng(seed).uniform(-0.3, 0.3, shape).astype(np.float32)

    x = lang.input("x", (1, 3, 18, 14))
    left = lang.conv(x, weights(1, 70, 3, 3, 3), weights(2, 70), strides=2, pads=1, name="a")
    right = lang.sigmoid(lang.conv(left, weights(3, 70, 1, 3, 3), weights(4, 70), pads=1, group=70, name="b"))
    graph = lang.build({"y": lang.max_pool(left + right, kernel=2, strides=2, name="p")})
    ranges = {"x": (-1.0, 1.5)}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-2.0, 3.0))
    return quantize_network(graph, ranges, None, TARGET).graph
