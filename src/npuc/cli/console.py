"""How commands print: results on stdout, everything else on stderr, plain text where nobody watches.

`Printer` knows `--quiet` and `--json`: with `--json`, stdout has one JSON document and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

COLORS = ("auto", "always", "never")
_STYLES = {"error": "1;31", "warning": "33", "note": "36", "header": "1", "faint": "2"}
_SHOWN: dict[str, Any] = {"color": "auto", "quiet": False, "live": False}
"""What the options of this command say, and whether something is drawn on the terminal now."""

FIRST_WORD, NEXT_WORDS = 5.0, 30.0
"""Seconds until work that nobody watches says that it goes on, and until it does so again."""


def set_up(color: str, quiet: bool) -> None:
    """Take the options of a command, and show the activities of stages from now on."""
    _SHOWN.update(color=color, quiet=quiet)
    from npuc import listeners

    listeners.LISTENERS[:] = [lambda words, steps: working(Printer(quiet), words, steps)]


def paint(text: str, style: str, stream: Any = None) -> str:
    """Text in a colour, where the stream is a terminal that has them and nobody asked for none."""
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m" if colored(stream or sys.stderr) else text


def colored(stream: Any) -> bool:
    """Whether what is printed to a stream has colours (https://no-color.org)."""
    if _SHOWN["color"] != "auto":
        return bool(_SHOWN["color"] == "always")
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(stream.isatty())


@cache
def log_handler() -> Any:
    """The kind of handler that prints messages of `logging` as this module prints everything else."""
    import logging

    class Handler(logging.Handler):
        """One line a message: level, module, words."""

        def emit(self, record: logging.LogRecord) -> None:
            with suppress(OSError, ValueError):
                sys.stdout.flush()
                level = record.levelname.lower()
                name = record.name.removeprefix("npuc.")
                head = paint(f"{level}:", {"error": "error", "warning": "warning"}.get(level, "faint"))
                print(
                    f"{head} {paint(f'{name}:', 'faint')} {record.getMessage()}", file=sys.stderr, flush=True
                )

    return Handler


@dataclass(frozen=True)
class Printer:
    """Where the words of a command go."""

    quiet: bool = False
    as_json: bool = False

    def say(self, text: str = "") -> None:
        """Something the user wants to read."""
        if not self.quiet:
            print(text, file=sys.stderr if self.as_json else sys.stdout)

    def note(self, text: str) -> None:
        """Something the user should know besides."""
        if not self.quiet:
            sys.stdout.flush()
            print(headed(wrap(f"note: {text}"), "note:", "note"), file=sys.stderr, flush=True)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
        """A table; the columns named in `right` are aligned to the right."""
        if not self.quiet:
            text = format_table(header, rows, right)
            stream = sys.stderr if self.as_json else sys.stdout
            first, line, rest = text.partition("\n")
            self.say(f"{paint(first, 'header', stream)}{line}{rest}")

    def result(self, value: Any) -> None:
        """The machine-readable result, printed with `--json` only."""
        if self.as_json:
            print(json_text(value))


def json_text(value: Any) -> str:
    """A result as JSON, which has no NaN and no infinity."""
    return json.dumps(_finite(value), indent=2, ensure_ascii=False, default=str)


def complain(text: str) -> None:
    """Print an error on stderr; where that cannot be written either, the exit status has to tell."""
    with suppress(OSError):
        sys.stdout.flush()
    with suppress(OSError):
        print(headed(wrap(text), text.partition(" ")[0], "error"), file=sys.stderr, flush=True)


def headed(text: str, head: str, style: str) -> str:
    """Text whose first word has a colour."""
    return paint(head, style) + text.removeprefix(head) if text.startswith(head) else text


def wrap(text: str) -> str:
    """Text in lines of the terminal's width; on anything else it stays one line, so that it can be searched."""
    if not sys.stderr.isatty():
        return text
    width = max(40, min(110, shutil.get_terminal_size().columns - 1))
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)


def format_table(header: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> str:
    """Columns as wide as their widest cell.

    >>> print(format_table(["name", "n"], [["a", 10]], right=["n"]))
    name   n
    a     10
    """
    cells = [list(header), *([str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(width) if name in right else cell.ljust(width)
            for cell, width, name in zip(row, widths, header, strict=True)
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def shorten(text: str, width: int = 48) -> str:
    """The text, with its middle left out if it is too long; the ends of a layer's name tell most.

    >>> shorten("abcdefghij", 7)
    'abc…hij'
    """
    if len(text) <= width:
        return text
    keep = width - 1
    return f"{text[: keep // 2]}…{text[len(text) - (keep - keep // 2) :]}"


def count(number: float) -> str:
    """A large number in a few digits.

    >>> count(3504872), count(950)
    ('3.50 M', '950')
    """
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e4, "k")):
        if number >= limit:
            return f"{number / (1e3 if unit == 'k' else limit):.2f} {unit}"
    return f"{number:g}"


def size(number: int) -> str:
    """A number of bytes.

    >>> size(2048)
    '2.0 KiB'
    """
    value = float(number)
    for unit in ("bytes", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} bytes" if unit == "bytes" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"


@contextmanager
def progress(printer: Printer, label: str, total: int) -> Iterator[Any]:
    """A function to call after each step; on a terminal it draws a bar with rate and time left, elsewhere it says now and then
    how far it is."""
    if printer.quiet or _SHOWN["live"] or total < 2:
        yield lambda: None
        return
    if not sys.stderr.isatty():
        with _said(label, total) as step:
            yield step
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Rate(TextColumn):
        def render(self, task: Any) -> Text:
            return Text(f"{task.speed:.1f}/s" if task.speed else "")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Rate(""),
        TimeRemainingColumn(),
    )
    with _live(), Progress(*columns, console=_console(Console), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


def _console(kind: Any) -> Any:
    """A console of rich for stderr, in the colours that are asked for."""
    return kind(stderr=True, no_color=not colored(sys.stderr), highlight=False)


@contextmanager
def _live() -> Iterator[None]:
    """While something is drawn on the terminal, nothing else is."""
    _SHOWN["live"] = True
    try:
        yield
    finally:
        _SHOWN["live"] = False


@contextmanager
def working(printer: Printer, label: str, total: int | None = None) -> Iterator[Any]:
    """Work of unknown length: on a terminal something turns while it is done, elsewhere a line says now and then that it goes on.

    With a number of steps it is `progress`.
    """
    if total is not None:
        with progress(printer, label, total) as step:
            yield step
        return
    if printer.quiet or _SHOWN["live"]:
        yield lambda: None
        return
    if not sys.stderr.isatty():
        with _said(label, None) as step:
            yield step
        return
    from rich.console import Console

    with _live(), _console(Console).status(f"{label} …"):
        yield lambda: None


@contextmanager
def _said(label: str, total: int | None) -> Iterator[Any]:
    """Lines on stderr, where it is no terminal: the first after some seconds, so that quick work is silent."""
    import threading
    import time

    begun, done, finished = time.perf_counter(), 0, threading.Event()

    def step() -> None:
        nonlocal done
        done += 1

    def watch() -> None:
        pause = FIRST_WORD
        while not finished.wait(pause):
            how_far = f" {done} of {total}," if total is not None else ""
            with suppress(OSError, ValueError):
                seconds = time.perf_counter() - begun
                left = f", about {seconds * (total / done - 1):.0f} s to go" if total and done else ""
                print(f"{label}:{how_far} {seconds:.0f} s so far{left}", file=sys.stderr, flush=True)
            pause = NEXT_WORDS

    thread = threading.Thread(target=watch, daemon=True, name="npuc progress")
    thread.start()
    try:
        yield step
    finally:
        finished.set()
        thread.join()


def _finite(value: Any) -> Any:
    """JSON has no NaN or infinity: they become null and strings."""
    if isinstance(value, float) and value != value:
        return None
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return str(value)
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return value
