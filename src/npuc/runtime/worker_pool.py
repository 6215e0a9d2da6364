"""Threads that work off one queue of jobs, and how they are sent home."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock, Thread, current_thread
from time import monotonic

from npuc.errors import NpucError, QueueFullError, ShutdownError
from npuc.runtime import record
from npuc.runtime.job import Job
from npuc.runtime.job_queue import Closed, Full, JobQueue

Work = Callable[[Job], bool]
"""Does a job that has begun, ends it, and tells whether to go on with others."""


class WorkerPool:
    """A queue of at most `limit` jobs and its workers. Closing ends every job, one way or the other."""

    def __init__(self, limit: int, name: str) -> None:
        self._queue: JobQueue[Job] = JobQueue(limit)
        self._name, self._title = name, record.title(f"queue of {name}")
        self._threads: list[Thread] = []
        self._running: set[Job] = set()
        self._lock = Lock()
        self._aborted: NpucError | None = None

    def __len__(self) -> int:
        """Jobs that wait."""
        return len(self._queue)

    def add_worker(self, device: str, work: Work) -> None:
        """Start a worker."""
        thread = Thread(target=self._loop, args=(device, work), name=f"npuc-{device}", daemon=True)
        self._threads.append(thread)
        thread.start()

    @record.spans(
        "submit",
        lambda self, job, *_: f"job {job.number}",
        lambda self, job, client="", *_: {"client": client},
    )
    def submit(self, job: Job, client: str = "", timeout: float | None = None) -> None:
        """Queue a job; waits for room."""
        try:
            record.sent(job)
            self._queue.put(job, client, timeout)
            record.queued(job, self._title)
        except Full:
            raise QueueFullError(f"no room in the queue after {timeout:g} s", where=self._name) from None
        except Closed:
            raise self._aborted or ShutdownError("it is closed", where=self._name) from None
        record.level(self._title, len(self._queue))

    def put_back(self, job: Job) -> None:
        """Let another worker try a job."""
        with self._lock:
            aborted = self._aborted
            if aborted is None:
                self._queue.put_back(job)
        if aborted is not None:
            job._end(error=aborted)

    def abort(self, error: NpucError) -> None:
        """End all jobs with an error, also those that run: their results are dropped."""
        with self._lock:
            self._aborted = error
            self._queue.close()
            ended = [*self._queue.drain(), *self._running]
        for job in ended:
            job._end(error=error)

    def close(self, wait: bool, timeout: float | None) -> bool:
        """Finish all jobs, or with `wait` false end them with `ShutdownError`; False if a worker is stuck in a device."""
        self._queue.close()
        if not wait:
            self.abort(self._shut())
        end = None if timeout is None else monotonic() + timeout
        for thread in self._threads:
            if thread is not current_thread():
                thread.join(None if end is None else max(0.0, end - monotonic()))
        idle = not any(thread.is_alive() for thread in self._threads if thread is not current_thread())
        if not idle:
            self.abort(self._shut())
        return idle

    def _loop(self, device: str, work: Work) -> None:
        going = True
        while going:
            try:
                job = self._queue.take()
            except Closed:
                return
            record.level(self._title, len(self._queue))
            with self._lock:
                aborted = self._aborted
                self._running.add(job)
            try:
                if aborted is not None:
                    job._end(error=aborted)
                elif job._start(device):
                    going = self._do(job, work)
            finally:
                with self._lock:
                    self._running.discard(job)

    @record.spans(
        "job", lambda self, job, work: f"job {job.number}", lambda self, job, work: {"attempt": job.attempts}
    )
    def _do(self, job: Job, work: Work) -> bool:
        record.begun(job)
        return work(job)

    def _shut(self) -> ShutdownError:
        return ShutdownError("it was closed before the job was finished", where=self._name)
