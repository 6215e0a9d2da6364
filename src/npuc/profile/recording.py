"""What `npuc.runtime.record` noted, as a trace that Chrome and Perfetto show.

A process of the program is a process of the trace, a thread a thread. What began and never ended, because the program was
stopped, lasts until its last sign of life. Lines that make no sense are passed over: a program may be killed while it writes.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from npuc.profile.trace_events import identity, microseconds

Event = dict[str, Any]
_FIELDS: dict[str, tuple[type, ...]] = {
    "P": (str,), "T": (str,), "B": (int, str, str, dict), "E": (int, dict), "C": (str, int),
    "b": (int, str), "e": (int, str, dict), "s": (int,), "f": (int,),
}  # fmt: skip
"""The fields of a kind of line, behind kind, time, process and thread."""


@dataclass
class Recorded:
    """What was seen."""

    processes: set[int] = field(default_factory=set)
    counts: Counter[str] = field(default_factory=Counter)
    """Spans by category, and `queued` jobs."""
    nanoseconds: Counter[str] = field(default_factory=Counter)
    """Time in spans by category, of all threads together."""
    longest: dict[str, int] = field(default_factory=dict)
    """Queue to the most jobs in it."""
    failed: int = 0
    """Jobs that ended with an error."""
    unfinished: int = 0
    damaged: int = 0


@dataclass
class _Open:
    """A span that has begun."""

    number: int
    category: str
    name: str
    notes: dict[str, Any]
    time: int


def write_trace(lines: Iterable[bytes], out: IO[bytes], begin: int, other: dict[str, Any]) -> Recorded:
    """Write the trace of recorded lines; `begin` is its time 0 in nanoseconds, and `other` what else it tells of itself."""
    recorded = Recorded()
    out.write(b'{"displayTimeUnit":"ms","otherData":' + _json(other) + b',"traceEvents":[')
    for number, event in enumerate(_events(lines, begin, recorded)):
        out.write((b",\n" if number else b"\n") + _json(event))
    out.write(b"\n]}\n")
    return recorded


def _json(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _events(lines: Iterable[bytes], begin: int, recorded: Recorded) -> Iterator[Event]:
    spans: dict[tuple[int, int], list[_Open]] = {}
    last: dict[int, int] = {}
    for text in lines:
        line = _parsed(text)
        if line is None:
            recorded.damaged += 1
            continue
        kind, time, process, thread, *fields = line
        stack = spans.setdefault((process, thread), [])
        recorded.processes.add(process)
        last[process] = max(last.get(process, 0), time)
        if kind == "B":
            opened, category, name, notes = fields
            stack.append(_Open(opened, category, name, notes, time))
        elif kind == "E":
            # What an exception or a signal kept from being noted ends with what it is in.
            while any(span.number == fields[0] for span in stack):
                span = stack.pop()
                notes = fields[1] if span.number == fields[0] else {}
                yield _slice(span, (process, thread), time, begin, notes, recorded)
        else:
            yield _other(kind, microseconds(time - begin), process, thread, fields, recorded)
    for place, stack in spans.items():
        for span in stack:
            recorded.unfinished += 1
            yield _slice(span, place, last[place[0]], begin, {"unfinished": True}, recorded)


def _parsed(text: bytes) -> list[Any] | None:
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(line, list) or len(line) < 4 or not all(type(value) is int for value in line[1:4]):
        return None
    kinds = _FIELDS.get(line[0]) if isinstance(line[0], str) else None
    fits = kinds is not None and len(kinds) == len(line) - 4
    return line if kinds and fits and all(map(isinstance, line[4:], kinds)) else None


def _slice(
    span: _Open, place: tuple[int, int], end: int, begin: int, notes: dict[str, Any], recorded: Recorded
) -> Event:
    recorded.counts[span.category] += 1
    recorded.nanoseconds[span.category] += end - span.time
    return {
        "ph": "X", "name": span.name, "cat": span.category, "pid": place[0], "tid": place[1],
        "ts": microseconds(span.time - begin), "dur": microseconds(max(0, end - span.time)),
        "args": {key: value for key, value in {**span.notes, **notes}.items() if value not in (None, "")},
    }  # fmt: skip


def _other(kind: str, time: float, process: int, thread: int, fields: list[Any], recorded: Recorded) -> Event:
    event: Event = {"ph": kind, "pid": process, "tid": thread, "ts": time}
    if kind in "PT":
        names = {"P": "process_name", "T": "thread_name"}
        return {"ph": "M", "name": names[kind], "pid": process, "tid": thread, "args": {"name": fields[0]}}
    if kind == "C":
        recorded.longest[fields[0]] = max(recorded.longest.get(fields[0], 0), fields[1])
        return {**event, "name": fields[0], "args": {"jobs": fields[1]}}
    if kind in "sf":
        inside = {"bp": "e"} if kind == "f" else {}
        return {**event, **inside, "name": "to its worker", "cat": "flow", "id": identity(process, fields[0])}
    if kind == "b":
        recorded.counts["queued"] += 1
    elif fields[2].get("error"):
        recorded.failed += 1
    notes = {key: value for key, value in (fields[2] if kind == "e" else {}).items() if value is not None}
    name = f"job {fields[0]}"
    return {**event, "name": name, "cat": fields[1], "id": identity(process, fields[0]), "args": notes}
