"""The sanitizer against a slow judge: all paths of order, all pairs of accesses, on drawn programs of two cores."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from npuc.program.isa import QUEUES
from support.programs.instructions import Draft, machine

SPACE = 8  # bytes of local memory and of the workspace that are fought for
Node = tuple[int, int]  # core, index in the stream


@st.composite
def programs(draw: Any) -> list[list[dict[str, Any]]]:
    """Instructions of each core, with barriers of all queues between two halves on some."""
    barriers = draw(st.integers(0, 2))
    cores = []
    for _ in range(draw(st.integers(1, 2))):
        stream: list[dict[str, Any]] = []
        counts = [0] * 4
        for part in range(barriers + 1):
            kinds = draw(st.lists(st.sampled_from(("load", "store", "copy", "fill", "conv")), max_size=4))
            for kind in [*kinds, *(["barrier"] * 4 if part < barriers else [])]:
                queue = {"load": 0, "store": 1, "conv": 2}.get(kind, 3)
                if kind == "barrier":
                    queue = sum(one["kind"] == "barrier" for one in stream) % 4
                wait = [draw(st.integers(0, n)) if draw(st.integers(0, 2)) == 0 else 0 for n in counts]
                size = draw(st.integers(1, 3))
                near, far = (draw(st.integers(0, SPACE - size)) for _ in range(2))
                stream.append(
                    {
                        "kind": kind,
                        "queue": queue,
                        "wait": wait,
                        "near": near,
                        "far": far,
                        "size": size,
                        "number": part + 1,
                    }
                )
                counts[queue] += 1
        cores.append(stream)
    return cores


def emitted(cores: list[list[dict[str, Any]]]) -> Draft:
    d = Draft(machine(compute__cores=2), cores=len(cores))
    window = {
        "n": 1,
        "h": 1,
        "w": 1,
        "out_h": 1,
        "out_w": 1,
        "kernel": (1, 1),
        "stride": (1, 1),
        "dilation": (1, 1),
    }
    for core, stream in enumerate(cores):
        for one in stream:
            kind, near, far, size = one["kind"], one["near"], one["far"], one["size"]
            fields: dict[str, Any]
            match kind:
                case "load" | "store":
                    fields = {"segment": 1, "offset": far, "local": near, "size": (1, 1, 1, size)}
                case "barrier":
                    fields = {"number": one["number"], "queue": QUEUES[one["queue"]]}
                case "fill":
                    fields = {"y": near, "bytes": 1, "count": size}
                case "copy":
                    fields = {
                        "x": near, "y": far, "bytes": 1, "size": (1, 1, 1, 1, 1, size), "x_stride": (0,) * 5 + (1,),
                        "y_stride": (0,) * 5 + (1,),
                    }  # fmt: skip
                case _:  # reads the fought-for bytes, writes elsewhere
                    fields = {
                        **window, "x": near, "c": size, "weight": 64, "bias": 2**32 - 1, "groups": 1, "out_c": 1,
                        "y": 512 + 8 * len(d.streams[core]), "y_stride": 1, "kind": 3, "count": 1, "multiplier": 2**32 - 1,
                        "shift": 256, "lo": -128, "hi": 127, "table": 2**32 - 1,
                    }  # fmt: skip
            d.emit(kind, core=core, wait=one["wait"], **fields)
    return d


def touched(core: int, one: dict[str, Any]) -> list[tuple[bool, str, range]]:
    """Whether it writes, what, which bytes: of those that are fought for."""
    near, far = range(one["near"], one["near"] + one["size"]), range(one["far"], one["far"] + one["size"])
    local = f"local {core}"
    return {
        "load": [(True, local, near), (False, "dram", far)],
        "store": [(False, local, near), (True, "dram", far)],
        "copy": [(False, local, near), (True, local, far)],
        "fill": [(True, local, near)],
        "conv": [(False, local, near)],
        "barrier": [],
    }[one["kind"]]


def racing(cores: list[list[dict[str, Any]]]) -> set[frozenset[Node]]:
    """All pairs that nothing orders and that fight for a byte."""
    nodes = [(c, i) for c, stream in enumerate(cores) for i in range(len(stream))]
    before: dict[Node, set[Node]] = {node: set() for node in nodes}
    queues = {
        (c, q): [(c, i) for i, one in enumerate(stream) if one["queue"] == q]
        for c, stream in enumerate(cores)
        for q in range(4)
    }
    for places in queues.values():
        for first, second in pairwise(places):
            before[second].add(first)
    for c, i in nodes:
        before[c, i] |= {queues[c, q][n - 1] for q, n in enumerate(cores[c][i]["wait"]) if n}
    meetings: dict[tuple[int, int], list[Node]] = {}
    for c, i in nodes:
        one = cores[c][i]
        if one["kind"] == "barrier":
            meetings.setdefault((one["queue"], one["number"]), []).append((c, i))
    for meeting in meetings.values():
        everyone = set().union(*(before[node] for node in meeting))
        for node in meeting:
            before[node] = set(everyone)
    for _ in nodes:
        for node in nodes:
            before[node] |= set().union(*(before[other] for other in before[node]))
    found = set()
    for a in nodes:
        for b in nodes:
            if a < b and a not in before[b] and b not in before[a]:
                for write_a, where_a, bytes_a in touched(a[0], cores[a[0]][a[1]]):
                    for write_b, where_b, bytes_b in touched(b[0], cores[b[0]][b[1]]):
                        if (write_a or write_b) and where_a == where_b and set(bytes_a) & set(bytes_b):
                            found.add(frozenset((a, b)))
    return found


@settings(deadline=None, derandomize=True, max_examples=300)
@given(programs())
def test_races_are_found_and_no_others(cores: list[list[dict[str, Any]]]) -> None:
    d = emitted(cores)
    found = {
        frozenset(((f.access.core, f.access.instruction), (f.other.core, f.other.instruction)))
        for f in d.sanitize()
        if f.fault == "race" and f.other is not None
    }
    wanted = racing(cores)
    assert found <= wanted
    assert bool(found) == bool(wanted)


def test_the_judge_sees_both() -> None:
    """The drawn programs are of both kinds; this one is of neither core's fault."""
    load = {"kind": "load", "queue": 0, "wait": [0] * 4, "near": 0, "far": 0, "size": 2, "number": 0}
    fill = load | {"kind": "fill", "queue": 3}
    assert racing([[load, fill]]) == {frozenset(((0, 0), (0, 1)))}
    assert racing([[load, fill | {"wait": [1, 0, 0, 0]}]]) == set()
    assert np.array(emitted([[load, fill]]).streams[0]).shape == (2, 160)
