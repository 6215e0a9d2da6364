"""Remove channels until the network meets a budget of cycles, multiply-adds or bytes, and train what is left.

Channels that depend on each other (residual additions, concatenations, depthwise layers, attention heads) are removed together.
With --target, widths fill the lanes of the machine, and a budget of cycles is counted by the compiler. The slim network has the
layer names of the original. 'npuc train groups' lists what can be removed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten
from npuc.cli.training import SampleOptions, TrainingRunOptions, require_network_file, write_network
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.train.pruning import PruningResult


class TrainPruneCommand(CommandOptions):
    """The command line of `npuc train prune`."""

    model: options.Model
    samples: SampleOptions
    budget: Annotated[
        str,
        typer.Option(
            metavar="cycles|macs|bytes=LIMIT",
            help="What the slim network may cost: a share, such as cycles=0.6, or a number, such as cycles=50000.",
        ),
    ] = "cycles=0.6"
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.yaml", help="The machine whose cycles are counted, and lanes filled."
        ),
    ] = None
    method: Annotated[
        str,
        typer.Option(
            metavar="iterative|one-step|once-for-all",
            help="In steps with training after each, the best of random candidates, or a subnet of a trained super-net.",
        ),
    ] = "iterative"
    criterion: Annotated[
        str,
        typer.Option(
            metavar="l1|l2|geometric_median|taylor|batch_norm",
            help="Which channels of a layer stay.",
        ),
    ] = "l2"
    steps: Annotated[int, typer.Option(min=1, help="Steps of the iterative method.")] = 3
    candidates: Annotated[int, typer.Option(min=1, help="Candidates of the one-step method.")] = 30
    generations: Annotated[int, typer.Option(min=1, help="Rounds of the search of once-for-all.")] = 8
    exclude: Annotated[
        list[str] | None,
        typer.Option(metavar="LAYER", help="Keep all channels of this layer; repeat it for several."),
    ] = None
    snap: Annotated[bool, typer.Option("--snap/--no-snap", help="Widths fill the lanes of the target.")] = (
        True
    )
    held: Annotated[
        int | None,
        typer.Option(
            "--validation-count",
            min=1,
            help="Samples, the last of --data, that choose and do not train.  [default: 500, or a tenth of fewer than 5000]",
        ),
    ] = None
    run: TrainingRunOptions
    work_dir: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Keep steps and checkpoints here; an interrupted run goes on."),
    ] = None
    input_shape: options.InputShapes = None
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.mlir|.onnx", help="Write the slim network here."),
    ] = None
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(TrainPruneCommand)
def command(args: TrainPruneCommand) -> None:
    """Run the command."""
    from npuc.flow import network_to_quantize
    from npuc.train.pruning import Budget, DependencyGraph

    printer = Printer(args.quiet, args.as_json)
    require_network_file(args.output)
    budget = Budget.parse(args.budget)
    shapes = options.imported_as(args.model, args.input_shape)
    graph = network_to_quantize(args.model, shapes)
    from npuc.target import load_target
    from npuc.train.pruning import PruningOptions, prune

    if budget.kind == "cycles" and args.target is None:
        raise UsageError("a budget in cycles needs a target", fix="Add --target, or give the budget in macs")
    target = None if args.target is None else load_target(args.target)
    chosen = PruningOptions.checked(
        criterion=args.criterion,
        steps=args.steps,
        candidates=args.candidates,
        generations=args.generations,
        snap=args.snap,
        seed=args.run.seed,
    )
    training = args.run.training()
    DependencyGraph(graph, args.exclude or ())
    train, held = args.samples.split(graph, args.held, printer)
    result = prune(
        graph,
        train,
        held,
        budget=budget,
        target=target,
        method=args.method,
        options=chosen,
        training=training,
        exclude=args.exclude or (),
        work_dir=args.work_dir,
        report=printer.say,
    )
    if args.output is not None:
        write_network(result.graph, args.output)
    _tell(printer, args.model, result, args.output)
    printer.result(result.as_json())


def _tell(printer: Printer, model: Path, result: PruningResult, output: Path | None) -> None:
    kind = result.budget.kind
    printer.say(
        f"{model}: {result.whole:,.0f} to {result.cost:,.0f} {kind} ({result.ratio:.1%}), score on validation samples "
        f"{result.base:.4f} to {result.score:.4f}"
    )
    changed = {name: width for name, width in result.widths.items() if width < result.sizes[name]}
    rows = [[shorten(name), str(result.sizes[name]), str(width)] for name, width in changed.items()]
    if rows:
        printer.table(["group", "channels", "now"], rows, right=["channels", "now"])
    for name, size in result.kernels.items():
        printer.say(f"{shorten(name)}: kernels of {size}")
    printer.say(f"{counted(len(result.widths) - len(changed), 'group')} kept all channels")
    if output is not None:
        printer.say(f"slim network written to {output}")
