"""What many tests need: build a small graph, run it, and compare what two graphs compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime

from npuc.arrays import Array
from npuc.engine import FloatEngine
from npuc.ir import Graph, Value, dtype_of, shape_of, tensor_type
from npuc.ir.definition import TopOp

InputSpec = Sequence[int] | tuple[Sequence[int], str]


class Builder:
    """Appends ops to a graph: `b(top.Relu, x, name="y")` gives the result, or a list if there are several."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def __call__(
        self,
        kind: type[TopOp],
        /,
        *operands: Any,
        name: Any = "",
        layer: str | None = None,
        **properties: Any,
    ) -> Any:
        """Add an op; NumPy arrays among the operands become weights."""
        values = [self._value(value) for value in operands]
        return self.add(kind.make(*values, name=name, layer=layer, **properties))

    def add(self, op: TopOp) -> Any:
        """Add an op that is already made."""
        self.graph.block.add_op(op)
        results = list(op.results)
        return results[0] if len(results) == 1 else results

    def weight(self, array: Array, name: str = "weight") -> Value:
        """A constant."""
        op = self.graph.add_weight(name, np.asarray(array))
        self.graph.block.add_op(op)
        return op.output

    def _value(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return self.weight(value)
        if isinstance(value, list | tuple):
            return [self._value(item) for item in value]
        return value


def build(inputs: Mapping[str, InputSpec], function: Callable[..., Any]) -> Graph:
    """A verified graph: `function(builder, *inputs)` returns a value, a list of values, or a dict of named values.

    An input is a shape (of f32) or a pair of a shape and the name of an element type; unnamed outputs take the names of
    their values, or "y", "y1", ...

        build({"x": (1, 3)}, lambda b, x: b(top.Relu, x, name="y"))
    """
    ports = []
    for name, spec in inputs.items():
        pair = len(spec) == 2 and isinstance(spec[1], str)
        shape, dtype = spec if pair else (spec, "f32")
        ports.append((name, tensor_type(tuple(shape), dtype)))  # type: ignore[arg-type]
    graph = Graph.empty(ports)
    result = function(Builder(graph), *graph.block.args)
    if isinstance(result, Mapping):
        outputs = list(result.items())
    else:
        values = list(result) if isinstance(result, list | tuple) else [result]
        outputs = [("y" if index == 0 else f"y{index}", value) for index, value in enumerate(values)]
    graph.set_outputs(outputs)
    graph.verify()
    return graph


def evaluate(
    graph: Graph, inputs: Mapping[str, Array], fetch: Any = (), optimize: bool = True
) -> dict[str, Array]:
    """The outputs of a graph, through the float engine on one thread."""
    return FloatEngine(graph, fetch, threads=1, optimize=optimize).run(inputs)


def random_inputs(graph: Graph, seed: int = 0, low: float = -2.0, high: float = 2.0) -> dict[str, Array]:
    """Inputs of the right shapes and types: floats in [low, high), small integers, coin flips for booleans."""
    generator = np.random.default_rng(seed)
    inputs: dict[str, Array] = {}
    for port in graph.inputs:
        dtype, shape = dtype_of(port.type), shape_of(port.value)
        if dtype.is_float:
            array = generator.uniform(low, high, shape)
        elif dtype.name == "i1":
            array = generator.integers(0, 2, shape)
        else:
            array = generator.integers(0 if dtype.name.startswith("ui") else -4, 5, shape)
        inputs[port.name] = np.asarray(array).astype(dtype.numpy)
    return inputs


def assert_same_function(
    before: Graph,
    after: Graph,
    seed: int = 0,
    tolerance: float = 1e-4,
    inputs: Mapping[str, Array] | None = None,
) -> None:
    """Both graphs verify, have the same inputs and outputs, and give the same outputs for random inputs.

    The tolerance is relative to the largest magnitude of each output; integers and booleans must be equal.
    """
    before.verify()
    after.verify()
    assert [(p.name, p.type) for p in before.inputs] == [(p.name, p.type) for p in after.inputs]
    assert [(p.name, p.type) for p in before.outputs] == [(p.name, p.type) for p in after.outputs]
    feed = random_inputs(before, seed) if inputs is None else inputs
    expected, actual = evaluate(before, feed), evaluate(after, feed)
    assert list(expected) == list(actual)
    for name, value in expected.items():
        assert_close(actual[name], value, tolerance, name)


def assert_close(actual: Array, expected: Array, tolerance: float = 1e-5, name: str = "y") -> None:
    """Equal shape and type, and values that differ by no more than `tolerance` x the largest magnitude."""
    assert actual.shape == expected.shape, f"{name}: shape {actual.shape}, not {expected.shape}"
    assert actual.dtype == expected.dtype, f"{name}: type {actual.dtype}, not {expected.dtype}"
    if actual.dtype.kind in "biuO":
        np.testing.assert_array_equal(actual, expected, err_msg=name)
        return
    wide_actual, wide_expected = actual.astype(np.float64), expected.astype(np.float64)
    finite = wide_expected[np.isfinite(wide_expected)]
    scale = max(1.0, float(np.abs(finite).max(initial=0.0)))
    np.testing.assert_allclose(
        wide_actual, wide_expected, rtol=tolerance, atol=tolerance * scale, err_msg=name
    )


def session_of(model: bytes) -> Any:
    """A session of ONNX Runtime on one thread, without its warnings."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
