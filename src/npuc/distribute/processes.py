"""Chunks run by processes of this machine. A process that dies loses nothing: its chunk is given to another.

Processes are spawned, not forked, so that they share no state; each opens the plan once. A chunk that ends three processes is
taken for what kills them, and is an error.
"""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from npuc.distribute.plan import Chunk, WorkPlan
from npuc.errors import InternalError, NpucError
from npuc.plugin_code import fault_of

_DEATHS = 3


@dataclass
class _Worker:
    process: Any
    connection: Connection
    chunk: Chunk | None = None


def run_in_processes(plan: WorkPlan, chunks: Sequence[Chunk], workers: int) -> Iterator[tuple[int, Any]]:
    """The results of every chunk, with its number, as they are done."""
    with WorkerProcesses(plan, min(workers, len(chunks))) as processes:
        yield from processes.run(chunks)


class WorkerProcesses:
    """Processes that stay from one row of chunks to the next, until the end of a `with` block."""

    def __init__(self, plan: WorkPlan, workers: int) -> None:
        self._plan = plan
        self._workers = [_add_worker(plan) for _ in range(workers)]

    def __enter__(self) -> WorkerProcesses:
        return self

    def __exit__(self, *error: object) -> None:
        for worker in self._workers:
            _dismiss(worker)

    def run(self, chunks: Sequence[Chunk]) -> Iterator[tuple[int, Any]]:
        """The results of every chunk, with its number, as they are done."""
        waiting = deque(chunks)
        deaths: Counter[int] = Counter()
        workers = self._workers
        while waiting or any(worker.chunk is not None for worker in workers):
            for worker in workers:
                if worker.chunk is None and waiting:
                    _give(worker, waiting.popleft())
            ready = wait([worker.connection for worker in workers if worker.chunk is not None])
            for worker in [worker for worker in workers if worker.connection in ready]:
                chunk = worker.chunk
                assert chunk is not None
                try:
                    result = worker.connection.recv()
                except (EOFError, OSError):
                    deaths[chunk[0]] += 1
                    if deaths[chunk[0]] >= _DEATHS:
                        raise _deadly(self._plan, chunk, worker) from None
                    waiting.appendleft(chunk)
                    workers[workers.index(worker)] = _add_worker(self._plan)
                    _dismiss(worker)
                    continue
                worker.chunk = None
                if isinstance(result, NpucError):
                    raise result
                yield chunk[0], result


def _add_worker(plan: WorkPlan) -> _Worker:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True, name="npuc worker")
    with _deaf():
        process.start()
    # What is left open here would keep a dead worker's pipe alive.
    theirs.close()
    worker = _Worker(process, ours)
    # If it is gone already, that shows when it is given a chunk.
    with suppress(OSError):
        ours.send(plan)
    return worker


@contextmanager
def _deaf() -> Iterator[None]:
    """Ctrl-C is for the one who starts workers: what is ignored now is ignored by them from their first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        # None is a handler that was not set from Python; there is no way to put it back.
        signal.signal(signal.SIGINT, before if before is not None else signal.SIG_DFL)


def _give(worker: _Worker, chunk: Chunk) -> None:
    worker.chunk = chunk
    # A dead worker is noticed where its answer is waited for.
    with suppress(OSError):
        worker.connection.send(chunk[1])


def _dismiss(worker: _Worker) -> None:
    worker.connection.close()
    worker.process.terminate()
    worker.process.join()


def _deadly(plan: WorkPlan, chunk: Chunk, worker: _Worker) -> InternalError:
    worker.process.join(1)
    return InternalError(
        f"{_DEATHS} worker processes died (status {worker.process.exitcode}) on the {plan.describe(chunk[1])}",
        fix=plan.fix,
    )


def _work(connection: Connection) -> None:
    """The life of a worker: a plan, then chunks until nobody asks any more."""
    try:
        plan: WorkPlan = connection.recv()
        run: Callable[[Any], Any] | NpucError
        try:
            run = plan.open()
        except Exception as error:
            run = _as_error(error)
        while True:
            work = connection.recv()
            if isinstance(run, NpucError):
                connection.send(run)
                continue
            try:
                answer: Any = run(work)
            except Exception as error:
                answer = _as_error(error)
            connection.send(answer)
    except (EOFError, OSError):
        return


def _as_error(error: Exception) -> NpucError:
    # A traceback does not survive the way to the other process.
    fault = fault_of(error)
    if fault is not None or isinstance(error, NpucError):
        return fault or error  # type: ignore[return-value]
    return InternalError(f"a worker failed: {type(error).__name__}: {error}")
