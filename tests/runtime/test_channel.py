"""The queue between threads."""

from __future__ import annotations

import threading

import pytest

from npuc.runtime.job_queue import Closed, Full, JobQueue


def test_clients_take_turns_and_keep_their_own_order() -> None:
    channel: JobQueue[str] = JobQueue(9)
    for item in ("a1", "a2", "a3", "b1", "b2", "c1"):
        channel.put(item, client=item[0])
    assert len(channel) == 6
    assert [channel.take() for _ in range(6)] == ["a1", "b1", "c1", "a2", "b2", "a3"]


def test_what_is_put_back_comes_first() -> None:
    channel: JobQueue[int] = JobQueue(2)
    channel.put(1)
    channel.put(2)
    channel.put_back(0)  # whatever the limit
    assert [channel.take() for _ in range(3)] == [0, 1, 2]


def test_room() -> None:
    channel: JobQueue[int] = JobQueue(1)
    channel.put(1)
    with pytest.raises(Full):
        channel.put(2, timeout=0.01)
    threading.Timer(0.02, channel.take).start()
    channel.put(2, timeout=60)
    assert channel.take() == 2


def test_closing() -> None:
    channel: JobQueue[int] = JobQueue(4)
    channel.put(1)
    channel.put(2)
    channel.close()
    with pytest.raises(Closed):
        channel.put(3)
    assert channel.take() == 1 and channel.drain() == [2]
    with pytest.raises(Closed):
        channel.take()


def test_closing_wakes_those_who_wait() -> None:
    full: JobQueue[int] = JobQueue(1)
    full.put(1)
    threading.Timer(0.02, full.close).start()
    with pytest.raises(Closed):
        full.put(2)
    empty: JobQueue[int] = JobQueue(1)
    threading.Timer(0.02, empty.close).start()
    with pytest.raises(Closed):
        empty.take()
