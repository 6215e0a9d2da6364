"""What Google's Model Explorer gets: every node and edge, and data that it can match to them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from npuc.cli.app import app
from npuc.studio.model_explorer.graph import explorer_graph
from npuc.studio.project import Project
from npuc.studio.studio import Studio


@pytest.mark.parametrize("name", ["digits.onnx", "digits.mlir", "digits.npu"])
def test_every_node_and_edge_is_there(studio_files: Path, name: str):
    graph = Studio(Project(studio_files)).graph(name)
    converted = explorer_graph(graph, "digits")
    edges = [
        (edge["sourceNodeId"], node["id"]) for node in converted["nodes"] for edge in node["incomingEdges"]
    ]
    assert sorted(edges) == sorted((str(begin), str(end)) for begin, end, _ in graph.edges)
    namespaces = {node["attrs"][0]["value"]: node["namespace"] for node in converted["nodes"]}
    assert namespaces["block1/relu"] == "block1" and namespaces["pool"] == ""


@pytest.mark.parametrize("files", [["digits.npu"], ["digits.mlir", "digits.onnx", "digits_samples.npz"]])
def test_data_of_layers_names_tensors_of_the_graph(studio_files: Path, tmp_path: Path, files: list[str]):
    out = tmp_path / "data.json"
    result = CliRunner().invoke(
        app, ["studio", *(str(studio_files / name) for name in files), "--node-data", str(out)]
    )
    assert result.exit_code == 0, result.output
    data = json.loads(out.read_text())["digits"]
    tensors = {
        tensor for node in Studio(Project(studio_files)).graph(files[0]).nodes for tensor in node.tensors
    }
    assert len(data["results"]) > 5 and set(data["results"]) <= tensors
    assert all(isinstance(entry["value"], float) for entry in data["results"].values())


def test_model_explorer_itself_takes_it(studio_files: Path):
    pytest.importorskip("model_explorer", reason="ai-edge-model-explorer is not installed")
    from model_explorer.extension_manager import ExtensionManager

    manager = ExtensionManager(["npuc.studio.model_explorer"])
    manager.load_extensions()
    assert "npuc.studio.model_explorer.main" in sys.modules
    command = {
        "extensionId": "npuc",
        "modelPath": str(studio_files / "digits.npu"),
        "settings": {},
        "cmdId": "convert",
    }
    graph = manager.run_cmd(command)["graphs"][0]
    assert graph["id"] == "digits" and len(graph["nodes"]) == 14
    with pytest.raises(Exception, match=r"E\d+"):
        manager.run_cmd(command | {"modelPath": str(studio_files / "missing.npu")})
