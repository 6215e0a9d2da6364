"""Random small networks under every scheme: each integer op is within a few steps of the float op on its operands."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.engine.single import single_op
from npuc.ir import Graph, npu, result_names, shape_of, tensor_type, top, value_name
from npuc.ir.definition import TopOp
from npuc.ir.dtypes import quant_of
from npuc.quant import SCHEMES, quantize
from npuc.transform import canonicalize
from support.networks.random_graphs import graphs


def ranges_on(graph: Graph, inputs: dict[str, Array]) -> dict[str, tuple[float, float]]:
    values = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    found = {}
    for name, value in values.items():
        finite = np.asarray(value, np.float64)[np.isfinite(value)] if value.dtype.kind == "f" else value
        found[name] = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 0.0)
    return found


def weight_error(op: Any, graph: Graph, reach: float) -> float:
    """What rounding of weights and bias can do to the output of a layer whose inputs are at most `reach`."""
    if not isinstance(op, npu.Conv | npu.Deconv | npu.MatMul):
        return 0.0
    scale, weight = graph.constant(op.weight_scale), graph.constant(op.weight)
    if scale is None or weight is None:
        return 0.0
    x = quant_of(op.x)
    assert x is not None
    products = weight.size / weight.shape[0] if not isinstance(op, npu.MatMul) else shape_of(op.x)[-1]
    if isinstance(op, npu.Deconv):
        products = weight.size / weight.shape[1]
    return float(0.5 * scale.max() * (products * reach + x.scale))


def check_ops(source: Graph, made: Graph, inputs: dict[str, Array]) -> int:
    """Compare every integer op with its float original, fed with the same (quantized) values."""
    originals = {result_names(op)[0]: op for op in source.ops if isinstance(op, TopOp) and op.results}
    integers = IntegerEngine(made, fetch=ALL_TENSORS, raw=True).run(inputs)
    reals = {**inputs, **IntegerEngine(made, fetch=ALL_TENSORS).run(inputs)}
    compared = 0
    for op in made.ops:
        name = result_names(op)[0] if op.results else ""
        kind = quant_of(op.results[0]) if op.results else None
        original = originals.get(name)
        if isinstance(op, top.WeightOp) or kind is None or original is None:
            continue
        entry, between = _entry(op, original)
        operands = [
            _operand(entry, i, original, source, made, integers) for i in range(len(original.operands))
        ]
        reference = _run(original, source, operands)
        least, most = kind.dtype.limits
        clipped = np.clip(
            reference, kind.scale * (least - kind.zero_point), kind.scale * (most - kind.zero_point)
        )
        error = float(np.abs(reals[name] - clipped).max(initial=0.0))
        reach = float(np.abs(operands[0]).max(initial=0.0))
        allowed = (
            weight_error(op, made, reach) + table_error(op) + mean_error(op, clipped) + 1.01 * kind.scale
        ) + 0.51 * between
        if isinstance(original, top.Div) and _divisor(op) is not None:
            allowed += reciprocal_error(op, reach, operands[1])
        assert error <= allowed, f"{op.name} '{name}' ({original.name}): {error / kind.scale:.2f} steps"
        assert integers[name].dtype == kind.dtype.numpy
        compared += 1
    return compared


def _entry(op: Any, original: TopOp) -> tuple[Any, float]:
    """The op that reads what the original read, and the step of what lies between: a pool may be requantized after."""
    before = op.operands[0].owner
    pools = isinstance(op, npu.AvgPool | npu.ReduceSum)
    if isinstance(original, top.AvgPool) and not pools and isinstance(before, npu.AvgPool):
        kind = quant_of(before.y)
        assert kind is not None
        return before, kind.scale
    return op, 0.0


def _operand(
    op: Any, position: int, original: TopOp, source: Graph, made: Graph, integers: dict[str, Array]
) -> Array:
    """What an operand of the integer op stands for; weights of linear layers as they were."""
    ours: Any = op.operands[position] if position < len(op.operands) else None
    if position == 1 and isinstance(original, top.Div) and _divisor(op) is not None:
        # The product reads the reciprocal of what the quotient is divided by.
        ours = _divisor(op)
    kind = quant_of(ours) if ours is not None else None
    if kind is None:
        constant = source.constant(original.operands[position])
        assert constant is not None
        return constant
    constant = made.constant(ours)
    array = integers[value_name(ours)] if constant is None else constant
    return np.asarray((array.astype(np.float64) - kind.zero_point) * kind.scale, np.float32)


def _divisor(op: Any) -> Any:
    """What a product with a reciprocal divides by."""
    before = op.operands[1].owner if isinstance(op, npu.Mul) else None
    return before.x if isinstance(before, npu.Table) and before.function == "reciprocal" else None


def _run(original: TopOp, source: Graph, operands: list[Array]) -> Array:
    """The float op with all operands given, constants too."""
    values = [np.array(value, np.float32, order="C") for value in operands]
    alone = Graph.empty([(f"x{i}", value.type) for i, value in enumerate(original.operands)], source.weights)
    clone = type(original).create(
        operands=list(alone.block.args),
        result_types=[value.type for value in original.results],
        properties=original.properties,
        location=original.location,
    )
    alone.block.add_op(clone)
    return np.asarray(single_op(clone, alone, 1)(values)[0], np.float64)


def table_error(op: Any) -> float:
    """A 16-bit table is straight lines over 128 steps; all functions that are drawn have slopes up to 1."""
    x = quant_of(op.operands[0])
    return 64 * x.scale if isinstance(op, npu.Table) and x is not None and x.dtype.itemsize == 2 else 0.0


def reciprocal_error(op: Any, reach: float, divisors: Array) -> float:
    """What the reciprocal does to a quotient: it is rounded to its own steps, and divisors that rounding took below the least
    that was seen (by up to half a step, or 64 in a table of straight lines) count as the least."""
    inverse, divisor = quant_of(op.operands[1]), quant_of(_divisor(op))
    assert inverse is not None
    assert divisor is not None
    least = float(np.abs(divisors).min(initial=np.inf))
    off = 64 if divisor.dtype.itemsize == 2 else 0.5
    return reach * (0.51 * inverse.scale + off * divisor.scale / least**2)


def mean_error(op: Any, reference: Array) -> float:
    """Under `pow2` a sum is divided by a count (a mean) through a reciprocal of 7 bits."""
    divides = isinstance(op, npu.AvgPool | npu.ReduceSum)
    return float(np.abs(reference).max(initial=0.0)) / 128 if divides else 0.0


@pytest.mark.parametrize("scheme", sorted(SCHEMES))
@settings(
    max_examples=20, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)
@given(graph=graphs())
def test_every_op_is_within_a_few_steps(scheme: str, graph: Graph) -> None:
    graph = canonicalize(graph)
    inputs = random_inputs(graph, 1)
    made = quantize(graph, ranges_on(graph, inputs), SCHEMES[scheme])
    made.verify()
    check_ops(graph, made, inputs)


def test_the_check_itself_can_fail() -> None:
    graph = Graph.empty([("x", tensor_type((1, 4), "f32"))])
    op = top.Tanh.make(graph.inputs[0].value, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    inputs = {"x": np.array([[-1.0, 0.0, 0.5, 1.0]], np.float32)}
    made = quantize(graph, {"x": (-1.0, 1.0), "y": (-0.8, 0.8)})
    assert check_ops(graph, made, inputs) == 1
    table = next(op for op in made.ops if isinstance(op, npu.Table))
    owner = table.table.owner
    assert isinstance(owner, top.WeightOp)
    wrong = made.add_weight("wrong", np.asarray(made.constant(table.table)) // 2)
    made.block.insert_op_before(wrong, table)
    table.operands[1] = wrong.output
    with pytest.raises(AssertionError, match="steps"):
        check_ops(graph, made, inputs)


@pytest.mark.parametrize("scheme", ["int4-weights", "uint8-weights"])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_quotient_is_within_a_few_steps(scheme: str, sign: int) -> None:
    graph = Graph.empty([("a", tensor_type((1, 64), "f32")), ("b", tensor_type((1, 64), "f32"))])
    op = top.Div.make(graph.inputs[0].value, graph.inputs[1].value, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    random = np.random.default_rng(0)
    inputs = {
        "a": random.uniform(-1, 1, (1, 64)).astype(np.float32),
        "b": (sign * random.uniform(0.5, 4, (1, 64))).astype(np.float32),
    }
    made = quantize(graph, ranges_on(graph, inputs), SCHEMES[scheme])
    assert any(isinstance(op, npu.Mul) for op in made.ops)
    assert check_ops(graph, made, inputs) == 1


@pytest.mark.parametrize("lowest", [1e-3, 1.0, 100.0])
def test_a_relu_of_next_to_nothing_does_not_wrap_around(lowest: float) -> None:
    graph = Graph.empty([("x", tensor_type((1, 64), "f32"))])
    op = top.Relu.make(graph.inputs[0].value, name="y")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    inputs = {"x": np.linspace(-lowest, 1e-8, 64, dtype=np.float32).reshape(1, 64)}
    made = quantize(graph, ranges_on(graph, inputs), SCHEMES["tflite-int16"])
    assert check_ops(graph, made, inputs) == (lowest < 1)
