"""Import a model: read it, simplify it, and check the result against the original.

The format is recognized by the content of the file: ONNX, TensorFlow Lite, PyTorch (.pt2, TorchScript), Keras (.keras, .h5),
TensorFlow (SavedModel folders, frozen .pb), Caffe (.prototxt, .caffemodel), Darknet (.cfg).

The result is an .mlir file with its weights beside it. It is compared with the original, run by its own framework (Caffe and
Darknet: by OpenCV); if that is not installed, the import says that it was not checked.

For image inputs, the options from --resize-dims to --interpolation say how an image becomes a tensor; they are stored in the
result. If there are several inputs, write INPUT:VALUE.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, count, shorten, size
from npuc.cli.preprocessing import PreprocessingOptions
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.compare.tensors import Difference
    from npuc.import_check.check import CheckReport
    from npuc.ir.passes import PassEvent
    from npuc.profile.summary import Summary

Texts = list[str] | None


class ImportCommand(CommandOptions):
    """The command line of `npuc import`."""

    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="The model file; a SavedModel is a folder."),
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="FILE",
            help="The .mlir file to write.  [default: MODEL.mlir in this folder]",
        ),
    ] = None
    input_shape: options.InputShapes = None
    inputs: options.Inputs = None
    outputs: options.Outputs = None
    weights: options.Weights = None
    constant: Annotated[
        Texts,
        typer.Option(
            "--constant",
            metavar="NAME=VALUE",
            help="Fix an input to this value: one number, or several separated by commas.",
        ),
    ] = None
    preprocessing: PreprocessingOptions
    add_postprocess: options.Postprocess = None
    canonical: Annotated[bool, typer.Option("--canonical/--no-canonical", help="Simplify the network.")] = (
        True
    )
    check: Annotated[
        bool,
        typer.Option(
            "--check/--no-check", help="Compare the result with the original model, run by its own framework."
        ),
    ] = True
    check_input: Annotated[
        Texts,
        typer.Option(
            "--check-input",
            metavar="[NAME=]FILE",
            help="The .npz, .npy or image file to check with, instead of random data.",
        ),
    ] = None
    tolerance: Annotated[
        str, typer.Option(metavar="COSINE,EUCLID", help="The least similarity that passes the check.")
    ] = "0.99,0.99"
    leave_out: Annotated[
        str | None, typer.Option("--except", metavar="A,B", help="Do not check these tensors.")
    ] = None
    dump_ir: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the IR after every pass into this folder.")
    ] = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(ImportCommand)
def command(args: ImportCommand) -> None:
    """Run the command."""
    from npuc.compare.tensors import Tolerance
    from npuc.files import existing_file, existing_model

    printer = Printer(args.quiet, args.as_json)
    target = args.output or Path(f"{args.model.stem}.mlir")
    existing_model(args.model)
    options.result(target, ".mlir")
    bar = Tolerance.parse(args.tolerance)
    if args.check_input and not args.check:
        raise UsageError("--check-input and --no-check contradict each other", fix="Leave one of them out")
    for text in args.check_input or ():
        # The name of an input may stand before the path; a path may have a '=' of its own.
        existing_file(text if Path(text).exists() else text.rpartition("=")[2])
    imported = options.import_options(
        args.model,
        args.input_shape or [],
        args.inputs,
        args.outputs,
        args.preprocessing.fields(),
        args.weights,
        args.constant or [],
        args.add_postprocess,
    )
    chosen = args.preprocessing.apply(imported)

    from npuc.flow import check_model, import_model, save_graph
    from npuc.profile.summary import summarize

    start = time.perf_counter()
    graph = import_model(
        args.model,
        chosen,
        canonical=args.canonical,
        observe=_dumper(args.dump_ir) if args.dump_ir else None,
    )
    seconds = time.perf_counter() - start
    report, checked = None, 0.0
    if args.check:
        start = time.perf_counter()
        report = check_model(
            args.model,
            graph,
            chosen,
            args.check_input or [],
            tolerance=bar,
            leave_out=options.names(args.leave_out),
        )
        checked = time.perf_counter() - start
    # A network that is not what it was made of is not written: a file is one that can be used.
    files = save_graph(graph, target) if report is None or report.impossible or report.passed else []
    summary = summarize(graph)
    printer.say(f"{args.model} -> {target if files else 'no file'} ({seconds:.2f} s)")
    print_summary(printer, summary)
    options.tell_import(printer, graph)
    result: dict[str, Any] = {
        "files": [str(file) for file in files],
        "seconds": seconds,
        "notes": graph.notes,
        "summary": summary.as_json(layers=False),
        "check": None,
    }
    if report is not None:
        _print_check(printer, report, checked, bool(args.check_input))
        result["check"] = {
            "passed": None if report.impossible else report.passed,
            "reason": report.impossible or None,
            "outputs": [entry.as_json() for entry in report.outputs],
            "layers": [entry.as_json() for entry in report.layers],
        }
        printer.result(result)
        report.require()
    else:
        printer.result(result)


def print_summary(printer: Printer, summary: Summary) -> None:
    """The few lines that say what a network is."""
    for label, ports in (("inputs", summary.inputs), ("outputs", summary.outputs)):
        shown = [f"{name} {kind}" for name, kind in ports[:8]]
        more = f", and {len(ports) - 8} more" if len(ports) > 8 else ""
        printer.say(f"  {label:8} {', '.join(shown)}{more}")
    work = f"{count(summary.macs)} MACs" if summary.macs else "no MACs"
    printer.say(
        f"  {'network':8} {counted(len(summary.layers), 'op')}, {count(summary.parameters)} parameters "
        f"({size(summary.weight_bytes)}), {work}"
    )
    if summary.cpu:
        printer.say(
            f"  {'cpu':8} {len(summary.cpu)} of {counted(len(summary.layers), 'op')} without a top form, on the CPU:"
        )
        for op_type, reason, number in _group(summary):
            times = f" x{number}" if number > 1 else ""
            printer.say(f"  {'':8} {op_type}{times}: {reason}")


def _group(summary: Summary) -> list[tuple[str, str, int]]:
    counts: dict[tuple[str, str], int] = {}
    for entry in summary.cpu:
        key = (entry.op_type, entry.reason or "no top op computes it")
        counts[key] = counts.get(key, 0) + 1
    return [(*key, number) for key, number in sorted(counts.items(), key=lambda item: -item[1])]


def _print_check(printer: Printer, report: CheckReport, seconds: float, given: bool) -> None:
    from npuc.compare.tensors import worst_first

    if report.impossible:
        printer.say(f"  {'check':8} NOT CHECKED: {report.impossible}")
        return
    verdict = "agrees with" if report.passed else "DIFFERS from"
    data = "the given data" if given else "random data"
    plural = "" if len(report.outputs) == 1 else "s"
    compared = f"{len(report.outputs)} output{plural} and {len(report.layers)} intermediate tensors"
    printer.say(
        f"  {'check':8} {verdict} {report.runtime} on the original: {compared}, on {data} ({seconds:.2f} s)"
    )
    shown = worst_first(report.outputs)[:5]
    layers = report.failures[:8] if not report.passed else worst_first(report.layers)[:3]
    rows = [*layers, *(entry for entry in shown if entry not in layers)]
    printer.say("")
    printer.table(
        ["tensor", "cosine", "euclid", "SQNR dB", "max error", ""],
        [
            [
                shorten(entry.name),
                f"{entry.cosine:.6f}",
                f"{entry.euclid:.6f}",
                f"{entry.sqnr:.1f}",
                f"{entry.max_error:.3g}",
                _remark(entry, report),
            ]
            for entry in rows
        ],
        right=["cosine", "euclid", "SQNR dB", "max error"],
    )
    for note in report.notes:
        printer.note(note)


def _remark(entry: Difference, report: CheckReport) -> str:
    words = [
        "output" if entry in report.outputs else "",
        "equal but for rounding" if entry.close else "",
        entry.note,
    ]
    return ", ".join(word for word in words if word)


def _dumper(folder: Path) -> Callable[[PassEvent], None]:
    from npuc.files import make_folder, write_atomically
    from npuc.ir import print_graph

    make_folder(folder)
    number = 0

    def observe(event: PassEvent) -> None:
        nonlocal number
        number += 1
        with write_atomically(folder / f"{number:03}-{event.name}.mlir") as out:
            out.write(print_graph(event.graph).encode())

    return observe
