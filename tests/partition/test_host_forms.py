"""What the CPU runs for integer ops equals the integer engine to the bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuc.arithmetic.kinds import Kind
from npuc.arrays import Array
from npuc.codegen.host import host_program
from npuc.engine.integer import prepare
from npuc.errors import CompileError, VerificationError
from npuc.ir import Graph, Value, dtype_of, npu, shape_of, tensor_type, top
from npuc.ir.definition import TensorOp
from npuc.ir.dtypes import QuantType, quant_of
from npuc.partition import Part
from npuc.partition.host import reason_against_host
from npuc.quant import SCHEMES, quantize
from npuc.transform import canonicalize
from support.graphs import session_of
from support.networks.random_graphs import graphs

FEW = settings(
    max_examples=12, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


def part_of(op: TensorOp, graph: Graph) -> Part:
    inputs = dict.fromkeys(value for value in op.operands if graph.constant(value) is None)
    return Part("cpu", (op,), tuple(inputs), tuple(op.results))


def random_array(value: Value, rng: np.random.Generator) -> Array:
    dtype = dtype_of(value.type)
    if quant_of(value) is None:
        return rng.normal(0, 4, shape_of(value)).astype(dtype.numpy)
    least, most = dtype.limits
    made = rng.integers(least, most + 1, shape_of(value))
    # The ends are where formulas break.
    ends = rng.random(made.shape)
    made = np.where(ends < 0.1, least, np.where(ends > 0.9, most, made))
    return made.astype(dtype.numpy)


def check(op: TensorOp, graph: Graph, seed: int = 0) -> None:
    """The op alone, on integers of the whole range."""
    rng = np.random.default_rng(seed)
    part = part_of(op, graph)
    given = {value: random_array(value, rng) for value in part.inputs}
    names = {value: f"v{i}" for i, value in enumerate((*part.inputs, *part.outputs))}
    operands = [given[value] if value in given else graph.constant(value) for value in op.operands]
    wanted = prepare(op, graph, 1)(operands)
    session = session_of(host_program(graph, part, names)[0])
    found = session.run(None, {names[value]: array for value, array in given.items()})
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype and one.shape == other.shape, op.name
        np.testing.assert_array_equal(one, np.asarray(other), err_msg=str(op))


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16", "tflite", "pow2", "int4-weights", "dfp16"])
@FEW
@given(graph=graphs(8), seed=st.integers(0, 1 << 16))
def test_every_integer_op_of_random_networks(scheme: str, graph: Graph, seed: int) -> None:
    graph = canonicalize(graph)
    names = [*graph.tensor_names(), *(port.name for port in graph.inputs)]
    made = quantize(graph, dict.fromkeys(names, (-2.0, 3.0)), SCHEMES[scheme])
    for op in made.ops:
        if isinstance(op, top.WeightOp | npu.Quantize | npu.Dequantize):
            continue
        assert isinstance(op, TensorOp)
        if any(quant_of(value) is not None for value in op.operands) and not reason_against_host(op, made):
            check(op, made, seed)


def _types(draw: Any) -> QuantType:
    dtype = draw(st.sampled_from(["i8", "ui8", "i16"]))
    least, most = dtype_of(dtype).limits
    return QuantType.of(dtype, 0.5, draw(st.sampled_from([0 if least < 0 else 128, least, most, 3])))


def made_by(graph: Graph) -> Any:
    """The op whose result is the output."""
    return graph.outputs[0].value.owner


KINDS = tuple(Kind)


def _stage(draw: Any, kind: str, count: int, bound: int, y: QuantType) -> tuple[Array, Array, Array]:
    """Multipliers, shifts and factors that spread sums of up to `bound` over the range of y; now and then others."""
    wanted = max(bound, 1).bit_length() - 8 * y.dtype.itemsize
    shifts, multipliers, factors = [], [], []
    for _ in range(count):
        extra = draw(st.sampled_from([-1, 0, 0, 1, 2, 3]))
        bits = draw(st.sampled_from([31, 31, 15, 7]))
        shift = wanted + extra + (0 if kind == "pow2" else 31 if kind == "double_rounding" else bits)
        if draw(st.integers(0, 9)) == 0:
            shift = draw(st.sampled_from([0, 1, 44, 61, 62]))
        least = -8 if kind == "pow2" else 15 if kind == "double_rounding" else 0
        shifts.append(min(max(shift, least), 62))
        bits = 31 if kind == "double_rounding" else bits
        multipliers.append(draw(st.integers(1 << bits - 1, (1 << bits) - 1)))
        usual = draw(st.floats(0.5, 1.0)) * 2.0 ** -(wanted + extra)
        factors.append(draw(st.sampled_from([usual, usual, usual, 2.0**-wanted, 0.0, 1e30])))
    return np.array(multipliers, np.int32), np.array(shifts, np.int32), np.array(factors, np.float32)


@st.composite
def convolutions(draw: Any, kind: str) -> Graph:
    x, y = _types(draw), _types(draw)
    transposed, wide = draw(st.booleans()), draw(st.booleans())
    group = draw(st.sampled_from([1, 1, 2, 4]))
    each, out = draw(st.sampled_from([1, 2, 40 if group == 1 else 3])), draw(st.sampled_from([1, 2]))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 16)))
    # `double_rounding` is defined on sums of 32 bits only.
    limit = 32767 if wide and kind != "double_rounding" else 127
    shape = (group * each, out, *kernel) if transposed else (group * out, each, *kernel)
    weight = rng.integers(-limit, limit + 1, shape)
    if draw(st.booleans()):
        weight = np.where(weight < 0, -limit, limit)
    weight = weight.astype(np.int16 if wide else np.int8)
    if kind == "double_rounding" and x.dtype.itemsize == 2:
        weight = (weight % 16).astype(weight.dtype)
    graph = Graph.empty([("x", tensor_type((draw(st.sampled_from([1, 2])), group * each, 5, 6), x))])

    def constant(name: str, array: Array) -> Value:
        op = graph.add_weight(name, array)
        graph.block.add_op(op)
        return op.output

    channels = group * out
    count = draw(st.sampled_from([1, channels]))
    bound = each * kernel[0] * kernel[1] * int(np.abs(weight).max()) << 8 * x.dtype.itemsize
    multiplier, shift, factor = _stage(draw, kind, count, bound, y)
    bias = (
        constant("bias", rng.integers(-10000, 10000, channels).astype(np.int32))
        if draw(st.booleans())
        else None
    )
    least, most = y.dtype.limits
    extra = {"output_padding": (0, 0)} if transposed else {}
    op = (npu.Deconv if transposed else npu.Conv).make(
        graph.inputs[0].value,
        constant("weight", weight),
        bias,
        constant("multiplier", multiplier) if kind not in ("pow2", "float_scale") else None,
        constant("shift", shift) if kind != "float_scale" else None,
        constant("factor", factor) if kind == "float_scale" else None,
        None,
        to=y,
        kind=kind,
        lo=least,
        hi=most,
        strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        pads=draw(st.tuples(*[st.integers(0, 1)] * 4)),
        dilations=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
        group=group,
        name="y",
        **extra,
    )
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    return graph


@pytest.mark.parametrize("kind", KINDS)
@settings(FEW, max_examples=40)
@given(data=st.data(), seed=st.integers(0, 1 << 16))
def test_convolutions_of_all_kinds(kind: str, data: st.DataObject, seed: int) -> None:
    graph = data.draw(convolutions(kind))
    op = made_by(graph)
    try:
        prepare(op, graph, 1)
    except ValueError:  # an accumulator beyond what the kind is defined for
        return
    check(op, graph, seed)


@st.composite
def stages(draw: Any, kind: str, what: str) -> Graph:
    """Requant, mul, reduce_sum and avg_pool with parameters of all kinds."""
    x, y = _types(draw), _types(draw)
    if what == "pool" and kind == "double_rounding":
        y = x
    least, most = y.dtype.limits
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)))
    entries = kernel[0] * kernel[1] if what == "pool" else 1
    reach = 1 << 8 * x.dtype.itemsize
    bound = reach * {"mul": 256, "sum": 8}.get(what, entries)
    multiplier, shift, factor = _stage(draw, kind, entries, bound, y)
    parameters = {
        "pow2": shift.tolist(),
        "float_scale": [],
    }.get(kind, np.stack([multiplier, shift], 1).reshape(-1).tolist())
    common = {
        "to": y, "kind": kind, "lo": least, "hi": most, "name": "y", "parameters": parameters,
        "factors": factor.tolist() if kind == "float_scale" else [],
    }  # fmt: skip
    graph = Graph.empty([("a", tensor_type((1, 6, 9, 10), x)), ("b", tensor_type((6, 1, 10), _types(draw)))])
    a, b = (port.value for port in graph.inputs)
    if what == "requant":
        op: TensorOp = npu.Requant.make(a, **common)
    elif what == "mul":
        op = npu.Mul.make(a, b, **common)
    elif what == "sum":
        op = npu.ReduceSum.make(
            a, axes=draw(st.sampled_from([(1,), (2, 3), (-1,)])), keepdims=draw(st.booleans()), **common
        )
    else:
        if kind == "double_rounding":
            common["parameters"] = []
        op = npu.AvgPool.make(
            a,
            kernel=kernel,
            strides=draw(st.tuples(st.integers(1, 2), st.integers(1, 2))),
            pads=draw(st.tuples(*(st.integers(0, k - 1) for k in kernel * 2))),
            ceil_mode=draw(st.booleans()),
            count_include_pad=draw(st.booleans()),
            **common,
        )
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    return graph


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("what", ["requant", "mul", "sum", "pool"])
@settings(FEW, max_examples=16)
@given(data=st.data(), seed=st.integers(0, 1 << 16))
def test_output_stages_of_all_kinds(kind: str, what: str, data: st.DataObject, seed: int) -> None:
    graph = data.draw(stages(kind, what))
    op = made_by(graph)
    try:
        prepare(op, graph, 1)([random_array(value, np.random.default_rng(0)) for value in op.operands])
    except (ValueError, VerificationError):
        return
    check(op, graph, seed)


def test_sums_that_pass_24_bits_and_come_back() -> None:
    """Half of the channels cancel the other half: float32 alone would lose the last bits on the way."""
    channels = 16384
    x, y = QuantType.of("i8", 1.0, 0), QuantType.of("i16", 1.0, 0)
    graph = Graph.empty([("x", tensor_type((1, channels, 1, 1), x))])
    weight = np.full((1, channels, 1, 1), 127, np.int8)
    weight[:, channels // 2 :] = -127
    constants = [graph.add_weight("w", weight), graph.add_weight("s", np.zeros(1, np.int32))]
    for constant in constants:
        graph.block.add_op(constant)
    common = {
        "strides": (1, 1),
        "pads": (0,) * 4,
        "dilations": (1, 1),
        "lo": -32768,
        "hi": 32767,
        "name": "y",
    }
    op = npu.Conv.make(
        graph.inputs[0].value,
        constants[0].output,
        None,
        None,
        constants[1].output,
        None,
        None,
        to=y,
        kind="pow2",
        **common,
    )
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    given = np.full((1, channels, 1, 1), 127, np.int8)
    given[0, ::997] = 126
    wanted = int((weight.astype(np.int64) * given).sum())
    model, _ = host_program(graph, part_of(op, graph), {graph.inputs[0].value: "x", op.y: "y"})
    assert session_of(model).run(None, {"x": given})[0].item() == wanted
    assert np.asarray(prepare(op, graph, 1)([given])[0]).item() == wanted


def test_an_op_without_an_exact_form_is_refused_by_name() -> None:
    graph = Graph.empty([("x", tensor_type((1, 4), "f32"))])
    op = top.Softmax.make(graph.inputs[0].value, axis=-1, name="y", layer="probabilities")
    graph.block.add_op(op)
    graph.set_outputs([("y", op.y)])
    made = quantize(graph, {"x": (-1.0, 1.0), "y": (0.0, 1.0)}, SCHEMES["int8"])
    softmax = next(op for op in made.ops if isinstance(op, npu.Softmax))
    with pytest.raises(CompileError, match=r"layer 'y'.*neither the NPU nor the CPU"):
        host_program(made, part_of(softmax, made), {})
