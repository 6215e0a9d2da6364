"""LSTM, GRU and simple recurrent layers on the NPU: one instruction a direction, the bits of graph mode, near float."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.codegen.compile_model import Compilation, CompileOptions, compile_program
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine, IntegerEngine
from npuc.flow import network_to_quantize, quantize_network
from npuc.frontend.options import ImportOptions
from npuc.ir import Graph
from npuc.partition import partition, to_keep_float
from npuc.program.file import load_compiled, save_compiled
from npuc.program.instruction import decode
from npuc.program.isa import BY_NAME
from npuc.program.model import CpuSubgraph, NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.runtime import Runner
from npuc.schedule.cost import Costs
from npuc.sim.cycles import costs
from npuc.target import load_target
from support.networks.backend import SIZES, machine, recurrent_step
from support.networks.backend import network as random_network
from support.programs.c_applications import build, run
from support.programs.equal_modes import check

EDGE = load_target("edge-4t")
GATES = {"lstm": 4, "gru": 3, "rnn": 1}


def network(
    cell: str,
    direction: str = "forward",
    *,
    steps: int = 6,
    batch: int = 2,
    inputs: int = 5,
    hidden: int = 4,
    outputs: int = 0,
    states: str = "",
    seed: int = 0,
    **options: Any,
) -> Graph:
    """A layer between two others; `states` are `given` as inputs, or `constant`, and `outputs` are projected."""
    random = np.random.default_rng(seed)
    directions, rows = 2 if direction == "bidirectional" else 1, GATES[cell] * hidden

    def normal(*shape: int) -> Array:
        return (random.normal(size=shape) / shape[-1] ** 0.5).astype(np.float32)

    x = lang.input("x", (steps, batch, inputs))
    names = ["initial_h", *(["initial_c"] if cell == "lstm" else [])] if states else []
    shapes = [(directions, batch, outputs or hidden), (directions, batch, hidden)]
    begin: dict[str, Any] = {
        name: lang.input(name, shape) if states == "given" else 0.5 * normal(*shape)
        for name, shape in zip(names, shapes, strict=False)
    }
    width = outputs or hidden
    if outputs:
        options["projection"] = normal(directions, outputs, hidden)
    op = {"lstm": lang.lstm, "gru": lang.gru, "rnn": lang.rnn}[cell]
    parts = op(
        lang.tanh(x),
        normal(directions, rows, inputs),
        normal(directions, rows, width),
        0.3 * normal(directions, 2 * rows),
        hidden=hidden,
        direction=direction,
        **begin,
        **options,
    )
    y = lang.relu(parts[0])
    return lang.build({"y": y, **{f"last_{'hc'[i]}": part for i, part in enumerate(parts[1:])}})


def samples(graph: Graph, count: int, seed: int = 1) -> list[dict[str, Array]]:
    random = np.random.default_rng(seed)
    return [
        {
            port.name: random.uniform(-0.9, 0.9, port.type.get_shape()).astype(np.float32)  # type: ignore[attr-defined]
            for port in graph.inputs
        }
        for _ in range(count)
    ]


def quantized(graph: Graph, scheme: str = "int8") -> Graph:
    engine = FloatEngine(graph, fetch=graph.tensor_names(), threads=1)
    runs = [sample | engine.run(sample) for sample in samples(graph, 4)]
    ranges = {
        name: (min(float(run[name].min()) for run in runs), max(float(run[name].max()) for run in runs))
        for name in runs[0]
    }
    return quantize(graph, ranges, SCHEMES[scheme])


def opcodes(compilation: Compilation) -> list[int]:
    return [
        int(record[0])
        for subgraph in compilation.model.subgraphs
        if isinstance(subgraph, NpuSubgraph)
        for stream in subgraph.streams
        for record in stream
    ]


CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("lstm", "int8", {}),
    ("lstm", "uint8", {"direction": "bidirectional", "states": "given"}),
    ("lstm", "int16", {"direction": "reverse", "states": "constant", "batch": 1}),
    ("lstm", "int4-weights", {"input_forget": True, "clip": 0.7, "hidden": 3}),
    ("lstm", "int8", {"peephole": np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12),
                      "direction": "bidirectional"}),
    ("lstm", "int8", {"outputs": 3, "direction": "bidirectional", "states": "given"}),
    ("lstm", "int4-weights", {"outputs": 7, "states": "constant", "batch": 3}),
    ("gru", "int8", {"direction": "bidirectional", "linear_before_reset": True}),
    ("gru", "int16-weights", {"states": "given"}),
    ("gru", "pow2", {"states": "constant", "linear_before_reset": True, "batch": 3}),
    ("rnn", "int8", {"direction": "bidirectional", "states": "given"}),
    ("rnn", "int8", {"activations": ("Relu",)}),
]  # fmt: skip


@pytest.mark.parametrize(("cell", "scheme", "options"), CASES, ids=lambda value: str(value)[:24])
def test_instructions_have_the_bits_of_graph_mode(cell: str, scheme: str, options: dict[str, Any]) -> None:
    integers = quantized(network(cell, **options), scheme)
    compilation = check(integers, EDGE, level=2)
    assert compilation is not None
    assert not any(isinstance(part, CpuSubgraph) for part in compilation.model.subgraphs)
    directions = 2 if options.get("direction") == "bidirectional" else 1
    assert opcodes(compilation).count(BY_NAME["recurrent"].opcode) == directions
    for subgraph in compilation.model.subgraphs:
        if isinstance(subgraph, NpuSubgraph):
            (stream,) = subgraph.streams
            for record, cycles in zip(stream, costs(compilation.model, stream), strict=True):
                if record[0] == BY_NAME["recurrent"].opcode:
                    assert cycles == Costs(EDGE).cycles(decode(record.tobytes())[1])


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(("scheme", "least"), [("int8", 28), ("int16-weights", 50)])
def test_a_projection_is_near_float(direction: str, scheme: str, least: float) -> None:
    peephole = np.linspace(-1, 1, 36, dtype=np.float32).reshape(2, 18)
    options = {"outputs": 4, "hidden": 6, "states": "given", "seed": 3}
    given = peephole[: 2 if direction == "bidirectional" else 1]
    graph = network("lstm", direction, peephole=given, **options)
    sample = samples(graph, 1)[0]
    exact, ours = (
        FloatEngine(graph, threads=1).run(sample),
        IntegerEngine(quantized(graph, scheme)).run(sample),
    )
    for name, value in exact.items():
        error = np.square(value - ours[name]).sum() / np.square(value).sum()
        assert error < 10 ** (-least / 10), name


@pytest.mark.parametrize("first", [0, 16])
def test_random_networks_with_recurrent_layers_give_the_same_bits(first: int) -> None:
    schemes = sorted(name for name, scheme in SCHEMES.items() if scheme.needs_ranges)
    compiled = 0
    for seed in range(first, first + 16):
        random = np.random.default_rng(seed)
        graph, ranges = random_network(seed, 5, recurrent_step)
        integers = quantize(graph, ranges, SCHEMES[schemes[random.integers(len(schemes))]])
        target = machine(SIZES[random.integers(3, len(SIZES))], *[(1, 0), (2, 0)][seed % 2])
        try:
            compiled += check(integers, target, 2) is not None
        except Exception as error:
            raise AssertionError(f"network {seed}") from error
    assert compiled >= 8


@pytest.mark.parametrize("cell", GATES)
def test_a_long_sequence_is_one_instruction_and_near_float(cell: str) -> None:
    graph = network(cell, steps=100, batch=1, inputs=24, hidden=32)
    integers = quantized(graph)
    compilation = compile_program(integers, EDGE)
    codes = opcodes(compilation)
    assert codes.count(BY_NAME["recurrent"].opcode) == 1 and len(codes) < 60
    exact = FloatEngine(graph, threads=1)
    with Runner(compilation.model) as runner:
        for sample in samples(graph, 4, seed=9):
            expected, ours = exact.run(sample), runner.run(sample)
            for name, value in expected.items():
                error = np.square(value - ours[name]).sum() / np.square(value).sum()
                assert error < 10**-2.8, name


def test_an_lstm_that_a_file_has_step_by_step_is_wholly_on_the_npu(shared: Path) -> None:
    options = ImportOptions(inputs=("Mfcc",), input_shapes={"Mfcc": (1, 25, 10)})
    graph = network_to_quantize(shared / "models/tensorflow/lstm_s.pb", options)
    ranges = dict.fromkeys([*graph.tensor_names(), "Mfcc"], (-4.0, 4.0))
    integers = quantize_network(graph, ranges, target=EDGE).graph
    assert {part.device for part in partition(integers, EDGE).parts} == {"npu", "convert"}


def test_a_layer_that_local_memory_cannot_hold_stays_float() -> None:
    graph = network("lstm", inputs=64, hidden=64)
    kept = to_keep_float(graph, machine(16 << 10))
    assert [fit.reason for fit in kept.values()] == [
        "it needs 39,680 bytes of local memory however it is cut, and edge-4t has 16,384"
    ]
    assert not to_keep_float(graph, machine(64 << 10))


def test_a_machine_without_16_bits_keeps_the_float_layer() -> None:
    data = EDGE.to_dict()
    for kind in ("activations", "weights"):
        del data["arithmetic"][kind]["formats"]["i16"]
    del data["compute"]["array"]["rates"]["i16"]
    target = type(EDGE).from_dict(data | {"name": "narrow"})
    kept = {op.name: fit.reason for op, fit in to_keep_float(network("gru"), target).items()}
    assert kept == {"top.gru": "narrow has no activations of type i16"}
    assert not to_keep_float(network("rnn"), target)


def test_levels_of_optimization_do_not_change_results() -> None:
    integers = quantized(network("lstm", "bidirectional", states="given"))
    sample = samples(network("lstm", "bidirectional", states="given"), 1)[0]
    runs = []
    for level in (0, 1, 3):
        with Runner(compile_program(integers, EDGE, CompileOptions(level=level)).model) as runner:
            runs.append(runner.run(sample))
    for other in runs[1:]:
        for name, value in runs[0].items():
            np.testing.assert_array_equal(other[name], value)


@pytest.mark.parametrize("standalone", [False, True])
def test_c_applications_have_the_same_bits(tmp_path: Path, standalone: bool) -> None:
    """An application compares its outputs with those of the simulator on a sample that is exported with it."""
    peephole = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 12)
    integers = quantized(network("lstm", "bidirectional", states="given", peephole=peephole))
    save_compiled(compile_program(integers, EDGE).model, tmp_path / "model.npu")
    file = (tmp_path / "model.npu").read_bytes()
    export_c(load_compiled(tmp_path / "model.npu"), file, tmp_path / "app", standalone=standalone)
    build(tmp_path / "app")
    status, words = run(tmp_path / "app", *([] if standalone else ["sample"]))
    assert status == 0 and "all outputs have the expected bits" in words
