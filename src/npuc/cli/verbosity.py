"""The options -v, --log-level and --color of every command: what is told on the way, and in which colours.

Messages of the stages go through Python's `logging`, below the logger `npuc`, and to stderr. `NPUC_LOG` asks for a level
where no option does. Nothing of it is imported before it is asked for: `npuc --help` stays fast.
"""

from __future__ import annotations

import os
from typing import Annotated

import typer

from npuc.cli import console
from npuc.errors import UsageError

LEVELS = ("error", "warning", "info", "debug")

Verbose = Annotated[
    int,
    typer.Option(
        "--verbose",
        "-v",
        count=True,
        show_default=False,
        help="Log the progress to stderr; -vv logs more.",
    ),
]
LogLevel = Annotated[
    str | None,
    typer.Option(
        metavar="error|warning|info|debug",
        help="The level of the log on stderr; -v is info and -vv debug.  [env: NPUC_LOG]",
    ),
]
Color = Annotated[
    str | None,
    typer.Option(
        metavar="auto|always|never",
        help="When to use colours; auto means on a terminal, unless NO_COLOR is set.  [default: auto]",
    ),
]


def apply(verbose: int, log_level: str | None, color: str | None, quiet: bool) -> None:
    """Do what the options of a command say."""
    if color is not None and color not in console.COLORS:
        raise UsageError(f"--color '{color}' is not one of {', '.join(console.COLORS)}")
    console.set_up(color or "auto", quiet)
    if verbose and log_level is not None:
        raise UsageError("-v and --log-level contradict each other", fix="Give one of them")
    level, where = log_level, "--log-level"
    if verbose:
        level = "info" if verbose == 1 else "debug"
    elif level is None:
        level, where = os.environ.get("NPUC_LOG") or None, "NPUC_LOG"
    if level is not None and level.lower() not in LEVELS:
        raise UsageError(f"{where} '{level}' is no level", fix=f"The levels are {', '.join(LEVELS)}")
    _log(level.lower() if level is not None else None)


def _log(level: str | None) -> None:
    """Send messages of a level and above to stderr; None: none but warnings, as Python does by itself."""
    import sys

    if level is None and "logging" not in sys.modules:
        return
    import logging

    logger = logging.getLogger("npuc")
    for handler in [attached for attached in logger.handlers if isinstance(attached, console.log_handler())]:
        logger.removeHandler(handler)
    logger.setLevel(logging.NOTSET if level is None else level.upper())
    logger.propagate = level is None
    if level is not None:
        logger.addHandler(console.log_handler()())
