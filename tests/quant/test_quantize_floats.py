"""bf16, f16 and block floating point as schemes: whole networks, mixes with integers, names, errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.engine import ALL_TENSORS, FloatEngine, IntegerEngine
from npuc.engine.single import single_op
from npuc.errors import QuantizationError
from npuc.flow import import_model, load_model, needs_ranges, quantize_network, save_graph
from npuc.ir import Graph, Value, dtype_of, npu, result_names, tensor_type, top, value_name
from npuc.ir.definition import TensorOp, TopOp
from npuc.ir.dtypes import element_of, is_narrow_float, quant_of
from npuc.kernels import isa, select_isa
from npuc.quant import SCHEMES, quantize
from npuc.quant.config import QuantizationConfig
from npuc.quant.report import effective_yaml, is_integer
from npuc.transform import canonicalize
from support.networks.random_graphs import graphs
from support.oracles import floats as oracle

FLOATS = ["bf16", "f16"]
STEP = {"bf16": 2.0**-8, "f16": 2.0**-11}
"""Half a step relative to a value."""
random_graphs = settings(
    max_examples=25, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


@pytest.fixture(scope="module")
def digits(root: Path) -> Graph:
    return import_model(root / "examples/digits.onnx")


@pytest.fixture(scope="module")
def image(root: Path) -> dict[str, Array]:
    with np.load(root / "examples/digits_samples.npz") as file:
        return {"image": file["image"][:1]}


def ranges_on(graph: Graph, inputs: dict[str, Array]) -> dict[str, tuple[float, float]]:
    found = {**inputs, **FloatEngine(graph, fetch=ALL_TENSORS, threads=1).run(inputs)}
    reals = {name: np.nan_to_num(value.astype(np.float64)) for name, value in found.items()}
    return {name: (float(v.min(initial=0)), float(v.max(initial=0))) for name, v in reals.items()}


def root_of(value: Value) -> Value:
    while isinstance(value.owner, npu.Cast | npu.Quantize | npu.Dequantize | npu.Requant):
        value = value.owner.x
    return value


def check_ops(source: Graph, made: Graph, inputs: dict[str, Array]) -> int:
    """Every op with a short result is the float op on the same operands, rounded."""
    originals = {result_names(op)[0]: op for op in source.ops if isinstance(op, TopOp) and op.results}
    fetched = {**inputs, **IntegerEngine(made, fetch=ALL_TENSORS).run(inputs)}
    compared = 0
    for op in made.ops:
        name = result_names(op)[0] if op.results else ""
        original = originals.get(name)
        if original is None or not is_narrow_float(element_of(op.results[0])):
            continue
        owner = op.operands[0].owner if isinstance(op, npu.Cast) else op
        assert isinstance(owner, TensorOp)
        read = [
            np.asarray(fetched[value_name(v)] if made.constant(v) is None else made.constant(v), np.float32)
            if is_narrow_float(element_of(v)) or (quant_of(v) is None and dtype_of(v.type).is_float)
            else (fetched[value_name(v)] if made.constant(v) is None else made.constant(v))
            for v in owner.operands[: len(original.operands)]
        ]
        if isinstance(op, npu.FloatTable):
            read = read[:1]
        alone = Graph.empty([(f"x{i}", v.type) for i, v in enumerate(original.operands)], source.weights)
        clone = type(original).create(
            operands=list(alone.block.args),
            result_types=[v.type for v in original.results],
            properties=original.properties,
            location=original.location,
        )
        alone.block.add_op(clone)
        expected = single_op(clone, alone, 1)([np.array(a, order="C") for a in read])[0].astype(np.float64)
        dtype = dtype_of(op.results[0].type).name
        got = fetched[name].astype(np.float64)
        largest = np.abs(expected[np.isfinite(expected)]).max(initial=0.0)
        allowed = STEP[dtype] * np.abs(expected) * 1.01 + largest * 1e-5 + 1e-6
        if dtype == "f16":
            allowed = np.where(np.abs(expected) > 65000, np.inf, allowed)
        with np.errstate(invalid="ignore"):
            bad = ~(np.abs(got - expected) <= allowed) & np.isfinite(expected)
        assert not bad.any(), f"{op.name} '{name}': {got[bad][:3]} instead of {expected[bad][:3]}"
        compared += 1
    return compared


@pytest.mark.parametrize("scheme", FLOATS)
@random_graphs
@given(graph=graphs())
def test_every_op_is_the_float_op_rounded(scheme: str, graph: Graph) -> None:
    graph = canonicalize(graph)
    made = quantize(graph, {}, SCHEMES[scheme])
    made.verify()
    check_ops(graph, made, random_inputs(graph, 1))


@random_graphs
@given(graph=graphs(), seed=st.integers(0, 99))
def test_schemes_mix_by_layer(graph: Graph, seed: int) -> None:
    """Any layer may have any scheme: casts stand where types meet, and nothing but rounding is lost."""
    graph = canonicalize(graph)
    inputs = random_inputs(graph, 1)
    rng = np.random.default_rng(seed)
    names = ["bf16", "f16", "int16-weights", "mx9", None]
    chosen = {op: names[rng.integers(len(names))] for op in graph.ops}
    made = quantize(graph, ranges_on(graph, inputs), lambda op: SCHEMES[n] if (n := chosen[op]) else None)
    made.verify()
    check_ops(graph, made, inputs)


@pytest.mark.parametrize("scheme", FLOATS)
def test_a_layer_of_a_network_has_the_bits_of_the_contract(digits: Graph, image: Any, scheme: str) -> None:
    made = quantize(digits, {}, SCHEMES[scheme])
    convs = [op for op in made.ops if isinstance(op, npu.FloatConv)]
    assert len(convs) == 5
    for threads in (1, 2):
        found = IntegerEngine(made, fetch=ALL_TENSORS, threads=threads, raw=True).run(image)
        for op in convs:
            x, y = (found[value_name(v)].transpose(0, 2, 3, 1) for v in (op.x, op.y))
            weight, bias = made.constant(op.weight), made.constant(op.bias)
            assert weight is not None
            expected = oracle.conv(x, weight, bias, op.strides, op.pads, op.dilations, op.group, op.relu)
            np.testing.assert_array_equal(y.astype(np.float32), expected.astype(np.float32))
            assert y.dtype == dtype_of(scheme).numpy


@pytest.mark.parametrize("scheme", FLOATS)
def test_instruction_sets_and_the_tape_do_not_change_a_bit(digits: Graph, image: Any, scheme: str) -> None:
    made = quantize(digits, {}, SCHEMES[scheme])
    before, results = isa(), []
    try:
        for name in ("portable", "avx2", "avx512vnni", "neon", "neondot"):
            for record in (True, False):
                if select_isa(name):
                    results.append(IntegerEngine(made, fetch=ALL_TENSORS, record=record).run(image))
    finally:
        select_isa(before)
    assert len(results) >= 2
    for other in results[1:]:
        assert other.keys() == results[0].keys()
        for name, array in results[0].items():
            assert array.dtype == np.float32
            np.testing.assert_array_equal(other[name], array)


@pytest.mark.parametrize("scheme", ["bf16", "f16", "mx9", "mx6"])
def test_a_network_needs_no_ranges_and_reads_back(
    digits: Graph, image: Any, scheme: str, tmp_path: Path
) -> None:
    config = QuantizationConfig(scheme=scheme)
    assert not needs_ranges(digits, config) and needs_ranges(digits)
    done = quantize_network(digits, {}, config)
    assert done.graph.notes == [] and is_integer(done.graph)
    assert set(digits.tensor_names()) <= set(done.graph.tensor_names())
    save_graph(done.graph, tmp_path / "d.mlir")
    again = load_model(tmp_path / "d.mlir")
    ours, theirs = (IntegerEngine(graph, fetch=ALL_TENSORS).run(image) for graph in (done.graph, again))
    for name, array in ours.items():
        np.testing.assert_array_equal(theirs[name], array)
    assert ours["logits"].dtype == np.float32
    if scheme in FLOATS:
        assert done.outcome.bytes_after < 0.52 * done.outcome.bytes_before
        assert done.outcome.counts() == "11 bf16, 0 float".replace("bf16", scheme)
    else:
        # A depthwise convolution, sums and a pool are f32.
        assert done.outcome.counts() == f"6 f32, 5 {scheme}, 0 float"


def test_layers_of_an_integer_network(digits: Graph, image: Any, tmp_path: Path) -> None:
    config = QuantizationConfig(
        layers={"logits": "bf16", "stem/relu": "f16", "block2/norm": "mx9", "pool": "float"}
    )
    table = ranges_on(digits, image)
    done = quantize_network(digits, table, config)
    kinds = {layer.name: layer.type for layer in done.outcome.layers}
    assert kinds["logits"] == "bf16" and kinds["stem/relu"] == "f16" and kinds["block2/norm"] == "mx9"
    assert kinds["pool"] == "f32" and kinds["widen/relu"] == "i8"
    assert done.outcome.counts() == "7 integer, 1 bf16, 1 f16, 1 mx9, 1 float"
    exact = FloatEngine(digits, threads=1).run(image)["logits"]
    np.testing.assert_allclose(
        IntegerEngine(done.graph).run(image)["logits"], exact, atol=0.1 * np.abs(exact).max()
    )
    path = tmp_path / "q.yaml"
    path.write_text(effective_yaml(digits, done.outcome, done.scheme_of))
    again = quantize_network(digits, table, QuantizationConfig.load(path))
    assert str(again.graph.module) == str(done.graph.module)


def single(make: Any, shape: tuple[int, ...] = (1, 4), **weights: Array) -> Graph:
    graph = Graph.empty([("x", tensor_type(shape, "f32"))])
    constants = []
    for name, array in weights.items():
        op = graph.add_weight(name, array)
        graph.block.add_op(op)
        constants.append(op.output)
    op = make(graph.inputs[0].value, *constants)
    graph.block.add_op(op)
    graph.set_outputs([("y", op.results[0])])
    return graph


def test_a_table_is_the_function_rounded_once_with_its_infinities() -> None:
    graph = single(lambda x: top.Log.make(x, name="y"))
    engine = IntegerEngine(quantize(graph, {}, SCHEMES["f16"]))
    y = engine.run({"x": np.float32([[0.0, -1.0, 1.0, 3.0]])})["y"]
    np.testing.assert_array_equal(y, np.float32([[-np.inf, np.nan, 0.0, np.float16(np.log(3.0))]]))


def test_equal_tables_are_stored_once() -> None:
    graph = single(lambda x: top.Tanh.make(x, name="y"))
    more = top.Tanh.make(graph.outputs[0].value, name="z")
    graph.block.add_op(more)
    graph.set_outputs([("z", more.y)])
    made = quantize(graph, {}, SCHEMES["bf16"])
    assert sum(isinstance(op, top.WeightOp) for op in made.ops) == 1


def test_an_op_without_a_kernel_is_rounded_between_casts() -> None:
    graph = single(lambda x: top.LogSoftmax.make(x, name="y"))
    made = quantize(graph, {}, SCHEMES["bf16"])
    assert [op.name for op in made.ops] == ["npu.cast", "npu.cast", "top.log_softmax", "npu.cast", "npu.cast"]
    x = np.float32([[0.1, 0.2, 0.3, 0.4]])
    rounded = x.astype(dtype_of("bf16").numpy).astype(np.float32)
    exact = rounded - np.log(np.exp(rounded).sum())
    np.testing.assert_array_equal(
        IntegerEngine(made).run({"x": x})["y"], exact.astype(dtype_of("bf16").numpy).astype(np.float32)
    )


def test_a_constant_beyond_the_type_keeps_the_layer_float() -> None:
    weight = np.full((4, 2), 1e6, np.float32)
    graph = single(lambda x, w: top.MatMul.make(x, w, None, name="y"), w=weight)
    made = quantize(graph, {}, SCHEMES["f16"])
    assert made.float_reasons == {"y": "f16 does not hold all values of the constant 'w'"}
    assert quantize(graph, {}, SCHEMES["bf16"]).float_reasons == {}


@pytest.mark.parametrize(
    ("level", "words"),
    [
        ({"activation": "f16", "weight": "mx6"}, "cannot be multiplied"),
        ({"weight": "mx9"}, "cannot be multiplied"),
        ({"activation": "bf16", "weight": "f16"}, "cannot be multiplied"),
        ({"activation": "bf17"}, "cannot be 'bf17'"),
    ],
)
def test_types_that_do_not_go_together(digits: Graph, level: dict[str, str], words: str) -> None:
    with pytest.raises(QuantizationError, match=words):
        QuantizationConfig(layers={"logits": level}).resolve(digits)
