"""A job: inputs on their way to outputs."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from itertools import count
from threading import Condition
from typing import Any, Literal

from npuc.arrays import Array
from npuc.errors import JobCancelledError, JobTimeoutError
from npuc.runtime import record

Callback = Callable[["Job"], None]
State = Literal["waiting", "running", "done", "failed"]

_log = logging.getLogger("npuc.runtime")
_numbers = count(1)


class Job:
    """A run that somebody else does. `result` waits for it; the methods with an underscore are for those who do it."""

    def __init__(
        self,
        inputs: Any,
        outputs: Mapping[str, Array] | None = None,
        callback: Callback | None = None,
        entry: str = "",
    ) -> None:
        self.number = next(_numbers)
        """From 1 in every process."""
        self.inputs, self.outputs = inputs, outputs
        self.entry = entry
        """The entry of the program that it names; empty: the inputs choose."""
        self.state: State = "waiting"
        self.device: str | None = None
        """The device that ran it, or runs it."""
        self.cycles: int | None = None
        """What the device counted, if it counts."""
        self.queued, self.started, self.finished = time.perf_counter(), 0.0, 0.0
        """Seconds of `time.perf_counter`; 0 before it happened."""
        self.attempts = 0
        """How often it was begun."""
        self._changed = Condition()
        self._result: dict[str, Array] | None = None
        self._error: BaseException | None = None
        self._callbacks: list[Callback] = [] if callback is None else [callback]

    def done(self) -> bool:
        """True once there is a result or an error."""
        return self.state in ("done", "failed")

    def error(self) -> BaseException | None:
        """Why it failed; None if it did not, or has not yet."""
        return self._error

    @record.spans("wait", lambda self, timeout=None: f"for job {self.number}")
    def result(self, timeout: float | None = None) -> dict[str, Array]:
        """The outputs, once they are there; the error of the job; `JobTimeoutError` after `timeout` seconds."""
        with self._changed:
            if not self._changed.wait_for(self.done, timeout):
                raise JobTimeoutError(
                    f"the job is still {self.state} after {timeout:g} s",
                    fix="Wait again, or give it more time",
                )
        if self._error is not None:
            raise self._error
        assert self._result is not None
        return self._result

    def cancel(self) -> bool:
        """Give up a job that has not begun; False if it has."""
        with self._changed:
            if self.state != "waiting":
                return False
            self.state = "failed"
            self._error = JobCancelledError("the job was cancelled")
        self._tell()
        return True

    def add_callback(self, callback: Callback) -> None:
        """Call `callback(job)` when the job is finished, in the thread that finished it; at once if it is."""
        with self._changed:
            if not self.done():
                self._callbacks.append(callback)
                return
        self._call(callback)

    def _start(self, device: str) -> bool:
        """Begin; False if the job was cancelled or ended meanwhile."""
        with self._changed:
            if self.done():
                return False
            self.state, self.device, self.started = "running", device, time.perf_counter()
            self.attempts += 1
            return True

    def _again(self) -> bool:
        """Back to the queue after a failed attempt; False if it was ended meanwhile."""
        with self._changed:
            if self.done():
                return False
            self.state = "waiting"
            return True

    def _end(
        self,
        result: dict[str, Array] | None = None,
        cycles: int | None = None,
        error: BaseException | None = None,
    ) -> bool:
        """Finish; the first call counts."""
        with self._changed:
            if self.done():
                return False
            self.state = "failed" if error is not None else "done"
            self._result, self._error, self.cycles = result, error, cycles
        self._tell()
        return True

    def _tell(self) -> None:
        with self._changed:
            self.finished = time.perf_counter()
            self.inputs = None  # a finished job keeps only its results
            waiting, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for callback in waiting:
            self._call(callback)

    def _call(self, callback: Callback) -> None:
        try:
            callback(self)
        except Exception:
            _log.exception("a callback of a job failed")
