"""Find the machines that some networks want: the Pareto front of time, bytes, on-chip memory and area over a space of targets.

Lower bounds are computed for every machine of the space, and the compiler runs for the most promising ones. The folder of -o gets
a table of all machines, a target file for each machine that was compiled for, and an HTML page. A killed run continues where it
ended when it is started again with the same folder.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, progress, shorten
from npuc.cli.console import size as bytes_text
from npuc.errors import UsageError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.explore import Exploration, ExploredNetwork, Space

_SHOWN = 20


class ExploreCommand(CommandOptions):
    """The command line of `npuc explore`."""

    models: Annotated[list[Path], typer.Argument(metavar="MODEL...", help="The networks, of any format.")]
    space: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="The space of machines: a base target and values of parameters."
        ),
    ] = None
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE", help="The base target, if there is no --space.  [default: edge-4t]"
        ),
    ] = None
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PARAMETER=VALUE,...",
            help="A parameter and the values to try: lanes, vector_lanes, local_memory, banks, bandwidth, cores, decoder, "
            "shared_memory, clock, bits, or any field of a target. Repeat the option for several; it replaces that of --space.",
        ),
    ] = None
    weight: Annotated[
        list[float] | None,
        typer.Option(metavar="W", help="How much each network counts, in their order.  [default: 1 each]"),
    ] = None
    objectives: Annotated[
        str, typer.Option(metavar="NAME,...", help="What should be small: time, bytes, memory, area, energy.")
    ] = "time,bytes,memory,area"
    coefficients: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.yaml", help="Coefficients of area and energy, in place of the default ones."
        ),
    ] = None
    machines: Annotated[
        int, typer.Option(min=1, help="The number of machines to compile for at the full level, at most.")
    ] = 32
    optimize: Annotated[
        int, typer.Option("--optimize", "-O", min=1, max=3, help="The full level of optimization.")
    ] = 2
    input_shape: options.InputShapes = None
    workers: Annotated[
        int | None,
        typer.Option(
            min=1,
            callback=options.at_most_cores,
            help="The number of processes, at most one per core.  [default: all cores]",
        ),
    ] = None
    dask: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Compile on a Dask cluster, such as tcp://host:8786."),
    ] = None
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="DIR", help="The folder for results and the journal.")
    ] = Path("exploration")
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(ExploreCommand)
def command(args: ExploreCommand) -> None:
    """Run the command."""
    if args.dask is not None and args.workers is not None:
        raise UsageError("--dask and --workers contradict each other: a cluster has its own workers")
    from npuc.explore import Coefficients, SearchOptions, explore
    from npuc.explore.results import table, write_results

    printer = Printer(args.quiet, args.as_json)
    coefficients = Coefficients() if args.coefficients is None else Coefficients.load(args.coefficients)
    networks, space = _networks(args), _space(args)
    printer.say(
        f"{counted(space.size, 'machine')} around {space.base.name}, {counted(len(networks), 'network')}"
    )
    with ExitStack() as stack:

        def begin(label: str, total: int) -> Callable[[], None]:
            stack.pop_all().close()
            step: Callable[[], None] = stack.enter_context(progress(printer, label, total))
            return step

        exploration = explore(
            networks,
            space,
            args.output,
            objectives=options.names(args.objectives),
            coefficients=coefficients,
            options=SearchOptions(args.machines, args.optimize, min(1, args.optimize - 1)),
            workers=args.workers,
            cluster=args.dask,
            begin=begin,
        )
    written = write_results(exploration, args.output)
    _show(printer, exploration)
    for path in written:
        printer.say(f"written to {path}")
    rows = list(table(exploration))
    printer.result(
        {
            "machines": len(rows),
            "compiled": len(exploration.reached),
            "open": len(exploration.search.open),
            "refused": len(exploration.refused),
            "proven": exploration.is_proven,
            "front": [rows[machine] for machine in exploration.front],
        }
    )


def _networks(args: ExploreCommand) -> list[ExploredNetwork]:
    from npuc.explore import ExploredNetwork

    weights = args.weight or [1.0] * len(args.models)
    if len(weights) != len(args.models):
        raise UsageError(f"{counted(len(args.models), 'network')} need as many --weight, not {len(weights)}")
    return [
        ExploredNetwork(path, weight, options.imported_as(path, args.input_shape, None, None))
        for path, weight in zip(args.models, weights, strict=True)
    ]


def _space(args: ExploreCommand) -> Space:
    from npuc.explore import Space
    from npuc.target import load_target

    if args.space is not None and args.target is not None:
        raise UsageError("--space names the base target itself", fix="Leave out --target")
    if args.space is None and not args.vary:
        raise UsageError(
            "there is no space of machines to explore",
            fix="Give --space FILE.yaml, or --vary PARAMETER=VALUE,VALUE",
        )
    space = Space.load(args.space) if args.space is not None else None
    parameters = {p.name: list(p.values) for p in space.parameters} if space is not None else {}
    for text in args.vary or []:
        name, equals, values = text.partition("=")
        if not equals:
            raise UsageError(f"--vary {text[:60]} has no values", fix="Such as --vary cores=1,2,4")
        parameters[name] = list(options.names(values))
    base = space.base if space is not None else load_target(args.target or "edge-4t")
    return Space.of(base, parameters)


def _show(printer: Printer, exploration: Exploration) -> None:
    from npuc.explore.figures import FIGURES

    names = [parameter.name for parameter in exploration.space.parameters]
    rows = []
    for machine in exploration.front[:_SHOWN]:
        number = int(exploration.numbers[machine])
        values = exploration.space.values(number)
        time, moved, memory, area, energy = exploration.reached[machine]
        cells = [f"{1e3 * time:.4g} ms", bytes_text(round(moved)), bytes_text(round(memory))]
        cells += [f"{area:.4g}", f"{1e3 * energy:.4g} mJ"]
        rows.append([exploration.space.name(number), *(shorten(values[name], 20) for name in names), *cells])
    printer.table(["machine", *names, *FIGURES], rows, right=FIGURES)
    if len(exploration.front) > _SHOWN:
        printer.say(f"... and {len(exploration.front) - _SHOWN} more on the front")
    for machine, why in list(exploration.search.failed.items())[:3]:
        printer.note(
            f"{exploration.space.name(int(exploration.numbers[machine]))} cannot run a network: {why}"
        )
    if exploration.refused:
        number, why = next(iter(exploration.refused.items()))
        printer.note(
            f"{counted(len(exploration.refused), 'combination')} contradict themselves; {exploration.space.name(number)}: {why}"
        )
    count = (
        f"{counted(len(exploration.reached), 'machine')} compiled for, {len(exploration.front)} on the front"
    )
    if exploration.is_proven:
        printer.say(f"{count}; no other machine of the space can be better, by its lower bounds")
    elif exploration.search.open:
        printer.say(
            f"{count}; {counted(len(exploration.search.open), 'machine')} may be better, by their lower bounds (--machines)"
        )
    else:
        printer.say(
            f"{count}; on {counted(len(exploration.beaten), 'machine')} layers went to the CPU, so that bounds prove nothing"
        )
