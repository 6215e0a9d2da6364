"""What the search passes by: ways that cannot be the fastest. Without that it finds the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc.codegen.compile_model import compile_model
from npuc.flow import import_model, quantize_network
from npuc.ir import Graph, result_names, top
from npuc.program.model import CompiledModel, NpuSubgraph
from npuc.schedule import search
from npuc.target import load_target


@pytest.fixture(scope="module")
def convolutions(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    """Three convolutions that four cores run more than twice as fast as one."""
    weights = np.random.default_rng(0).normal(size=(3, 64, 64, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", [f"x{i}", f"w{i}"], [f"x{i + 1}"], name=f"conv{i}", pads=[1, 1, 1, 1])
        for i in range(3)
    ]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (1, 64, 64, 64)) for name in ("x0", "x3")]
    constants = [numpy_helper.from_array(one, f"w{i}") for i, one in enumerate(weights)]
    made = helper.make_graph(nodes, "convolutions", ports[:1], ports[1:], constants)
    path: Path = tmp_path_factory.mktemp("search") / "convolutions.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    graph = import_model(path)
    ranges = {port.name: (-4.0, 4.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-4.0, 4.0))
    return quantize_network(graph, ranges).graph


def test_one_core_is_not_searched_where_several_are_far_ahead(
    convolutions: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    cores: list[int] = []
    assembled = search.assembled

    def counted(*arguments: Any, **options: Any) -> Any:
        cores.append(options.get("cores", 1))
        return assembled(*arguments, **options)

    monkeypatch.setattr(search, "assembled", counted)
    target = load_target("server-32t")
    passed_by = compile_model(convolutions, target)
    assert cores and set(cores) == {4}
    cores.clear()
    monkeypatch.setattr(search, "_FAR_BEHIND", float("inf"))
    whole = compile_model(convolutions, target)
    assert set(cores) == {1, 4}
    assert _streams(passed_by) == _streams(whole)


def _streams(model: CompiledModel) -> list[bytes]:
    parts = [part for part in model.subgraphs if isinstance(part, NpuSubgraph)]
    return [stream.tobytes() for part in parts for stream in part.streams]
