"""Prepare calibration data once: read and preprocess every sample, and save it as the tensors that the network takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import calibration_data as given
from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress
from npuc.words import counted


class CalibDataCommand(CommandOptions):
    """The command line of `npuc calib-data`."""

    model: options.Model
    output: Annotated[
        Path,
        typer.Option(
            "--output", "-o", metavar="DIR", help="A new folder, which gets one .npz file per sample."
        ),
    ]
    data: given.Data = None
    random: given.Random = False
    preprocess: given.Preprocess = None
    annotations: given.Annotations = None
    dataset: given.Dataset = None
    max_count: given.MaxCount = None
    seed: given.Seed = None
    strict: given.Strict = False
    input_shape: options.InputShapes = None
    weights: options.Weights = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(CalibDataCommand)
def command(args: CalibDataCommand) -> None:
    """Run the command."""
    from npuc.calib.prepare import save_prepared
    from npuc.flow import network_to_quantize

    printer = Printer(args.quiet, args.as_json)
    graph = network_to_quantize(args.model, options.imported_as(args.model, args.input_shape, args.weights))
    options.tell_import(printer, graph)
    source = given.source(
        graph,
        args.data,
        args.random,
        args.preprocess,
        args.annotations,
        args.max_count,
        args.seed,
        args.dataset,
    )
    notes: list[str] = []

    def warn(text: str) -> None:
        notes.append(text)
        printer.note(text)

    with progress(printer, "preparing", source.total or 0) as step:
        written, skipped = save_prepared(graph, source, args.output, strict=args.strict, warn=warn, step=step)
    printer.say(f"{counted(written, 'sample')} written to {args.output}")
    if skipped:
        printer.say(f"{counted(skipped, 'sample', 'was', 'were')} passed over")
    printer.result({"written": written, "skipped": skipped, "folder": str(args.output), "notes": notes})
