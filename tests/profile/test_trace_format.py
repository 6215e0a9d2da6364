"""Our traces keep the rules of the Trace Event Format, and the rules notice what breaks them."""

from __future__ import annotations

import io
import json
from copy import deepcopy
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.profile.recording import write_trace
from npuc.profile.timeline import chrome_trace
from npuc.profile.trace_events import microseconds
from npuc.program.model import CompiledModel
from npuc.sim import simulate
from support.trace_rules import faults

SOUND: dict[str, Any] = {
    "displayTimeUnit": "ms",
    "traceEvents": [
        {"ph": "M", "name": "process_name", "pid": 5, "args": {"name": "app.py"}},
        {"ph": "M", "name": "thread_name", "pid": 5, "tid": 7, "args": {"name": "MainThread"}},
        {"ph": "M", "name": "thread_name", "pid": 5, "tid": 8, "args": {"name": "worker"}},
        {"ph": "X", "name": "outer", "cat": "run", "pid": 5, "tid": 7, "ts": 1.0, "dur": 9.0},
        {"ph": "X", "name": "inner", "cat": "run", "pid": 5, "tid": 7, "ts": 2.0, "dur": 3.5},
        {"ph": "X", "name": "beside", "cat": "run", "pid": 5, "tid": 7, "ts": 5.5, "dur": 1.0},
        {"ph": "X", "name": "job 1", "cat": "job", "pid": 5, "tid": 8, "ts": 4.0, "dur": 2.0},
        {"ph": "s", "name": "way", "cat": "flow", "pid": 5, "tid": 7, "ts": 3.0, "id": "0x1"},
        {"ph": "f", "name": "way", "cat": "flow", "pid": 5, "tid": 8, "ts": 4.5, "id": "0x1", "bp": "e"},
        {"ph": "b", "name": "job 1", "cat": "queue", "pid": 5, "tid": 7, "ts": 3.0, "id": "0x1"},
        {"ph": "e", "name": "job 1", "cat": "queue", "pid": 5, "tid": 8, "ts": 6.0, "id": "0x1"},
        {"ph": "C", "name": "queue", "pid": 5, "tid": 7, "ts": 3.0, "args": {"jobs": 1}},
    ],
}


def test_a_sound_trace_has_no_faults() -> None:
    assert faults(json.dumps(SOUND)) == []


@pytest.mark.parametrize(
    ("number", "change", "words"),
    [
        (0, {"pid": 0}, "'pid' is 0"),
        (1, {"args": {}}, "thread_name without a name"),
        (2, {"tid": 9}, "(5, 8) has no name"),
        (2, {"pid": 6, "tid": 7}, "thread 7 is in several processes"),
        (3, {"ts": -1.0}, "'ts' is -1.0"),
        (3, {"ts": float("nan")}, "no number of JSON: NaN"),
        (3, {"ph": "Y"}, "no phase that we use"),
        (4, {"dur": None}, "'dur' is None"),
        (4, {"dur": 8.5}, "'inner' at 2000 ns crosses the end of what it is in, 10000 ns"),
        (4, {"dur": 3.501}, "'beside' at 5500 ns crosses the end of what it is in, 5501 ns"),
        (7, {"id": "5.1"}, "is no hexadecimal number"),
        (7, {"ts": 0.5}, "the arrow 0x1 has no slice at its 's'"),
        (7, {"ts": 9.0}, "ends twice, or before it begins"),
        (8, {"id": "0x2"}, "ends twice, or before it begins"),
        (9, {"id": "0x2"}, "'job 1' ends and has not begun"),
        (10, {"name": "job 2"}, "'job 2' ends under another name"),
        (11, {"args": {"jobs": "1"}}, "something else than numbers"),
    ],
)
def test_the_rules_notice(number: int, change: dict[str, Any], words: str) -> None:
    trace = deepcopy(SOUND)
    trace["traceEvents"][number] |= change
    assert any(words in one for one in faults(json.dumps(trace))), faults(json.dumps(trace))


@pytest.mark.parametrize("clock", [7_000_000, 333_000_000, 1_000_000_000, 1_330_000_000, 2_600_000_000])
def test_the_timeline_of_a_model_at_any_clock(compiled: CompiledModel, clock: int) -> None:
    target = {**compiled.target, "compute": {**compiled.target["compute"], "clock": clock}}
    timeline = simulate(compiled)
    trace = chrome_trace(replace(compiled, target=target), timeline)
    assert faults(json.dumps(trace)) == []
    last = max(one["ts"] + one["dur"] for one in trace["traceEvents"] if one["ph"] == "X")
    assert last == pytest.approx(timeline.total * 1e6 / clock, abs=0.002)


@given(st.integers(0, 10**14), st.integers(0, 10**6))
@settings(deadline=None, derandomize=True)
def test_times_next_to_each_other_stay_so(time: int, span: int) -> None:
    """For a reader that multiplies doubles and cuts off the rest, and for one that takes three decimals."""
    begin, length, after = (microseconds(one) for one in (time, span, time + span))
    assert int(begin * 1000) + int(length * 1000) == int(after * 1000) == time + span
    assert int(Decimal(json.dumps(begin)) * 1000) == time


def test_recorded_slices_that_touch_do_not_cross() -> None:
    lines: list[list[Any]] = [["P", 0, 5, 7, "app.py"], ["T", 0, 5, 7, "MainThread"]]
    for number in range(2000):
        lines += [["B", 1000 + number, 5, 7, number, "npu", "x", {}], ["E", 1001 + number, 5, 7, number, {}]]
    out = io.BytesIO()
    write_trace([json.dumps(line).encode() for line in lines], out, 0, {})
    assert faults(out.getvalue()) == []
