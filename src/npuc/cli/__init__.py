"""The command line: one module a command, each of which parses, calls the API and prints."""

from __future__ import annotations

import sys

__all__ = ["main"]

INTERRUPTED = 130
"""The exit status after Ctrl-C."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit status."""
    try:
        from npuc.cli.app import main as run
    except KeyboardInterrupt:
        # Half a second may pass before the program is there to take notice by itself.
        print("interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    run(arguments)
