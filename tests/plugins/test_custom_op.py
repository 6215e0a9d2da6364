"""The example plugin: an op end to end, as a custom instruction whose kernel is Python here and C in an application."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc import flow, lang
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.debug.compiled import CompiledLayers
from npuc.debug.layers import LayerTensor
from npuc.deploy.c import export_c
from npuc.deploy.c.kernels import kernel_files
from npuc.engine import ALL_TENSORS, FloatEngine
from npuc.engine.integer import IntegerEngine
from npuc.errors import EngineError, ExportError, SimulationError
from npuc.ir import Graph
from npuc.partition import fit_of
from npuc.plugins import load
from npuc.profile.host import host_times
from npuc.program import custom_kernels as kernels
from npuc.program.disassemble import lines, select
from npuc.program.file import load_compiled, save_compiled
from npuc.program.instructions import Custom
from npuc.program.isa import BY_NAME
from npuc.program.model import NpuSubgraph
from npuc.quant.config import QuantizationConfig
from npuc.runtime import Runner
from npuc.schedule.cost import Costs
from npuc.sim import Simulator, sanitize
from npuc.sim.cycles import costs
from npuc.target import Target, load_target
from npuc.transform import canonicalize
from support.cached_compiler import cached
from support.paths import PLUGINS
from support.programs.c_applications import STRICT


def gated(shape: tuple[int, ...], channels: int = 8) -> Graph:
    """Two branches that gate each other, made with `npuc.lang`."""
    rng = np.random.default_rng(sum(shape))
    x = lang.input("x", shape)

    def branch(name: str) -> Any:
        if len(shape) != 4:
            return lang.matmul(
                x, rng.standard_normal((shape[-1], channels)).astype(np.float32) / 4, name=name
            )
        kernel = rng.standard_normal((channels, shape[1], 3, 3)).astype(np.float32) / 4
        return lang.conv(x, kernel, pads=1, name=name)

    a, b = branch("a"), branch("b")
    (y,) = lang.custom(
        "HardGlu", [a, b], lambda a, b: [(a.shape, a.dtype)], attributes={"slope": 0.25}, name="glu"
    )
    return canonicalize(lang.build({"y": y}))


def quantized(graph: Graph, scheme: str, target: Target | None = None) -> Graph:
    seen = FloatEngine(graph, ALL_TENSORS).run(data(graph)) | data(graph)
    ranges = {name: (float(array.min()), float(array.max())) for name, array in seen.items()}
    return flow.quantize_network(graph, ranges, QuantizationConfig(scheme=scheme), target).graph


def data(graph: Graph, seed: int = 1) -> dict[str, Array]:
    port = graph.inputs[0]
    return {
        port.name: np.random.default_rng(seed).standard_normal(port.type.get_shape()).astype(np.float32) * 2
    }  # type: ignore[attr-defined]


@pytest.fixture
def plugin() -> None:
    load(PLUGINS / "hard_glu.py")


@pytest.mark.parametrize("scheme", ["int8", "int16", "tflite"])
@pytest.mark.parametrize("shape", [(1, 3, 17, 9), (2, 4, 5, 5), (3, 12), (2, 3, 7)])
def test_both_modes_agree_on_every_type_and_rank(plugin: None, scheme: str, shape: tuple[int, ...]) -> None:
    graph = gated(shape)
    made = quantized(graph, scheme)
    assert "npu.hard_glu" in [op.name for op in made.ops]
    exact = IntegerEngine(made, raw=True).run(data(graph))["y"]
    target = load_target("edge-4t")
    for level in (0, 2):
        compiled = flow.compile_network(made, target, CompileOptions(level)).model
        np.testing.assert_array_equal(Simulator(compiled).run(data(graph))["y"], exact)
    real = FloatEngine(graph).run(data(graph))["y"]
    assert np.abs(real - exact).max() < (0.2 if scheme != "int16" else 0.1)


def test_it_is_cut_into_tiles_and_cores_where_memory_is_small(plugin: None) -> None:
    graph = gated((1, 16, 96, 96), 48)
    made = quantized(graph, "int8")
    exact = IntegerEngine(made, raw=True).run(data(graph))["y"]
    for name in ("edge-1t", "server-32t"):
        compiled = flow.compile_network(made, load_target(name)).model
        customs = [
            text
            for stream in select(compiled)
            for text in lines(compiled, stream)
            if "custom 'hard_glu'" in text
        ]
        assert len(customs) > 1
        np.testing.assert_array_equal(Simulator(compiled).run(data(graph))["y"], exact)
        assert not sanitize(compiled, data(graph))


def test_a_predicted_cycle_is_a_simulated_cycle(plugin: None) -> None:
    made = quantized(gated((1, 3, 16, 16)), "int8")
    target = load_target("edge-4t")
    compiled = flow.compile_network(made, target, CompileOptions(0)).model
    (stream,) = (one.streams[0] for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    at = np.flatnonzero(stream[:, 0] == BY_NAME["custom"].opcode)
    work = stream[at].view(BY_NAME["custom"].dtype)[:, 0]["work"].tolist()
    assert sum(work) == 3 * 8 * 16 * 16
    simulated = costs(target, stream)
    for place, steps in zip(at.tolist(), work, strict=True):
        predicted = Costs(target).cycles(replace(Custom.of([0] * 60), work=steps))
        assert predicted == 16 + -(-steps // 128)
        assert simulated[place] == predicted


def test_a_target_file_may_limit_the_op(plugin: None) -> None:
    text = load_target("edge-4t").to_dict()
    made = quantized(gated((1, 3, 8, 8)), "int8")
    op = next(op for op in made.ops if op.name == "npu.hard_glu")
    text["limits"]["rules"] = {
        "hard_glu": {"wide": {"require": "ow <= 4", "because": "the gate is 4 columns wide"}}
    }
    fit = fit_of(op, made, Target.from_dict(text))  # type: ignore[arg-type]
    assert not fit and "the gate is 4 columns wide: ow may be 4 at most, and is 8" in fit.reason
    # What the NPU may not, the CPU does, to the bit.
    exact = IntegerEngine(made, raw=True).run({"x": np.ones((1, 3, 8, 8), np.float32)})["y"]
    compiled = flow.compile_network(made, Target.from_dict(text)).model
    assert any(
        not isinstance(one, NpuSubgraph) and "glu" in str(getattr(one, "reasons", ""))
        for one in compiled.subgraphs
    )
    np.testing.assert_array_equal(
        Simulator(compiled).run({"x": np.ones((1, 3, 8, 8), np.float32)})["y"], exact
    )


def test_a_file_runs_only_with_its_plugin(plugin: None, tmp_path: Path) -> None:
    graph = gated((1, 3, 8, 8))
    save_compiled(
        flow.compile_network(quantized(graph, "int8"), load_target("edge-4t")).model, tmp_path / "m.npu"
    )
    compiled = load_compiled(tmp_path / "m.npu")
    assert kernels.names_in(compiled) == ["hard_glu"]
    # The core forgets no kernel, so another name stands for one that was never there.
    stream = next(one.streams[0] for one in compiled.subgraphs if isinstance(one, NpuSubgraph))
    changed = stream.copy()
    at = stream[:, 0] == BY_NAME["custom"].opcode
    changed[at, 24:32] = np.frombuffer(b"hard_gla", np.uint8)
    other = replace(
        compiled,
        subgraphs=tuple(
            replace(one, streams=(changed,)) if isinstance(one, NpuSubgraph) else one
            for one in compiled.subgraphs
        ),
    )
    with pytest.raises(SimulationError, match=r"the kernel 'hard_gla' is not registered.*--plugin"):
        Simulator(other).run(data(graph))
    with pytest.raises(ExportError, match="has no kernel in C"):
        kernel_files([other])


def test_what_a_kernel_raises_is_told(plugin: None) -> None:
    def fails(call: Any) -> None:
        raise ValueError("of no use")

    graph = gated((1, 3, 8, 8))
    compiled = flow.compile_network(quantized(graph, "int8"), load_target("edge-4t")).model
    kernels.KERNELS.remove("hard_glu")
    kernels.register("hard_glu", fails)
    with pytest.raises(
        SimulationError, match=r"the kernel 'hard_glu' refuses its operands.*ValueError: of no use"
    ):
        Simulator(compiled).run(data(graph))
    with pytest.raises(EngineError, match="the kernel 'hard_glu' failed: ValueError: of no use"):
        IntegerEngine(quantized(graph, "int8")).run(data(graph))


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler is here")
def test_the_c_kernel_has_the_bits_of_the_python_one(plugin: None, tmp_path: Path) -> None:
    include = Path(__file__).parents[2] / "native" / "include"
    library = tmp_path / "hard_glu.so"
    source = PLUGINS / "hard_glu.c"
    flags = [
        "-std=c11",
        "-O1",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-shared",
        "-fPIC",
        f"-I{include}",
    ]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    in_c = ctypes.CDLL(str(library)).hard_glu

    types = st.tuples(*[st.integers(0, 2)] * 3)
    zeros = st.tuples(*[st.integers(-128, 127)] * 3)

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(
        types, zeros, st.integers(1, 2**30), st.integers(0, 32767), st.integers(1, 62), st.integers(0, 2**31)
    )
    def agree(kinds: Any, zero: Any, slope: int, multiplier: int, shift: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        numpy = (np.int8, np.uint8, np.int16)
        x, b = (rng.integers(0, 65536, 33).astype(np.uint16).astype(numpy[kind]) for kind in kinds[:2])
        limits = np.iinfo(numpy[kinds[2]])
        numbers = (*kinds, *zero, slope, multiplier, shift, limits.min, limits.max)
        y = np.zeros(33, numpy[kinds[2]])
        kernels.run("hard_glu", x, b, None, y, numbers)
        made = np.zeros_like(y)
        parameters = (ctypes.c_int32 * 16)(*numbers)
        raw = kernels._RawCall(
            x=x.ctypes.data, b=b.ctypes.data, y=made.ctypes.data, x_bytes=x.nbytes, b_bytes=b.nbytes,
            y_bytes=y.nbytes, parameters=parameters, bytes=1,
        )  # fmt: skip
        assert in_c(ctypes.byref(raw)) == 0
        np.testing.assert_array_equal(made, y)

    agree()


def test_an_application_brings_the_kernel(plugin: None, tmp_path: Path) -> None:
    graph = gated((1, 3, 8, 8))
    save_compiled(
        flow.compile_network(quantized(graph, "int8"), load_target("edge-4t")).model, tmp_path / "m.npu"
    )
    compiled, file = load_compiled(tmp_path / "m.npu"), (tmp_path / "m.npu").read_bytes()
    for standalone in (False, True):
        folder = tmp_path / f"app{standalone}"
        export_c(compiled, file, folder, data(graph), standalone=standalone)
        assert (folder / "kernel_hard_glu.c").read_text() == (PLUGINS / "hard_glu.c").read_text()
        assert 'npu_register_kernel("hard_glu", hard_glu);' in (folder / "kernels.c").read_text()


@pytest.mark.skipif(shutil.which("make") is None, reason="no make is here")
def test_the_demo_goes_all_the_way(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", cached("cc"))
    monkeypatch.setenv("WARNINGS", STRICT)
    spec = importlib.util.spec_from_file_location("plugin_demo", PLUGINS / "demo.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    assert demo.main(tmp_path) == 0
    text = capsys.readouterr().out
    assert "import: checked" in text and "the bits of graph mode" in text and "the expected bits" in text


def test_constants_reach_a_kernel(plugin: None) -> None:
    """An instruction with constants and one operand: y = table[x]."""
    from npuc.plugins.api import NpuOp, custom_instruction, npu_op, operand, result, shape_of, tensor_type

    class NpuLookup(NpuOp):
        """y = table[x]"""

        name = "npu.test_lookup"
        x = operand()
        table = operand()
        y = result()

        def infer(self) -> Any:
            return [tensor_type(shape_of(self.x), self.to)]

    made_class = npu_op(NpuLookup)

    def look_up(call: Any) -> None:
        assert call.constants is not None and call.b is None
        call.y.view(np.int8)[:] = call.constants.view(np.int8)[call.x.view(np.int8).astype(int) + 128]

    kernels.register("test.lookup", look_up)
    custom_instruction(
        made_class,
        kernel="test.lookup",
        constants=lambda op, graph: graph.constant(op.table),
        by_row=True,
        work=0.5,
    )
    graph = quantized(gated((1, 3, 9, 5)), "int8")
    old = next(op for op in graph.ops if op.name == "npu.hard_glu")
    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)
    weight = graph.add_weight("table", table)
    made: Any = made_class
    graph.block.insert_ops_before([weight], old)
    new = made.make(old.operands[0], weight.output, to=old.to, loc=old.location)  # type: ignore[attr-defined]
    graph.block.insert_ops_before([new], old)
    old.results[0].replace_all_uses_with(new.y)
    graph.block.erase_op(old)
    x = {"x": np.random.default_rng(1).standard_normal((1, 3, 9, 5)).astype(np.float32)}
    seen = IntegerEngine(graph, fetch=["a"], raw=True).run(x)
    compiled = flow.compile_network(graph, load_target("edge-4t")).model
    found = Simulator(compiled).run(x)["y"]
    np.testing.assert_array_equal(found, seen["y"])
    scale = old_scale(graph, "glu")
    np.testing.assert_allclose(
        found, (table[seen["a"].astype(int) + 128].astype(int) - scale[1]) * scale[0], rtol=1e-6
    )


AFFINE_IN_C = """
#include "npu_kernel.h"

int32_t test_affine(const npu_kernel_call *call)
{
    int64_t table_bytes, text_bytes, none;
    const int8_t *table = npu_kernel_constant(call, 0, &table_bytes);
    const char *mode = npu_kernel_constant(call, 1, &text_bytes);
    if (!table || table_bytes != 256 || !mode || text_bytes != 4 || strcmp(mode, "half") != 0) return 1;
    if (npu_kernel_constant(call, 2, &none) || npu_kernel_constant(call, -1, &none) || call->x_bytes != call->y_bytes) return 2;
    for (int64_t i = 0; i < call->y_bytes; i++) {
        const float value = npu_kernel_real(call, 1) * (float)table[((const int8_t *)call->x)[i] + 128];
        ((int8_t *)call->y)[i] = (int8_t)(value + (float)call->parameters[0]);
    }
    return 0;
}
"""


def test_reals_texts_and_tensors_reach_a_kernel(plugin: None, tmp_path: Path) -> None:
    """y = trunc(factor * table[x] + offset), by a real, an integer, a tensor and a text; in Python, instruction mode and C."""
    from npuc.plugins.api import NpuOp, custom_instruction, npu_op, operand, result, shape_of, tensor_type

    class NpuAffine(NpuOp):
        """y = trunc(factor * table[x] + offset)"""

        name = "npu.test_affine"
        x = operand()
        y = result()

        def infer(self) -> Any:
            return [tensor_type(shape_of(self.x), self.to)]

    table = np.random.default_rng(0).integers(-128, 128, 256).astype(np.int8)

    def affine(call: Any) -> None:
        assert call.text(1) == "half" and call.parameters[0] == 3
        with pytest.raises(ValueError, match="no constant 2"):
            call.constant(2)
        entries = call.constant(0).view(np.int8)[call.x.view(np.int8).astype(int) + 128]
        call.y.view(np.int8)[:] = (np.float32(call.real(1)) * entries.astype(np.float32) + 3).astype(np.int8)

    kernels.register("test_affine", affine, AFFINE_IN_C, replace=True)
    made: Any = npu_op(NpuAffine)
    custom_instruction(
        made,
        kernel="test_affine",
        parameters=lambda op: (3, 0.3),
        constants=lambda op, graph: [table, "half"],
    )
    graph = quantized(gated((1, 3, 9, 5)), "int8")
    old = next(op for op in graph.ops if op.name == "npu.hard_glu")
    new = made.make(old.operands[0], to=old.to, loc=old.location)  # type: ignore[attr-defined]
    graph.block.insert_ops_before([new], old)
    old.results[0].replace_all_uses_with(new.y)
    graph.block.erase_op(old)
    x = {"x": np.random.default_rng(1).standard_normal((1, 3, 9, 5)).astype(np.float32)}
    exact = IntegerEngine(graph, raw=True).run(x)["y"]
    for devices in ({}, {"glu": "cpu"}):
        options = CompileOptions(devices=devices, island_threshold=0)
        save_compiled(flow.compile_network(graph, load_target("edge-4t"), options).model, tmp_path / "m.npu")
        np.testing.assert_array_equal(Simulator(load_compiled(tmp_path / "m.npu")).run(x)["y"], exact)
    (tmp_path / "affine.c").write_text(AFFINE_IN_C)
    include = Path(__file__).parents[2] / "native" / "include"
    flags = ["-std=c11", *STRICT.split(), "-ffp-contract=off", "-shared", "-fPIC", f"-I{include}"]
    subprocess.run(["gcc", *flags, "affine.c", "-o", "affine.so"], check=True, cwd=tmp_path)
    in_c = ctypes.CDLL(str(tmp_path / "affine.so")).test_affine
    numbers, constants = kernels.encode_parameters([3, 0.3]), kernels.pack_constants([table, "half"])
    every = np.arange(-128, 128).astype(np.int8)
    ours, theirs = np.zeros(256, np.int8), np.zeros(256, np.int8)
    kernels.run("test_affine", every, None, constants, ours, numbers)
    for cut, answer in ((0, 0), (1, 1), (constants.size - 8, 1), (constants.size, 1)):
        raw = kernels._RawCall(
            x=every.ctypes.data, y=theirs.ctypes.data, constants=constants.ctypes.data, x_bytes=256, y_bytes=256,
            constant_bytes=constants.size - cut if cut != 1 else 12, bytes=1,
            parameters=(ctypes.c_int32 * 16)(*numbers),
        )  # fmt: skip
        assert in_c(ctypes.byref(raw)) == answer
    np.testing.assert_array_equal(theirs, ours)


def old_scale(graph: Graph, name: str) -> tuple[float, int]:
    from npuc.ir.dtypes import quant_of

    value = graph.find(name)
    assert value is not None
    kind = quant_of(value)
    assert kind is not None
    return kind.scale, kind.zero_point


def test_a_custom_op_on_the_cpu_runs_in_every_executor(plugin: None, tmp_path: Path) -> None:
    """Simulator, runtime, debugger and profiler run CPU subgraphs in one place: the plugin's kernel is there for all."""
    graph = gated((1, 3, 8, 8))
    seen = FloatEngine(graph, ALL_TENSORS).run(data(graph)) | data(graph)
    ranges = {name: (float(array.min()), float(array.max())) for name, array in seen.items()}
    asked = QuantizationConfig(layers={"glu": "float"})
    target = load_target("edge-4t")
    compiled = flow.compile_network(flow.quantize_network(graph, ranges, asked, target).graph, target).model
    exact = Simulator(compiled).run(data(graph))["y"]
    with Runner(compiled) as runner:
        np.testing.assert_array_equal(runner.run(data(graph))["y"], exact)
    tensors: dict[str, Array] = {}

    def visit(tensor: LayerTensor) -> bool:
        tensors[tensor.name] = tensor.values
        return False

    CompiledLayers(compiled).trace(data(graph), visit)
    np.testing.assert_array_equal(tensors["glu"], exact)
    assert [one.seconds is not None for one in host_times(compiled)] == [True]
