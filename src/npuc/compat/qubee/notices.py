"""What the adapters say, on stderr: notes, and the command of npuc that does the same."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from functools import wraps
from typing import Any, TypeVar, cast

from npuc.compat.arguments import is_strict
from npuc.errors import NpucError, UsageError

_Function = TypeVar("_Function", bound=Callable[..., Any])


def note(text: str) -> None:
    """A line for the user that is no result."""
    print(f"qubee: {text}", file=sys.stderr)


def told_once() -> Callable[[str], None]:
    """`note`, but what was said is not said again."""
    said: set[str] = set()

    def tell(text: str) -> None:
        if text not in said:
            said.add(text)
            note(text)

    return tell


def tell_command(words: Sequence[str]) -> None:
    """The command line of npuc that does what a call does."""
    note(f"the same as: {shlex.join(words)}")


def wrong(name: str, value: Any, expected: str) -> UsageError:
    """The error for an argument that cannot be."""
    return UsageError(f"{name} is {value!r}", fix=f"Give {expected}")


def in_own_words(function: _Function) -> _Function:
    """A function whose errors name the arguments of qubee where npuc's would name options."""

    @wraps(function)
    def spoken(*given: Any, **named: Any) -> Any:
        try:
            return function(*given, **named)
        except NpucError as error:
            if error.fix:
                error.fix = error.fix.replace(
                    "import the network again with another --input-shape", "give another input_shape"
                )
            raise

    return cast(_Function, spoken)


def unknown_keyword(function: Callable[..., Any], name: str, known: Sequence[str]) -> None:
    """A keyword that qubee does not have either, or of a later release: a note, and an error under NPUC_COMPAT_STRICT=1."""
    near = get_close_matches(name, known, 1)
    hint = f"Did you mean {near[0]}?" if near else "Leave it out"
    text = f"{function.__name__} has no argument '{name}'"
    if is_strict() or near:
        raise UsageError(text, fix=hint)
    note(f"{text} here: it is passed over")
