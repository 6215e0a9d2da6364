"""What becomes of runners when their process ends or forks.

A process that ends takes away memory that a device may still write to, so runners are closed first. A forked child has none of
its parent's threads, and locks as they happened to be: its runners begin anew.
"""

from __future__ import annotations

import atexit
import os
from itertools import count
from typing import NoReturn, Protocol
from weakref import WeakValueDictionary

from npuc.errors import UsageError

PATIENCE = 60.0
"""Seconds that a process that ends waits for a device to come back."""


class Resident:
    """What stays in its process: it cannot be pickled, as `multiprocessing` would."""

    def __getstate__(self) -> NoReturn:
        kind = type(self).__name__
        raise UsageError(
            f"a {kind} cannot be sent to another process",
            fix=f"Send the path of its file, and make a {kind} there",
        )


class Lasting(Protocol):
    """A runner or a pool."""

    def close(self, *, wait: bool = True, timeout: float | None = None) -> None:
        """End it."""

    def _start_anew(self) -> None:
        """Forget threads, locks and jobs."""


_living: WeakValueDictionary[int, Lasting] = WeakValueDictionary()
_numbers = count()


def watch(resource: Lasting) -> None:
    """See to it that it is closed at the end, and begins anew in a child."""
    _living[next(_numbers)] = resource


@atexit.register
def _leave() -> None:
    # The youngest first: a pool is younger than its runners.
    for _, resource in sorted(_living.items(), reverse=True):
        resource.close(wait=False, timeout=PATIENCE)


def _forked() -> None:
    for resource in list(_living.values()):
        resource._start_anew()


os.register_at_fork(after_in_child=_forked)
