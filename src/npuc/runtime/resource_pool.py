"""A few things that many threads use in turn, one thread each at a time, in the order in which they asked."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from threading import Condition, Event, Lock
from typing import Generic, TypeVar

from npuc.errors import ShutdownError
from npuc.runtime import record

T = TypeVar("T")


class _Waiter(Generic[T]):
    def __init__(self) -> None:
        self.woken = Event()
        self.item: T | None = None
        """What was handed over."""
        self.may_make = False
        """Nothing was handed over, but there is room for another one."""


class ResourcePool(Generic[T]):
    """At most `limit` things, made by `make` when they are needed first and ended by `end`."""

    def __init__(self, make: Callable[[], T], end: Callable[[T], None], limit: int, name: str) -> None:
        self._make, self._end, self._limit, self._name = make, end, limit, name
        self._free: list[T] = []
        self._waiting: deque[_Waiter[T]] = deque()
        self._count = 0
        self._closed = False
        self._lock = Lock()
        self._returned = Condition(self._lock)

    def take(self) -> T:
        """One for the caller alone; waits until there is one."""
        with self._lock:
            if self._closed:
                raise self._shut()
            if self._free:
                return self._free.pop()
            if self._count < self._limit:
                self._count += 1
                waiter = None
            else:
                waiter = _Waiter[T]()
                self._waiting.append(waiter)
        if waiter is not None:
            self._wait(waiter)
            if waiter.item is not None:
                return waiter.item
            if not waiter.may_make:
                raise self._shut()
        try:
            return self._make()
        except BaseException:
            self._lose()
            raise

    def give(self, item: T) -> None:
        """Back for the next one."""
        with self._lock:
            if not self._closed:
                if self._waiting:
                    waiter = self._waiting.popleft()
                    waiter.item = item
                    waiter.woken.set()
                else:
                    self._free.append(item)
                return
        try:
            self._end(item)
        finally:
            self._lose()

    def drop(self, item: T) -> None:
        """End one that is of no use any more; another will be made in its place."""
        try:
            self._end(item)
        finally:
            self._lose()

    def close(self, timeout: float | None = None) -> bool:
        """End all of them; those in use when they are given back. False if some still are after `timeout`."""
        with self._lock:
            self._closed = True
            idle, self._free = self._free, []
            for waiter in self._waiting:
                waiter.woken.set()
            self._waiting.clear()
        for item in idle:
            try:
                self._end(item)
            finally:
                self._lose()
        with self._returned:
            return self._returned.wait_for(lambda: self._count == 0, timeout)

    @record.spans("wait", lambda self, waiter: f"for a worker of {self._name}")
    def _wait(self, waiter: _Waiter[T]) -> None:
        waiter.woken.wait()

    def _lose(self) -> None:
        """There is one less; whoever waits first may make another."""
        with self._lock:
            if self._waiting and not self._closed:
                waiter = self._waiting.popleft()
                waiter.may_make = True
                waiter.woken.set()
            else:
                self._count -= 1
                self._returned.notify_all()

    def _shut(self) -> ShutdownError:
        return ShutdownError("it is closed", where=self._name)
