"""Programs of bf16, f16 and f32: instruction mode gives the bits of graph mode, both C forms too; what does not fit is said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine
from npuc.errors import CompileError
from npuc.flow import expanded, network_to_quantize
from npuc.ir import Graph, npu, top
from npuc.program.file import load_compiled, save_compiled
from npuc.program.instruction import decode
from npuc.program.instructions import Conv, Table
from npuc.program.isa import DTYPES
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.quant import SCHEMES, quantize
from npuc.schedule.cost import Costs
from npuc.sim import Simulator
from npuc.sim.cycles import costs
from npuc.target import Target, load_target
from support.graphs import build as build_graph
from support.networks.backend import FLOAT_NETWORKS, drawn_network, machine, network
from support.networks.drawn_schemes import FLOATS, with_types
from support.programs.c_applications import build, run
from support.programs.equal_modes import check

COUNT, PORTION = FLOAT_NETWORKS, 12
SIZES = (16 << 10, 48 << 10, 256 << 10, 1 << 20)
CORES = ((1, 0), (1, 0), (2, 0), (3, 32 << 10))
"""Cores, and bytes of shared memory."""


def with_floats(target: Target) -> Target:
    """The same machine with bf16, f16 and f32."""
    return with_types(target, dict.fromkeys(FLOATS, "1/4"))


@pytest.mark.parametrize("first", range(0, COUNT, PORTION))
def test_random_networks_give_the_same_bits(first: int) -> None:
    compiled = 0
    for seed in range(first, first + PORTION):
        graph, _ = drawn_network(seed)
        random = np.random.default_rng(seed)
        program = quantize(graph, {}, SCHEMES[FLOATS[seed % 3]])
        target = with_floats(machine(SIZES[random.integers(len(SIZES))], *CORES[random.integers(len(CORES))]))
        for level in (0, 2):
            try:
                compiled += check(program, target, level) is not None
            except Exception as error:
                raise AssertionError(f"network {seed} at -O{level}") from error
    assert compiled >= PORTION


@pytest.mark.parametrize("first", range(0, COUNT // 2, PORTION))
def test_integers_and_floats_meet_on_the_npu(first: int) -> None:
    """Every layer of a network by a scheme of its own; conversions between them are instructions too."""
    conversions = 0
    for seed in range(first, first + PORTION):
        graph, ranges = network(seed)
        random = np.random.default_rng(seed)
        names = ("int8", *FLOATS)
        program = quantize(graph, ranges, lambda op: SCHEMES[names[random.integers(len(names))]])  # noqa: B023
        done = check(program, with_floats(machine(1 << 20)), seed % 3)
        assert done is not None
        on_npu = [op for part in done.partition.parts if part.device == "npu" for op in part.ops]
        conversions += sum(isinstance(op, npu.Quantize | npu.Dequantize) for op in on_npu)
    assert conversions > 0


def digits(root: Path) -> Graph:
    return expanded(network_to_quantize(root / "examples/digits.onnx"))


@pytest.mark.parametrize(
    ("target", "scheme"), [*(("bm1684x-like", scheme) for scheme in FLOATS), ("vipnano-like", "bf16")]
)
def test_what_presets_state_is_what_programs_compute_with(root: Path, target: str, scheme: str) -> None:
    """All layers on the NPU, by instructions of the type, near to float32."""
    graph = digits(root)
    done = check(quantize(graph, {}, SCHEMES[scheme]), load_target(target), 2)
    assert done is not None
    (subgraph,) = done.model.subgraphs
    assert isinstance(subgraph, NpuSubgraph)
    instructions = [decode(record.tobytes())[1] for record in subgraph.streams[0]]
    types = {one.source.x_dtype for one in instructions if isinstance(one, Conv)}
    assert types == {DTYPES.index(scheme)}
    inputs = random_inputs(graph, 3)
    got, exact = Simulator(done.model).run(inputs), FloatEngine(graph).run(inputs)
    for name, value in exact.items():
        error = np.abs(got[name] - value).max() / np.abs(value).max()
        assert error < {"bf16": 0.03, "f16": 0.004, "f32": 1e-5}[scheme]


def test_a_machine_without_the_type_says_so(root: Path) -> None:
    program = quantize(digits(root), {}, SCHEMES["f16"])
    with pytest.raises(
        CompileError, match=r"it computes with f16, and edge-4t does not; on the CPU.*leave --scheme out"
    ):
        compile_program(program, load_target("edge-4t"), CompileOptions())


@pytest.mark.parametrize(
    ("scheme", "standalone"),
    [
        ("bf16", True),
        ("f16", True),
        ("f32", True),
        pytest.param("f16", False, marks=pytest.mark.slow),
        ("f32", False),
    ],
)
def test_c_applications_have_the_same_bits(root: Path, tmp_path: Path, scheme: str, standalone: bool) -> None:
    """An application compares its outputs with those of the simulator on a sample that is exported with it."""
    program = quantize(digits(root), {}, SCHEMES[scheme])
    model: CompiledModel = compile_program(program, load_target("bm1684x-like"), CompileOptions(1)).model
    save_compiled(model, tmp_path / "model.npu")
    export_c(
        load_compiled(tmp_path / "model.npu"),
        (tmp_path / "model.npu").read_bytes(),
        tmp_path / "app",
        standalone=standalone,
    )
    build(tmp_path / "app")
    status, text = run(tmp_path / "app", *([] if standalone else ["sample"]))
    assert status == 0, text


def test_ops_without_an_instruction_compute_in_float32_on_the_cpu() -> None:
    """A log softmax between layers of bf16: casts on the NPU, the op on the CPU."""
    graph = build_graph({"x": ((2, 9), "f32")}, lambda b, x: b(top.LogSoftmax, x, axis=-1, name="y"))
    program = quantize(graph, {}, SCHEMES["bf16"])
    done = check(program, load_target("bm1684x-like"), 2)
    assert done is not None
    devices = {part.device for part in done.partition.parts}
    assert devices == {"npu", "cpu"}
    assert any(isinstance(op, npu.Cast) for part in done.partition.parts for op in part.ops)


PIECEWISE = {
    "relu": (top.Relu, {}),
    "relu6": (top.Relu, {"limit": 6.0}),
    "clip": (top.Clip, {"min": -0.5, "max": 0.75}),
    "leaky_relu": (top.LeakyRelu, {"alpha": 0.1}),
    "steep": (top.LeakyRelu, {"alpha": 3.0}),
    "abs": (top.Abs, {}),
    "neg": (top.Neg, {}),
    "hard_sigmoid": (top.HardSigmoid, {}),
    "hard_swish": (top.HardSwish, {}),
}


TABLES = {
    kind.name.removeprefix("top."): (kind, {})
    for kind in (top.Sigmoid, top.Tanh, top.SiLU, top.Gelu, top.Exp, top.Erf, top.Mish, top.Softplus, top.Elu)
}


def test_smooth_functions_run_in_f32_on_the_npu() -> None:
    """Whole and in tiles, one behind the other, in place; near to what ONNX Runtime gives for f32."""

    def layers(b: Any, x: Any) -> Any:
        first = b(top.Tanh, b(top.Sigmoid, x, name="first"), name="second")
        return {name: b(kind, x, name=name, **numbers) for name, (kind, numbers) in TABLES.items()} | {
            "chain": b(top.Exp, first, name="chain")
        }

    graph = build_graph({"x": ((2, 3, 20, 30), "f32")}, layers)
    program = quantize(graph, {}, SCHEMES["f32"])
    assert program.float_reasons == {}
    assert sum(isinstance(op, npu.FloatTable) for op in program.ops) == len(TABLES) + 3
    program.verify()
    inputs = random_inputs(graph, 3)
    exact = FloatEngine(graph).run(inputs)
    for target, level in ((load_target("bm1684x-like"), 2), (with_floats(machine(64 << 10)), 1)):
        done = check(program, target, level)
        assert done is not None and {part.device for part in done.partition.parts} == {"npu"}
        got = Simulator(done.model).run(inputs)
        for name, value in exact.items():
            np.testing.assert_allclose(got[name], value, rtol=1e-6, atol=1e-6, err_msg=name)
        for part in done.model.subgraphs:
            assert isinstance(part, NpuSubgraph)
            instructions = [decode(record.tobytes())[1] for record in part.streams[0]]
            priced = costs(target, part.streams[0]).tolist()
            tables = [
                (one, cost) for one, cost in zip(instructions, priced, strict=True) if isinstance(one, Table)
            ]
            assert tables and all(one.pieces and Costs(target).cycles(one) == cost for one, cost in tables)


def test_a_table_that_finds_no_room_keeps_its_function_off_the_npu() -> None:
    graph = build_graph({"x": ((2, 40), "f32")}, lambda b, x: b(top.Exp, x, name="y"))
    program = quantize(graph, {}, SCHEMES["f32"])
    with pytest.raises(CompileError, match="local memory"):
        compile_program(program, with_floats(machine(16 << 10)), CompileOptions())


def test_functions_of_sums_products_and_comparisons_run_in_f32_on_the_npu() -> None:
    """Each by the steps of its own formula; one that no polynomials follow stays on the CPU, and is named."""

    def layers(b: Any, x: Any) -> Any:
        outputs = {name: b(kind, x, name=name, **numbers) for name, (kind, numbers) in PIECEWISE.items()}
        return outputs | {"sin": b(top.Sin, x, name="sin")}

    graph = build_graph({"x": ((3, 40), "f32")}, layers)
    program = quantize(graph, {}, SCHEMES["f32"])
    done = check(program, load_target("bm1684x-like"), 2)
    assert done is not None
    on_cpu = {op.name for part in done.partition.parts if part.device == "cpu" for op in part.ops}
    assert on_cpu == {"top.sin"}
    assert program.float_reasons == {"sin": "no instruction computes sin in this form with f32"}
    inputs = random_inputs(graph, 3)
    got, exact = Simulator(done.model).run(inputs), FloatEngine(graph).run(inputs)
    for name in PIECEWISE:
        np.testing.assert_allclose(got[name], exact[name], rtol=2e-7, atol=1e-7, err_msg=name)
