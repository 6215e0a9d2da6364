"""A queue between threads: bounded, fair between clients, and one that can be closed."""

from __future__ import annotations

from collections import deque
from threading import Condition, Lock
from time import monotonic
from typing import Generic, TypeVar

T = TypeVar("T")


class Closed(Exception):
    """The channel was closed."""


class Full(Exception):
    """There was no room in time."""


class JobQueue(Generic[T]):
    """First in, first out for each client; clients take turns, so that a busy one does not hold up the others."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: dict[str, deque[T]] = {}
        """Dictionaries keep their order: the first client is the next one."""
        self._count = 0
        self._closed = False
        self._lock = Lock()
        # Who waits for an item and who waits for room: one of them is woken for each, not all.
        self._filled, self._freed = Condition(self._lock), Condition(self._lock)

    def __len__(self) -> int:
        return self._count

    def put(self, item: T, client: str = "", timeout: float | None = None) -> None:
        """Append; waits for room, `Full` after `timeout` seconds, `Closed` if nobody will ever take it."""
        end = None if timeout is None else monotonic() + timeout
        with self._lock:
            while self._count >= self._limit and not self._closed:
                left = None if end is None else end - monotonic()
                if left is not None and left <= 0:
                    raise Full
                self._freed.wait(left)
            if self._closed:
                raise Closed
            self._lines.setdefault(client, deque()).append(item)
            self._count += 1
            self._filled.notify()

    def put_back(self, item: T, client: str = "") -> None:
        """In front of all others, whatever the limit; also into a closed channel, as long as it is worked off."""
        with self._lock:
            line = self._lines.pop(client, deque())
            line.appendleft(item)
            self._lines = {client: line, **self._lines}
            self._count += 1
            self._filled.notify()

    def take(self) -> T:
        """The next item; waits for one, `Closed` when there will be none."""
        with self._lock:
            self._filled.wait_for(lambda: self._count or self._closed)
            if not self._count:
                raise Closed
            client, line = next(iter(self._lines.items()))
            item = line.popleft()
            del self._lines[client]
            if line:
                self._lines[client] = line  # its next turn comes after all others
            self._count -= 1
            self._freed.notify()
            return item

    def close(self) -> None:
        """Take nothing more; what is in it can still be taken."""
        with self._lock:
            self._closed = True
            self._filled.notify_all()
            self._freed.notify_all()

    def drain(self) -> list[T]:
        """Take out all that is left."""
        with self._lock:
            left = [item for line in self._lines.values() for item in line]
            self._lines.clear()
            self._count = 0
            self._freed.notify_all()
            return left
