"""The rules of the Trace Event Format, as far as our traces use it, and how viewers read it.

Written from the description of the format, and from what Perfetto does with a file that breaks it: a slice that crosses another
of its thread, or an arrow whose id is no number, is dropped without a word. `faults` finds what a viewer would drop, show in a
wrong place, or refuse. Times are checked in whole nanoseconds, as Perfetto keeps them, both for a reader that takes the decimals
as they are and for one that multiplies a double and cuts the rest off.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
Reader = Callable[[Any], int]
_NEEDED = {
    "X": ("name", "cat", "pid", "tid", "ts", "dur"),
    "M": ("name", "pid", "args"),
    "C": ("name", "pid", "ts", "args"),
    "b": ("name", "cat", "pid", "tid", "ts", "id"),
    "e": ("name", "cat", "pid", "tid", "ts", "id"),
    "s": ("name", "cat", "pid", "tid", "ts", "id"),
    "f": ("name", "cat", "pid", "tid", "ts", "id", "bp"),
}
_READERS: dict[str, Reader] = {
    "by decimals": lambda value: math.floor(Decimal(repr(value)) * 1000),
    "by doubles": lambda value: int(value * 1000.0),
}


def faults(text: str | bytes) -> list[str]:
    """What is wrong with the file of a trace; nothing if all is well."""
    trace = json.loads(text, parse_constant=lambda word: f"no number of JSON: {word}")
    if not isinstance(trace, dict) or not isinstance(trace.get("traceEvents"), list):
        return ["there is no list of events"]
    if trace.get("displayTimeUnit") not in ("ms", "ns"):
        return ["displayTimeUnit is neither ms nor ns"]
    events: list[Event] = trace["traceEvents"]
    wrong = [f"event {number}: {words}" for number, event in enumerate(events) for words in _fields(event)]
    if wrong:
        return wrong
    problems = [*_names(events), *_async(events), *_counters(events)]
    for way, reader in _READERS.items():
        problems += [f"{words} ({way})" for words in (*_nesting(events, reader), *_flows(events, reader))]
    return problems


def _fields(event: Any) -> Iterator[str]:
    """One event by itself."""
    if not isinstance(event, dict) or event.get("ph") not in _NEEDED:
        yield f"no phase that we use: {event!r}"
        return
    for key in _NEEDED[event["ph"]]:
        if key not in event:
            yield f"'{event['ph']}' without '{key}'"
    for key in ("name", "cat", "id"):
        if key in event and (not isinstance(event[key], str) or not event[key]):
            yield f"'{key}' is {event[key]!r}"
    for key in ("pid", "tid"):
        # Perfetto keeps 32 bits; number 0 is the idle process of a real machine.
        if key in event and not (type(event[key]) is int and 0 < event[key] < 1 << 32):
            yield f"'{key}' is {event[key]!r}"
    for key in ("ts", "dur"):
        if key in event and not (type(event[key]) in (int, float) and 0 <= event[key] < 1e15):
            yield f"'{key}' is {event[key]!r}"
    if not isinstance(event.get("args", {}), dict):
        yield "'args' is no object"


def _names(events: list[Event]) -> Iterator[str]:
    """All processes and threads that are in the trace have names."""
    named: Counter[tuple[Any, ...]] = Counter()
    for event in events:
        if event["ph"] == "M":
            if event["name"] not in ("process_name", "thread_name"):
                yield f"there is no metadata '{event['name']}'"
            if not isinstance(event["args"].get("name"), str) or not event["args"]["name"]:
                yield f"{event['name']} without a name"
            place = (event["pid"],) if event["name"] == "process_name" else (event["pid"], event.get("tid"))
            named[place] += 1
    used = {place for event in events if event["ph"] != "M" for place in _places(event)}
    yield from (f"{place} has no name" for place in sorted(used) if not named[place])
    # Names are looked up by the thread alone in some releases.
    threads = Counter(place[1] for place in named if len(place) == 2)
    yield from (f"thread {number} is in several processes" for number, count in threads.items() if count > 1)


def _places(event: Event) -> list[tuple[int, ...]]:
    return [(event["pid"],), *([(event["pid"], event["tid"])] if "tid" in event else [])]


def _nesting(events: list[Event], read: Reader) -> Iterator[str]:
    """Slices of a thread lie inside or beside each other."""
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = read(event["ts"])
            threads[event["pid"], event["tid"]].append((begin, -(begin + read(event["dur"])), event["name"]))
    for place, slices in threads.items():
        open_: list[int] = []
        for begin, minus_end, name in sorted(slices):
            while open_ and open_[-1] <= begin:
                open_.pop()
            if open_ and -minus_end > open_[-1]:
                yield f"'{name}' at {begin} ns crosses the end of what it is in, {open_[-1]} ns, in thread {place}"
            open_.append(-minus_end)


def _async(events: list[Event]) -> Iterator[str]:
    """What begins ends once, later, under the same name and category."""
    begun: dict[tuple[str, str], Event] = {}
    for event in sorted(
        (event for event in events if event["ph"] in "be"), key=lambda event: (event["ts"], event["ph"])
    ):
        key = (event["cat"], event["id"])
        if event["ph"] == "b":
            if key in begun:
                yield f"'{event['name']}' begins again before its end"
            begun[key] = event
        elif key not in begun:
            yield f"'{event['name']}' ends and has not begun"
        elif begun.pop(key)["name"] != event["name"]:
            yield f"'{event['name']}' ends under another name"


def _flows(events: list[Event], read: Reader) -> Iterator[str]:
    """An arrow has a number, one beginning and one end, in this order, each inside a slice of its thread."""
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = read(event["ts"])
            slices[event["pid"], event["tid"]].append((begin, begin + read(event["dur"])))
    starts: dict[tuple[str, ...], int] = {}
    ended: set[tuple[str, ...]] = set()
    for event in sorted(
        (event for event in events if event["ph"] in "sf"), key=lambda event: read(event["ts"])
    ):
        key, time = (event["id"], event["cat"], event["name"]), read(event["ts"])
        if not re.fullmatch("(0x)?[0-9a-f]{1,16}", event["id"]):
            yield f"the id of an arrow, {event['id']}, is no hexadecimal number of 64 bits"
        if not any(begin <= time <= end for begin, end in slices[event["pid"], event["tid"]]):
            yield f"the arrow {event['id']} has no slice at its '{event['ph']}'"
        if event["ph"] == "s":
            if key in starts:
                yield f"the arrow {event['id']} begins twice"
            starts[key] = time
        elif key not in starts or key in ended:
            yield f"the arrow {event['id']} ends twice, or before it begins"
        else:
            ended.add(key)


def _counters(events: list[Event]) -> Iterator[str]:
    for event in events:
        if event["ph"] == "C" and not (
            event["args"] and all(type(value) in (int, float) for value in event["args"].values())
        ):
            yield f"the counter '{event['name']}' has something else than numbers"
