"""Run a program and record what it does with npuc.runtime: jobs, waiting times, CPU subgraphs, queue lengths.

The program needs no change, and its exit status is passed on. Write '--' before the program, so that its options are not
taken for those of npuc. The trace opens in https://ui.perfetto.dev and chrome://tracing.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING, Annotated

import typer

from npuc.cli import options
from npuc.cli.command_options import CommandOptions, takes
from npuc.cli.console import shorten
from npuc.errors import UsageError
from npuc.files import writable, write_atomically
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
    from npuc.profile.recording import write_trace
    from npuc.runtime.record import LIMIT, VARIABLE

    writable(args.output)
    with tempfile.TemporaryDirectory(prefix="npuc-trace-") as folder:
        lines = Path(folder, "events")
        lines.touch()
        begin = perf_counter_ns()
        status = _run(args.program, {**os.environ, VARIABLE: str(lines)})
        seconds = (perf_counter_ns() - begin) / 1e9
        other = {"command": args.program, "status": status, "seconds": seconds}
        with open(lines, "rb") as recorded, write_atomically(args.output) as out:
            recording = write_trace(recorded, out, begin, other)
        full = lines.stat().st_size >= LIMIT
    if not args.quiet:
        sys.stdout.flush()
        for line in _summary(recording, args.output, seconds, full):
            print(line, file=sys.stderr)
    return status


def _run(program: list[str], environment: dict[str, str]) -> int:
    """The exit status of a program, as a shell states it."""
    try:
        child = subprocess.Popen(program, env=environment)
    except OSError as error:
        script = program[0].endswith(".py")
        raise UsageError(
            f"cannot be run: {error.strerror}",
            where=program[0],
            fix=f"npuc trace -- python {program[0]}" if script else "Check the path",
        ) from error
    with _signals_to(child):
        status = child.wait()
    return 128 - status if status < 0 else status


@contextmanager
def _signals_to(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """What would end this process ends the program; its trace is written all the same."""

    def forward(number: int, frame: object) -> None:
        # Ctrl-C at a terminal reaches the program without us, and once is enough.
        if number != signal.SIGINT or not _at_terminal():
            with suppress(OSError):
                child.send_signal(number)

    # What is ignored here, as SIGINT is in the background of a shell, is ignored by the program as well.
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    chosen = [signal_number for signal_number in numbers if signal.getsignal(signal_number) != signal.SIG_IGN]
    before = [signal.signal(signal_number, forward) for signal_number in chosen]
    try:
        yield
    finally:
        for number, handler in zip(chosen, before, strict=True):
            signal.signal(number, handler)


def _at_terminal() -> bool:
    """Whether this process is in the foreground of a terminal."""
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


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
