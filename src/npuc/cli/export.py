"""Write a network in another format."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.console import Printer, size
from npuc.errors import UsageError
from npuc.words import counted

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@app.callback()
def _formats() -> None:
    pass


def _check_output(model: Path, output: Path, suffix: str) -> None:
    """What is written is not the model, and is named after its format."""
    from npuc.files import existing_model

    if existing_model(model).resolve() == output.resolve():
        raise UsageError(f"-o {output} is the model itself", fix="Choose another name")
    options.result(output, suffix)


@app.command("onnx")
def onnx(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write.")],
    input_shape: options.InputShapes = None,
    weights: options.Weights = None,
    external_data: Annotated[
        bool,
        typer.Option("--external-data", help="Write the weights to OUT.onnx.data (always done beyond 2 GB)."),
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write an ONNX file that computes the same."""
    from npuc.export.onnx import export_onnx
    from npuc.flow import load_model

    printer = Printer(quiet, as_json)
    _check_output(model, output, ".onnx")
    graph = load_model(model, options.imported_as(model, input_shape, weights))
    options.tell_import(printer, graph)
    files = export_onnx(graph, output, external_data=True if external_data else None)
    for file in files:
        printer.say(f"{model} -> {file} ({size(file.stat().st_size)})")
    printer.result({"files": [str(file) for file in files]})


@app.command("tflite")
def tflite(
    model: options.Model,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.tflite", help="The file to write.")],
    input_shape: options.InputShapes = None,
    weights: options.Weights = None,
    integer_io: Annotated[
        bool,
        typer.Option(
            "--integer-io",
            help="Inputs and outputs are the integers of the network, not float32 (what an NPU wants).",
        ),
    ] = False,
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last",
            help="Inputs and outputs are N x H x W x C, as TFLite computes, not N x C x H x W.",
        ),
    ] = False,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write a TFLite file: full-integer of a network quantized with --scheme tflite, float of a float one."""
    from collections import Counter

    from npuc.export.tflite import Options, export_tflite, float_layers
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(quiet, as_json)
    _check_output(model, output, ".tflite")
    graph = load_model(model, options.imported_as(model, input_shape, weights))
    options.tell_import(printer, graph)
    if integer_io and not is_integer(graph):
        raise UsageError(
            f"--integer-io asks for the integers of the network, and {model} has none",
            fix="Make them with 'npuc quantize --scheme tflite', or leave the option out",
        )
    written = export_tflite(graph, output, Options(integer_io, channels_last))
    operators = Counter(op.code for op in written.operators)
    printer.say(f"{model} -> {output} ({size(output.stat().st_size)}, {operators.total()} operators)")
    if kept := float_layers(graph):
        shown = ", ".join(kept[:10]) + (f" and {len(kept) - 10} more" if len(kept) > 10 else "")
        printer.note(f"{len(kept)} of its layers compute with floats: {shown}")
    printer.result({"files": [str(output)], "operators": dict(sorted(operators.items()))})


@app.command("c")
def c(
    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write, empty or new.")
    ],
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone", help="The model in C arrays and all memory static: no files, no heap, no threads."
        ),
    ] = False,
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="Raw tensors for the sample, by the names of inputs. Without it, random ones.",
        ),
    ] = None,
    quiet: options.Quiet = False,
    as_json: options.Json = False,
) -> None:
    """Write a C application that runs a compiled model: sources, a Makefile, the model, and a sample to check it with."""
    from npuc.deploy.c import export_c
    from npuc.tensors import TensorFile

    printer = Printer(quiet, as_json)
    compiled = options.compiled_model(model)
    given = None if sample is None else TensorFile(sample)
    files = export_c(compiled, model.read_bytes(), output, given, standalone=standalone)
    printer.say(
        f"{model} -> {output} ({counted(len(files), 'file')}, {size(sum(file.stat().st_size for file in files))})"
    )
    printer.say(f"  cd {output} && make && ./app{'' if standalone else ' sample'}")
    printer.result({"files": [str(file) for file in files]})
