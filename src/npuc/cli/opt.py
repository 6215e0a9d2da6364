"""Run passes on an .mlir file, as in mlir-opt."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, format_table
from npuc.errors import UsageError

if TYPE_CHECKING:
    from npuc.ir.passes import PassEvent


class OptCommand(CommandOptions):
    """The command line of `npuc opt`."""

    program: Annotated[
        Path | None, typer.Argument(metavar="IN.mlir", help="The .mlir file to read.", show_default=False)
    ] = None
    pipeline: Annotated[
        str,
        typer.Option(
            "--pass-pipeline",
            "-p",
            metavar="'A,B{C=1}'",
            help="The passes, with their options.",
            show_default=False,
        ),
    ] = ""
    canonicalize: Annotated[
        bool, typer.Option("--canonicalize", help="Run the passes that 'npuc import' runs.")
    ] = False
    print_after: Annotated[
        bool, typer.Option("--print-ir-after-all", help="Print the IR to stderr after every pass.")
    ] = False
    timing: Annotated[bool, typer.Option("--timing", help="Print how long each pass took to stderr.")] = False
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT.mlir",
            help="The file to write.  [default: stdout, without weights]",
        ),
    ] = None
    list_passes: Annotated[bool, typer.Option("--list-passes", help="List the passes and exit.")] = False
    quiet: options.Quiet = False


@takes(OptCommand)
def command(args: OptCommand) -> None:
    """Run the command."""
    from npuc.ir.passes import PASSES, run_pipeline
    from npuc.transform import CANONICAL

    if args.list_passes:
        for name in sorted(PASSES):
            print(f"{name:36} {_first_sentence(PASSES[name])}")
        return
    if args.program is None:
        raise UsageError("an .mlir file is needed", fix="'npuc opt --help' shows how it is used")
    from npuc.ir import load_graph, print_graph, save_graph

    if args.output is not None:
        options.result(args.output, ".mlir")
    steps = [CANONICAL] if args.canonicalize else []
    steps += [args.pipeline] if args.pipeline else []
    times: list[tuple[str, float]] = []

    def observe(event: PassEvent) -> None:
        times.append((event.name, event.seconds))
        if args.print_after:
            print(f"// ----- after {event.name} -----\n{print_graph(event.graph)}", file=sys.stderr)

    graph = (
        run_pipeline(load_graph(args.program), ",".join(steps), observe)
        if steps
        else load_graph(args.program)
    )
    if args.output is None:
        sys.stdout.write(print_graph(graph))
    else:
        save_graph(graph, args.output)
        Printer(args.quiet).say(f"{args.program} -> {args.output}")
    if args.timing:
        total = sum(seconds for _, seconds in times)
        rows = [(name, f"{seconds:.3f}") for name, seconds in (*times, ("total", total))]
        print(format_table(["pass", "seconds"], rows, right=["seconds"]), file=sys.stderr)


def _first_sentence(kind: type[Any]) -> str:
    return (kind.__doc__ or "").strip().split("\n\n")[0].split(". ")[0].replace("\n", " ").rstrip(".:")
