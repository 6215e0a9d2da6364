"""List the groups of channels of a network: those that pruning can remove, why others stay, and which method fits.

With --target, what the narrowest network would cost is counted in cycles of that machine. No data is needed.
"""

from __future__ import annotations

from typing import Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten


class TrainGroupsCommand(CommandOptions):
    """The command line of `npuc train groups`."""

    model: options.Model
    target: Annotated[
        str | None, typer.Option(metavar="NAME|FILE.yaml", help="The machine whose cycles are counted.")
    ] = None
    count: Annotated[
        int | None,
        typer.Option("--sample-count", min=0, help="How many samples there are to train on, for the advice."),
    ] = None
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER", help="Keep all channels of this layer; repeat it for several."),
    ] = None
    input_shape: options.InputShapes = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(TrainGroupsCommand)
def command(args: TrainGroupsCommand) -> None:
    """Run the command."""
    from npuc.flow import network_to_quantize
    from npuc.target import load_target
    from npuc.train.pruning import DependencyGraph, advise

    printer = Printer(args.quiet, args.as_json)
    target = None if args.target is None else load_target(args.target)
    graph = network_to_quantize(args.model, options.imported_as(args.model, args.input_shape))
    groups = DependencyGraph(graph, args.exclude or ()).all_groups
    rows = [
        [shorten(group.name), str(group.size), str(len(group.layers)), shorten(group.reason, 80)]
        for group in groups
    ]
    printer.table(["group", "channels", "layers", "why they stay"], rows, right=["channels", "layers"])
    advice = advise(graph, target, args.count, args.exclude or ())
    printer.say(advice.text)
    printer.result(
        {
            "groups": [
                {
                    "name": group.name,
                    "channels": group.size,
                    "unit": group.unit,
                    "layers": list(group.layers),
                    "reason": group.reason,
                }
                for group in groups
            ],
            "advice": advice.as_json(),
        }
    )
