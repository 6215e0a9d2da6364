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
    wrong = [f"event {number}: {words}" for number, one in enumerate(events) for words in _fields(one)]
    if wrong:
        return wrong
    found = [*_names(events), *_async(events), *_counters(events)]
    for way, reader in _READERS.items():
        found += [f"{words} ({way})" for words in (*_nesting(events, reader), *_flows(events, reader))]
    return found


def _fields(one: Any) -> Iterator[str]:
    """One event by itself."""
    if not isinstance(one, dict) or one.get("ph") not in _NEEDED:
        yield f"no phase that we use: {one!r}"
        return
    for key in _NEEDED[one["ph"]]:
        if key not in one:
            yield f"'{one['ph']}' without '{key}'"
    for key in ("name", "cat", "id"):
        if key in one and (not isinstance(one[key], str) or not one[key]):
            yield f"'{key}' is {one[key]!r}"
    for key in ("pid", "tid"):
        # Perfetto keeps 32 bits; number 0 is the idle process of a real machine.
        if key in one and not (type(one[key]) is int and 0 < one[key] < 1 << 32):
            yield f"'{key}' is {one[key]!r}"
    for key in ("ts", "dur"):
        if key in one and not (type(one[key]) in (int, float) and 0 <= one[key] < 1e15):
            yield f"'{key}' is {one[key]!r}"
    if not isinstance(one.get("args", {}), dict):
        yield "'args' is no object"


def _names(events: list[Event]) -> Iterator[str]:
    """All processes and threads that are in the trace have names."""
    named: Counter[tuple[Any, ...]] = Counter()
    for one in events:
        if one["ph"] == "M":
            if one["name"] not in ("process_name", "thread_name"):
                yield f"there is no metadata '{one['name']}'"
            if not isinstance(one["args"].get("name"), str) or not one["args"]["name"]:
                yield f"{one['name']} without a name"
            place = (one["pid"],) if one["name"] == "process_name" else (one["pid"], one.get("tid"))
            named[place] += 1
    used = {place for one in events if one["ph"] != "M" for place in _places(one)}
    yield from (f"{place} has no name" for place in sorted(used) if not named[place])
    # Names are looked up by the thread alone in some releases.
    threads = Counter(place[1] for place in named if len(place) == 2)
    yield from (f"thread {number} is in several processes" for number, count in threads.items() if count > 1)


def _places(one: Event) -> list[tuple[int, ...]]:
    return [(one["pid"],), *([(one["pid"], one["tid"])] if "tid" in one else [])]


def _nesting(events: list[Event], read: Reader) -> Iterator[str]:
    """Slices of a thread lie inside or beside each other."""
    threads: dict[tuple[int, int], list[tuple[int, int, str]]] = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            begin = read(one["ts"])
            threads[one["pid"], one["tid"]].append((begin, -(begin + read(one["dur"])), one["name"]))
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
    for one in sorted((one for one in events if one["ph"] in "be"), key=lambda one: (one["ts"], one["ph"])):
        key = (one["cat"], one["id"])
        if one["ph"] == "b":
            if key in begun:
                yield f"'{one['name']}' begins again before its end"
            begun[key] = one
        elif key not in begun:
            yield f"'{one['name']}' ends and has not begun"
        elif begun.pop(key)["name"] != one["name"]:
            yield f"'{one['name']}' ends under another name"


def _flows(events: list[Event], read: Reader) -> Iterator[str]:
    """An arrow has a number, one beginning and one end, in this order, each inside a slice of its thread."""
    slices: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
    for one in events:
        if one["ph"] == "X":
            begin = read(one["ts"])
            slices[one["pid"], one["tid"]].append((begin, begin + read(one["dur"])))
    starts: dict[tuple[str, ...], int] = {}
    ended: set[tuple[str, ...]] = set()
    for one in sorted((one for one in events if one["ph"] in "sf"), key=lambda one: read(one["ts"])):
        key, time = (one["id"], one["cat"], one["name"]), read(one["ts"])
        if not re.fullmatch("(0x)?[0-9a-f]{1,16}", one["id"]):
            yield f"the id of an arrow, {one['id']}, is no hexadecimal number of 64 bits"
        if not any(begin <= time <= end for begin, end in slices[one["pid"], one["tid"]]):
            yield f"the arrow {one['id']} has no slice at its '{one['ph']}'"
        if one["ph"] == "s":
            if key in starts:
                yield f"the arrow {one['id']} begins twice"
            starts[key] = time
        elif key not in starts or key in ended:
            yield f"the arrow {one['id']} ends twice, or before it begins"
        else:
            ended.add(key)


def _counters(events: list[Event]) -> Iterator[str]:
    for one in events:
        if one["ph"] == "C" and not (
            one["args"] and all(type(value) in (int, float) for value in one["args"].values())
        ):
            yield f"the counter '{one['name']}' has something else than numbers"
