"""Compiled models around the streams: layouts of tensors, subgraphs of the CPU, conversions of the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from npuc.errors import EngineError, InputDataError
from npuc.program.model import CompiledModel, Conversion, CpuSubgraph, HostConversion
from npuc.sim import Simulator, run, sanitize
from support.programs.instructions import Draft

PICTURE = np.arange(24, dtype=np.int8).reshape(1, 2, 3, 4)


def picture() -> CompiledModel:
    """A model that copies a picture through local memory."""
    d = Draft()
    at = d.put(PICTURE)
    d.fetch(at, PICTURE.shape, np.int8)
    return d.compiled()


def with_tensors(model: CompiledModel, **changes: dict[str, Any]) -> CompiledModel:
    return replace(model, tensors=tuple(replace(t, **changes.get(t.name, {})) for t in model.tensors))


def test_tensors_are_permuted_to_their_memory_order() -> None:
    model = with_tensors(picture(), x0={"order": (0, 2, 3, 1)})
    got = run(model, {"x0": PICTURE})["y0"]
    np.testing.assert_array_equal(got.reshape(1, 3, 4, 2), PICTURE.transpose(0, 2, 3, 1))
    both = with_tensors(picture(), x0={"order": (0, 2, 3, 1)}, y0={"order": (0, 2, 3, 1)})
    np.testing.assert_array_equal(run(both, {"x0": PICTURE})["y0"], PICTURE)


def negation(name: str, result: str) -> bytes:
    node = helper.make_node("Neg", [name], [result])
    ports = [helper.make_tensor_value_info(n, TensorProto.INT8, PICTURE.shape) for n in (name, result)]
    graph = helper.make_graph([node], "g", [ports[0]], [ports[1]])
    opset = [helper.make_opsetid("", 17)]
    return bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())


def with_more(model: CompiledModel, *subgraphs: Any, **results: str) -> CompiledModel:
    """More subgraphs, and their results as tensors of the workspace, by their types."""
    template = model.tensor("y0")
    made = [
        replace(
            template,
            name=name,
            dtype=dtype,
            scale=0.5 if dtype != "f32" else 0.0,
            segment=1,
            offset=1024 * i,
            size=size,
        )
        for i, (name, dtype) in enumerate(results.items())
        for size in [24 * {"i8": 1, "f32": 4}[dtype]]
    ]
    first = with_tensors(model, y0={"scale": 0.5, "zero_point": 3})
    return replace(
        first, tensors=(*first.tensors, *made), subgraphs=(*first.subgraphs, *subgraphs), outputs=(*results,)
    )


def test_a_subgraph_of_the_cpu_runs_in_onnx_runtime() -> None:
    cpu = CpuSubgraph("cpu", negation("y0", "z"), ("y0",), ("z",))
    model = with_more(picture(), cpu, z="i8")
    np.testing.assert_array_equal(run(model, {"x0": PICTURE})["z"], -PICTURE)
    assert sanitize(model) == []
    broken = replace(model, subgraphs=(model.subgraphs[0], replace(cpu, model=b"nothing")))
    with pytest.raises(EngineError, match="ONNX Runtime"):
        run(broken, {"x0": PICTURE})


def test_conversions_go_by_the_scales_of_tensors() -> None:
    there = HostConversion("there", (Conversion("y0", "real"),))
    back = HostConversion("back", (Conversion("real", "again", "half_even"),))
    model = with_more(picture(), there, back, real="f32", again="i8")
    got = run(model, {"x0": PICTURE})
    np.testing.assert_array_equal(got["real"], (PICTURE.astype(np.float32) - 3) / 2)
    np.testing.assert_array_equal(got["again"], PICTURE - 3)
    assert sanitize(model) == []


def test_inputs_are_checked() -> None:
    simulator = Simulator(picture())
    with pytest.raises(InputDataError, match="takes x0"):
        simulator.run({"x": PICTURE})
    with pytest.raises(InputDataError, match="int8 of shape"):
        simulator.run({"x0": PICTURE[:, :1]})
    with pytest.raises(InputDataError, match="int8 of shape"):
        simulator.run({"x0": PICTURE.astype(np.int16)})


def test_a_later_run_leaves_earlier_results_alone() -> None:
    simulator = Simulator(picture())
    first = simulator.run({"x0": PICTURE})["y0"]
    simulator.run({"x0": -PICTURE})
    np.testing.assert_array_equal(first, PICTURE)
