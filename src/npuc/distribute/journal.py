"""A journal of a run: results are appended one by one, so that a run that was killed goes on where it ended.

The first line says what the run is, by a fingerprint of its models, data and options; every other line is a result (of a
sample, or of a machine that was compiled for), with its number. A last line that was cut off by the end of the writer is
dropped; any other damage is an error, and so is a journal of another run.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from npuc.errors import FileFormatError, OutputError, UsageError
from npuc.format_versions import JOURNAL


@dataclass(frozen=True)
class JournalKind:
    """What a journal is of, and what a user gives for another one."""

    name: str
    another: str


EVALUATION = JournalKind("evaluation", "--resume another file")
EXPLORATION = JournalKind("exploration", "-o another folder")


@dataclass
class Journal:
    """An open journal; `done` has the lines of results by their number."""

    path: Path
    done: dict[int, str]
    _handle: IO[bytes]

    def add(self, first: int, lines: list[str]) -> None:
        """Append results whose numbers follow each other; they are on the disk when this returns."""
        text = "".join(_line(first + at, line) for at, line in enumerate(lines))
        try:
            self._handle.write(text.encode())
            self._handle.flush()
            os.fsync(self._handle.fileno())
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(self.path)) from error

    def close(self) -> None:
        """Close the file."""
        self._handle.close()


def open_journal(path: Path, parts: Mapping[str, str], samples: int, of: JournalKind = EVALUATION) -> Journal:
    """Open a journal `of` a kind of run, or begin one; `parts` are the fingerprints of models, data and options, and numbers
    are below `samples`."""
    head = {"kind": f"npuc {of.name} journal", "version": JOURNAL.version, "samples": samples, **parts}
    try:
        handle = open(path, "ab+")  # noqa: SIM115 it stays open
    except OSError as error:
        raise OutputError(f"cannot be opened: {error.strerror or error}", where=str(path)) from error
    try:
        _lock(handle, path, of)
        handle.seek(0)
        data = handle.read()
        if data and b"\n" not in data and json.dumps(head).encode().startswith(data):
            data = b""
            handle.truncate(0)
        if not data:
            handle.write(json.dumps(head).encode() + b"\n")
            handle.flush()
            return Journal(path, {}, handle)
        complete = data[: data.rfind(b"\n") + 1]
        done = _read(path, complete, head, of)
        handle.truncate(len(complete))
        return Journal(path, done, handle)
    except BaseException:
        handle.close()
        raise


def _lock(handle: IO[bytes], path: Path, of: JournalKind) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise UsageError(
            f"another run is writing to the journal {path}", fix=f"Wait for it, or give {of.another}"
        ) from error


def _line(index: int, line: str) -> str:
    return json.dumps({"sample": index, "check": zlib.crc32(line.encode()), "line": json.loads(line)}) + "\n"


def _read(path: Path, data: bytes, head: Mapping[str, Any], of: JournalKind) -> dict[int, str]:
    first, *rest = data.split(b"\n")[:-1] or [b""]
    try:
        stated = json.loads(first)
        if not isinstance(stated, dict) or stated.get("kind") != head["kind"]:
            raise ValueError
    except (ValueError, RecursionError) as error:
        raise FileFormatError(
            f"is not a journal of an {of.name}",
            where=str(path),
            fix=f"Give {of.another}",
        ) from error
    JOURNAL.check(stated.get("version"), str(path))
    for part, value in head.items():
        if stated.get(part) != value:
            raise UsageError(
                f"the journal {path} is of a run with other {part}",
                fix=f"Give {of.another}, or remove this one to begin anew",
            )
    done: dict[int, str] = {}
    for number, text in enumerate(rest, 2):
        try:
            entry = json.loads(text)
            index, line = entry["sample"], json.dumps(entry["line"])
            if not 0 <= index < head["samples"] or zlib.crc32(line.encode()) != entry["check"]:
                raise ValueError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise FileFormatError(
                f"is damaged in line {number}", where=str(path), fix="Remove it to begin the run anew"
            ) from error
        done[index] = line
    return done
