"""Plugins in C and C++: built by gcc and g++, loaded like any plugin; what is wrong with one is said with its name."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from npuc import flow, lang
from npuc.cli.app import run_command
from npuc.deploy.c import export_c
from npuc.engine import FloatEngine
from npuc.engine.integer import IntegerEngine
from npuc.errors import EngineError, ExportError, PluginError, PluginFaultError
from npuc.ir import shape_of
from npuc.kernels.custom import kernel_of
from npuc.kernels.native_ops import load_native
from npuc.native import find
from npuc.plugins import load
from npuc.plugins.api import Accelerator, add_accelerator, top
from npuc.plugins.libraries import register_library
from npuc.program import custom_kernels
from npuc.program.combine import combine
from npuc.program.file import load_entries, save_compiled
from npuc.runtime import Runner
from npuc.sim import functional
from npuc.target import load_target
from npuc.transform import canonicalize
from support.paths import PLUGINS, ROOT, TESTS
from support.programs.c_applications import STRICT
from support.programs.c_applications import build as build_application
from support.programs.c_applications import run as run_application

SOURCE = TESTS / "plugins" / "native_ops.c"
X = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)

pytestmark = pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no C compiler")


def build(folder: Path, compiler: str = "gcc", name: str = "plugin.so", *flags: str) -> Path:
    """The operators for tests as a shared library."""
    language = ["-x", "c++"] if compiler == "g++" else ["-std=c11"]
    command = [
        compiler,
        *language,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-Wno-missing-field-initializers",
        "-Wno-array-bounds",
    ]
    include = ["-I", str(ROOT / "native" / "include")]
    command += ["-shared", "-fPIC", "-O1", *include, *flags, str(SOURCE), "-o", str(folder / name)]
    subprocess.run(command, check=True)
    return folder / name


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("native"))


def model(op_type: str, domain: str = "test.c", **attributes: Any) -> bytes:
    """x -> Relu -> the op -> Neg -> y, with shapes that only the library knows."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node(op_type, ["r"], ["s"], domain=domain, **attributes),
        helper.make_node("Neg", ["s"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    proto = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    )
    proto.ir_version = 10
    return bytes(proto.SerializeToString())


def imported(folder: Path, op_type: str, domain: str = "test.c", **attributes: Any) -> Any:
    path = folder / "net.onnx"
    path.write_bytes(model(op_type, domain, **attributes))
    return flow.import_model(path)


def node(op_type: str) -> Any:
    """An op alone, as a session has it."""
    kernel: Any = kernel_of("test.c", op_type)
    return kernel.instance(1)


@pytest.mark.parametrize("compiler", ["gcc", "g++"])
def test_ops_of_a_library_have_shapes_and_values(compiler: str, tmp_path: Path) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"there is no {compiler}")
    domain = f"test.{compiler}".replace("+", "p")
    load(build(tmp_path, compiler, "plugin.so", f'-DDOMAIN="{domain}"'), installed=False)
    graph = imported(tmp_path, "FirstHalf", domain)
    assert shape_of(graph.outputs[0].value) == (2, 3)
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], -np.maximum(X, 0)[:, :3])
    graph = imported(tmp_path, "Scaled", domain, factor=2.5)
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], -np.maximum(X, 0) * np.float32(2.5))


def test_a_compiled_model_runs_them_on_the_cpu(library: Path, tmp_path: Path) -> None:
    load(library, installed=False)
    graph = imported(tmp_path, "Scaled", factor=2.0)
    done = flow.quantize_network(graph, {name: (-3.0, 3.0) for name in ("x", *graph.tensor_names())})
    runner = Runner(flow.compile_network(done.graph, load_target("edge-1t")).model)
    y = runner.run([X])
    values = np.asarray(next(iter(y.values())) if isinstance(y, dict) else y[0])
    assert np.abs(values + 2 * np.maximum(X, 0)).max() < 0.2


def test_the_example(tmp_path: Path) -> None:
    load(compiled(PLUGINS / "soft_threshold.c", tmp_path / "soft.so", "-shared", "-lm"), installed=False)
    graph = imported(tmp_path, "SoftThreshold", "com.example", threshold=0.25)
    expected = -np.maximum(np.maximum(X, 0) - np.float32(0.25), 0)
    np.testing.assert_array_equal(FloatEngine(graph).run({"x": X})["y"], expected)


def test_the_command_takes_a_library(
    library: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "net.onnx").write_bytes(model("FirstHalf"))
    source, result = str(tmp_path / "net.onnx"), str(tmp_path / "net.mlir")
    assert run_command(["import", source, "-o", result, "--plugin", str(library)]) == 0
    assert run_command(["import", source, "-o", result, "--plugin", str(tmp_path / "none.so")]) == 2
    assert "there is no file" in " ".join(capfd.readouterr().err.split())


def test_the_state_of_a_node_stays_and_is_its_own(library: Path) -> None:
    load(library, installed=False)
    one, other = node("Sums"), node("Sums")
    x = np.asarray([1.5], np.float32)
    assert [float(one([x], {})[0][0]) for _ in range(3)] == [1.5, 3.0, 4.5]
    assert float(other([x], {})[0][0]) == 1.5


@pytest.mark.parametrize(
    ("op_type", "words"),
    [
        ("Beyond", "forward of 'test.c:Beyond' wrote beyond the 48 bytes of output 0"),
        ("Before", "wrote beyond"),
        ("Fails", "forward of 'test.c:Fails' failed: the moon is full"),
        ("Mute", "failed with status 7 and without a reason"),
        ("Nonsense", "gives output 0 no sound type and shape"),
        ("NoStart", "start of 'test.c:NoStart' failed: there is no license"),
    ],
)
def test_faults_are_told(op_type: str, words: str, library: Path) -> None:
    load(library, installed=False)
    with pytest.raises(PluginFaultError, match=words) as caught:
        node(op_type)([X], {})
    assert "plugin 'plugin.so'" in str(caught.value)
    # The library still works.
    np.testing.assert_array_equal(node("Scaled")([X], {})[0], X)


def test_wrong_inputs_are_refused(library: Path) -> None:
    load(library, installed=False)
    with pytest.raises(PluginFaultError, match="x is no matrix of an even width"):
        node("FirstHalf")([X[:, :5]], {})
    with pytest.raises(PluginFaultError, match="x is not float32"):
        node("Scaled")([X.astype(np.float64)], {})
    with pytest.raises(PluginFaultError, match="there is no input"):
        node("Scaled")([], {})
    with pytest.raises(PluginFaultError, match="neither numbers nor a text"):
        node("Scaled")([X], {"factor": {"tensor": ""}})
    with pytest.raises(PluginFaultError, match="9 axes"):
        node("Scaled")([X.reshape(1, 1, 1, 1, 1, 1, 1, 2, 6)], {})


def test_libraries_of_another_version_are_refused(tmp_path: Path) -> None:
    for flag, words in (
        ("-DABI=2", "built for version 2 of npu_plugin.h"),
        ("-DRECORD_SIZE=8", "its record has 8 bytes"),
    ):
        with pytest.raises(PluginError, match=words):
            load(build(tmp_path, "gcc", f"other{flag[-1]}.so", flag), installed=False)
    empty = tmp_path / "empty.c"
    empty.write_text("int nothing;")
    subprocess.run(["gcc", "-shared", "-fPIC", str(empty), "-o", str(tmp_path / "empty.so")], check=True)
    with pytest.raises(PluginError, match="exports no record 'npu_plugin_entry'"):
        load(tmp_path / "empty.so", installed=False)
    (tmp_path / "text.so").write_text("no library")
    with pytest.raises(PluginError, match=r"text\.so"):
        load(tmp_path / "text.so", installed=False)


def test_two_plugins_of_one_op_are_refused(library: Path, tmp_path: Path) -> None:
    load(library, installed=False)
    with pytest.raises(PluginError, match=r"already, of plugin\.so"):
        load(build(tmp_path, "gcc", "second.so"), installed=False)


# An accelerator

POOLS = """
#include <string.h>

#include "npu_plugin.h"

/* The program of a subgraph is the shape of its result: a max pool of 2 x 2. */
static int32_t shape(npu_op_call *call)
{
    if (call->input_count != 2 || call->inputs[0].size != 16) return npu_op_fail(call, "this is no program of the engine");
    const int32_t *sizes = call->inputs[0].data;
    call->outputs[0] = call->inputs[1];
    for (int32_t i = 0; i < 4; ++i) call->outputs[0].shape[i] = sizes[i];
    return 0;
}

static int32_t forward(npu_op_call *call)
{
    const int64_t *in = call->inputs[1].shape, *out = call->outputs[0].shape;
    const int8_t *x = call->inputs[1].data;
    int8_t *y = call->outputs[0].data;
    for (int64_t plane = 0; plane < out[0] * out[1]; ++plane)
        for (int64_t h = 0; h < out[2]; ++h)
            for (int64_t w = 0; w < out[3]; ++w) {
                int8_t most = -128;
                for (int64_t k = 0; k < 4; ++k) {
                    const int8_t value = x[(plane * in[2] + 2 * h + k / 2) * in[3] + 2 * w + k % 2];
                    most = value > most ? value : most;
                }
                *y++ = most;
            }
    return 0;
}

static const npu_op OPS[] = {{"npuc.accelerator", "pool_engine", shape, NULL, forward, NULL}};
NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "pools", OPS, 1, NULL, 0})
"""


def test_an_accelerator_may_run_in_c(tmp_path: Path) -> None:
    def claims(op: Any, graph: Any, target: Any) -> bool:
        return isinstance(op, top.MaxPool)

    def to_bytes(graph: Any) -> bytes:
        return np.asarray(shape_of(graph.outputs[0].value), np.int32).tobytes()

    add_accelerator(Accelerator("pool_engine", claims, to_bytes))
    x = lang.input("x", (1, 4, 8, 8))
    kernel = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32) / 4
    convolved = lang.conv(x, kernel, pads=1, name="conv")
    graph = canonicalize(lang.build({"y": lang.max_pool(convolved, kernel=2, strides=2, name="pool")}))
    ranges = {name: (-3.0, 3.0) for name in ("x", *graph.tensor_names())}
    integers = flow.quantize_network(graph, ranges).graph
    program = flow.compile_network(integers, load_target("edge-1t")).model
    inputs = {"x": np.random.default_rng(1).uniform(-2, 2, (1, 4, 8, 8)).astype(np.float32)}
    with pytest.raises(EngineError, match=r"nobody computes the op 'npuc.accelerator:pool_engine'"):
        functional.run(program, inputs)
    (tmp_path / "pools.c").write_text(POOLS)
    load(compiled(tmp_path / "pools.c", tmp_path / "pools.so"), installed=False)
    actual, expected = functional.run(program, inputs), IntegerEngine(integers).run(inputs)
    np.testing.assert_array_equal(actual["y"], expected["y"])


# Kernels of custom instructions

NEGATE = """
#include "npu_plugin.h"

int32_t negate(const npu_kernel_call *call)
{
    if (call->x_bytes != call->y_bytes) return 1;
    for (int64_t i = 0; i < call->y_bytes; ++i) ((int8_t *)call->y)[i] = (int8_t)-((const int8_t *)call->x)[i];
    return 0;
}

static const npu_plugin_kernel KERNELS[] = {{"negate", negate}};
NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "negate", NULL, 0, KERNELS, 1})
"""


def compiled(source: Path, result: Path, *flags: str) -> Path:
    """A C source as a library, or with `flags` as a program."""
    include = ["-I", str(ROOT / "native" / "include"), "-I", str(PLUGINS)]
    command = [
        "gcc",
        "-std=c11",
        "-Wall",
        "-Wextra",
        "-Werror",
        "-fPIC",
        "-O1",
        *include,
        str(source),
        "-o",
        str(result),
    ]
    subprocess.run([*command, *(flags or ("-shared",))], check=True)
    return result


def test_kernels_of_a_library_are_called_directly(tmp_path: Path) -> None:
    (tmp_path / "negate.c").write_text(NEGATE)
    load(compiled(tmp_path / "negate.c", tmp_path / "negate.so"), installed=False)
    x = np.arange(-5, 5, dtype=np.int8)
    y = np.zeros_like(x)
    custom_kernels.run("negate", x, None, None, y, [])
    np.testing.assert_array_equal(y, -x)
    with pytest.raises(EngineError, match="refuses its operands with status 1"):
        custom_kernels.run("negate", x, None, None, y[:3], [])
    assert "int32_t negate" in custom_kernels.KERNELS["negate"].c_source


RUNNER = """
#include <stdio.h>
#include <stdlib.h>

#include "npu_plugin.h"

int main(int count, char **words)
{
    npu_model *model = NULL;
    (void)count;
    if (npu_load(words[2], &model)) return puts(npu_error()), 1;
    const npu_tensor *in = npu_input(model, 0), *out = npu_output(model, 0);
    void *x = malloc(in->size), *y = malloc(out->size);
    FILE *file = fopen(words[3], "rb");
    if (!file || fread(x, 1, in->size, file) != in->size) return 1;
    fclose(file);
    const void *const inputs[] = {x};
    void *const outputs[] = {y};
    if (!npu_run(model, inputs, outputs)) return puts("ran without its kernel"), 1;
    if (npu_load_plugin("nowhere.so") == NPU_OK) return 1;
    if (npu_load_plugin(words[1]) || npu_load_plugin(words[1])) return puts(npu_error()), 1;
    if (npu_run(model, inputs, outputs)) return puts(npu_error()), 1;
    file = fopen(words[4], "wb");
    if (!file || fwrite(y, 1, out->size, file) != out->size) return 1;
    fclose(file);
    npu_free(model);
    return 0;
}
"""


def test_a_program_in_c_loads_the_library_of_a_kernel(tmp_path: Path) -> None:
    """The example's kernel, in a library: a model with its instruction runs in C without a line of it in the program."""
    load(PLUGINS / "hard_glu.py", installed=False)
    a = lang.input("x", (1, 8, 4, 4))
    (y,) = lang.custom(
        "HardGlu", [a, a], lambda a, b: [(a.shape, a.dtype)], attributes={"slope": 0.25}, name="glu"
    )
    graph = canonicalize(lang.build({"y": y}))
    integers = flow.quantize_network(graph, {"x": (-2.0, 2.0), "y": (-2.0, 2.0), "glu": (-2.0, 2.0)}).graph
    program = flow.compile_network(integers, load_target("edge-1t")).model
    save_compiled(program, tmp_path / "m.npu")
    x = np.random.default_rng(0).uniform(-2, 2, (1, 8, 4, 4)).astype(np.float32)
    (expected,) = functional.run(program, {"x": x}).values()
    x.tofile(tmp_path / "x")
    (tmp_path / "library.c").write_text(
        '#include "hard_glu.c"\n#include "npu_plugin.h"\n'
        'static const npu_plugin_kernel KERNELS[] = {{"hard_glu", hard_glu}};\n'
        'NPU_PLUGIN({NPU_PLUGIN_ABI, sizeof(npu_plugin), "glu", NULL, 0, KERNELS, 1})\n'
    )
    (tmp_path / "runner.c").write_text(RUNNER)
    library = compiled(tmp_path / "library.c", tmp_path / "library.so")
    core = find()
    runner = compiled(tmp_path / "runner.c", tmp_path / "runner", str(core), f"-Wl,-rpath,{core.parent}")
    files = [str(path) for path in (library, tmp_path / "m.npu", tmp_path / "x", tmp_path / "y")]
    done = subprocess.run([str(runner), *files], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    actual = np.fromfile(tmp_path / "y", expected.dtype).reshape(expected.shape)
    np.testing.assert_array_equal(actual, expected)


# Operators in the C runtime

OP_RUNNER = """
#include <stdio.h>
#include <stdlib.h>

#include "npu_plugin.h"

int main(int count, char **words)
{
    npu_model *model = NULL;
    const int runs = count > 5 ? atoi(words[5]) : 1;
    if (npu_load(words[2], &model) == NPU_OK) return puts("loaded without its plugin"), 1;
    puts(npu_error());
    if (npu_load_plugin(words[1])) return puts(npu_error()), 1;
    if (npu_load(words[2], &model)) return puts(npu_error()), 2;
    const npu_tensor *in = npu_input(model, 0), *out = npu_output(model, 0);
    void *x = malloc(in->size), *y = malloc(out->size);
    FILE *file = fopen(words[3], "rb");
    if (!file || fread(x, 1, in->size, file) != in->size) return 1;
    fclose(file);
    const void *const inputs[] = {x};
    void *const outputs[] = {y};
    for (int i = 0; i < runs; ++i)
        if (npu_run(model, inputs, outputs)) return puts(npu_error()), 3;
    puts(npu_set_runs(model, 2) ? npu_error() : "runs may overlap");
    file = fopen(words[4], "wb");
    if (!file || fwrite(y, 1, out->size, file) != out->size) return 1;
    fclose(file);
    npu_free(model);
    return 0;
}
"""


@pytest.fixture(scope="module")
def op_runner(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program that loads a plugin and runs a model with its operators."""
    folder, core = tmp_path_factory.mktemp("runner"), find()
    (folder / "runner.c").write_text(OP_RUNNER)
    return compiled(folder / "runner.c", folder / "runner", str(core), f"-Wl,-rpath,{core.parent}")


def program_of(folder: Path, op_type: str, **attributes: Any) -> Any:
    graph = imported(folder, op_type, **attributes)
    ranges = {name: (-3.0, 3.0) for name in ("x", *graph.tensor_names())}
    integers = flow.quantize_network(graph, ranges).graph
    program = flow.compile_network(integers, load_target("edge-1t")).model
    save_compiled(program, folder / "m.npu")
    X.tofile(folder / "x")
    return program


def run_in_c(op_runner: Path, library: Path, folder: Path, runs: int = 1) -> subprocess.CompletedProcess[str]:
    files = [str(path) for path in (library, folder / "m.npu", folder / "x", folder / "y")]
    return subprocess.run([str(op_runner), *files, str(runs)], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(("op_type", "attributes"), [("Scaled", {"factor": 2.0}), ("FirstHalf", {})])
def test_the_c_runtime_runs_operators_of_plugins(
    op_type: str, attributes: dict[str, Any], op_runner: Path, library: Path, tmp_path: Path
) -> None:
    load(library, installed=False)
    program = program_of(tmp_path, op_type, **attributes)
    (expected,) = functional.run(program, {"x": X}).values()
    done = run_in_c(op_runner, library, tmp_path)
    assert done.returncode == 0, done.stdout
    assert "load the plugin (npu_load_plugin) before the model" in done.stdout
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "y", expected.dtype).reshape(expected.shape), expected
    )
    with pytest.raises(
        ExportError, match=rf"'test.c:{op_type}' is an operator of a plugin, and has no source in C"
    ):
        export_c(program, (tmp_path / "m.npu").read_bytes(), tmp_path / "app", None)


@pytest.mark.parametrize(
    ("op_type", "status", "words"),
    [
        ("Beyond", 3, "forward of 'test.c:Beyond' wrote beyond the 48 bytes of output 0"),
        ("Fails", 3, "the moon is full"),
        ("NoStart", 3, "start of 'test.c:NoStart' failed: there is no license"),
    ],
)
def test_faults_are_told_in_c(
    op_type: str, status: int, words: str, op_runner: Path, library: Path, tmp_path: Path
) -> None:
    load(library, installed=False)
    program_of(tmp_path, op_type)
    done = run_in_c(op_runner, library, tmp_path)
    assert done.returncode == status and words in done.stdout


def test_the_c_runtime_keeps_the_state_of_a_node(op_runner: Path, library: Path, tmp_path: Path) -> None:
    load(library, installed=False)
    program = program_of(tmp_path, "Sums")
    simulator = functional.Simulator(program)
    expected = [next(iter(simulator.run({"x": X}).values())).copy() for _ in range(3)][-1]
    done = run_in_c(op_runner, library, tmp_path, runs=3)
    assert done.returncode == 0, done.stdout
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "y", expected.dtype).reshape(expected.shape), expected
    )
    assert "runs of a model whose plugin keeps a state take turns" in done.stdout


@pytest.mark.parametrize(
    "standalone", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["hosted", "standalone"]
)
def test_an_application_brings_operators_with_their_states(standalone: bool, tmp_path: Path) -> None:
    """The source of the library lies beside it. Two entries: an operator with an attribute, and one with a state."""
    shutil.copy(SOURCE, tmp_path / "plugin.c")
    load(build(tmp_path), installed=False)
    names = {"Scaled": {"factor": 2.0}, "Sums": {}}
    programs = {}
    for name, attributes in names.items():
        (tmp_path / name).mkdir()
        programs[name] = replace(program_of(tmp_path / name, name, **attributes), name=name)
    save_compiled(combine(programs).entries, tmp_path / "both.npu")
    app = tmp_path / "app"
    export_c(
        load_entries(tmp_path / "both.npu"), (tmp_path / "both.npu").read_bytes(), app, standalone=standalone
    )
    quiet = f"{STRICT} -Wno-missing-field-initializers -Wno-array-bounds"
    build_application(app, WARNINGS=quiet)
    status, said = run_application(app, *([] if standalone else ["sample"]))
    assert status == 0, said
    assert said.count("expected") >= 1 and "differ" not in said, said


# Crashes


def child(library: Path, op_type: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, numpy as np\nfrom npuc.plugins import load\nfrom npuc.kernels.custom import kernel_of\n"
        "load(sys.argv[1], installed=False)\nkernel_of('test.c', sys.argv[2]).instance(1)([np.zeros(3, np.float32)], {})\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code, str(library), op_type], capture_output=True, text=True, check=False
    )


def test_a_crash_is_announced_by_name(library: Path) -> None:
    done = child(library, "Crashes")
    assert done.returncode == -11
    assert "npuc: a plugin crashed (SIGSEGV) in forward of 'test.c:Crashes'\n" in done.stderr


def test_a_signal_that_is_sent_still_ends_a_program(library: Path) -> None:
    """A watchdog sends SIGABRT while no plugin runs: the handler that is for plugins must not keep it."""
    code = (
        "import ctypes, os, signal, sys\n"
        "assert ctypes.CDLL(sys.argv[1]).npu_load_plugin(sys.argv[2].encode()) == 0\n"
        "os.kill(os.getpid(), signal.SIGABRT)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(find()), str(library)], capture_output=True)
    assert done.returncode == -signal.SIGABRT and b"plugin" not in done.stderr


def test_an_exit_is_announced_by_name(library: Path) -> None:
    assert "npuc: a plugin called exit() in forward of 'test.c:Exits'\n" in child(library, "Exits").stderr


def test_isolated_ops_crash_alone(library: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    register_library(library, isolated=True)
    good: Any = node("Scaled")
    np.testing.assert_array_equal(good([X], {"factor": 2.0})[0], 2 * X)
    with pytest.raises(
        PluginFaultError, match=r"its process crashed \(SIGSEGV\) in 'test.c:Crashes'; states are lost"
    ):
        node("Crashes")([X], {})
    np.testing.assert_array_equal(good([X], {"factor": 2.0})[0], 2 * X)
    with pytest.raises(PluginFaultError, match="the moon is full"):
        node("Fails")([X], {})
    with pytest.raises(PluginFaultError, match=r"its process ended with status 0 in 'test.c:Exits'"):
        node("Exits")([X], {})
    sums: Any = node("Sums")
    assert [float(sums([X[:1, :1] * 0 + 2], {})[0].reshape(-1)[0]) for _ in range(2)] == [2.0, 4.0]


def test_what_a_library_has(library: Path) -> None:
    plugin = load_native(library)
    assert plugin.name == "native_ops" and {op.name for op in plugin.ops} >= {"Scaled", "Sums"}
    assert plugin.kernels == ()
