"""Custom instructions on whole tensors in global memory, and workspaces, of kernels in Python and in C."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import flow, lang
from npuc.arrays import Array
from npuc.codegen.compile_model import CompileOptions
from npuc.codegen.encode import encode_schedule
from npuc.debug.compiled import CompiledLayers
from npuc.debug.layers import LayerTensor
from npuc.deploy.c import export_c
from npuc.engine.integer import IntegerEngine
from npuc.errors import EngineError, PluginError, SimulationError
from npuc.ir import Graph
from npuc.native import find
from npuc.plugins.api import (
    KernelCall,
    NpuOp,
    custom_instruction,
    npu_op,
    operand,
    result,
    shape_of,
    tensor_type,
)
from npuc.plugins.libraries import register_library
from npuc.program import custom_kernels as kernels
from npuc.program.addresses import buffers
from npuc.program.combine import combine
from npuc.program.disassemble import lines, select
from npuc.program.file import load_compiled, load_entries, save_compiled
from npuc.program.isa import BY_NAME, NONE
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.runtime import Runner
from npuc.schedule.cost import Costs
from npuc.schedule.listing import listing, parse_listing
from npuc.sim import Simulator, sanitize
from npuc.sim.cycles import costs
from npuc.target import load_target
from npuc.transform import canonicalize
from support.paths import ROOT, TESTS
from support.programs.instructions import Draft

SHAPE = (1, 3, 12, 10)
X: dict[str, Array] = {"x": np.random.default_rng(3).standard_normal(SHAPE).astype(np.float32)}


class NpuReordered(NpuOp):
    """x through the kernel of a test, of the same shape and type."""

    name = "npu.test_reordered"
    x = operand()
    y = result()

    def infer(self) -> Any:
        return [tensor_type(shape_of(self.x), self.to)]


REORDERED: Any = npu_op(NpuReordered)


def sort_all(call: KernelCall) -> None:
    assert call.workspace is not None and call.workspace.size == call.x.size
    assert call.local_workspace is not None and call.local_workspace.size == 64 and call.parameters[0] == 7
    call.workspace[:] = call.x
    call.local_workspace[:] = 1
    call.y.view(np.int8)[:] = np.sort(call.workspace.view(np.int8))


def running_sum(call: KernelCall) -> None:
    assert call.workspace is not None and call.local_workspace is None
    sums = call.workspace.view(np.int32)[: call.x.size]
    np.cumsum(call.x.view(np.int8), out=sums, dtype=np.int32)
    call.y[:] = (sums & 255).astype(np.uint8)


def network(shape: tuple[int, ...] = SHAPE, channels: int = 8) -> Graph:
    """A convolution, the op, another convolution."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((channels, c, 3, 3)).astype(np.float32) / 4 for c in (shape[1], channels)]
    inner = lang.sigmoid(lang.conv(lang.input("x", shape), weights[0], pads=1, name="a"), name="s")
    graph = canonicalize(lang.build({"y": lang.conv(inner, weights[1], pads=1, name="y")}))
    integers = flow.quantize_network(
        graph, {name: (-4.0, 4.0) for name in ("x", *graph.tensor_names())}
    ).graph
    old: Any = next(op for op in integers.ops if op.name == "npu.table")
    new: Any = REORDERED.make(old.operands[0], to=old.to, loc=old.location)
    integers.block.insert_ops_before([new], old)
    old.results[0].replace_all_uses_with(new.y)
    integers.block.erase_op(old)
    return integers


def count(op: Any) -> int:
    return int(np.prod(shape_of(op.x)))


def sorting(**changed: Any) -> None:
    """The op as a sort of all values, in global memory, with a workspace in either memory."""
    stated: dict[str, Any] = {
        "kernel": "test.sort", "memory": "global", "workspace": count, "local_workspace": 64, "parameters": lambda op: (7,),
        "work": lambda op: 20 * count(op), "traffic": lambda op: 30 * count(op),
    }  # fmt: skip
    custom_instruction(REORDERED, **stated | changed, replace=True)


def summing() -> None:
    """The op as a running sum, in local memory with a workspace there."""
    custom_instruction(REORDERED, kernel="test.sums", workspace=lambda op: 4 * count(op), replace=True)


def compiled(target: str, level: int = 2, graph: Graph | None = None, **options: Any) -> CompiledModel:
    chosen = CompileOptions(level, **options)
    return flow.compile_network(graph or network(), load_target(target), chosen).model


def customs(model: CompiledModel) -> list[str]:
    return [text for stream in select(model) for text in lines(model, stream) if " custom" in text]


@pytest.fixture
def in_python() -> None:
    kernels.register("test.sort", sort_all, replace=True)
    kernels.register("test.sums", running_sum, replace=True)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernels of global_kernels.c."""
    if shutil.which("gcc") is None:
        pytest.skip("there is no C compiler")
    path = tmp_path_factory.mktemp("kernels") / "global_kernels.so"
    flags = [
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-O1",
        "-shared",
        "-fPIC",
        f"-I{ROOT / 'native' / 'include'}",
    ]
    subprocess.run(["gcc", *flags, str(TESTS / "plugins" / "global_kernels.c"), "-o", str(path)], check=True)
    return path


@pytest.mark.parametrize("target", ["edge-1t", "edge-4t", "server-32t"])
@pytest.mark.parametrize("form", [sorting, summing])
def test_both_modes_agree_in_either_memory(in_python: None, target: str, form: Any) -> None:
    form()
    graph = network()
    exact = IntegerEngine(graph, raw=True).run(X)["y"]
    for level in (0, 2):
        model = compiled(target, level, graph)
        (text,) = customs(model)
        assert ("custom_global 'test.sort'" if form is sorting else "custom_local 'test.sums'") in text
        np.testing.assert_array_equal(Simulator(model).run(X)["y"], exact)
        assert not sanitize(model, X)


def test_a_kernel_needs_the_whole_tensor_and_no_local_memory_for_it(in_python: None) -> None:
    """1 MiB on a machine of 512 KiB: whole in local memory, it would run on the CPU."""
    sorting()
    shape = (1, 3, 128, 128)
    graph = network(shape, 64)
    x = {"x": np.random.default_rng(0).standard_normal(shape).astype(np.float32)}
    model = compiled("edge-1t", 1, graph)
    assert len(customs(model)) == 1 == sum(isinstance(part, NpuSubgraph) for part in model.subgraphs)
    exact = IntegerEngine(graph, fetch=["s"], raw=True).run(x)
    assert (np.diff(exact["s"].transpose(0, 2, 3, 1).reshape(-1).astype(int)) >= 0).all()
    np.testing.assert_array_equal(Simulator(model).run(x)["y"], exact["y"])


def test_files_listings_and_tools_know_it(in_python: None, tmp_path: Path) -> None:
    sorting()
    graph = network()
    save_compiled(compiled("edge-4t", graph=graph), tmp_path / "m.npu")
    model = load_compiled(tmp_path / "m.npu")
    assert kernels.names_in(model) == ["test.sort"]
    (text,) = customs(model)
    assert "workspace=workspace+0x" in text and "local_workspace=%0x" in text
    assert "[960] = custom_global" in text and "work=19200 traffic=28800" in text
    places = [place for place in buffers(model) if place.kind == "spill" and place.name == "s"]
    assert sum(place.size for place in places) >= 3 * 960  # its operand, its result, its workspace
    tensors: dict[str, Array] = {}

    def visit(tensor: LayerTensor) -> bool:
        tensors[tensor.name] = tensor.values
        return False

    CompiledLayers(model).trace(X, visit)
    exact = IntegerEngine(graph, fetch=["s"], raw=True).run(X)["s"]
    np.testing.assert_array_equal(tensors["s"], exact)


@pytest.mark.parametrize("target", ["edge-4t", "server-32t"])
def test_a_schedule_with_it_is_text_that_is_read_back(in_python: None, target: str) -> None:
    sorting()
    done = flow.compile_network(network(), load_target(target), CompileOptions(2))
    (schedule,) = (part.schedule for part in done.parts)
    again = parse_listing(listing(schedule))
    assert again == schedule
    (part,) = (part for part in done.model.subgraphs if isinstance(part, NpuSubgraph))
    assert [s.tobytes() for s in encode_schedule(again)] == [s.tobytes() for s in part.streams]


def test_a_predicted_cycle_is_a_simulated_cycle(in_python: None) -> None:
    from npuc.program.instruction import decode

    target = load_target("edge-4t")
    for traffic, work in ((28800, 19200), (0, 19200), (64, 1 << 20)):
        sorting(traffic=lambda op, traffic=traffic: traffic, work=lambda op, work=work: work)
        model = compiled("edge-4t", 0)
        (stream,) = (part.streams[0] for part in model.subgraphs if isinstance(part, NpuSubgraph))
        (at,) = np.flatnonzero(stream[:, 0] == BY_NAME["custom_global"].opcode)
        predicted = Costs(target).cycles(decode(stream[at].tobytes())[1])
        moves = 200 + -(-traffic // 16) if traffic else 0
        assert predicted == 16 + max(-(-work // 128), moves) == costs(target, stream)[at]


def test_the_cpu_gives_the_same_bits(in_python: None) -> None:
    for form in (sorting, summing):
        form()
        graph = network()
        model = compiled("edge-4t", graph=graph, devices={"s": "cpu"}, island_threshold=0)
        assert not customs(model)
        np.testing.assert_array_equal(
            Simulator(model).run(X)["y"], IntegerEngine(graph, raw=True).run(X)["y"]
        )


def test_a_missing_wait_is_a_race(in_python: None) -> None:
    """Whatever of its waits the instruction loses, the sanitizer sees it; so do readers of its result."""
    sorting()
    model = compiled("edge-4t")
    (part,) = (part for part in model.subgraphs if isinstance(part, NpuSubgraph))
    stream = part.streams[0]
    (at,) = np.flatnonzero(stream[:, 0] == BY_NAME["custom_global"].opcode)
    reader = at + 1 + int(np.argmax(stream[at + 1 :, 0] == BY_NAME["load"].opcode))
    for place, queue in ((at, 1), (at, 0), (reader, 3)):
        changed = stream.copy()
        waits = changed[place, 8:24].view("<u4")
        assert waits[queue]
        waits[queue] = 0
        broken = replace(
            model,
            subgraphs=tuple(replace(p, streams=(changed,)) if p is part else p for p in model.subgraphs),
        )
        assert sanitize(broken, X)


def test_kernels_in_c_have_the_bits_of_those_in_python(
    in_python: None, library: Path, tmp_path: Path
) -> None:
    graphs, exact = {}, {}
    for form in (sorting, summing):
        form()
        graphs[form] = network()
        exact[form] = IntegerEngine(graphs[form], raw=True).run(X)["y"]
    kernels.KERNELS.remove("test.sort")
    kernels.KERNELS.remove("test.sums")
    register_library(library)
    for form in (sorting, summing):
        form()
        np.testing.assert_array_equal(IntegerEngine(graphs[form], raw=True).run(X)["y"], exact[form])
        model = compiled("edge-4t", graph=graphs[form])
        np.testing.assert_array_equal(Simulator(model).run(X)["y"], exact[form])
        assert not sanitize(model, X)
        save_compiled(model, tmp_path / "m.npu")
        np.testing.assert_array_equal(run_in_c(library, tmp_path, exact[form]), exact[form])


RUNNER = """
#include <stdio.h>
#include <stdlib.h>

#include "npu_plugin.h"

int main(int count, char **words)
{
    npu_model *model = NULL;
    (void)count;
    if (npu_load_plugin(words[1])) return puts(npu_error()), 1;
    if (npu_load(words[2], &model)) return puts(npu_error()), 2;
    const npu_tensor *in = npu_input(model, 0), *out = npu_output(model, 0);
    void *x = malloc(in->size), *y = malloc(out->size);
    FILE *file = fopen(words[3], "rb");
    if (!file || fread(x, 1, in->size, file) != in->size) return 1;
    fclose(file);
    const void *const inputs[] = {x};
    void *const outputs[] = {y};
    if (npu_run(model, inputs, outputs)) return puts(npu_error()), 3;
    file = fopen(words[4], "wb");
    if (!file || fwrite(y, 1, out->size, file) != out->size) return 1;
    fclose(file);
    npu_free(model);
    return 0;
}
"""


def run_in_c(library: Path, folder: Path, like: Array) -> Array:
    """The model `m.npu` of a folder in the C runtime."""
    runner, core = folder / "runner", find()
    if not runner.exists():
        (folder / "runner.c").write_text(RUNNER)
        flags = [f"-I{ROOT / 'native' / 'include'}", str(core), f"-Wl,-rpath,{core.parent}"]
        subprocess.run(["gcc", "-std=c11", str(folder / "runner.c"), "-o", str(runner), *flags], check=True)
    X["x"].tofile(folder / "x")
    files = [str(path) for path in (library, folder / "m.npu", folder / "x", folder / "y")]
    done = subprocess.run([str(runner), *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    return np.fromfile(folder / "y", like.dtype).reshape(like.shape)


@pytest.mark.parametrize(
    ("kernel", "words"),
    [("test.beyond", "960 bytes of its workspace"), ("test.before", "960 bytes of its result")],
)
@pytest.mark.parametrize("memory", ["local", "global"])
def test_a_byte_beyond_a_workspace_is_found(library: Path, kernel: str, words: str, memory: str) -> None:
    register_library(library)
    custom_instruction(REORDERED, kernel=kernel, memory=memory, workspace=960, replace=True)  # type: ignore[arg-type]
    graph = network()
    with pytest.raises(SimulationError, match=f"the kernel '{kernel}' writes beyond the {words}"):
        sanitize(compiled("edge-4t", graph=graph), X)
    if kernel == "test.beyond":
        with pytest.raises(EngineError, match=f"the kernel '{kernel}' writes beyond the {words}"):
            IntegerEngine(graph).run(X)


def test_a_workspace_that_does_not_fit_keeps_the_op_off_the_npu(in_python: None) -> None:
    sorting(local_workspace=3 << 20)
    kernels.register("test.sort", lambda call: call.y.__setitem__(slice(None), call.x), replace=True)
    model = compiled("edge-4t")
    assert not customs(model)
    assert any("local memory" in str(getattr(part, "reasons", "")) for part in model.subgraphs)


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"memory": "shared"}, "cannot work in 'shared' memory"),
        ({"memory": "global", "by_row": True}, "works on whole tensors"),
        ({"local_workspace": 8}, "works in local memory"),
    ],
)
def test_what_makes_no_sense_is_refused(stated: dict[str, Any], words: str) -> None:
    with pytest.raises(PluginError, match=words):
        custom_instruction(REORDERED, kernel="test.sort", replace=True, **stated)


def test_an_application_brings_the_kernels_of_a_library_by_their_record(
    library: Path, tmp_path: Path
) -> None:
    """Two kernels of one source, whose functions have names of their own: the source comes once, with its header."""
    copy = Path(shutil.copy(library, tmp_path / "kernels.so"))
    shutil.copy(TESTS / "plugins" / "global_kernels.c", tmp_path / "kernels.c")
    for name in ("test.sort", "test.sums", "test.beyond", "test.before"):
        if name in kernels.KERNELS:
            kernels.KERNELS.remove(name)
    register_library(copy)
    models = []
    for form in (sorting, summing):
        form()
        models.append(replace(compiled("edge-1t", 0), name=form.__name__))
    program = combine({model.name: model for model in models})
    save_compiled(program.entries, tmp_path / "both.npu")
    app = tmp_path / "app"
    export_c(load_entries(tmp_path / "both.npu"), (tmp_path / "both.npu").read_bytes(), app)
    assert sorted(path.name for path in app.glob("*_*.c")) == ["plugin_0.c"]
    for source in ("plugin_0.c", "kernels.c"):
        flags = ["-std=c11", "-Wall", "-Werror", "-fsyntax-only", "-Iruntime/include"]
        subprocess.run(["gcc", *flags, source], cwd=app, check=True)
    assert "npu_add_plugin(npu_plugin_entry_0())" in (app / "kernels.c").read_text()


def test_a_kernel_in_global_memory_is_given_aligned_memory() -> None:
    """A caller's array may begin at any byte; kernels are promised multiples of their elements."""
    addresses: list[int] = []

    def copy(call: KernelCall) -> None:
        addresses.append(call.x.ctypes.data)
        call.y[:] = call.x

    kernels.register("test.copy", copy, replace=True)
    values = np.arange(64, dtype=np.int32)
    draft = Draft()
    draft.input.extend(values.tobytes())
    draft.inputs["x"] = (values, 0)
    told = draft.put(np.zeros(64, np.uint8), constant=True)
    draft.emit(
        "custom_global", kernel=tuple(b"test.copy".ljust(32, b"\0")), x_segment=2, x_bytes=256, y_segment=1, y_bytes=256,
        constants=told, constant_bytes=64, local_workspace=NONE, bytes=4,
    )  # fmt: skip
    place = draft.room(256)
    draft.load(1, 0, place, 256)
    draft.fetch(place, (64,), np.int32)
    model = draft.compiled()
    apart = np.zeros(257, np.uint8)[1:].view(np.int32)
    apart[:] = values
    with Runner(model, raw=True) as runner:
        for given in (values, apart):
            (result_of_copy,) = runner.run(given).values()
            np.testing.assert_array_equal(result_of_copy, values)
    assert len(addresses) == 2 and not any(address % 4 for address in addresses)
