"""Stages that work at the same time, each with workers of its own and a bounded queue before it.

    frames = Pipeline(Stage(decode, workers=2), Stage(prepare), Stage(runner.run, workers=2), Stage(draw))
    for image in frames.run(paths):
        ...

Results come in the order of the items. What is in the pipeline at a time is bounded, so a slow stage, or a caller who takes
his time, slows down all that comes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from threading import Event, Lock, Semaphore, Thread
from typing import Any

from npuc.errors import UsageError
from npuc.runtime import record
from npuc.runtime.job_queue import Closed, JobQueue


@dataclass(frozen=True)
class Stage:
    """A function of one item; `depth` items may wait before it."""

    function: Callable[[Any], Any]
    workers: int = 1
    depth: int = 2
    name: str = ""

    @property
    def title(self) -> str:
        """Its name, or that of its function."""
        return self.name or getattr(self.function, "__name__", "stage")


@dataclass
class _Item:
    number: int
    value: Any
    error: Exception | None = None


class Pipeline:
    """A row of stages; `run` may be called often, also at the same time."""

    def __init__(self, *stages: Stage) -> None:
        if not stages:
            raise UsageError("a pipeline needs a stage")
        for stage in stages:
            if not isinstance(stage, Stage) or not callable(stage.function):
                raise UsageError(
                    f"{stage!r} is no stage of a pipeline",
                    fix="A stage is Stage(f), with a function f of one item",
                )
            if stage.workers < 1 or stage.depth < 1:
                raise UsageError("a stage needs a worker and a place to wait", where=f"stage '{stage.title}'")
        self._stages = stages

    def run(self, items: Iterable[Any]) -> Generator[Any, None, None]:
        """The results, in order. An error of a stage is raised in its item's turn and ends the run; so does `close()`."""
        flow = _Flow(self._stages)
        try:
            yield from flow.results(items)
        finally:
            flow.stop()


class _Flow:
    """The threads and queues of one run."""

    def __init__(self, stages: tuple[Stage, ...]) -> None:
        self._stages = stages
        self._channels: list[JobQueue[_Item]] = [JobQueue(stage.depth) for stage in stages]
        # The last one holds all that can be on its way: the room below is what bounds it.
        most = sum(stage.workers + stage.depth for stage in stages)
        self._channels.append(JobQueue(most + 1))
        self._room = Semaphore(most)
        self._stopped = Event()
        self._threads: list[Thread] = []
        self._titles = [record.title(f"queue of stage {stage.title}") for stage in stages]

    def results(self, items: Iterable[Any]) -> Generator[Any, None, None]:
        """Start everything and give out what comes."""
        for number, stage in enumerate(self._stages):
            left, lock = [stage.workers], Lock()
            for _ in range(stage.workers):
                self._start(stage.title, self._work, number, stage, left, lock)
        self._start("feed", self._feed, items)
        early: dict[int, _Item] = {}
        turn = 0
        while True:
            while turn not in early:
                try:
                    item = self._channels[-1].take()
                except Closed:
                    return
                early[item.number] = item
            item = early.pop(turn)
            if item.error is not None:
                raise item.error
            turn += 1
            self._room.release()
            yield item.value

    def stop(self) -> None:
        """End all threads; what they work on is finished, what waits is dropped."""
        self._stopped.set()
        self._room.release()
        for channel in self._channels:
            channel.close()
            channel.drain()
        for thread in self._threads:
            thread.join()

    def _start(self, title: str, function: Callable[..., None], *arguments: Any) -> None:
        thread = Thread(target=function, args=arguments, name=f"npuc-{title}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _feed(self, items: Iterable[Any]) -> None:
        number = 0
        try:
            for value in items:
                self._room.acquire()
                if self._stopped.is_set():
                    return
                self._channels[0].put(_Item(number, value))
                self._level(0)
                number += 1
        except Closed:
            return
        except Exception as error:  # of the items themselves
            self._put(0, _Item(number, None, error))
        finally:
            self._channels[0].close()

    def _put(self, number: int, item: _Item) -> None:
        with suppress(Closed):
            self._channels[number].put(item)
            self._level(number)

    @record.spans(
        "stage", lambda self, stage, item: stage.title, lambda self, stage, item: {"item": item.number}
    )
    def _apply(self, stage: Stage, item: _Item) -> Any:
        return stage.function(item.value)

    def _level(self, number: int) -> None:
        if number < len(self._titles):
            record.level(self._titles[number], len(self._channels[number]))

    def _work(self, number: int, stage: Stage, left: list[int], lock: Any) -> None:
        while True:
            try:
                item = self._channels[number].take()
            except Closed:
                break
            self._level(number)
            if item.error is None:
                try:
                    item.value = self._apply(stage, item)
                except Exception as error:
                    item.value, item.error = None, error
            self._put(number + 1, item)
        with lock:
            left[0] -= 1
            last = left[0] == 0
        if last:
            self._channels[number + 1].close()
