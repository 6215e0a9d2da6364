"""Names of tensors as TPU-MLIR spells them.

It names an op by its output. For ONNX that is the tensor and the type of its operator, `122_Conv`; inputs and weights keep their
names, and so do all tensors of the other formats. After fusion the name is that of the last operator, as in npuc.
"""

from __future__ import annotations

from pathlib import Path

from npuc.compat.names import NameMap
from npuc.frontend.sniff import describe_content
from npuc.ir import Graph
from npuc.program.model import CompiledModel

TOOL = "tpumlir"
"""The key of the table in a network."""


def operator_names(path: Path | str) -> dict[str, str]:
    """TPU-MLIR's name of each tensor of a model file that has another one there; empty for formats that keep the names."""
    if describe_content(Path(path)).kind != "onnx":
        return {}
    from npuc.frontend.onnx.reader import read

    nodes = read(path).model.graph.node
    return {output: f"{output}_{node.op_type}" for node in nodes for output in node.output if output}


def names_of(graph: Graph) -> NameMap:
    """The names that are stored with a network."""
    return NameMap(graph.names_for(TOOL))


def names_of_compiled(model: CompiledModel) -> NameMap:
    """The names that are stored with a compiled model."""
    stored = model.metadata.get("tool_names", {})
    table = stored.get(TOOL, {}) if isinstance(stored, dict) else {}
    return NameMap({str(own): str(theirs) for own, theirs in table.items()})
