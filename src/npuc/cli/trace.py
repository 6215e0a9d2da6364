"""Run a program and record what it does with npuc.runtime: jobs, waiting times, CPU subgraphs, queue lengths.

The program needs no change, and its exit status is passed on. Write '--' before the program, so that its options are not
taken for those of npuc. The trace opens in https://ui.perfetto.dev and chrome://tracing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import shorten
from npuc.words import counted

if TYPE_CHECKING:
    from npuc.profile.recording import Recorded


class TraceCommand(CommandOptions):
    """The command line of `npuc trace`."""

    program: Annotated[
        list[str],
        typer.Argument(
            metavar="PROGRAM...", help="The program to run, with its arguments: -- python app.py."
        ),
    ]
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE.json", help="The trace to write.")
    ] = Path("trace.json")
    quiet: options.Quiet = False


@takes(TraceCommand)
def command(args: TraceCommand) -> int:
    """Run the command."""
    from npuc.profile.program_trace import trace_program

    trace = trace_program(args.program, args.output)
    if not args.quiet:
        sys.stdout.flush()
        for line in _summary(trace.recorded, args.output, trace.seconds, trace.full):
            print(line, file=sys.stderr)
    return trace.status


_TITLES = {
    "npu": "on the device", "cpu": "on the CPU", "stage": "in stages", "wait": "waiting", "load": "loading",
}  # fmt: skip


def _summary(recording: Recorded, output: Path, seconds: float, full: bool) -> Iterator[str]:
    if not recording.processes:
        yield (
            f"note: the program made no use of npuc.runtime, so {output} is empty; programs that it starts are seen too, "
            "unless they run in another environment"
        )
        return
    processes, jobs = len(recording.processes), recording.counts["queued"]
    yield (
        f"trace of {seconds:.3f} s written to {output}: {counted(recording.counts['run'], 'run')}"
        + (f", {jobs} jobs" + (f" ({recording.failed} failed)" if recording.failed else "") if jobs else "")
        + (f", {processes} processes" if processes > 1 else "")
    )
    yield "  of all threads together:"
    for category, title in _TITLES.items():
        if recording.counts[category]:
            spent = recording.nanoseconds[category] / 1e9
            yield f"  {title:13} {spent:9.3f} s  ({recording.counts[category]} ×)"
    for name, longest in sorted(recording.longest.items(), key=lambda item: -item[1])[:5]:
        yield f"  {shorten(name, 60)}: at most {longest}"
    if recording.unfinished:
        yield f"  {recording.unfinished} × something was not finished when the program ended"
    if full:
        yield "  the recording was full before the program ended; what came later is not in the trace"
