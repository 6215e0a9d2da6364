"""The command line: one module a command, each of which parses, calls the API and prints."""

from __future__ import annotations

import gc
import sys

__all__ = ["main"]

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    from npuc.cli.startup import quick_start

    with quick_start():
        try:
            from npuc.cli.app import main as run
        except KeyboardInterrupt:
            # A moment may pass before the program is there to take notice by itself.
            print("interrupted", file=sys.stderr)
            sys.exit(INTERRUPTED)
        try:
            run(arguments)
        finally:
            gc.freeze()  # the process ends: Python would look through all objects for garbage once more, for 0.3 s
