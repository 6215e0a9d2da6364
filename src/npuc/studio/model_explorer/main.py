"""The adapter: Model Explorer imports this module under --extensions, and finds the class by its base."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from npuc.errors import MissingExtraError, NpucError
from npuc.studio.model_explorer.graph import explorer_graph
from npuc.studio.project import Project
from npuc.studio.studio import Studio

try:
    from model_explorer import Adapter, AdapterMetadata, graph_builder
except ImportError as error:
    raise MissingExtraError(
        "this module is for Google's Model Explorer, which is not installed",
        fix="Install it with: pip install ai-edge-model-explorer",
    ) from error


class NpucAdapter(Adapter):  # type: ignore[misc]
    """Opens networks of npuc (.mlir) and compiled models (.npu)."""

    metadata: ClassVar[Any] = AdapterMetadata(
        id="npuc",
        name="npuc",
        description="Networks of npuc in Top and Npu IR, and compiled models",
        source_repo="",
        fileExts=["mlir", "npu"],
    )

    def convert(self, model_path: str, settings: dict[str, Any]) -> Any:
        """The graph of a file; an error of npuc's is the sentence that its commands print."""
        path = Path(model_path)
        try:
            graph = explorer_graph(Studio(Project(path.parent)).graph(path.name), path.stem)
        except NpucError as error:
            raise RuntimeError(f"[{error.code}] {error.paragraph()}") from None
        return {"graphs": [graph_builder.Graph(graph["id"], [_node(node) for node in graph["nodes"]])]}


def _node(node: dict[str, Any]) -> Any:
    return graph_builder.GraphNode(
        id=node["id"],
        label=node["label"],
        namespace=node["namespace"],
        attrs=[graph_builder.KeyValue(**pair) for pair in node["attrs"]],
        incomingEdges=[graph_builder.IncomingEdge(**edge) for edge in node["incomingEdges"]],
        outputsMetadata=[
            graph_builder.MetadataItem(item["id"], [graph_builder.KeyValue(**pair) for pair in item["attrs"]])
            for item in node["outputsMetadata"]
        ],
    )
