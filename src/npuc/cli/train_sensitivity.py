"""Measure how much the outputs change when the channels of each layer alone get fewer.

The result is written after every measurement; a run that was interrupted goes on where it stopped. No training, and no labels
are needed: the outputs of the whole network are the measure.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten
from npuc.cli.training import SampleOptions


class TrainSensitivityCommand(CommandOptions):
    """The command line of `npuc train sensitivity`."""

    model: options.Model
    samples: SampleOptions
    criterion: Annotated[
        str,
        typer.Option(
            metavar="l1|l2|geometric_median|taylor|batch_norm", help="Which channels of a layer go first."
        ),
    ] = "l2"
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.yaml", help="Measure the widths that fill the lanes of this machine."
        ),
    ] = None
    exclude: Annotated[
        list[str] | None, typer.Option(metavar="LAYER", help="Leave out this layer; repeat it for several.")
    ] = None
    device: Annotated[str, typer.Option(metavar="cpu|cuda", help="Where the network runs.")] = "cpu"
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE.svg", help="Plot the divergence over the widths.")
    ] = None
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE.json", help="Write the measurements here, and go on from it."
        ),
    ] = None
    input_shape: options.InputShapes = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(TrainSensitivityCommand)
def command(args: TrainSensitivityCommand) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.flow import network_to_quantize
    from npuc.target import load_target
    from npuc.train.pruning import PruningOptions, sensitivity
    from npuc.train.pruning.sensitivities import plot_sensitivity

    printer = Printer(args.quiet, args.as_json)
    if args.plot is not None:
        options.result(args.plot, ".svg", "--plot")
    if args.output is not None:
        writable(args.output)
    criterion = PruningOptions.checked(criterion=args.criterion).criterion
    target = None if args.target is None else load_target(args.target)
    graph = network_to_quantize(args.model, options.imported_as(args.model, args.input_shape))
    measured = sensitivity(
        graph,
        args.samples.load(graph, printer),
        criterion=criterion,
        target=target,
        exclude=args.exclude or (),
        path=args.output,
        device=args.device,
    )
    if args.plot is not None:
        with write_atomically(args.plot) as out:
            out.write(plot_sensitivity(measured, f"Sensitivity of {args.model.name}").encode())
    rows = []
    for name, group in measured.groups.items():
        for keep, score in sorted(group.points.items(), reverse=True):
            rows.append(
                [shorten(name), str(group.size), str(keep), f"{score.divergence:.4f}", f"{score.score:.4f}"]
            )
    printer.table(
        ["group", "channels", "kept", "divergence", "score"],
        rows,
        right=["channels", "kept", "divergence", "score"],
    )
    for path, words in ((args.output, "measurements"), (args.plot, "plot")):
        if path is not None:
            printer.say(f"{words} written to {path}")
    printer.result(measured.as_json())
