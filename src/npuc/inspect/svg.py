"""The partition of a network as a self-contained SVG drawing: layers from top to bottom, colored by device.

Each layer is in the row of its distance from the inputs. An edge over several rows passes each of them through a narrow
gap, so that it crosses no box. Within a row, boxes are ordered by the mean position of their neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from npuc.inspect.inspection import InspectedLayer, Inspection
from npuc.ir import Graph, result_names, top

COLORS = {"npu": "#b7d7f0", "cpu": "#f7c9a3", "host": "#e3e3e3", "port": "#ffffff"}
_ACCELERATOR = "#d3e8b5"
_WIDTH, _HEIGHT, _GAP, _ROW, _NARROW, _MARGIN = 190, 34, 14, 58, 10, 40
_SWEEPS = 4


@dataclass
class _Node:
    label: tuple[str, str]
    title: str
    device: str
    row: int = 0
    x: float = 0.0
    before: list[int] = field(default_factory=list)
    after: list[int] = field(default_factory=list)

    @property
    def width(self) -> int:
        return _WIDTH if self.device else _NARROW


def svg_of(graph: Graph, inspection: Inspection) -> str:
    """The drawing of an inspected graph."""
    nodes = _nodes(graph, {layer.name: layer for layer in inspection.layers})
    rows = _rows(nodes)
    _arrange(nodes, rows)
    return _drawn(nodes, rows, inspection)


def _nodes(graph: Graph, layers: dict[str, InspectedLayer]) -> list[_Node]:
    nodes: list[_Node] = []
    makers: dict[object, int] = {}
    for port in graph.inputs:
        makers[port.value] = len(nodes)
        nodes.append(_Node((port.name, "input"), f"input {port.name}", "port"))

    def add(node: _Node, operands: Sequence[object]) -> None:
        index = len(nodes)
        for maker in dict.fromkeys(makers[value] for value in operands if value in makers):
            node.before.append(maker)
            nodes[maker].after.append(index)
        node.row = 1 + max((nodes[maker].row for maker in node.before), default=-1)
        nodes.append(node)

    for op in graph.ops:
        if isinstance(op, top.WeightOp) or not op.results:
            continue
        layer = layers[result_names(op)[0]]
        words = [layer.layer or layer.name, f"{layer.kind} on {layer.device}", layer.reason, layer.lever]
        add(
            _Node((layer.layer or layer.name, layer.kind), "\n".join(filter(None, words)), layer.device),
            op.operands,
        )
        makers.update(dict.fromkeys(op.results, len(nodes) - 1))
    for port in graph.outputs:
        add(_Node((port.name, "output"), f"output {port.name}", "port"), [port.value])
    return nodes


def _rows(nodes: list[_Node]) -> list[list[int]]:
    """The nodes of each row; an edge over several rows gets a placeholder node in every row that it passes."""
    for index in range(len(nodes)):
        for position, target in enumerate(nodes[index].after):
            last = index
            for row in range(nodes[index].row + 1, nodes[target].row):
                place = len(nodes)
                nodes.append(_Node(("", ""), "", "", row, before=[last], after=[target]))
                if last == index:
                    nodes[index].after[position] = place
                else:
                    nodes[last].after = [place]
                last = place
            if last != index:
                before = nodes[target].before
                before[before.index(index)] = last
    rows: list[list[int]] = [[] for _ in range(max((node.row for node in nodes), default=-1) + 1)]
    for index, node in enumerate(nodes):
        rows[node.row].append(index)
    return rows


def _arrange(nodes: list[_Node], rows: list[list[int]]) -> None:
    """Order each row by the mean position of its neighbours, downwards and upwards in turn, and center it."""
    for row in rows:
        _place(nodes, row)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            desired = {}
            for index in row:
                near = nodes[index].before if down else nodes[index].after
                desired[index] = sum(nodes[i].x for i in near) / len(near) if near else nodes[index].x
            row.sort(key=lambda index: (desired[index], index))
            _place(nodes, row)


def _place(nodes: list[_Node], row: list[int]) -> None:
    at = -(sum(nodes[index].width for index in row) + _GAP * (len(row) - 1)) / 2
    for index in row:
        nodes[index].x = at + nodes[index].width / 2
        at += nodes[index].width + _GAP


def _drawn(nodes: list[_Node], rows: list[list[int]], inspection: Inspection) -> str:
    left = min((node.x - node.width / 2 for node in nodes), default=0.0) - _MARGIN
    right = max((node.x + node.width / 2 for node in nodes), default=0.0) + _MARGIN
    left, right = min(left, -320.0), max(right, 320.0)
    height = len(rows) * _ROW + 3 * _MARGIN

    def top_of(node: _Node) -> float:
        return 2 * _MARGIN + node.row * _ROW

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{left:.0f} 0 {right - left:.0f} {height}" '
        f'width="{right - left:.0f}" height="{height}" font-family="sans-serif" font-size="11">',
        f'<rect x="{left:.0f}" y="0" width="{right - left:.0f}" height="{height}" fill="#ffffff"/>',
    ]
    lines += _legend(left, inspection)
    for node in nodes:
        end = top_of(node) + _HEIGHT
        if not node.device:
            lines.append(_line(node.x, top_of(node), node.x, end, straight=True))
        for index in node.after:
            lines.append(_line(node.x, end, nodes[index].x, top_of(nodes[index])))
    for node in nodes:
        if not node.device:
            continue
        x, y = node.x - _WIDTH / 2, top_of(node)
        name, kind = node.label
        lines += [
            f"<g><title>{_text(node.title)}</title>",
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{_WIDTH}" height="{_HEIGHT}" rx="5" '
            f'fill="{COLORS.get(node.device, _ACCELERATOR)}" stroke="#666666"/>',
            f'<text x="{node.x:.1f}" y="{y + 14:.1f}" text-anchor="middle" font-weight="bold">{_text(kind)}</text>',
            f'<text x="{node.x:.1f}" y="{y + 28:.1f}" text-anchor="middle">{_text(_short(name))}</text></g>',
        ]
    return "\n".join([*lines, "</svg>", ""])


def _legend(left: float, inspection: Inspection) -> list[str]:
    lines, x = [], left + 20
    for device, words in (("npu", "NPU"), ("cpu", "CPU"), ("host", "conversion")):
        label = f"{words}: {inspection.count(device)}"
        lines.append(
            f'<rect x="{x:.0f}" y="16" width="14" height="14" fill="{COLORS[device]}" stroke="#666666"/>'
        )
        lines.append(f'<text x="{x + 20:.0f}" y="27">{label}</text>')
        x += 110
    share = f"{_text(inspection.target)}, {100 * inspection.share:.1f} % of MACs on the NPU"
    lines.append(f'<text x="{x:.0f}" y="27">{share}</text>')
    return lines


def _line(x1: float, y1: float, x2: float, y2: float, straight: bool = False) -> str:
    middle = (y1 + y2) / 2
    bend = "" if straight else f"C{x1:.1f},{middle:.1f} {x2:.1f},{middle:.1f} "
    return f'<path d="M{x1:.1f},{y1:.1f} {bend or "L"}{x2:.1f},{y2:.1f}" fill="none" stroke="#999999"/>'


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most // 2 - 1]}…{name[-most // 2 :]}"


def _text(words: str) -> str:
    """Text for XML; characters that XML does not know are left out."""
    return escape("".join(c for c in words if c >= " " or c == "\n"))
