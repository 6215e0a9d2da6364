"""Python's collector of cycles looks seldom while npuc builds much that stays.

Hundreds of thousands of objects are made, and almost none of them is garbage, but the collector looks through all of them
again and again: a third of the time of compiling 4,500 layers, and more of it the more layers there are.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_COLLECT_EVERY = 1_000_000
"""Objects that are made, less those that are gone, between two looks for garbage; Python's own number is 700, and npuc with
all that it needs comes to 200,000."""


_lock = threading.Lock()
_users = 0
_before = (0, 0, 0)


@contextmanager
def collected_seldom() -> Iterator[None]:
    """Meanwhile, collect seldom; a collector that is off, or looks more seldom, stays as it is.

    The collector belongs to the process: of several threads the first one sets it, and the last one puts it back.

    >>> before = gc.get_threshold()
    >>> with collected_seldom():
    ...     gc.get_threshold()[0]
    1000000
    >>> gc.get_threshold() == before
    True
    """
    global _users, _before
    with _lock:
        if _users == 0:
            _before = gc.get_threshold()
            if 0 < _before[0] < _COLLECT_EVERY:
                gc.set_threshold(_COLLECT_EVERY, *_before[1:])
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                gc.set_threshold(*_before)
