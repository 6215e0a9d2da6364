"""Messages in the form of Compass's tools: `[E] [OPT] [19:30:00]: text` on stderr, by the level of AIPUBUILDER_LOG.

The levels: 1 shows everything, 2 (the default) leaves out debug messages, 3 warnings, too, 6 shows errors only, and 10 nothing.
"""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from npuc.errors import PluginError

LEVEL = "AIPUBUILDER_LOG"
_LEAST = {"D": 1, "W": 2, "I": 5, "E": 9}
"""The highest level of the variable at which messages of a kind are shown."""


def _level() -> int:
    try:
        return int(os.environ.get(LEVEL, "2"))
    except ValueError:
        return 2


def say(kind: str, text: object, part: str = "OPT") -> None:
    """Print a message of a kind (D, I, W or E) if the level shows it."""
    if _level() <= _LEAST[kind]:
        print(f"[{kind}] [{part}] [{time.strftime('%H:%M:%S')}]: {text}", file=sys.stderr)


def OPT_DEBUG(text: object, *_: Any, **__: Any) -> None:
    """A message for debugging."""
    say("D", text)


def OPT_INFO(text: object, *_: Any, **__: Any) -> None:
    """A message."""
    say("I", text)


def OPT_WARN(text: object, *_: Any, **__: Any) -> None:
    """A warning."""
    say("W", text)


def OPT_ERROR(text: object, *_: Any, **__: Any) -> None:
    """An error after which work goes on."""
    say("E", text)


def OPT_FATAL(text: object, *_: Any, **__: Any) -> None:
    """An error that ends the work."""
    raise PluginError(str(text))


__all__ = ["OPT_DEBUG", "OPT_ERROR", "OPT_FATAL", "OPT_INFO", "OPT_WARN", "say"]
