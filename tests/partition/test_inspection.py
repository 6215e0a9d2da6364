"""`npuc inspect`: text, JSON and picture, of float and of integer networks."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.cli.app import run_command
from npuc.inspect.inspection import inspect_graph
from npuc.inspect.svg import svg_of
from npuc.ir import Graph, save_graph, tensor_type, top
from npuc.target import load_target
from support.networks.placement import convs_around, quantized


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.mlir"
    save_graph(convs_around(middle=top.Floor, channels=16, size=32), path)
    return path


def test_a_float_network_before_quantization(model: Path, capsys: Any) -> None:
    assert run_command(["inspect", str(model), "--target", "dpuczdx8g-b4096-like", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    layers = {layer["name"]: layer for layer in found["layers"]}
    assert layers["first"]["device"] == "npu" and layers["first"]["how"] == "native"
    assert (
        layers["chances"]["device"] == "cpu" and layers["chances"]["reason"] == "Softmax is left to the CPU"
    )
    assert layers["chances"]["side"] == "after" and found["after"] == "1 softmax"
    assert layers["between"]["reason"] == "dpuczdx8g-b4096-like has no 'floor'"
    assert found["macs"] == found["npu_macs"] == 2 * 16 * 16 * 9 * 32 * 32
    assert found["npu_layers"] == 2 and found["cpu_layers"] == 2
    assert [part["device"] for part in found["subgraphs"]][:2] == ["host", "npu"]


def test_text_and_devices(model: Path, capsys: Any) -> None:
    arguments = ["inspect", str(model), "--target", "edge-4t", "--device", "layer_second=cpu"]
    assert run_command(arguments) == 0
    text = capsys.readouterr().out
    assert re.search(r"second +conv +CPU .* as asked", text)
    assert "edge-4t: 3 layers on the NPU, 1 on the CPU; 50.0 % of 4.72 M MACs on the NPU" in text
    assert run_command([*arguments[:-1], "layer_secon=cpu"]) == 2
    assert "layer_second" in capsys.readouterr().err


def test_an_integer_network(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "int.mlir"
    save_graph(quantized(convs_around(channels=16, size=32)), path)
    assert run_command(["inspect", str(path), "--target", "edge-4t", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {layer["device"] for layer in found["layers"]} == {"npu", "host"}
    assert found["npu_share"] == 1.0


def wide(layers: int) -> Graph:
    """A chain with a residual around every three layers, and some names that XML has to escape."""
    graph = Graph.empty([("x<&>", tensor_type((1, 4, 8, 8), "f32"))])
    value = kept = graph.inputs[0].value
    for index in range(layers):
        common = {"name": f"t{index}", "layer": f"<layer & {index}>"}
        op: Any = top.Add.make(value, kept, **common) if index % 4 == 3 else top.Sigmoid.make(value, **common)
        graph.block.add_op(op)
        value = op.y
        kept = value if index % 4 == 3 else kept
    graph.set_outputs([("y", value)])
    return graph


def test_the_picture_of_200_layers_is_readable() -> None:
    graph = wide(200)
    found, shown = inspect_graph(graph, load_target("edge-4t"))
    text = svg_of(shown, found)
    assert text == svg_of(shown, found)
    root = ElementTree.fromstring(text)
    space = "{http://www.w3.org/2000/svg}"
    boxes = [
        tuple(float(rect.attrib[key]) for key in ("x", "y", "width", "height"))
        for rect in root.iter(f"{space}rect")
        if rect.attrib.get("rx")
    ]
    assert len(boxes) == 202
    titles = [title.text or "" for title in root.iter(f"{space}title")]
    assert any(title.startswith("<layer & 7>\nadd on npu") for title in titles)
    left, _, width, height = map(float, root.attrib["viewBox"].split())
    assert width < 1200
    corners = np.array(boxes)
    assert (corners[:, 0] >= left).all() and (corners[:, 0] + corners[:, 2] <= left + width).all()
    assert (corners[:, 1] + corners[:, 3] <= height).all()
    order = corners[np.argsort(corners[:, 1])]
    for one, other in pairwise(order):
        apart = one[1] + one[3] <= other[1] or one[0] + one[2] <= other[0] or other[0] + other[2] <= one[0]
        assert apart, "two boxes overlap"


def test_the_picture_is_written_whole(model: Path, tmp_path: Path, capsys: Any) -> None:
    picture = tmp_path / "net.svg"
    assert run_command(["inspect", str(model), "--target", "edge-4t", "--svg", str(picture)]) == 0
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    assert str(picture) in capsys.readouterr().out
