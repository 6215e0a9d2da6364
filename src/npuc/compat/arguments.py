"""Command lines as vendors' tools read them.

    parser = VendorParser("model_deploy.py", "Compile an .mlir file.")
    parser.add("--quantize", type=keyword("INT8", "F32"), required=True)
    parser.add_ignored("--merge_weight", "weights of one model are stored once anyway")
    parser.add_refused("--dynamic", "programs here have static shapes")
    options = parser.parse(arguments)

An option that the tool has and that means nothing here is accepted with one line that says so. One that would change the result
and is not supported is an error. One that the tool does not have is a warning, as in the tools themselves, unless
`NPUC_COMPAT_STRICT=1` refuses it. `--plugin FILE` is npuc's own on each of them: it loads an operator, a kernel or a Python
layer of Caffe.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

from npuc.compat.running import warn
from npuc.errors import UsageError

STRICT = "NPUC_COMPAT_STRICT"
"""The environment variable that turns warnings about unknown options into errors."""


def is_strict() -> bool:
    """Whether unknown options are refused."""
    return os.environ.get(STRICT, "") not in ("", "0")


class _Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are npuc's."""

    def error(self, message: str) -> NoReturn:
        """Refuse the command line."""
        raise UsageError(message, where=self.prog, fix=f"'{self.prog} --help' shows how it is used")


class VendorParser:
    """The options of one command of a vendor."""

    def __init__(self, command: str, description: str, *, warns: bool = True) -> None:
        self.command = command
        self._warns = warns
        self._parser = _Parser(
            prog=command, description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter
        )
        self._parser.add_argument(
            "--plugin",
            action="append",
            metavar="FILE",
            default=argparse.SUPPRESS,
            help="load a plugin of npuc first",
        )
        self._ignored: dict[str, str] = {}
        self._refused: dict[str, tuple[str, Any]] = {}

    def add(self, *names: str, **settings: Any) -> None:
        """An option or a positional argument, as `argparse.ArgumentParser.add_argument` takes it."""
        settings.setdefault("help", " ")
        self._parser.add_argument(*names, **settings)

    def add_ignored(self, name: str, reason: str, **settings: Any) -> None:
        """An option of the tool that means nothing here, and why; without other settings it may have a value or none."""
        self._ignored[self._add_known(name, f"accepted, without effect: {reason}", settings)] = reason

    def add_refused(self, name: str, reason: str, unless: Any = None, **settings: Any) -> None:
        """An option that would change the result and is not supported, and why; `unless` is the value that changes nothing."""
        self._refused[self._add_known(name, f"not supported: {reason}", settings)] = reason, unless

    def _add_known(self, name: str, words: str, settings: dict[str, Any]) -> str:
        if "action" not in settings and "nargs" not in settings:
            settings |= {"nargs": "?", "const": True}
        action = self._parser.add_argument(
            name, default=argparse.SUPPRESS, help=words.replace("%", "%%"), **settings
        )
        return action.dest

    def options(self) -> list[tuple[str, ...]]:
        """The names of every option, each with its other spellings."""
        return [tuple(action.option_strings) for action in self._parser._actions if action.option_strings]

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """The values of a command line; a word about every option that is passed over."""
        options, unknown = self._parser.parse_known_args([self._with_two_dashes(word) for word in arguments])
        if unknown:
            self._tell_unknown(unknown)
        if hasattr(options, "plugin"):
            from npuc.plugins import load

            load(*options.plugin, installed=False)
        for dest, (reason, allowed) in self._refused.items():
            if hasattr(options, dest) and getattr(options, dest) != allowed:
                raise UsageError(
                    f"--{dest} is not supported: {reason}", where=self.command, fix="Leave it out"
                )
        for dest, reason in self._ignored.items():
            if hasattr(options, dest):
                warn(f"{self.command}: --{dest} has no effect here: {reason}")
        return options

    def _with_two_dashes(self, word: str) -> str:
        """`-dataset` as `--dataset`: documents print both."""
        name = word.partition("=")[0]
        if len(name) > 2 and name[0] == "-" and name[1].isalpha() and f"-{name}" in self._names:
            return f"-{word}"
        return word

    @property
    def _names(self) -> dict[str, Any]:
        return self._parser._option_string_actions

    def _tell_unknown(self, unknown: Sequence[str]) -> None:
        options = [word.partition("=")[0] for word in unknown if word.startswith("-")]
        words = f"{self.command} does not know {', '.join(options or unknown)}"
        near = get_close_matches((options or unknown)[0], self._names, 1)
        if is_strict() or not self._warns:
            raise UsageError(words, fix=f"Did you mean {near[0]}?" if near else "Leave it out")
        warn(f"{words}: passed over{f' (did you mean {near[0]}?)' if near else ''}")


def keyword(*choices: str) -> Callable[[str], str]:
    """A type of option: one of some words, whose capitals do not matter.

    >>> keyword("INT8", "F32")("int8")
    'INT8'
    """
    by_lower = {choice.lower(): choice for choice in choices}

    def parse(text: str) -> str:
        try:
            return by_lower[text.lower()]
        except KeyError:
            raise argparse.ArgumentTypeError(f"'{text}' is none of {', '.join(choices)}") from None

    return parse


def comma_list(text: str) -> list[str]:
    """A type of option: words between commas; blanks around them do not count.

    >>> comma_list("a, b,")
    ['a', 'b']
    """
    return [word for part in text.split(",") if (word := part.strip())]
