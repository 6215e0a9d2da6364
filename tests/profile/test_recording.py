"""Lines that a watched program left behind, as a trace."""

from __future__ import annotations

import io
import json
from typing import Any

from npuc.profile.recording import Recorded, write_trace


def traced(*lines: Any) -> tuple[list[dict[str, Any]], Recorded]:
    out = io.BytesIO()
    texts = [line if isinstance(line, bytes) else json.dumps(line).encode() for line in lines]
    found = write_trace(texts, out, 1000, {"command": ["x"]})
    return json.loads(out.getvalue())["traceEvents"], found


def begin(time: int, number: int, name: str, thread: int = 7) -> list[Any]:
    return ["B", time, 5, thread, number, "npu", name, {"device": "d"}]


def test_spans_of_threads_become_slices() -> None:
    events, found = traced(
        ["P", 1000, 5, 7, "app.py"],
        ["T", 1000, 5, 7, "MainThread"],
        begin(2000, 1, "outer"),
        begin(2500, 2, "other", thread=8),
        begin(3000, 3, "inner"),
        ["E", 4000, 5, 7, 3, {"cycles": 9, "none": None}],
        ["E", 6000, 5, 7, 1, {}],
        ["E", 7000, 5, 8, 2, {}],
    )
    slices = {one["name"]: (one["ts"], one["dur"], one["tid"]) for one in events if one["ph"] == "X"}
    assert slices == {"inner": (2.0, 1.0, 7), "outer": (1.0, 4.0, 7), "other": (1.5, 4.5, 8)}
    assert [one["args"] for one in events if one["name"] == "inner"] == [{"device": "d", "cycles": 9}]
    assert [one["args"]["name"] for one in events if one["ph"] == "M"] == ["app.py", "MainThread"]
    assert (found.counts["npu"], found.nanoseconds["npu"], found.processes) == (3, 9500, {5})


def test_what_was_not_ended_ends_with_what_it_is_in_or_with_the_program() -> None:
    events, found = traced(
        begin(2000, 1, "ended"), begin(3000, 2, "lost"), ["E", 5000, 5, 7, 1, {}],
        ["E", 5500, 5, 7, 1, {}], begin(6000, 3, "open"), ["C", 9000, 5, 8, "queue", 4],
    )  # fmt: skip
    slices = {one["name"]: (one["ts"], one["dur"]) for one in events if one["ph"] == "X"}
    assert slices == {"ended": (1.0, 3.0), "lost": (2.0, 2.0), "open": (5.0, 3.0)}
    assert found.unfinished == 1 and found.longest == {"queue": 4}
    assert [one["args"].get("unfinished") for one in events if one["name"] == "open"] == [True]


def test_a_job_is_an_asynchronous_event_with_a_flow() -> None:
    events, found = traced(
        ["s", 1500, 5, 7, 1], ["b", 1400, 5, 7, 1, "queue"], ["f", 2000, 5, 8, 1],
        ["e", 3000, 5, 8, 1, "queue", {"state": "failed", "error": "DeviceError", "cycles": None}],
    )  # fmt: skip
    assert {one["ph"] for one in events} == {"s", "b", "f", "e"} and {one["id"] for one in events} == {
        "0x500000001"
    }
    assert found.counts["queued"] == found.failed == 1
    assert events[-1]["args"] == {"state": "failed", "error": "DeviceError"}


def test_lines_that_make_no_sense_are_passed_over() -> None:
    bad = [
        b"", b"[", b"3", b"[]", b'["B",1,2]', b'["B",1,2,3,4]', b'[["B"],1,2,3]', b'["E",1,2,3,"x",{}]', b'["Q",1,2,3]',
        b'["C","1",2,3,"q",1]', b'["C",1,2,3,"q",1,1]', b'["B",true,2,3,4,"c","n",{}]', b"\xff\xfe", b"[" * 100_000,
    ]  # fmt: skip
    events, found = traced(*bad, ["C", 2000, 5, 7, "q", 1])
    assert len(events) == 1 and found.damaged == len(bad)
