"""Mistakes that users make, and machines that fail them: each is a sentence with a remedy, and leaves nothing half done."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import typer
from PIL import Image

from npuc.cli import app
from npuc.cli.quantization import QuantizationRequest
from npuc.debug.dump import Dump
from npuc.debug.golden import GoldenRun
from npuc.errors import OutputError
from npuc.ir import load_graph, save_graph
from support.networks.small_onnx import image_model

NPUC = [sys.executable, "-c", "import sys; from npuc.cli import main; main(sys.argv[1:])"]


@pytest.fixture
def integer(program: Path, npuc: Any) -> Path:
    """The network of `program`, quantized."""
    assert npuc("quantize", program, "--random", "-o", "int.mlir", "-q").status == 0
    return Path("int.mlir")


@pytest.fixture
def compiled(integer: Path, npuc: Any) -> Path:
    assert npuc("compile", integer, "--target", "edge-1t", "-O", "0", "-o", "model.npu", "-q").status == 0
    return Path("model.npu")


def test_lists_of_commands_have_whole_sentences(npuc: Any) -> None:
    for arguments in ([], ["export"], ["tensors"], ["targets"]):
        listed = npuc(*arguments, "--help").out.partition("Commands:")[2]
        assert listed and "..." not in listed and listed.rstrip().endswith(".")


@pytest.mark.parametrize("stream", ["1", "2"])
def test_a_stream_that_is_closed_is_one_that_nobody_reads(here: Path, stream: str) -> None:
    command = " ".join(f"'{part}'" for part in [*NPUC, "targets", "list"])
    done = subprocess.run(["sh", "-c", f"{command} {stream}>&-"], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_what_a_terminal_cannot_show_is_no_error(model: Path, encoding: str) -> None:
    odd = os.fsdecode(b"\xff \xc3\xbc.onnx")
    model.rename(odd)
    done = subprocess.run(
        [*NPUC, "show", odd],
        capture_output=True,
        env={**os.environ, "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == 0 and b"\\udcff" in done.stdout and done.stderr == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="the system has no /dev/full")
def test_a_full_disk_behind_stdout_is_no_bug_of_ours(here: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*NPUC, "targets", "list"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 2
    assert done.stderr.startswith("error[E104]: ") and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_the_status_does_not_tell_when_a_reader_left(here: Path, unbuffered: str) -> None:
    """Unbuffered, the pipe breaks inside of the command; buffered, behind it."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [*NPUC, "targets", "list"],
            stdout=pipe,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
            check=False,
        )
    assert done.returncode == 0 and done.stderr == b""


def test_threads_and_processes_are_at_most_the_cores(npuc: Any) -> None:
    """A pool of a million threads would take the machine down, so this does not try one."""
    whole: Any = typer.main.get_command(app.app)
    asking = [
        (command, param)
        for command in whole.commands.values()
        for param in command.params
        if "--threads" in param.opts or "--workers" in param.opts
    ]
    assert {command.name for command, _ in asking} >= {
        "run",
        "calibrate",
        "quantize",
        "compile",
        "diff",
        "eval",
    }
    for command, param in asking:
        context = command.make_context(command.name, [], resilient_parsing=True)
        assert param.process_value(context, 10**6) == len(os.sched_getaffinity(0)), command.name


@pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate", "int.mlir", "--random"],
        ["calib-data", "int.mlir", "--random", "-o", "samples"],
    ],
)
def test_an_integer_network_where_a_float_one_is_needed(
    npuc: Any, integer: Path, arguments: list[str]
) -> None:
    done = npuc(*arguments)
    assert done.status == 2 and "ive the float network" in done.err
    assert not Path("samples").exists()


@pytest.mark.parametrize("shape", ["2,3,8,8", "x=2,3,8,8"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["show"],
        ["run", "--random"],
        ["calibrate", "--random"],
        ["quantize", "--random"],
        ["inspect", "--target", "edge-1t"],
        ["compile", "--target", "edge-1t", "--random"],
        ["export", "onnx", "-o", "x.onnx"],
    ],
)
def test_a_shape_for_a_program_is_not_passed_over(
    npuc: Any, program: Path, arguments: list[str], shape: str
) -> None:
    done = npuc(*arguments, program, "--input-shape", shape)
    assert done.status == 2 and "is imported already" in done.err


_IMPORTING = pytest.mark.parametrize(
    "arguments",
    [
        ["calibrate", "--random", "-o", "x.cali"],
        ["calib-data", "--random", "-o", "samples"],
        ["quantize", "--random", "-o", "x.mlir"],
        ["compile", "--random", "--target", "edge-1t", "-o", "x.npu"],
        ["inspect", "--target", "edge-1t"],
        ["analyze", "--random"],
        ["show"],
        ["export", "onnx", "-o", "x.onnx"],
        ["export", "tflite", "-o", "x.tflite"],
        ["diff", "--random", "open.onnx"],
    ],
    ids=lambda arguments: " ".join(arguments[:2]),
)


@_IMPORTING
def test_every_command_that_imports_takes_the_shape_that_the_error_asks_for(
    npuc: Any, here: Path, arguments: list[str]
) -> None:
    model = image_model(batch="N")
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "H"
    onnx.save(model, "open.onnx")
    asked = npuc(*arguments, "open.onnx")
    assert asked.status == 2 and "--input-shape" in asked.err
    assert npuc(*arguments, "open.onnx", "--input-shape", "x=1,3,8,8").status == 0


@_IMPORTING
def test_every_command_that_imports_says_that_an_open_batch_is_one(
    npuc: Any, here: Path, arguments: list[str]
) -> None:
    onnx.save(image_model(batch="N"), "open.onnx")
    done = npuc(*arguments, "open.onnx")
    assert done.status == 0
    assert "the batch of the input 'x' is open, and was taken as 1" in done.err


def test_a_table_of_an_original_fits_the_original(npuc: Any, model: Path) -> None:
    assert npuc("calibrate", model, "--random", "-o", "m.cali").status == 0
    assert npuc("quantize", model, "--table", "m.cali", "-o", "int.mlir").status == 0


@pytest.mark.parametrize("flag", ["--input", "--data"])
def test_an_original_is_compared_on_pictures_as_what_was_made_of_it_says(
    npuc: Any, model: Path, flag: str
) -> None:
    rng = np.random.default_rng(1)
    Image.fromarray(rng.integers(0, 256, (8, 8, 3), np.uint8)).save("p.png")
    assert npuc("import", model, "--mean", "127.5", "--scale", "0.01", "-q").status == 0
    done = npuc("diff", model, "model.mlir", flag, "p.png")
    assert done.status == 0 and "has no preprocessing attached" not in done.err


def test_a_missing_check_input_is_found_before_anything_is_written(npuc: Any, model: Path) -> None:
    for given in ("none.npz", "x=none.npz"):
        done = npuc("import", model, "--check-input", given)
        assert done.status == 2 and "none.npz: does not exist" in done.err
    assert not Path("model.mlir").exists()


def test_wrong_preprocessing_is_told_by_the_name_of_the_flag(npuc: Any, model: Path) -> None:
    done = npuc("import", model, "--mean", "1,2,3,4")
    assert done.status == 2 and "--mean: 4 values" in done.err and "one for each channel" in done.err
    assert "--pixel-format: " in npuc("import", model, "--pixel-format", "rgbx").err


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "model.mlir", "--graph", "x.pdf"],
        ["inspect", "model.mlir", "--target", "edge-1t", "--svg", "x.pdf"],
        ["analyze", "model.mlir", "--random", "--plot", "x.pdf"],
        ["diff", "model.mlir", "model.mlir", "--random", "--plot", "x.pdf"],
        ["export", "onnx", "model.mlir", "-o", "x.pdf"],
        ["export", "tflite", "model.mlir", "-o", "x.pdf"],
        ["profile", "model.npu", "--html", "x.pdf"],
    ],
)
def test_a_file_is_named_after_what_it_is(npuc: Any, compiled: Path, arguments: list[str]) -> None:
    done = npuc(*arguments)
    assert done.status == 2 and done.err.startswith("error[E601]") and done.out == ""
    assert not Path("x.pdf").exists()


@pytest.mark.parametrize(
    "arguments",
    [["sim"], ["profile"], ["objdump"], ["relocate", "--dump", "x.ini"], ["export", "c", "-o", "x"]],
)
def test_a_model_that_is_not_compiled_yet_is_no_damaged_file(
    npuc: Any, program: Path, arguments: list[str]
) -> None:
    done = npuc(*arguments, program)
    assert done.status == 2 and "Compile it first: npuc compile" in done.err


def test_a_core_that_the_program_does_not_use(npuc: Any, compiled: Path) -> None:
    assert npuc("objdump", compiled, "--core", 0).status == 0
    done = npuc("objdump", compiled, "--core", 1)
    assert done.status == 2 and "there is no core 1" in done.err


def test_a_result_in_place_of_a_folder(npuc: Any, program: Path) -> None:
    for command in (["quantize", "--random"], ["compile", "--target", "edge-1t", "--random"], ["opt"]):
        done = npuc(*command, program, "-o", ".")
        assert done.status == 2 and "-o '.' does not end in" in done.err and "Use -o result." in done.err


def test_what_is_fetched_needs_a_file(npuc: Any, program: Path) -> None:
    for flags in (["--fetch", "r"], ["--dump-all-tensors"]):
        done = npuc("run", program, "--random", *flags)
        assert done.status == 2 and "Add -o FILE.npz" in done.err


def test_misspelt_names_are_answered_with_the_right_one(npuc: Any, program: Path) -> None:
    assert "Did you mean 'fuse-relu'?" in npuc("opt", program, "-p", "fuse-rely").err
    assert "did you mean 'edge-1t'?" in npuc("inspect", program, "--target", "EDGE-1T").err
    done = npuc("quantize", program, "--random", "--keep-float", "rr")
    assert "Did you mean 'r'?" in done.err
    for text, answer in (("shceme: int16", "'scheme'"), ("zzz: 1", "scheme, options, types, layers")):
        Path("c.yaml").write_text(text)
        done = npuc("quantize", program, "--random", "--config", "c.yaml")
        assert done.status == 2 and "there is no field" in done.err and answer in done.err


def test_a_configuration_is_read_once(program: Path) -> None:
    """A pipe gives it once, and some commands ask for it twice."""
    path = Path("c.yaml")
    path.write_text("scheme: int16")
    asked, graph = QuantizationRequest(config=path), load_graph(program)
    first = asked.config_for(graph)
    path.unlink()
    assert asked.config_for(graph) == first and first.scheme == "int16"


def test_a_missing_folder_is_told_with_the_remedy_of_any_option(npuc: Any, program: Path) -> None:
    done = npuc("calibrate", program, "--random", "--save-stats", "none/s.npz")
    assert done.status == 2 and "Make it first" in done.err and "-o" not in done.err


def test_a_tensor_that_a_network_lacks_is_told_once(npuc: Any, program: Path) -> None:
    np.savez("two.npz", x=np.zeros((2, 3, 8, 8), np.float32))
    assert npuc("run", program, "--input", "two.npz", "--dump-layers", "d").status == 0
    missing = GoldenRun(Dump(Path("d"))).missing()
    assert missing and len(missing) == len(set(missing))


def test_a_full_disk_leaves_neither_text_nor_weights(
    program: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Text(str):
        def encode(self, *_: Any, **__: Any) -> bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("npuc.ir.text.print_graph", lambda graph: Text())
    with pytest.raises(OutputError, match="No space left"):
        save_graph(load_graph(program), here / "copy.mlir")
    assert not list(here.glob("copy.*"))


def test_nothing_is_said_of_pictures_where_samples_are_tensors(npuc: Any, program: Path) -> None:
    np.savez("s.npz", x=np.zeros((4, 3, 8, 8), np.float32), labels=np.arange(4))
    done = npuc("eval", program, "--data", "s.npz")
    assert done.status == 0 and done.err == ""


@pytest.mark.parametrize(
    "arguments",
    [
        ["import", "LONG"],
        ["sim", "LONG"],
        ["diff", "LONG", "LONG", "--random"],
        ["run", "model.mlir", "--input", "LONG"],
        ["run", "model.mlir", "--random", "-o", "LONG.npz"],
        ["calibrate", "model.mlir", "--data", "LONG"],
        ["inspect", "model.mlir", "--target", "LONG.yaml"],
    ],
)
def test_a_name_that_the_system_refuses(npuc: Any, program: Path, arguments: list[str]) -> None:
    done = npuc(*(word.replace("LONG", "a" * 5000) for word in arguments))
    assert done.status == 2 and "File name too long" in done.err


@pytest.mark.parametrize(
    ("name", "promise"),
    [
        ("x.npu", "a compiled model (.npu)"),
        ("x.tflite", "a TensorFlow Lite model"),
        ("x.H5", "an HDF5 file of Keras"),
        ("x.pb", "a TensorFlow graph"),
    ],
)
def test_random_bytes_are_not_called_onnx(npuc: Any, here: Path, name: str, promise: str) -> None:
    """What the name promises is said, and that the content is something else."""
    Path(name).write_bytes(b"\xc3" + np.random.default_rng(0).bytes(4000))
    done = npuc("import", name)
    assert done.status == 2
    assert f"is named like {promise}, and its content is neither that nor any other format" in done.err
    assert "ONNX" not in done.err


def test_an_onnx_model_of_another_name_is_imported(npuc: Any, here: Path) -> None:
    onnx.save(image_model(), "x.pb", format="protobuf")
    assert npuc("import", "x.pb", "-o", "x.mlir").status == 0
