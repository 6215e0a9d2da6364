"""The HTML report: one file with its data, its style and its script in it, which asks the network for nothing.

Its pieces are those of `npuc.profile.view`. Names from a model get into it as JSON only, and onto the screen as
text only.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.profile.drawing import draw
from npuc.profile.network import network_of
from npuc.profile.occupancy import boxes
from npuc.profile.report import Report
from npuc.profile.view import piece, theme_script, view_body, view_script, view_style
from npuc.profile.work import heads
from npuc.program.isa import BY_OPCODE, QUEUES
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.sim.cycles import Timeline

MOST_SPANS = 60_000
"""Instructions that a page shows one by one; of more, neighbours that a screen cannot tell apart are joined."""


def html_page(compiled: CompiledModel, timeline: Timeline, report: Report) -> str:
    """The page of a model."""
    data = page_data(compiled, timeline, report)
    # In a script element only "<" can end the text; JSON may spell it otherwise.
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    script = "\n".join([theme_script(), view_script(), piece("page.js")])
    page = piece("page.html").replace("/*STYLE*/", view_style(), 1).replace("/*SCRIPT*/", script, 1)
    return page.replace("/*BODY*/", view_body(), 1).replace("/*DATA*/", text, 1)


def page_data(
    compiled: CompiledModel, timeline: Timeline, report: Report, *, numbered: bool = False
) -> dict[str, Any]:
    """What the page shows, as plain values: figures, instructions over time, local memory, the network.

    With `numbered`, spans also have the numbers of their instructions: a page that can ask for more about one needs them.
    """
    drawings = _drawings(compiled, timeline, numbered=numbered)
    return {**report.as_dict(), **drawings, "network": _network(compiled)}


def _network(compiled: CompiledModel) -> dict[str, Any]:
    """The graph of the network and where it is drawn; of an edge, the points between its ends."""
    graph = network_of(compiled)
    drawn = draw(len(graph.nodes), graph.edges)
    return {
        "nodes": [{**vars(node), "at": at} for node, at in zip(graph.nodes, drawn.places, strict=True)],
        "edges": [[*edge, line[1:-1]] for edge, line in zip(graph.edges, drawn.lines, strict=True)],
        "width": drawn.width,
        "ranks": drawn.ranks,
    }


def _drawings(compiled: CompiledModel, timeline: Timeline, *, numbered: bool) -> dict[str, Any]:
    """The instructions and the objects in local memory, in cycles."""
    npu = [subgraph for subgraph in compiled.subgraphs if isinstance(subgraph, NpuSubgraph)]
    count = sum(len(stream) for subgraph in npu for stream in subgraph.streams)
    gap = timeline.total // MOST_SPANS if count > MOST_SPANS else None
    lanes: dict[tuple[int, int], dict[str, Any]] = {}
    memory: list[list[Any]] = []
    begins = 0
    for subgraph, subgraph_timeline in zip(npu, timeline.subgraphs, strict=True):
        for core, (stream, times) in enumerate(zip(subgraph.streams, subgraph_timeline.cores, strict=True)):
            known = heads(stream)
            for number, queue in enumerate(QUEUES):
                empty = {"core": core, "queue": queue, "start": [], "end": [], "layer": [], "op": []}
                lane = lanes.setdefault(
                    (core, number), empty | ({"index": [], "parts": []} if numbered else {})
                )
                at = np.flatnonzero((known["queue"] == number) & (times.end > times.start))
                spans = times.start[at], times.end[at], known["layer"][at], known["opcode"][at], at
                joined = dict(
                    zip(("start", "end", "layer", "op", "index"), _joined(*spans, gap), strict=True)
                )
                if numbered:
                    # Where the spans of each part of the NPU begin: instructions are counted in each.
                    lane["parts"].append(len(lane["index"]))
                else:
                    del joined["index"]
                for key, values in joined.items():
                    lane[key] += (values + begins if key in ("start", "end") else values).tolist()
        memory += [
            [box.core, box.start, box.end, box.address, box.size, box.name]
            for box in boxes(subgraph, subgraph_timeline, begins)
        ]
        begins += subgraph_timeline.total
    return {
        "cycles": timeline.total,
        "lanes": [lanes[key] for key in sorted(lanes)],
        "memory": memory,
        "opcodes": {opcode: instruction.name for opcode, instruction in BY_OPCODE.items()},
    }


def _joined(
    start: Array, end: Array, layer: Array, op: Array, index: Array, gap: int | None
) -> tuple[Array, ...]:
    """Spans of one layer and opcode that follow each other within `gap` cycles, as one, which has the number of the first."""
    if gap is None or start.size < 2:
        return start, end, layer, op, index
    new = (layer[1:] != layer[:-1]) | (op[1:] != op[:-1]) | (start[1:] - end[:-1] > gap)
    first = np.concatenate([[0], np.flatnonzero(new) + 1])
    return start[first], np.maximum.reduceat(end, first), layer[first], op[first], index[first]
