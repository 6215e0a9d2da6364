"""What random networks can be: every op that runs on the NPU, every layer, every type and width.

An op, a layer or a width that is new fails here until the networks of `support.networks.backend` can have it.
"""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from npuc.arithmetic.dtypes import ACTIVATION_INTEGERS, SHORT, WEIGHT_INTEGERS
from npuc.cli.frameworks import device_of
from npuc.flow import expanded
from npuc.ir import Graph, npu, result_names, top
from npuc.ir.definition import TOP_OPS
from npuc.quant import SCHEMES, quantize
from npuc.schedule.rules import RULES
from npuc.target.base import FLOATS as FLOAT_TYPES
from support.networks import backend
from support.networks.backend import NETWORKS, RARE, STEPS, Builder, Step, drawn_network
from support.networks.drawn_schemes import BLOCKS, FLOATS, drawn_scheme

NO_LAYERS = (top.WeightOp, top.Onnx, top.Quantize, top.Dequantize)
"""Ops that hold something, or state how something is quantized."""
ENDS = {npu.Reinterpret}
"""Layers of programs whose inputs and outputs are integers by option: tests/codegen/test_program_ends.py."""

FROM_FILES = ("top.quantized_lstm", "npu.quantized_lstm")
"""Layers that only a file with its own integers has; tests/frontend/test_tflite_lstm.py draws them."""


def test_every_op_that_runs_on_the_npu_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the networks that the test of integers goes through, before ops are replaced by others."""
    monkeypatch.setattr(backend, "expanded", lambda graph: graph)
    drawn = {type(op) for seed in range(NETWORKS) for op in drawn_network(seed)[0].ops}
    wanted = {op for op in TOP_OPS.values() if not issubclass(op, NO_LAYERS) and "NPU" in device_of(op)[0]}
    assert sorted(op.name for op in wanted - drawn if op.name not in FROM_FILES) == []


def alone(step: Step, seed: int) -> Graph | None:
    """A network of one step; None if its input is not for the step."""
    b = Builder(seed)
    step(b, b.value())
    results = [value for value in b.values if value not in b.graph.block.args]
    if not [*results, *b.outputs]:
        return None
    outputs = [value for value in results if value.first_use is None]
    b.graph.set_outputs([(f"y{i}", value) for i, value in enumerate([*outputs, *b.outputs])])
    return expanded(b.graph)


def test_every_layer_is_drawn() -> None:
    """Whatever the scheduler has a rule for, some step makes in some type."""
    wanted = {kind for kind in RULES if kind.name not in FROM_FILES} - ENDS
    names = ("int8", "f16", "f32", "mx9")
    for seed, step in product(range(40), dict.fromkeys((*STEPS, *RARE))):
        if not wanted:
            return
        if (graph := alone(step, seed)) is not None:
            ranges = {name: (-1.0, 2.0) for op in graph.ops for name in result_names(op)}
            ranges |= {port.name: (-1.0, 2.0) for port in graph.inputs}
            wanted -= {type(op) for op in quantize(graph, ranges, SCHEMES[names[seed % 4]]).ops}
    assert sorted(kind.__name__ for kind in wanted) == []


def test_every_width_and_type_is_drawn() -> None:
    schemes = [drawn_scheme(seed, np.random.default_rng(seed)) for seed in range(NETWORKS)]
    assert {scheme.weight for scheme in schemes} == {*WEIGHT_INTEGERS, "ui8"}
    assert {scheme.activation for scheme in schemes} == set(ACTIVATION_INTEGERS)
    assert {*FLOATS, *BLOCKS} == {SHORT[name].name for name in FLOAT_TYPES}
