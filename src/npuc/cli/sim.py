"""Run a compiled model in the cycle simulator: how long it takes, and where the time goes.

--sanitize also executes the program and checks it for reads of bytes that were never written, accesses outside of a tensor's
memory, and races between queues. To compute results on data, use 'npuc run'.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import Printer, shorten, size
from npuc.errors import SimulationError
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.profile.timeline import Profile
    from npuc.program.model import CompiledModel

_SHOWN = 10


class SimCommand(CommandOptions):
    """The command line of `npuc sim`."""

    model: Annotated[Path, typer.Argument(metavar="MODEL.npu", help="A compiled model.")]
    entry: options.EntryName = ""
    subgraph: options.SubgraphName = ""
    target: Annotated[
        str | None,
        typer.Option(
            metavar="NAME|FILE.yaml", help="Refuse the model if it was compiled for another target."
        ),
    ] = None
    sanitize: Annotated[
        bool,
        typer.Option(
            "--sanitize",
            help="Also execute the program on zeros and check it for bad memory accesses and races.",
        ),
    ] = False
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE.json", help="Write the timeline for chrome://tracing or Perfetto."),
    ] = None
    layers: Annotated[int, typer.Option(min=0, help="Layers to list, the longest first; 0 is all.")] = _SHOWN
    quiet: options.Quiet = False
    as_json: options.Json = False


@takes(SimCommand)
def command(args: SimCommand) -> None:
    """Run the command."""
    from npuc.files import writable, write_atomically
    from npuc.profile.timeline import chrome_trace, profile_of
    from npuc.program.subgraph import only_subgraph
    from npuc.sim import simulate
    from npuc.target import load_target

    printer = Printer(args.quiet, args.as_json)
    if args.trace is not None:
        writable(args.trace)
    target = load_target(args.target) if args.target else None
    compiled = options.compiled_model(args.model, target, args.entry)
    if args.subgraph:
        compiled = only_subgraph(compiled, args.subgraph)
    timeline = simulate(compiled)
    profile = profile_of(compiled, timeline)
    _print(printer, compiled, profile, args.layers)
    if args.trace is not None:
        with write_atomically(args.trace) as out:
            out.write(json.dumps(chrome_trace(compiled, timeline)).encode())
        printer.say(f"timeline written to {args.trace}")
    result = {
        **asdict(profile),
        "total_milliseconds": profile.total_milliseconds,
        "dram": profile.dram,
        "trace": str(args.trace) if args.trace else None,
    }
    if args.sanitize:
        check(printer, compiled)
        result["sanitized"] = True
    printer.result(result)


def check(printer: Printer, compiled: CompiledModel) -> None:
    """Run the sanitizer; what it finds is an error."""
    from npuc.program.disassemble import printable
    from npuc.sim import sanitize

    findings = sanitize(compiled)
    if not findings:
        printer.say("sanitizer: no unwritten bytes read, no access outside of a tensor's place, no races")
        return
    for finding in findings[1:_SHOWN]:
        printer.note(printable(str(finding)))
    more = f" ({len(findings)} findings)" if len(findings) > 1 else ""
    raise SimulationError(
        f"the sanitizer found a fault{more}: {printable(str(findings[0]))}", where=compiled.name
    )


def _print(printer: Printer, compiled: CompiledModel, profile: Profile, most: int) -> None:
    from npuc.program.disassemble import printable

    printer.say(f"{printable(compiled.name)} on {compiled.target['name']}: {profile.time_words()}")
    printer.say(f"  {'busy':8} " + ", ".join(f"{queue} {part:.1%}" for queue, part in profile.busy.items()))
    shared = f", {size(profile.shared)} through shared memory" if profile.shared else ""
    printer.say(f"  {'DRAM':8} {size(profile.loaded)} loaded, {size(profile.stored)} stored{shared}")
    printer.say()
    ranked = sorted(profile.layers, key=lambda layer: -(layer.matrix + layer.vector))
    shown = ranked[:most] if most else ranked
    printer.table(
        ["layer", "matrix", "vector", "loaded", "stored", "from", "to"],
        [
            [
                shorten(printable(row.name)),
                row.matrix,
                row.vector,
                size(row.loaded),
                size(row.stored),
                row.start,
                row.end,
            ]
            for row in shown
        ],
        right=["matrix", "vector", "loaded", "stored", "from", "to"],
    )
    if len(shown) < len(ranked):
        printer.say(f"and {counted(len(ranked) - len(shown), 'layer')} more")
