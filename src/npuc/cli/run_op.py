"""Run a single layer on the tensors of a dump, and compare its result with the dump.

Of a compiled model (.npu), the instructions of the layer are executed. The exit status is 0 if the results are equal.
"""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer
from npuc.errors import CompareError

if TYPE_CHECKING:
    from npuc.ir import Graph


class RunOpCommand(CommandOptions):
    """The command line of `npuc run-op`."""

    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An .mlir or .npu file, or a model of another format.")
    ]
    layer: Annotated[
        str, typer.Argument(metavar="LAYER", help="The name of the layer, or of the tensor that it computes.")
    ]
    dump: Annotated[
        Path,
        typer.Option(
            metavar="DIR",
            help="A folder written by 'npuc run --dump-layers', which has the layer's operands.",
        ),
    ]
    run: Annotated[int, typer.Option(min=0, help="The number of the run in the dump.")] = 0
    output: options.Output = None
    input_shape: options.InputShapes = None
    entry: options.EntryName = ""
    threads: options.OneThread = 1
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(RunOpCommand)
def command(args: RunOpCommand) -> None:
    """Run the command."""
    from npuc.debug.dump import Dump
    from npuc.debug.golden import GoldenRun
    from npuc.debug.opening import open_layers
    from npuc.debug.single import run_layer
    from npuc.flow import load_model
    from npuc.tensors import write_npz

    printer = Printer(args.quiet, args.as_json)
    if args.output is not None:
        options.result(args.output, ".npz")
    golden_run = GoldenRun(Dump(args.dump))

    def load(path: Path) -> Graph:
        return load_model(path, options.imported_as(path, args.input_shape))

    options.check_entry(args.entry, [args.model])
    opened = open_layers(args.model, load, args.entry)
    results = run_layer(opened, args.layer, golden_run.dump, args.run, args.threads)
    for tensor in results:
        printer.say(golden_run.judge(args.run, tensor).line)
    if args.output is not None:
        write_npz(args.output, {tensor.name: tensor.values for tensor in results})
        printer.say(f"{len(results)} tensor{'s' * (len(results) != 1)} written to {args.output}")
    wrong = golden_run.wrong
    printer.result(
        {
            "layer": results[0].layer,
            "different": len(wrong),
            "verdicts": [asdict(verdict) for verdict in golden_run.verdicts],
            "file": str(args.output) if args.output else None,
        }
    )
    if wrong:
        first = wrong[0]
        raise CompareError(
            f"layer '{first.name}' ({first.kind}) gives another result on the same operands: "
            f"tensor '{first.name}': {first.words}",
            where=str(args.dump),
        )
    if not golden_run.compared:
        raise CompareError(
            f"the dump has no tensor '{results[0].name}' to compare with",
            where=str(args.dump),
            fix="Dump the network again, or use -o FILE.npz to keep the result",
        )
