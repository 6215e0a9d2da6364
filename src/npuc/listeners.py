"""Who wants to know of work that takes its time; apart from `activity`, so that to listen costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

Step = Callable[[], None]
Listener = Callable[[str, int | None], AbstractContextManager[Step]]
"""Gets the words and the number of steps, None if there are none to count; what it gives is open while the work is done."""

LISTENERS: list[Listener] = []
"""The last one is told."""
