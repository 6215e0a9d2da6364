"""Work that takes its time, told to whoever listens: the command line shows it, and the log has it.

    with activity("loading PyTorch"):
        ...
    with activity("learning", len(blocks)) as step:
        for block in blocks: ...; step()

Stages do not know the terminal, and programs that use them have none: without a listener, nothing is shown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

from npuc.listeners import LISTENERS, Step

_LOG = logging.getLogger(__name__)


@contextmanager
def activity(words: str, steps: int | None = None) -> Iterator[Step]:
    """Tell of work while it is done; gives a function to call after each step."""
    start = time.perf_counter()
    shown = LISTENERS[-1](words, steps) if LISTENERS else nullcontext(_nothing)
    _LOG.debug("%s", words)
    with shown as step:
        yield step
    _LOG.info("%s: %.2f s", words, time.perf_counter() - start)


def _nothing() -> None:
    """A step that nobody wants to know of."""
