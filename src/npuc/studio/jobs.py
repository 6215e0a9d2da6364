"""What the page starts: `npuc` commands as processes of their own, so that they can be cancelled and cannot take the server down.

A job's command line is part of what the page shows: whoever wants to repeat it copies that. Commands write their results
atomically, so a job that is cancelled or killed leaves the files as they were.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from npuc.errors import FileMissingError, UsageError

State = Literal["waiting", "running", "done", "failed", "cancelled"]
MOST_RUNNING = 2
MOST_WAITING = 64
_FIGURES = ("cycles", "milliseconds")
"""Of the result of a command, what the page shows beside it."""
_UNDONE = ("waiting", "running")
_KEPT_LINES = 200
_KEPT_JOBS = 100
_PATIENCE = 5.0
"""Seconds that a cancelled command has to end by itself."""
_PROGRAM = f"""
import os, signal, threading, time

def end_with_server(stream=os.dup(0)):
    os.read(stream, 1)
    os.killpg(0, signal.SIGINT)
    time.sleep({_PATIENCE})
    os.killpg(0, signal.SIGKILL)

threading.Thread(target=end_with_server, daemon=True).start()
os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
from npuc.cli import main
raise SystemExit(main())
"""
"""What a job's process runs. Its input is a pipe that nobody writes to: it ends when the server does, however that happens."""


@dataclass
class Job:
    """A command that runs or has run."""

    number: int
    title: str
    arguments: tuple[str, ...]
    """Behind `npuc`."""
    writes: tuple[str, ...]
    """Names of files in the project."""
    state: State = "running"
    lines: list[str] = field(default_factory=list)
    """What it said, the last of it."""
    result: Any = None
    """What it printed with --json."""
    seconds: float = 0.0

    def as_json(self) -> dict[str, Any]:
        """Plain values; the figures of the result are asked for by the page when it needs them."""
        return {
            "number": self.number,
            "title": self.title,
            "command": shlex.join(["npuc", *self.arguments]),
            "model": self.arguments[1].removeprefix("./") if len(self.arguments) > 1 else "",
            "writes": [name.removeprefix("./") for name in self.writes],
            "figures": self.figures,
            "state": self.state,
            "lines": self.lines[-20:],
            "seconds": round(self.seconds, 1),
        }

    @property
    def figures(self) -> dict[str, float | str]:
        """The few numbers of its result that tell whether it was worth it."""
        if not isinstance(self.result, dict):
            return {}
        figures = {
            name: self.result[name] for name in _FIGURES if isinstance(self.result.get(name), int | float)
        }
        accuracy = self.result.get("accuracy")
        if isinstance(accuracy, dict) and isinstance(accuracy.get("sqnr"), int | float):
            figures["dB"] = accuracy["sqnr"]
        return figures


class Jobs:
    """The commands of one server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._jobs: dict[int, Job] = {}
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._lock = threading.Lock()
        self._waiting: deque[Job] = deque()
        self._next = 1
        self._closed = False

    def start(
        self, title: str, arguments: Sequence[str], writes: Sequence[str] = (), *, wait: bool = False
    ) -> Job:
        """Start a command in the folder of the project; `--json` is added. With `wait` it may have to wait for others."""
        with self._lock:
            busy = len(self._processes) >= MOST_RUNNING
            if busy and not wait:
                raise UsageError(f"{MOST_RUNNING} jobs are running", fix="Wait for one, or cancel it")
            if len(self._waiting) >= MOST_WAITING:
                raise UsageError(f"{MOST_WAITING} jobs are waiting", fix="Cancel some of them")
            job = Job(self._next, title, (*arguments, "--json"), tuple(writes))
            self._next += 1
            self._jobs[job.number] = job
            for number in [n for n, kept in self._jobs.items() if kept.state not in _UNDONE][:-_KEPT_JOBS]:
                del self._jobs[number]
            if busy:
                job.state = "waiting"
                self._waiting.append(job)
            else:
                self._run(job)
        return job

    def _run(self, job: Job) -> None:
        """Begin a job; the lock is held."""
        job.state = "running"
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, *job.arguments],
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._processes[job.number] = process
        threading.Thread(target=self._follow, args=(job, process), daemon=True).start()

    def all(self) -> list[Job]:
        """Newest first."""
        with self._lock:
            return sorted(self._jobs.values(), key=lambda job: -job.number)

    def job(self, number: int) -> Job:
        """By its number."""
        with self._lock:
            if number not in self._jobs:
                raise FileMissingError(f"there is no job {number}")
            return self._jobs[number]

    def cancel(self, number: int) -> Job:
        """End a command; its results stay as they were before."""
        job = self.job(number)
        with self._lock:
            process = self._processes.get(number)
            if job in self._waiting:
                self._waiting.remove(job)
                job.state = "cancelled"
            if process is not None and job.state == "running":
                job.state = "cancelled"
        if process is not None:
            _end(process)
        return job

    def close(self) -> None:
        """End all commands: the server goes."""
        with self._lock:
            self._closed = True
        for job in self.all():
            if job.state in _UNDONE:
                self.cancel(job.number)

    def _follow(self, job: Job, process: subprocess.Popen[bytes]) -> None:
        started = time.monotonic()
        assert process.stderr is not None and process.stdout is not None
        printed: list[bytes] = []
        with process:
            reader = threading.Thread(target=lambda: printed.append(process.stdout.read()), daemon=True)  # type: ignore[union-attr]
            reader.start()
            for line in process.stderr:
                text = line.decode("utf-8", "replace").rstrip()
                if text:
                    job.lines = [*job.lines, text][-_KEPT_LINES:]
                job.seconds = time.monotonic() - started
            status = process.wait()
            reader.join()
        job.seconds = time.monotonic() - started
        try:
            job.result = json.loads(b"".join(printed) or b"null")
        except ValueError:
            job.result = None
        with self._lock:
            self._processes.pop(job.number, None)
            if job.state == "running":
                job.state = "done" if status == 0 else "failed"
            if self._waiting and not self._closed and len(self._processes) < MOST_RUNNING:
                self._run(self._waiting.popleft())


def _end(process: subprocess.Popen[bytes]) -> None:
    """As Ctrl-C does; a command that does not listen is killed, with all that it started."""
    for number, patience in ((signal.SIGINT, _PATIENCE), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
            process.wait(patience)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue
