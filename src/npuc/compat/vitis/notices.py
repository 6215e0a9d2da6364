"""What the adapters say, in the form of the vendor's tools: `[VAIQ_WARN][QUANTIZER_TORCH_...]: text` on stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from difflib import get_close_matches

from npuc.compat.arguments import is_strict
from npuc.errors import NpucError, UsageError

_COLOURS = {"NOTE": "32", "WARN": "33", "ERROR": "31"}


def say(level: str, text: str, identifier: str = "") -> None:
    """Print a line; coloured on a terminal."""
    mark = f"[VAIQ_{level}]" + (f"[{identifier}]" if identifier else "")
    if sys.stderr.isatty():
        mark = f"\033[0;{_COLOURS[level]}m{mark}\033[0m"
    print(f"{mark}: {text}", file=sys.stderr)


def note(text: str) -> None:
    """A note."""
    say("NOTE", text)


def warn(text: str, identifier: str = "") -> None:
    """A warning."""
    say("WARN", text, identifier)


def refusal(identifier: str, text: str, fix: str = "", kind: type[NpucError] = UsageError) -> NpucError:
    """An error with the vendor's identifier in front."""
    return kind(f"[{identifier}] {text}", fix=fix or None)


def without_effect(name: str, reason: str) -> None:
    """An argument that the vendor's tool has and that means nothing here."""
    note(f"{name} is accepted and means nothing here: {reason}")


def unknown_option(name: str, where: str) -> None:
    """An option that the vendor's tool does not have either: a warning, and an error under NPUC_COMPAT_STRICT=1."""
    text = f"{where} has no option '{name}'"
    if is_strict():
        raise UsageError(text, fix="Leave it out, or unset NPUC_COMPAT_STRICT")
    warn(f"{text}: it is ignored")


def near_names(name: str, known: Iterable[str]) -> str:
    """A suggestion for a name that is not there."""
    names = list(known)
    near = get_close_matches(name, names, 3, 0.4)
    return f"Did you mean {' or '.join(near)}?" if near else f"There are {', '.join(names[:6])} and others"
