"""Write a network in another format."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, size
from npuc.errors import FileFormatError, UsageError
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


class OnnxForm(StrEnum):
    """How a quantized network is written as ONNX."""

    QDQ = "qdq"
    INTEGER = "integer"


class ExportOnnxCommand(CommandOptions):
    """The command line of `npuc export onnx`."""

    model: options.Model
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write.")]
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    form: Annotated[
        OnnxForm | None,
        typer.Option(
            help="Of a quantized network: qdq is float ops between QuantizeLinear and DequantizeLinear, which most tools read; "
            "integer has the network's exact integers in every runtime, by ConvInteger, MatMulInteger and int64 "
            "arithmetic.  [default: qdq]",
        ),
    ] = None
    external_data: Annotated[
        bool,
        typer.Option("--external-data", help="Write the weights to OUT.onnx.data (always done beyond 2 GB)."),
    ] = False
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("onnx")
@takes(ExportOnnxCommand)
def onnx(args: ExportOnnxCommand) -> None:
    """Write a network as an ONNX file: a float one as it is, a quantized one in QDQ or integer form."""
    from npuc.export.onnx import export_onnx
    from npuc.export.qdq import export_quantized_onnx
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(args.quiet, args.as_json)
    _check_output(args.model, args.output, ".onnx")
    _refuse_compiled(args.model, args.output)
    graph = load_model(args.model, options.imported_as(args.model, args.input_shape, args.weights))
    options.tell_import(printer, graph)
    quantized = is_integer(graph)
    if args.form is not None and not quantized:
        raise UsageError(
            f"--form {args.form} is a form of quantized networks, and {args.model} is a float one",
            fix="Make integers of it with 'npuc quantize', or leave the option out",
        )
    external = True if args.external_data else None
    if quantized:
        files = export_quantized_onnx(graph, args.output, str(args.form or OnnxForm.QDQ), external)
    else:
        files = export_onnx(graph, args.output, external)
    for file in files:
        printer.say(f"{args.model} -> {file} ({size(file.stat().st_size)})")
    printer.result({"files": [str(file) for file in files]})


def _refuse_compiled(model: Path, output: Path) -> None:
    """A compiled program has instructions, and no longer the network that they were made of."""
    from npuc.frontend.sniff import describe_content

    if describe_content(model).kind == "npu":
        raise UsageError(
            f"{model} is a compiled program: it holds instructions, and the network cannot be got back from them",
            fix=f"Give the .mlir file that 'npuc quantize' wrote: NETWORK.int.mlir -o {output}",
        )


class ExportTfliteCommand(CommandOptions):
    """The command line of `npuc export tflite`."""

    model: options.Model
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.tflite", help="The file to write.")]
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    integer_io: Annotated[
        bool,
        typer.Option(
            "--integer-io",
            help="Make the inputs and outputs the network's integers instead of float32, as NPUs take them.",
        ),
    ] = False
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last",
            help="Make the inputs and outputs N x H x W x C, as TFLite computes, instead of N x C x H x W.",
        ),
    ] = False
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("tflite")
@takes(ExportTfliteCommand)
def tflite(args: ExportTfliteCommand) -> None:
    """Write a network as a TFLite file: full-integer if it was quantized with --scheme tflite, float if it is float."""
    from collections import Counter

    from npuc.export.tflite import TFLiteOptions, export_tflite, float_layers
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(args.quiet, args.as_json)
    _check_output(args.model, args.output, ".tflite")
    graph = load_model(args.model, options.imported_as(args.model, args.input_shape, args.weights))
    options.tell_import(printer, graph)
    if args.integer_io and not is_integer(graph):
        raise UsageError(
            f"--integer-io asks for the integers of the network, and {args.model} has none",
            fix="Make them with 'npuc quantize --scheme tflite', or leave the option out",
        )
    written = export_tflite(graph, args.output, TFLiteOptions(args.integer_io, args.channels_last))
    operators = Counter(op.code for op in written.operators)
    printer.say(
        f"{args.model} -> {args.output} ({size(args.output.stat().st_size)}, {operators.total()} operators)"
    )
    if kept := float_layers(graph):
        shown = ", ".join(kept[:10]) + (f" and {len(kept) - 10} more" if len(kept) > 10 else "")
        printer.note(f"{len(kept)} of its layers compute with floats: {shown}")
    printer.result({"files": [str(args.output)], "operators": dict(sorted(operators.items()))})


class ExportTorchCommand(CommandOptions):
    """The command line of `npuc export torch`."""

    model: Annotated[
        Path,
        typer.Argument(metavar="NETWORK.int.mlir", help="A quantized network, written by 'npuc quantize'."),
    ]
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.pt2|OUT.pt",
            help="The file to write: .pt2 is a program of torch.export, .pt is TorchScript.",
        ),
    ]
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("torch")
@takes(ExportTorchCommand)
def torch(args: ExportTorchCommand) -> None:
    """Write a quantized network as a torch program that computes its exact integers and needs no npuc to run."""
    from npuc.export.torch import SUFFIXES, export_torch
    from npuc.flow import load_model
    from npuc.quant.report import is_integer

    printer = Printer(args.quiet, args.as_json)
    suffix = args.output.suffix.lower()
    if suffix not in SUFFIXES:
        raise UsageError(
            f"-o '{args.output}' ends neither in .pt2 nor in .pt",
            fix=f"Use -o {args.output.with_suffix('.pt2')} for a program of torch.export, .pt for TorchScript",
        )
    _check_output(args.model, args.output, suffix)
    _refuse_compiled(args.model, args.output)
    graph = load_model(args.model)
    if not is_integer(graph):
        raise UsageError(
            f"{args.model} is a float network, and a torch program is written of a quantized one",
            fix="Make integers of it with 'npuc quantize'; 'npuc export onnx' writes float networks",
        )
    file = export_torch(graph, args.output)
    printer.say(f"{args.model} -> {file} ({size(file.stat().st_size)})")
    printer.result({"files": [str(file)]})


class ExportCCommand(CommandOptions):
    """The command line of `npuc export c`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder to write, empty or new.")
    ]
    standalone: Annotated[
        bool,
        typer.Option(
            "--standalone",
            help="Put the model into C arrays and all memory into static buffers: no files, no heap, no threads.",
        ),
    ] = False
    sample: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.npz",
            help="The inputs of the sample, raw tensors by name.  [default: random ones]",
        ),
    ] = None
    entry: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Of a program with several entries, write this one alone, as 'npuc combine --extract' does.  [default: all]",
        ),
    ] = ""
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("c")
@takes(ExportCCommand)
def c(args: ExportCCommand) -> None:
    """Write a C application that runs a compiled model: sources, a Makefile, the model, and a sample to check it with."""
    from npuc.deploy.c import export_c
    from npuc.program.combine import extract
    from npuc.program.file import compiled_bytes, named_entry
    from npuc.tensors import TensorFile

    printer = Printer(args.quiet, args.as_json)
    entries = options.compiled_entries(args.model)
    content = args.model.read_bytes()
    if args.entry:
        alone = extract(named_entry(entries, args.entry, str(args.model)))
        entries, content = {args.entry: alone}, compiled_bytes(alone)
    given = None if args.sample is None else TensorFile(args.sample)
    files = export_c(entries, content, args.output, given, standalone=args.standalone)
    printer.say(
        f"{args.model} -> {args.output} ({counted(len(files), 'file')}, {size(sum(file.stat().st_size for file in files))})"
    )
    printer.say(f"  cd {args.output} && make && ./app{'' if args.standalone else ' sample'}")
    printer.result({"files": [str(file) for file in files]})


class ExportLitertCommand(CommandOptions):
    """The command line of `npuc export litert`."""

    model: Annotated[
        Path, typer.Argument(metavar="MODEL.tflite|MODEL.npu", help="A quantized model, or a compiled one.")
    ]
    output: Annotated[
        Path,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.npu|OUT.tflite",
            help="The file to write: .npu of a .tflite, .tflite of a .npu.",
        ),
    ]
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.yaml",
            help="For a .tflite: the machine to compile for, a name from 'npuc targets list' or a target file.",
        ),
    ] = None
    report: Annotated[
        Path | None,
        typer.Option(metavar="FILE.txt", help="For a .tflite: write what runs where, and why, to this file."),
    ] = None
    tensors: Annotated[Path | None, typer.Option(hidden=True, help="The delegate's list of tensors.")] = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("litert")
@takes(ExportLitertCommand)
def litert(args: ExportLitertCommand) -> None:
    """Write what the LiteRT delegate runs: what the NPU takes of a quantized .tflite, or a compiled model as one operator."""
    from npuc.files import existing_file
    from npuc.frontend.sniff import describe_content

    printer = Printer(args.quiet, args.as_json)
    content = describe_content(existing_file(args.model))
    if content.kind == "tflite":
        _litert_program(args, printer)
        return
    if args.target and content.kind != "npu":
        raise FileFormatError(
            f"{content.words}; a TensorFlow Lite model is needed",
            where=str(args.model),
            fix="Give the .tflite file that the interpreter has",
        )
    if args.target or args.report:
        flag = "--target" if args.target else "--report"
        raise UsageError(
            f"{flag} is for a .tflite that is compiled, and {args.model} is none", fix=f"Leave {flag} out"
        )
    from npuc.integrations.litert import export_custom_op

    options.compiled_model(args.model)
    _check_output(args.model, args.output, ".tflite")
    export_custom_op(args.model, args.output)
    printer.say(f"{args.model} -> {args.output} ({size(args.output.stat().st_size)}, one operator 'npuc')")
    printer.result({"files": [str(args.output)]})


def _litert_program(args: ExportLitertCommand, printer: Printer) -> None:
    """The program of a `.tflite` model for the delegate."""
    from npuc.files import writable, write_atomically
    from npuc.integrations.litert import plan_pieces, require_pieces
    from npuc.program.file import save_compiled
    from npuc.target import load_target

    if args.target is None:
        raise UsageError(
            f"{args.model} is compiled, and the machine is not stated",
            fix="Add --target NAME; 'npuc targets list' has the names",
        )
    _check_output(args.model, args.output, ".npu")
    if args.report is not None:
        writable(args.report)
    pieces = plan_pieces(args.model, load_target(args.target), args.tensors)
    if pieces.entries:
        # One entry has no name; a program of several is written with theirs.
        (first, *others) = pieces.entries.values()
        save_compiled(pieces.entries if others else first, args.output)
    if args.report is not None:
        with write_atomically(args.report) as handle:
            handle.write(f"pieces {len(pieces.entries)}\n{pieces.report}\n".encode())
    require_pieces(pieces, args.model)
    for line in str(pieces.report).splitlines():
        printer.say(line)
    printer.say(
        f"{args.model} -> {args.output} ({size(args.output.stat().st_size)}, {counted(len(pieces.entries), 'piece')})"
    )
    printer.result(
        {
            "files": [str(args.output)],
            "pieces": {name: list(numbers) for name, numbers in pieces.operators.items()},
            "report": pieces.report.as_json(),
        }
    )


class ExportOrtContextCommand(CommandOptions):
    """The command line of `npuc export ort-context`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    output: Annotated[Path, typer.Option("--output", "-o", metavar="OUT.onnx", help="The file to write.")]
    quiet: options.Quiet = False
    as_json: options.Json = False


@app.command("ort-context")
@takes(ExportOrtContextCommand)
def ort_context(args: ExportOrtContextCommand) -> None:
    """Write a compiled model as an ONNX file (EPContext) for ONNX Runtime with npuc's execution provider, without Python."""
    from npuc.integrations.onnxruntime.context import export_context

    printer = Printer(args.quiet, args.as_json)
    _check_output(args.model, args.output, ".onnx")
    options.compiled_model(args.model)
    file = export_context(args.model, args.output)
    printer.say(f"{args.model} -> {file} ({size(file.stat().st_size)})")
    printer.result({"files": [str(file)]})
