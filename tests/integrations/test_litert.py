"""The LiteRT delegate: bits of LiteRT's reference kernels, pieces of a graph, its cache, and what goes wrong in words."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.cli.app import run_command
from npuc.errors import NpucError, UsageError
from npuc.frontend.tflite.reader import read
from npuc.integrations import litert
from npuc.integrations.litert.pieces import ends_of, pieces_of, plan_pieces
from npuc.program.file import save_compiled
from npuc.target import load_target
from support.judges.litert_models import INTEGER, samples
from support.networks.tflite import Net

runtime = pytest.importorskip("ai_edge_litert.interpreter")

WINDOW = {"StrideH": 1, "StrideW": 1, "DilationHFactor": 1, "DilationWFactor": 1, "Padding": 0}


def convolution(net: Net, x: Any, seed: int) -> Any:
    """3 x 3, four channels in and out, int8 with a scale for each channel."""
    rng = np.random.default_rng(seed)
    kernel = net.constant(
        rng.integers(-127, 128, (4, 3, 3, 4)).astype(np.int8), ([0.01, 0.02, 0.015, 0.03], 0, 0)
    )
    bias = net.constant(rng.integers(-500, 500, 4).astype(np.int32))
    return net.op("CONV_2D", [x, kernel, bias], "i8", "Conv2DOptions", (0.2, -3), (1, 8, 8, 4), **WINDOW)


def network(*, with_float: bool, seed: int = 0) -> bytes:
    """Two convolutions; with floats, what LiteRT keeps is between them."""
    net = Net()
    x = net.input("x", (1, 8, 8, 4), "i8", (0.1, 5))
    y = convolution(net, x, seed)
    if with_float:
        y = net.op("DEQUANTIZE", [y], "f32", shape=(1, 8, 8, 4))
        y = net.op("FLOOR", [y], "f32", shape=(1, 8, 8, 4))
        y = net.op("QUANTIZE", [y], "i8", "QuantizeOptions", (0.1, 5), (1, 8, 8, 4))
    return net.data({"y": convolution(net, y, seed + 1)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models with their programs, made once: `whole` is one piece, `parts` two with floats between."""
    path = tmp_path_factory.mktemp("litert")
    for name, with_float in (("whole", False), ("parts", True)):
        (path / f"{name}.tflite").write_bytes(network(with_float=with_float))
        pieces = plan_pieces(path / f"{name}.tflite", load_target("edge-1t"))
        entries = pieces.entries
        save_compiled(entries if len(entries) > 1 else next(iter(entries.values())), path / f"{name}.npu")
        (path / f"{name}.txt").write_text(f"pieces {len(entries)}\n{pieces.report}\n")
    return path


def interpreter(model: Path, *delegates: Any, **more: Any) -> Any:
    """An interpreter with LiteRT's reference kernels."""
    made = runtime.Interpreter(
        str(model),
        experimental_delegates=list(delegates) or None,
        experimental_op_resolver_type=runtime.OpResolverType.BUILTIN_REF,
        **more,
    )
    made.allocate_tensors()
    return made


def run(machine: Any, x: Array) -> list[Array]:
    """The outputs for an input."""
    machine.set_tensor(machine.get_input_details()[0]["index"], x)
    machine.invoke()
    return [machine.get_tensor(detail["index"]) for detail in machine.get_output_details()]


def inputs(count: int, shape: tuple[int, ...] = (1, 8, 8, 4)) -> list[Array]:
    """Random int8."""
    rng = np.random.default_rng(1)
    return [rng.integers(-128, 128, shape).astype(np.int8) for _ in range(count)]


def delegated(machine: Any) -> int:
    """How many kernels of a delegate the interpreter has."""
    return sum(detail["op_name"] == "DELEGATE" for detail in machine._get_ops_details())


def assert_same(model: Path, machine: Any, xs: list[Array]) -> None:
    """The bits of LiteRT's reference kernels."""
    original = interpreter(model)
    for x in xs:
        for actual, expected in zip(run(machine, x), run(original, x), strict=True):
            np.testing.assert_array_equal(actual, expected)


@pytest.fixture
def compiler(folder: Path, tmp_path: Path) -> Path:
    """In place of `npuc`: copies what was compiled before, and counts its calls."""
    script = tmp_path / "compiler"
    script.write_text(
        "#!/bin/sh\n"
        f"echo \"$@\" >> '{tmp_path}/calls'\n"
        'case "$*" in *--target\\ nowhere*) echo "npuc: there is no target nowhere" >&2; exit 2;; esac\n'
        'base="${3%.tflite}"\n'
        'cp "$base.npu" "$5" && cp "$base.txt" "$7"\n'
    )
    script.chmod(0o755)
    return script


def options(folder: Path, compiler: Path, name: str = "whole", **more: Any) -> dict[str, str]:
    """Options of a delegate that compiles."""
    cache = compiler.parent / "cache"
    given = {
        "model": folder / f"{name}.tflite",
        "target": "edge-1t",
        "compiler": compiler,
        "cache_dir": cache,
    }
    return {key: str(value) for key, value in {**given, **more}.items()}


def load(given: dict[str, str]) -> Any:
    return runtime.load_delegate(str(litert.library_path()), given)


def calls(compiler: Path) -> int:
    """How often the compiler was called."""
    path = compiler.parent / "calls"
    return len(path.read_text().splitlines()) if path.exists() else 0


# Which operators


def test_pieces_run_one_after_the_other(folder: Path) -> None:
    main_graph = read(folder / "parts.tflite").main
    assert [op.name for op in main_graph.operators] == [
        "CONV_2D",
        "DEQUANTIZE",
        "FLOOR",
        "QUANTIZE",
        "CONV_2D",
    ]
    assert pieces_of(main_graph.operators, {1, 2, 3}) == [(0,), (4,)]
    assert pieces_of(main_graph.operators, ()) == [(0, 1, 2, 3, 4)]
    assert pieces_of(main_graph.operators, range(5)) == []
    assert pieces_of(main_graph.operators, {0}) == [(1, 2, 3, 4)]
    (read_tensors, made) = ends_of(read(folder / "parts.tflite"), (4,))
    assert [main_graph.tensors[i].type_name for i in (*read_tensors, *made)] == ["INT8", "INT8"]


def test_the_report_has_the_reason_of_each_operator_that_stays(folder: Path) -> None:
    report = litert.report(folder / "parts.tflite", "edge-1t")
    assert [(node.name, node.device) for node in report.rest] == [
        ("1 DEQUANTIZE", "framework"),
        ("2 FLOOR", "framework"),
        ("3 QUANTIZE", "framework"),
    ]
    assert all("FLOAT32" in node.reason and node.lever for node in report.rest)
    assert report.graphs == 2 and report.npu_macs == report.macs == 2 * 8 * 8 * 4 * 4 * 9


def test_an_operator_that_the_npu_cannot_run_stays(tmp_path: Path) -> None:
    """Of integers, and yet without an integer form: the reason is the partitioner's, and the network has two pieces."""
    net = Net()
    x = net.input("x", (1, 8, 8, 4), "i8", (0.1, 5))
    y = convolution(net, x, 0)
    y = net.op("LOG_SOFTMAX", [y], "i8", "LogSoftmaxOptions", (16 / 256, 127), (1, 8, 8, 4))
    source = tmp_path / "m.tflite"
    source.write_bytes(net.data({"y": convolution(net, y, 2)}))
    pieces = plan_pieces(source, load_target("edge-1t"))
    assert pieces.operators == {"piece0": (0,), "piece1": (2,)}
    (left,) = pieces.report.rest
    assert left.name == "1 LOG_SOFTMAX" and "it has no integer form" in left.reason
    save_compiled(pieces.entries, tmp_path / "m.npu")
    machine = interpreter(source, litert.delegate(program=tmp_path / "m.npu"))
    assert delegated(machine) == 2
    assert_same(source, machine, inputs(3))


# Bits


def test_a_whole_network(folder: Path) -> None:
    machine = interpreter(folder / "whole.tflite", litert.delegate(program=folder / "whole.npu"))
    assert delegated(machine) == 1
    assert_same(folder / "whole.tflite", machine, inputs(5))


def test_parts_of_a_network(folder: Path) -> None:
    machine = interpreter(folder / "parts.tflite", litert.delegate(program=folder / "parts.npu"))
    assert delegated(machine) == 2
    assert_same(folder / "parts.tflite", machine, inputs(5))


def test_the_command_compiles_and_the_second_start_needs_none(
    folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The whole way: a process `npuc`, its report in the log; then the cache alone."""
    source = folder / "parts.tflite"
    npu = litert.delegate(source, target="edge-1t", cache_dir=tmp_path)
    machine = interpreter(source, npu)
    assert delegated(machine) == 2
    assert_same(source, machine, inputs(3))
    log = capfd.readouterr().err
    assert (
        "npuc: LiteRT for edge-1t: " in log and "1 DEQUANTIZE, 2 FLOOR, 3 QUANTIZE: it computes with" in log
    )
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".npu", ".txt"]
    again = load(
        {"model": str(source), "target": "edge-1t", "cache_dir": str(tmp_path), "compiler": "/nowhere/npuc"}
    )
    assert delegated(interpreter(source, again)) == 2


def test_one_operator_that_carries_its_program(folder: Path, tmp_path: Path) -> None:
    assert (
        run_command(["export", "litert", str(folder / "whole.npu"), "-o", str(tmp_path / "op.tflite")]) == 0
    )
    machine = interpreter(tmp_path / "op.tflite", litert.delegate())
    assert delegated(machine) == 1
    original = interpreter(folder / "whole.tflite")
    for x in inputs(3):
        np.testing.assert_array_equal(run(machine, x)[0], run(original, x)[0])
    with pytest.raises(RuntimeError, match="npuc"):
        interpreter(tmp_path / "op.tflite")
    machine.resize_tensor_input(machine.get_input_details()[0]["index"], (1, 9, 8, 4))
    with pytest.raises(
        RuntimeError, match=r"is 1x9x8x4, and the program was compiled for 1x8x8x4\. Node number"
    ):
        machine.allocate_tensors()


@pytest.mark.slow
@pytest.mark.parametrize("name", INTEGER)
def test_shared_models(name: str, shared: Path, tmp_path: Path) -> None:
    source = shared / "models" / "tflite" / f"{name}.tflite"
    pieces = plan_pieces(source, load_target("edge-4t"))
    assert not pieces.report.rest
    (program,) = pieces.entries.values()
    save_compiled(program, tmp_path / "m.npu")
    machine = interpreter(source, litert.delegate(program=tmp_path / "m.npu"))
    assert delegated(machine) == 1
    assert_same(source, machine, list(samples(shared, source, 20)))


@pytest.mark.parametrize("name", ["hello_world_int8", "micro_speech_int8"])
def test_small_shared_models(name: str, shared: Path, tmp_path: Path) -> None:
    test_shared_models(name, shared, tmp_path)


# The cache


def test_shapes_of_the_interpreter_reach_the_compiler(folder: Path, compiler: Path) -> None:
    """After a resize the program is looked for anew; one that does not fit leaves the network to LiteRT."""
    machine = interpreter(folder / "whole.tflite", load(options(folder, compiler)))
    assert delegated(machine) == 1 and calls(compiler) == 1
    machine.resize_tensor_input(machine.get_input_details()[0]["index"], (1, 9, 8, 4))
    machine.allocate_tensors()
    assert calls(compiler) == 2
    (x,) = inputs(1, (1, 9, 8, 4))
    original = interpreter(folder / "whole.tflite")
    original.resize_tensor_input(original.get_input_details()[0]["index"], (1, 9, 8, 4))
    original.allocate_tensors()
    np.testing.assert_array_equal(run(machine, x)[0], run(original, x)[0])


def test_a_damaged_entry_is_made_again(
    folder: Path, compiler: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    given = options(folder, compiler)
    interpreter(folder / "whole.tflite", load(given))
    (entry,) = (compiler.parent / "cache").glob("*.npu")
    data = entry.read_bytes()
    for broken in (data[: len(data) // 2], b"", data[:-200] + bytes([data[-200] ^ 1]) + data[-199:]):
        entry.write_bytes(broken)
        capfd.readouterr()
        machine = interpreter(folder / "whole.tflite", load(given))
        assert "the cache entry is damaged and is made again: " in capfd.readouterr().err
        assert_same(folder / "whole.tflite", machine, inputs(1))
        assert entry.read_bytes() == data
    assert calls(compiler) == 4


def test_a_killed_compiler_leaves_no_entry(folder: Path, compiler: Path) -> None:
    killed = compiler.with_name("killed")
    killed.write_text('#!/bin/sh\nhead -c 100 /dev/zero > "$5"\nkill -9 $$\n')
    killed.chmod(0o755)
    with pytest.raises(RuntimeError, match="failed"):
        interpreter(folder / "whole.tflite", load(options(folder, killed)))
    assert list((compiler.parent / "cache").iterdir()) == []
    assert delegated(interpreter(folder / "whole.tflite", load(options(folder, compiler)))) == 1


def test_other_constants_are_another_entry(folder: Path, compiler: Path, tmp_path: Path) -> None:
    interpreter(folder / "whole.tflite", load(options(folder, compiler)))
    other = tmp_path / "whole.tflite"
    other.write_bytes(network(with_float=False, seed=7))
    for suffix in (".npu", ".txt"):
        other.with_suffix(suffix).write_bytes((folder / f"whole{suffix}").read_bytes())
    interpreter(other, load(options(folder, compiler, model=other)))
    assert calls(compiler) == 2


def test_without_a_folder_for_the_cache_it_works_all_the_same(
    folder: Path, compiler: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (compiler.parent / "file").write_text("")
    given = options(folder, compiler, cache_dir=compiler.parent / "file" / "below")
    machine = interpreter(folder / "whole.tflite", load(given))
    assert "the program is not kept for the next start: Not a directory" in capfd.readouterr().err
    assert_same(folder / "whole.tflite", machine, inputs(1))


def test_a_network_of_floats_is_left_to_litert(
    folder: Path, compiler: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    net = Net()
    x = net.input("x", (1, 4), "f32")
    source = tmp_path / "floats.tflite"
    source.write_bytes(net.data({"y": net.op("FLOOR", [x], "f32", shape=(1, 4))}))
    report, program = tmp_path / "report.txt", tmp_path / "none.npu"
    arguments = ["-o", str(program), "--target", "edge-1t", "--report", str(report)]
    assert run_command(["export", "litert", str(source), *arguments]) == 2
    assert "no operator of" in capfd.readouterr().err and not program.exists()
    source.with_suffix(".txt").write_text(report.read_text())
    source.with_suffix(".npu").write_text("not made")
    for count in (1, 1):
        machine = interpreter(source, load(options(folder, compiler, model=source)))
        assert delegated(machine) == 0 and calls(compiler) == count
        assert "0 on the NPU" in capfd.readouterr().err
    assert run(machine, np.full((1, 4), 1.5, np.float32))[0].tolist() == [[1, 1, 1, 1]]


# What goes wrong


def refused(given: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        load(given)


def test_options_are_checked(folder: Path) -> None:
    model, program = str(folder / "whole.tflite"), str(folder / "whole.npu")
    refused(
        {"modle": model},
        r"there is no option 'modle'; did you mean 'model'\? The options are model, program, target",
    )
    refused({"colour": "red"}, r"there is no option 'colour'\. The options are model, program, target")
    refused({"cache_dir": "x"}, "the option 'cache_dir' is for a model that is compiled")
    refused({"model": model}, "'model' needs a 'target'")
    refused({"model": model, "program": program, "target": "edge-1t"}, "give one of them")
    refused({"program": "/nowhere/x.npu"}, "/nowhere/x.npu cannot be read: No such file")
    refused({"program": ""}, "the option 'program' is empty")
    with pytest.raises(UsageError, match="needs a target"):
        litert.delegate(model)
    with pytest.raises(UsageError, match="Give one of them"):
        litert.delegate(model, program=program)
    with pytest.raises(NpucError, match="nowhere"):
        litert.delegate("/nowhere/x.tflite", target="edge-1t")


def test_errors_of_the_compiler_reach_the_user(folder: Path, compiler: Path) -> None:
    with pytest.raises(RuntimeError, match="there is no target nowhere"):
        interpreter(folder / "whole.tflite", load(options(folder, compiler, target="nowhere")))
    with pytest.raises(RuntimeError, match="the compiler '/nowhere/npuc' cannot be run"):
        interpreter(folder / "whole.tflite", load({**options(folder, compiler), "compiler": "/nowhere/npuc"}))


def test_the_file_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    """Same names, same shapes, other weights: the constants tell."""
    other = tmp_path / "other.tflite"
    other.write_bytes(network(with_float=False, seed=7))
    tensors = tmp_path / "tensors"
    catcher = tmp_path / "catcher"
    catcher.write_text(f"#!/bin/sh\ncp \"$9\" '{tensors}'\nexit 1\n")
    catcher.chmod(0o755)
    with pytest.raises(RuntimeError, match="failed"):
        interpreter(folder / "whole.tflite", load(options(folder, catcher)))
    plan_pieces(folder / "whole.tflite", load_target("edge-1t"), tensors)
    with pytest.raises(
        UsageError, match=r"runs another model than .*: of tensor \d+, .*, the constant has other values"
    ):
        plan_pieces(other, load_target("edge-1t"), tensors)
    with pytest.raises(UsageError, match="another model"):
        plan_pieces(folder / "parts.tflite", load_target("edge-1t"), tensors)


def test_a_program_of_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    net = Net()
    x = net.input("other", (1, 4), "i8", (0.1, 5))
    (tmp_path / "m.tflite").write_bytes(
        net.data(
            {
                "y": net.op(
                    "RESHAPE",
                    [x, net.constant(np.asarray([4], np.int32))],
                    "i8",
                    "ReshapeOptions",
                    (0.1, 5),
                    (4,),
                )
            }
        )
    )
    with pytest.raises(RuntimeError, match=r"the graph has no tensor '#0 x'"):
        interpreter(tmp_path / "m.tflite", litert.delegate(program=folder / "whole.npu"))
    (tmp_path / "broken.npu").write_bytes((folder / "whole.npu").read_bytes()[:1000])
    with pytest.raises(RuntimeError, match=r"broken\.npu"):
        interpreter(folder / "whole.tflite", litert.delegate(program=tmp_path / "broken.npu"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["{}/whole.tflite", "-o", "{}/x.npu"], "the machine is not stated"),
        (["{}/whole.tflite", "-o", "{}/x.tflite", "--target", "edge-1t"], "does not end in .npu"),
        (["{}/whole.npu", "-o", "{}/x.npu"], "does not end in .tflite"),
        (["{}/whole.npu", "-o", "{}/x.tflite", "--target", "edge-1t"], "--target is for a .tflite"),
        (["{}/other.txt", "-o", "{}/x.npu", "--target", "edge-1t"], "a TensorFlow Lite model is needed"),
        (["{}/parts.npu", "-o", "{}/x.tflite"], "has 2 entries"),
        (["{}/none.npu", "-o", "{}/x.tflite"], "none.npu"),
        (["{}/whole.txt", "-o", "{}/x.tflite"], "whole.txt"),
    ],
)
def test_the_command_says_what_is_wrong(
    folder: Path, arguments: list[str], words: str, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "other.txt").write_text("no model")
    assert run_command(["export", "litert", *(argument.format(folder) for argument in arguments)]) == 2
    said = " ".join(capfd.readouterr().err.split())
    assert words in said and "Traceback" not in said


# Lives


def test_interpreters_and_threads_share_a_delegate(folder: Path) -> None:
    npu = litert.delegate(program=folder / "whole.npu", report="off")
    machines = [interpreter(folder / "whole.tflite", npu) for _ in range(4)]
    xs = inputs(20)
    expected = [run(machines[0], x)[0] for x in xs]
    wrong: list[int] = []

    def work(machine: Any) -> None:
        for number, x in enumerate(xs):
            if not np.array_equal(run(machine, x)[0], expected[number]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(machine,)) for machine in machines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    del npu
    gc.collect()
    assert np.array_equal(run(machines[0], xs[0])[0], expected[0])


def test_profile_tells_the_time_of_each_piece(folder: Path, tmp_path: Path) -> None:
    machine = interpreter(
        folder / "parts.tflite",
        litert.delegate(program=folder / "parts.npu", profile=tmp_path / "profile.txt"),
    )
    for x in inputs(3):
        run(machine, x)
    del machine
    gc.collect()
    lines = (tmp_path / "profile.txt").read_text().splitlines()
    assert sorted(line.split(", ms")[0] for line in lines) == [
        "npuc: piece 0: 3 runs",
        "npuc: piece 1: 3 runs",
    ]


def test_globals_are_destroyed_in_any_order(folder: Path) -> None:
    """At the end of a process Python destroys the delegate before the interpreter."""
    code = (
        "from ai_edge_litert.interpreter import Interpreter, load_delegate\n"
        f"npu = load_delegate({str(litert.library_path())!r}, {{'program': {str(folder / 'whole.npu')!r}, 'profile': 'log'}})\n"
        f"machine = Interpreter({str(folder / 'whole.tflite')!r}, experimental_delegates=[npu])\n"
        "machine.allocate_tensors(); machine.invoke(); print('done')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ), check=True
    )
    assert done.stdout == "done\n" and "piece 0: 1 runs" in done.stderr
