"""A program in a process of its own, and a trace of what it does with npuc's runtimes, in Python and in C.

The program needs no change. What would end this process ends the program, and its trace is written all the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns

from npuc.errors import UsageError
from npuc.files import writable, write_atomically
from npuc.profile.recording import Recorded, write_trace
from npuc.runtime.record import LIMIT, VARIABLE


@dataclass(frozen=True)
class ProgramTrace:
    """How a program ended, and what was recorded of it."""

    status: int
    """Its exit status, as a shell states it."""
    seconds: float
    recorded: Recorded
    full: bool
    """Whether recording ended before the program, for want of space."""


def trace_program(program: Sequence[str], output: Path) -> ProgramTrace:
    """Run a program with its arguments and write the trace to `output`."""
    writable(output)
    with tempfile.TemporaryDirectory(prefix="npuc-trace-") as folder:
        lines = Path(folder, "events")
        lines.touch()
        begin = perf_counter_ns()
        status = _run(list(program), {**os.environ, VARIABLE: str(lines)})
        seconds = (perf_counter_ns() - begin) / 1e9
        other = {"command": list(program), "status": status, "seconds": seconds}
        with open(lines, "rb") as recording, write_atomically(output) as out:
            recorded = write_trace(recording, out, begin, other)
        return ProgramTrace(status, seconds, recorded, lines.stat().st_size >= LIMIT)


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
