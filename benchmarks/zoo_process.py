"""Commands of npuc within limits of time and memory, each in a process of its own.

The processes are forked from one that has imported npuc already: seven commands a network would otherwise spend half of their
time on imports. What runs is `npuc.cli.main`, as in the program `npuc`; what it prints goes to files.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import sys
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

PRELOADED = (
    "npuc.cli.app", "npuc.flow", "npuc.quant", "npuc.codegen.compile_model", "npuc.engine", "npuc.sim",
    "npuc.import_check.check", "npuc.compare", "torch", "zoo_process",
)  # fmt: skip
_MEMORY = 10 << 30


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    status: int
    """As a shell tells it: 124 after the time limit, 128 + a signal."""
    out: str
    err: str
    seconds: float


def start() -> None:
    """Start the process that the others are forked from."""
    for name, value in (("OMP_NUM_THREADS", "1"), ("COLUMNS", "100")):
        os.environ[name] = value
    multiprocessing.set_forkserver_preload(list(PRELOADED))


def run(arguments: list[str], patience: float) -> Done:
    """Run a command: `npuc ARGUMENTS`, or a Python file of this folder if the first ends in .py."""
    begin = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder, "out"), Path(folder, "err")
        process: BaseProcess = multiprocessing.get_context("forkserver").Process(
            target=_child, args=(arguments, str(out), str(err))
        )
        process.start()
        process.join(patience)
        late = process.is_alive()
        if late:
            process.kill()
            process.join()
        code = process.exitcode or 0
        texts = [path.read_text(errors="replace") if path.exists() else "" for path in (out, err)]
    seconds = time.perf_counter() - begin
    if late:
        return Done(124, "", f"{texts[1]}\nno result after {patience:.0f} s", seconds)
    return Done(code if code >= 0 else 128 - code, texts[0], texts[1], seconds)


def _child(arguments: list[str], out: str, err: str) -> None:
    """Become the command."""
    for number, path in ((1, out), (2, err)):
        to = os.open(path, os.O_WRONLY | os.O_CREAT)
        os.dup2(to, number)
        os.close(to)
    sys.stdout, sys.stderr = (
        os.fdopen(number, "w", buffering=1 if number == 2 else -1, closefd=False) for number in (1, 2)
    )
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    status = 0
    try:
        if arguments[0].endswith(".py"):
            import runpy

            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
        else:
            from npuc.cli import main

            sys.argv = ["npuc", *arguments]
            main(arguments)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:
        import traceback

        traceback.print_exc()
        status = 1
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
