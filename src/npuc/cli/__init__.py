"""The command line: one module a command, each of which parses, calls the API and prints."""

from npuc.cli.app import main

__all__ = ["main"]
