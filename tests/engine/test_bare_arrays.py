"""Every engine takes a bare array for a network with one input, and says what it wants where there are more."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_model
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import InputDataError
from npuc.flow import quantize_network
from npuc.ir import Graph
from npuc.lang import add, build, conv, input
from npuc.runtime import Runner
from npuc.sim import Simulator
from npuc.target import load_target


def one_input() -> Graph:
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    return build({"y": conv(input("x", (1, 3, 8, 8)), weight, name="stem", relu=True)})


@pytest.mark.parametrize("kind", ["float", "integer", "torch", "simulator", "runner"])
def test_an_engine_takes_the_array_of_the_only_input(kind: str) -> None:
    graph = one_input()
    inputs = random_inputs(graph, 1)
    if kind == "float":
        engine: Any = FloatEngine(graph, threads=1)
    elif kind == "torch":
        pytest.importorskip("torch", reason="needs the extra npuc[torch]")
        from npuc.engine.torch import TorchEngine

        engine = TorchEngine(graph)
    else:
        from npuc.calib.calibration import calibrate

        target = load_target("edge-1t")
        made = quantize_network(graph, calibrate(graph, [inputs]), None, target).graph
        if kind == "integer":
            engine = IntegerEngine(made, threads=1)
        else:
            compiled = compile_model(made, target)
            engine = Simulator(compiled) if kind == "simulator" else Runner(compiled)
            if kind == "simulator":
                tensor = compiled.tensor("x")
                inputs = {"x": np.zeros(tensor.shape, np.float32 if tensor.dtype == "f32" else np.int8)}
    named, bare = engine.run(inputs), engine.run(inputs["x"])
    assert list(named) == list(bare) == ["y"]
    np.testing.assert_array_equal(named["y"], bare["y"])


def test_samples_of_the_only_input_run_in_batches() -> None:
    engine = FloatEngine(one_input(), threads=1)
    samples = np.random.default_rng(2).standard_normal((3, 3, 8, 8)).astype(np.float32)
    np.testing.assert_array_equal(engine.run_batches(samples)["y"], engine.run_batches({"x": samples})["y"])


def test_several_inputs_need_names() -> None:
    graph = build({"y": add(input("a", (1, 2)), input("b", (1, 2)), name="sum")})
    with pytest.raises(InputDataError, match=r"one array was given without a name.* 2 inputs.*: a, b"):
        FloatEngine(graph, threads=1).run(np.zeros((1, 2), np.float32))


def test_several_inputs_may_come_in_their_order() -> None:
    graph = build({"y": add(input("a", (1, 4)), input("b", (1, 4)))})
    first, second = np.ones((1, 4), np.float32), np.full((1, 4), 2, np.float32)
    engine = FloatEngine(graph, threads=1)
    for given in ([first, second], (first, second)):
        np.testing.assert_array_equal(engine.run(given)["y"], first + second)
    with pytest.raises(InputDataError, match="2 inputs"):
        engine.run([first])
