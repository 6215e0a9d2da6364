"""Numbers that a caller sets: how many workers, threads, jobs that wait."""

from __future__ import annotations

import numpy as np

from npuc.errors import UsageError

MOST_THREADS = 1024
"""Of one run; the native side takes no more."""


def check_counts(*counts: tuple[str, int, int], threads: int = 1) -> None:
    """Refuse what is no whole number, or less than the least of (name, value, least); and too many threads."""
    for name, value, least in (*counts, ("threads", threads, 1)):
        if not isinstance(value, int | np.integer):
            raise UsageError(f"{name} is {value!r}, and must be a whole number")
        if value < least:
            raise UsageError(f"{name} is {value}, and must be at least {least}")
    if threads > MOST_THREADS:
        raise UsageError(f"threads is {threads}, and must be at most {MOST_THREADS}")
