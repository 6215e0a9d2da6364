"""How commands print: results on stdout, everything else on stderr, plain text where nobody watches.

`Printer` knows `--quiet` and `--json`: with `--json`, stdout has one JSON document and nothing else.
"""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

_T = TypeVar("_T")


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
            print(wrap(f"note: {text}"), file=sys.stderr, flush=True)

    def table(self, header: Sequence[str], rows: Iterable[Sequence[Any]], right: Sequence[str] = ()) -> None:
        """A table; the columns named in `right` are aligned to the right."""
        if not self.quiet:
            self.say(format_table(header, rows, right))

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
        print(wrap(text), file=sys.stderr, flush=True)


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
    """A function to call after each step; on a terminal it draws a bar with rate and time left."""
    if printer.quiet or not sys.stderr.isatty() or total < 2:
        yield lambda: None
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
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=total)
        yield lambda: bar.advance(task)


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
