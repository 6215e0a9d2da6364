"""Values of options that several commands of `pegasus` have."""

from __future__ import annotations

import sys
from argparse import ArgumentTypeError
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from shlex import join

from npuc.compat.arguments import VendorParser
from npuc.compat.running import warn
from npuc.errors import UsageError

GPU = "networks are computed on the CPU here"


def parser(command: str, description: str) -> VendorParser:
    """A parser for a command; options that the tool does not have are errors, as in the tool."""
    return VendorParser(command, description, warns=False)


def sub_command(command: str, arguments: list[str], known: Iterable[str]) -> tuple[str, list[str]]:
    """The second word of a command line, and what follows it."""
    names = list(known)
    if arguments and arguments[0] in names:
        return arguments[0], arguments[1:]
    if not arguments or arguments[0].startswith("-"):
        raise UsageError(
            f"pegasus {command} needs a word that says what", fix=f"There are: {', '.join(names)}"
        )
    near = get_close_matches(arguments[0], names, 1)
    hint = f"Did you mean '{near[0]}'? " if near else ""
    raise UsageError(f"pegasus {command} has no '{arguments[0]}'", fix=f"{hint}There are: {', '.join(names)}")


def model_options(own: VendorParser, *, data: bool = True, meta: bool = True) -> None:
    """The files that most commands take."""
    own.add("--model", required=True, help="the .json file of pegasus import")
    if data:
        own.add("--model-data", required=True, help="the .data file beside it")
    if meta:
        own.add("--with-input-meta", required=True, help="the inputmeta file, .yml")


def sampling_options(own: VendorParser) -> None:
    """How many samples are taken, and where they are computed."""
    own.add(
        "--batch-size", type=positive, help="samples of a batch; shape[0] of the inputmeta file if left out"
    )
    own.add("--iterations", type=positive, default=1, help="batches")
    own.add("--device", default="CPU", type=str.upper, choices=("CPU", "GPU"), help="where to compute")


def tell_device(device: str) -> None:
    """A word about a device that there is not."""
    if device == "GPU":
        warn(f"pegasus: --device GPU has no effect here: {GPU}")


def positive(text: str) -> int:
    """A type of option: a whole number above 0."""
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"'{text}' is no whole number above 0")
    return int(text)


def one_of(*choices: str) -> Callable[[str], str]:
    """A type of option: one of some words, as they are written."""

    def parse(text: str) -> str:
        if text in choices:
            return text
        near = get_close_matches(text, choices, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ArgumentTypeError(f"'{text}' is none of {', '.join(choices)}{hint}")

    return parse


def tell_equivalent(*words: object) -> None:
    """What the same is in npuc's own words: one line that is no result."""
    print(f"npuc: {join(['npuc', *map(str, words)])}", file=sys.stderr)
