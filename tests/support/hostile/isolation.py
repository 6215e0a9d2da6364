"""Imports in a process of their own, with limits on memory and time: what a hostile file may cost.

Workers are forked from a server that has the importer loaded already, so that one costs milliseconds. Whatever a worker
dies of (a signal, the limit on its memory, a hang) is seen here and told, with the case it was at.
"""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import resource
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["npuc.frontend.onnx", "npuc.cli.app", "npuc.flow", "onnxruntime"])

MEMORY = 2 << 30
"""How much a worker's address space may grow."""


@dataclass(frozen=True)
class Outcome:
    """What became of a call in a worker."""

    value: Any
    """What the call returned; None if the worker died."""
    died: str
    """What the worker died of; empty if it did not."""
    seconds: float
    mib: float
    """How much its peak of resident memory grew."""


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _address_space() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmSize:"):
            return int(line.split()[1]) << 10
    return 0


def _work(
    connection: Any, function: Callable[..., Any], arguments: tuple[Any, ...], memory: int, seconds: int
) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before, start = _peak(), time.perf_counter()
    try:
        value = function(*arguments)
    except BaseException:
        value = traceback.format_exc()
    connection.send((value, time.perf_counter() - start, _peak() - before))


def isolated(
    function: Callable[..., Any],
    *arguments: Any,
    memory: int = MEMORY,
    seconds: int = 20,
    wall: float | None = None,
) -> Outcome:
    """Call a function of a module in a fresh worker; an exception comes back as its traceback."""
    here, there = _CONTEXT.Pipe(duplex=False)
    worker = _CONTEXT.Process(target=_work, args=(there, function, arguments, memory, seconds))
    worker.start()
    there.close()
    start = time.perf_counter()
    try:
        if not here.poll(wall if wall is not None else 4 * seconds + 20):
            worker.kill()
            return Outcome(None, "no answer in time", time.perf_counter() - start, 0)
        value, spent, mib = here.recv()
        return Outcome(value, "", spent, mib)
    except EOFError:
        worker.join()
        return Outcome(None, f"exit code {worker.exitcode}", time.perf_counter() - start, 0)
    finally:
        worker.join(10)
        here.close()


def command_line(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout and stderr of one `npuc` command, run in this process."""
    from npuc.cli.app import run_command

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = run_command(list(arguments))
    return status, out.getvalue(), err.getvalue()


def import_file(path: str) -> tuple[str, str]:
    """The error class and paragraph that an import ends with; ("", summary) if it gives a verified graph."""
    from npuc.errors import NpucError
    from npuc.frontend.onnx import import_onnx

    try:
        graph = import_onnx(Path(path))
    except NpucError as error:
        assert error.exit_status == 2, error
        return type(error).__name__, str(error)
    return "", f"{sum(1 for _ in graph.ops)} ops"


if __name__ == "__main__":
    print(import_file(sys.argv[1]))
