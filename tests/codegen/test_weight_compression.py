"""Compiling for machines with a weight decoder: same bits, fewer bytes, and damaged streams that harm nobody."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions, compile_model, compile_program
from npuc.errors import FileFormatError, SimulationError, TargetError
from npuc.ir import Graph, tensor_type, top
from npuc.profile.timeline import profile_of
from npuc.program.disassemble import lines, select
from npuc.program.isa import BY_NAME, COMPRESSED
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.program.relocate import relocate
from npuc.quant import SCHEMES, quantize
from npuc.schedule.cache import Cache
from npuc.sim import Simulator, simulate
from npuc.target import Target
from support.networks.backend import Builder, machine, network
from support.programs.equal_modes import check
from support.programs.files import as_bytes, parse, sealed


def with_decoder(target: Target, rate: str | None = "64B/cycle", contexts: int | None = None) -> Target:
    """The same machine that decodes constants."""
    data = target.to_dict()
    data["memory"] |= {"weight_decoder": rate, "weight_contexts": contexts}
    return Target.from_dict(data)


def peaked(builder: Builder, *shape: int, low: float = -1.0, high: float = 1.0) -> Array:
    """Weights like those of trained networks: most of them small."""
    made = builder.random.uniform(-1, 1, shape) ** 7
    return (made * max(abs(low), abs(high))).astype(np.float32)


def program(seed: int, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A quantized network."""
    monkeypatch.setattr(Builder, "array", peaked)
    graph, ranges = network(seed)
    return quantize(graph, ranges, SCHEMES["int8"])


def loads(model: CompiledModel, compressed: bool = True) -> Array:
    """The loads of constants that decode, or those that do not."""
    found = []
    for subgraph in model.subgraphs:
        for stream in subgraph.streams if isinstance(subgraph, NpuSubgraph) else ():
            part = np.ascontiguousarray(stream[stream[:, 0] == BY_NAME["load"].opcode])
            found.append(part.view(BY_NAME["load"].dtype).reshape(-1))
    every = np.concatenate(found)
    chosen_ones: Array = every[(every["segment"] == 0) & (((every["flags"] & COMPRESSED) != 0) == compressed)]
    return chosen_ones


def inputs_of(model: CompiledModel) -> dict[str, Array]:
    """Some inputs."""
    random = np.random.default_rng(1)
    return {name: random.uniform(-1, 1, model.tensor(name).shape).astype(np.float32) for name in model.inputs}


@pytest.mark.parametrize("contexts", [None, 8])
@pytest.mark.parametrize(
    "shape", [(64 << 10, 1, 0), (24 << 10, 1, 0), (24 << 10, 2, 0), (48 << 10, 3, 32 << 10)]
)
def test_the_bits_are_those_of_graph_mode(
    shape: tuple[int, int, int], contexts: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoding = 0
    for seed in range(16 if contexts is None else 8):
        graph = program(seed, monkeypatch)
        for level in (0, 2):
            done = check(graph, with_decoder(machine(*shape), contexts=contexts), level)
            decoding += len(loads(done.model)) if done is not None else 0
    assert decoding >= (10 if contexts is None else 5)


def _dense(seed: int = 0) -> Graph:
    """Two layers of many weights, so that they are cut into pieces."""
    b = Builder(seed)
    b.graph = Graph.empty([("x", tensor_type((1, 64, 6, 6), "f32"))])
    b.values = list(b.graph.block.args)
    for inputs, outputs in ((64, 256), (256, 128)):
        weight = b.random.laplace(0, 0.02, (outputs, inputs, 3, 3)).astype(np.float32)
        b.add(top.Conv, b.values[-1], weight, None, pads=[1] * 4, strides=[1, 1], dilations=[1, 1], group=1)
    b.graph.set_outputs([("y", b.values[-1])])
    return quantize(b.graph, {name: (-1.0, 1.0) for name in ("x", "t1", "t2")}, SCHEMES["int8"])


@pytest.fixture(scope="module")
def dense() -> Graph:
    return _dense()


TARGET = with_decoder(machine(256 << 10))


@pytest.fixture(scope="module")
def compiled(dense: Graph) -> CompiledModel:
    return compile_model(dense, TARGET)


def test_pieces_are_compressed_as_they_are_loaded(dense: Graph, compiled: CompiledModel) -> None:
    plain = compile_model(dense, with_decoder(TARGET, None))
    before, after = loads(plain, compressed=False), loads(compiled)
    assert len(after) > 2  # a layer in several pieces
    assert (
        after["size"][:, 3].sum() + loads(compiled, False)["size"][:, 3].sum() == before["size"][:, 3].sum()
    )
    assert (after["stored"] < after["size"][:, 3]).all()
    assert compiled.weights.size < 0.9 * plain.weights.size
    moved, without = (profile_of(one, simulate(one)) for one in (compiled, plain))
    assert without.dram - moved.dram == (after["size"][:, 3].astype(np.int64) - after["stored"]).sum()
    assert moved.cycles < without.cycles
    inputs = inputs_of(plain)
    wanted, found = Simulator(plain).run(inputs), Simulator(compiled).run(inputs)
    for name, value in wanted.items():
        np.testing.assert_array_equal(found[name], value)


def test_neighbours_make_a_program_shorter_and_change_no_bit() -> None:
    """Depthwise kernels with large weights in the middle: a decoder with contexts knows where it is."""
    b = Builder(2)
    b.graph = Graph.empty([("x", tensor_type((1, 512, 6, 6), "f32"))])
    b.values = list(b.graph.block.args)
    middle = np.array([[1, 4, 1], [4, 40, 4], [1, 4, 1]]) / 400
    weight = (b.random.normal(0, 1, (512, 1, 3, 3)) * middle).astype(np.float32)
    b.add(top.Conv, b.values[-1], weight, None, pads=[1] * 4, strides=[1, 1], dilations=[1, 1], group=512)
    b.graph.set_outputs([("y", b.values[-1])])
    graph = quantize(b.graph, {name: (-1.0, 1.0) for name in ("x", "t1")}, SCHEMES["int4-weights"])
    plain, with_contexts = (
        compile_model(graph, with_decoder(machine(256 << 10), contexts=contexts)) for contexts in (None, 16)
    )
    assert loads(with_contexts)["stored"].sum() < 0.9 * loads(plain)["stored"].sum()
    moved, before = (profile_of(one, simulate(one)) for one in (with_contexts, plain))
    assert moved.dram < before.dram and moved.cycles <= before.cycles
    inputs = inputs_of(plain)
    for name, value in Simulator(plain).run(inputs).items():
        np.testing.assert_array_equal(Simulator(with_contexts).run(inputs)[name], value)


def test_contexts_without_a_decoder_are_refused() -> None:
    with pytest.raises(TargetError, match="tables of a weight decoder"):
        with_decoder(machine(64 << 10), None, contexts=4)


def test_a_decoder_that_is_slower_than_dram_is_not_used(dense: Graph) -> None:
    assert not len(loads(compile_model(dense, with_decoder(TARGET, "15B/cycle"))))
    assert len(loads(compile_model(dense, with_decoder(TARGET, "16B/cycle"))))


def test_the_loads_of_a_disassembly_say_how_long_their_stream_is(compiled: CompiledModel) -> None:
    text = [line for stream in select(compiled) for line in lines(compiled, stream)]
    first = loads(compiled)[0]
    assert any(f"size=[{first['size'][3]}] stored={first['stored']}" in line for line in text)


def test_compiling_twice_and_from_the_cache_gives_the_same(dense: Graph, tmp_path: Path) -> None:
    options = CompileOptions(cache=Cache(tmp_path))
    done = [compile_program(dense, TARGET, options) for _ in range(2)]
    assert [part.cached for one in done for part in one.parts] == [False, True]
    other = compile_program(_dense(1), TARGET, options)  # the same layers, other weights
    assert not other.parts[0].cached
    streams = [[stream.tobytes() for stream in one.parts[0].scheduled.streams] for one in done]
    assert streams[0] == streams[1]
    assert done[0].model.weights.tobytes() == done[1].model.weights.tobytes()


def test_a_program_can_be_moved(compiled: CompiledModel) -> None:
    moved = relocate(parse(as_bytes(compiled)), {"weights": 1 << 32})
    inputs = inputs_of(compiled)
    for name, value in Simulator(compiled).run(inputs).items():
        np.testing.assert_array_equal(Simulator(moved).run(inputs)[name], value)


def test_damaged_streams_are_refused_or_run(compiled: CompiledModel) -> None:
    random = np.random.default_rng(3)
    inputs = inputs_of(compiled)
    places = loads(compiled)
    stopped = 0
    for trial in range(120):
        one = places[int(random.integers(len(places)))]
        weights = compiled.weights.copy()
        start, length = int(one["offset"]), int(one["stored"])
        for _ in range(int(random.integers(1, 4))):
            at = start + int(random.integers(min(length, 120) if trial % 2 else length))
            weights[at] ^= 1 << int(random.integers(8))
        broken = replace(compiled, weights=weights)
        try:
            Simulator(parse(as_bytes(broken))).run(inputs)
        except SimulationError as error:
            # A table that says something else may also make weights whose sums leave the accumulator.
            stopped += "of the constants are no stream" in error.message
    assert stopped > 20


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("stored", 0, "bad field"),
        ("flags", 0, "bad field"),
        ("flags", 4, "flags"),
        ("stored", "size", "no compressed constant"),
        ("segment", 1, "no compressed constant"),
        ("offset", "behind", "leaves its segment"),
        ("size", (1, 2, 1, 100), "no compressed constant"),
    ],
)
def test_loads_that_make_no_sense_are_refused(
    compiled: CompiledModel, field: str, value: Any, words: str
) -> None:
    (subgraph,) = (one for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    stream = subgraph.streams[0].copy()
    records = stream.view(BY_NAME["load"].dtype).reshape(-1)
    at = np.flatnonzero((stream[:, 0] == BY_NAME["load"].opcode) & (records["flags"] == COMPRESSED))[0]
    meant = {"size": records["size"][at][3], "behind": compiled.weights.size - records["stored"][at] + 1}
    records[field][at] = meant[value] if isinstance(value, str) else value
    changed = NpuSubgraph(subgraph.name, (stream,), subgraph.inputs, subgraph.outputs, subgraph.allocations)
    subgraphs = tuple(changed if one is subgraph else one for one in compiled.subgraphs)
    data = as_bytes(replace(compiled, subgraphs=subgraphs))
    with pytest.raises(FileFormatError, match=words):
        parse(sealed(data))
    inputs = inputs_of(compiled)
    with pytest.raises(SimulationError):  # who runs it without reading it from a file is told, too
        Simulator(replace(compiled, subgraphs=subgraphs)).run(inputs)
