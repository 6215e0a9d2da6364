"""What a program does with runners, noted as it happens: the program's side of `npuc trace`.

`npuc trace` names a file in the environment variable NPUC_TRACE. Every event is a line that is appended to it at once, so that
nothing is lost if the program is killed, and any number of processes and threads may share the file. Without the variable,
which is looked for once, functions stay as they are. `npuc.profile.recording` makes a trace of the lines.
"""

from __future__ import annotations

import fcntl
import json
import os
import resource
import sys
from collections import Counter
from collections.abc import Callable
from functools import wraps
from itertools import count
from threading import current_thread, get_native_id, local
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from npuc.runtime.job import Job

VARIABLE = "NPUC_TRACE"
LIMIT = 256 << 20
"""Bytes that a process notes at most."""
_HIGH = 800
"""Descriptors from here on are not given to files that a program opens, unless it has opened as many: a program that closes
all descriptors it finds, as daemons do, and opens files of its own must not find our lines in them."""

Function = TypeVar("Function", bound=Callable[..., Any])
Notes = dict[str, Any]


class Recorder:
    """Appends events to a file that is there already. It never raises: a program must not fail because it is watched."""

    def __init__(self, path: str) -> None:
        opened = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
        try:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            high = _HIGH if most == resource.RLIM_INFINITY else min(_HIGH, most - 1)
            self._descriptor = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, high)
        finally:
            os.close(opened)
        self._titles: Counter[str] = Counter()
        self._numbers = count(1)
        self._process, self._thread, self._left = os.getpid(), local(), LIMIT
        os.register_at_fork(after_in_child=self._forked)

    def write(self, kind: str, *fields: Any, at: int | None = None) -> None:
        """Note an event of this thread; `at` is nanoseconds of `perf_counter_ns`, now if it is left out."""
        time = perf_counter_ns() if at is None else at
        thread = getattr(self._thread, "number", None)
        if thread is None:
            thread = self._thread.number = get_native_id()
            program = os.path.basename(sys.argv[0] if sys.argv and sys.argv[0] else "python")
            self._append(["P", time, self._process, thread, program])
            self._append(["T", time, self._process, thread, current_thread().name])
        self._append([kind, time, self._process, thread, *fields])

    def begin(self, category: str, name: str, notes: Notes) -> int:
        """This thread is busy with something from now on; returns a number to end it by."""
        number = next(self._numbers)
        self.write("B", number, category, name, notes)
        return number

    def end(self, number: int, notes: Notes) -> None:
        """Something is done."""
        self.write("E", number, notes)

    def title(self, name: str) -> str:
        """The name, or with a number if it was asked for before."""
        self._titles[name] += 1
        return name if self._titles[name] == 1 else f"{name} ({self._titles[name]})"

    def _append(self, line: list[Any]) -> None:
        text = json.dumps(line, separators=(",", ":")).encode() + b"\n"
        self._left -= len(text)
        if self._left > 0:
            try:
                os.write(self._descriptor, text)
            except OSError:
                self._left = 0

    def _forked(self) -> None:
        self._process, self._thread, self._left = os.getpid(), local(), LIMIT


def _recorder() -> Recorder | None:
    path = os.environ.get(VARIABLE)
    try:
        return Recorder(path) if path else None
    except OSError:
        return None  # whoever asked is gone


active = _recorder()
"""None: nobody watches."""


def spans(
    category: str,
    name: Callable[..., str],
    notes: Callable[..., Notes] = lambda *_, **__: {},
    result_notes: Callable[[Any], Notes] = lambda _: {},
) -> Callable[[Function], Function]:
    """A decorator: while the function runs, its thread is busy with `name(*arguments)`.

    `notes` says more from the arguments, `result_notes` from the result. If nobody watches, the function is left as it is.
    """

    def decorate(function: Function) -> Function:
        recorder = active
        if recorder is None:
            return function

        @wraps(function)
        def watched(*arguments: Any, **options: Any) -> Any:
            closing_notes = {"error": "interrupted"}
            number = recorder.begin(category, name(*arguments, **options), notes(*arguments, **options))
            try:
                result = function(*arguments, **options)
                closing_notes = result_notes(result)
                return result
            except Exception as error:
                closing_notes = {"error": type(error).__name__}
                raise
            finally:
                recorder.end(number, closing_notes)

        return watched  # type: ignore[return-value]

    return decorate


def level(name: str, value: int) -> None:
    """A number that goes up and down, such as the length of a queue."""
    if active is not None:
        active.write("C", name, value)


def title(name: str) -> str:
    """A name of its own for one of several things of the same name; just the name if nobody watches."""
    return name if active is None else active.title(name)


def sent(job: Job) -> None:
    """A job leaves for a queue: here begins the way to the thread that does it."""
    if active is not None:
        active.write("s", job.number)


def queued(job: Job, queue: str) -> None:
    """A job is in a queue: note it, and what becomes of it."""
    recorder = active
    if recorder is None:
        return
    recorder.write("b", job.number, queue, at=int(job.queued * 1e9))

    def ended(done: Job) -> None:
        error = done.error()
        notes = {"state": done.state, "attempts": done.attempts, "device": done.device, "cycles": done.cycles}
        failed = {} if error is None else {"error": type(error).__name__}
        recorder.write("e", done.number, queue, {**notes, **failed}, at=int(done.finished * 1e9))

    job.add_callback(ended)


def begun(job: Job) -> None:
    """The job is in the hands of this thread."""
    if active is not None:
        active.write("f", job.number)
