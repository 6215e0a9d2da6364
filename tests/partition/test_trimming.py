"""Networks without the CPU's ops at their ends: the same numbers where they were cut."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.calib.calibration import calibrate
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.engine import IntegerEngine
from npuc.errors import CompileError
from npuc.flow import quantize_network
from npuc.ir import Graph, top
from npuc.partition.trimming import trimmed
from npuc.runtime.engine import CompiledEngine
from npuc.target import load_target
from support.graphs import build

TARGET = load_target("aries-like")
_CONV: dict[str, Any] = {"strides": [1, 1], "dilations": [1, 1], "group": 1, "pads": [1] * 4}
X = np.random.default_rng(1).standard_normal((1, 3, 16, 16)).astype(np.float32)


def network(*places: str) -> Graph:
    """Two convolutions, with a sine, which the machine does not have, at some places."""
    random = np.random.default_rng(0)

    def weight(*shape: int) -> Array:
        return random.standard_normal(shape).astype(np.float32) / 4

    def sine(b: Any, value: Any, place: str) -> Any:
        return b(top.Sin, value, name=place) if place in places else value

    def body(b: Any, x: Any) -> Any:
        value = sine(b, x, "head")
        value = b(top.Conv, value, weight(8, 3, 3, 3), weight(8), name="first", relu=True, **_CONV)
        value = sine(b, value, "middle")
        value = b(top.Conv, value, weight(4, 8, 3, 3), weight(4), name="second", relu=False, **_CONV)
        return sine(b, value, "tail")

    return build({"x": X.shape}, body)


def integers(graph: Graph) -> Graph:
    return quantize_network(graph, calibrate(graph, [{"x": X}]), None, TARGET).graph


@pytest.mark.parametrize(
    ("places", "inputs", "outputs"),
    [((), ["x"], None), (("tail",), ["x"], ["second"]), (("head", "tail"), ["head"], ["second"])],
)
def test_what_is_left_computes_what_it_did(places: tuple[str, ...], inputs: list[str], outputs: Any) -> None:
    graph = network(*places)
    whole = integers(graph)
    done = trimmed(whole, TARGET)
    names = outputs or [port.name for port in graph.outputs]
    assert [port.name for port in done.graph.inputs] == inputs
    assert [port.name for port in done.graph.outputs] == names
    assert done.changed == bool(places)
    assert done.before == (("head",) if "head" in places else ())
    assert done.after == (("tail",) if "tail" in places else ())
    fetched = [*names, *(name for name in inputs if name != "x")] if places else []
    expected = IntegerEngine(whole, fetch=fetched).run({"x": X})
    given = {"x": X, **expected}
    program = compile_program(done.graph, TARGET, CompileOptions(0, npu_only=True)).model
    got = CompiledEngine(program).run({name: given[name] for name in inputs})
    for name in names:
        np.testing.assert_array_equal(got[name], expected[name])


def test_a_layer_between_those_of_the_npu_cannot_be_cut_off() -> None:
    with pytest.raises(CompileError, match=r"layers between those of the NPU.*'middle'"):
        trimmed(integers(network("middle", "tail")), TARGET)


def test_a_network_of_the_cpu_alone() -> None:
    def body(b: Any, x: Any) -> Any:
        return b(top.Sin, x, name="y")

    graph = build({"x": (1, 4)}, body)
    with pytest.raises(CompileError, match=r"no layer of the network runs on aries-like.*'y'"):
        trimmed(quantize_network(graph, {"x": (-1, 1), "y": (-1, 1)}, None, TARGET).graph, TARGET)
