"""The layers of a network as Compass numbers them in an IR."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from npuc.compat.compass.per_layer import IrLayer
from npuc.errors import FileFormatError, UnsupportedOpError
from npuc.export.compass import to_compass
from npuc.export.compass.text import parse_text
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph, result_names, top
from npuc.ir.definition import TopOp
from npuc.ir.names import layer_name


def ir_layers(graph: Graph) -> list[IrLayer]:
    """Number, name and type of each layer; a network with a layer that has no form in the IR is numbered by its ops."""
    try:
        text, _ = to_compass(graph)
    except UnsupportedOpError:
        ops = [
            op
            for op in graph.ops
            if isinstance(op, TopOp) and not isinstance(op, top.WeightOp) and op.results
        ]
        return [
            IrLayer(number, result_names(op)[0], op.name.removeprefix("top."), layer_name(op))
            for number, op in enumerate(ops)
        ]
    nodes = nodes_of(graph)
    return [
        IrLayer(number, layer.name, layer.kind, nodes.get(layer.name, ""))
        for number, layer in enumerate(parse_text(text).layers)
    ]


def require_ir(path: Path) -> None:
    """An error for a file that is no text of Compass IR."""
    content = describe_content(path)
    if content.kind != "compass":
        raise FileFormatError(
            f"is no IR: it {content.words}", where=str(path), fix="aipuparse writes one (.txt) of a model"
        )


def nodes_of(graph: Graph) -> dict[str, str]:
    """What files call the layers that make tensors, by the tensors; those of which one layer became several ops are left out."""
    ops = [op for op in graph.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
    count = Counter(map(layer_name, ops))
    return {result_names(op)[0]: layer_name(op) for op in ops if op.results and count[layer_name(op)] == 1}
