"""The integer engine as such: what it returns, what it refuses, and that runs do not disturb each other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from npuc import lang
from npuc.arrays import Array
from npuc.engine import FloatEngine, IntegerEngine
from npuc.engine.floating import ALL_TENSORS
from npuc.errors import InputDataError, UnknownTensorError
from npuc.frontend.onnx import import_onnx
from npuc.ir import Graph, npu, tensor_type, top, value_name
from npuc.ir.dtypes import QuantType, quant_of
from npuc.quant import SCHEMES, quantize
from npuc.transform import canonicalize

SHAPE = (1, 4, 6, 6)
WEIGHT = np.random.default_rng(0).normal(size=(4, 4, 3, 3)).astype(np.float32)


def imported(nodes: list[Any], outputs: dict[str, int]) -> Graph:
    """A network of nodes that starts with a convolution, x to c."""
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(WEIGHT, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return canonicalize(import_onnx(model))


def integer(graph: Graph, scheme: Any = None) -> Graph:
    """Quantized, with ranges that hold everything."""
    return quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-40.0, 40.0)), scheme)


@pytest.fixture
def network() -> Graph:
    """Two outputs, one of them with a float layer before it."""
    nodes = [
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("CumSum", ["r", "axis"], ["s"]),
        helper.make_node("Constant", [], ["axis"], value=numpy_helper.from_array(np.array(1))),
        helper.make_node("Sigmoid", ["s"], ["y"]),
    ]
    return integer(imported([nodes[2], nodes[0], nodes[1], nodes[3]], {"y": 1, "c": 1}))


def sample(seed: int = 1) -> dict[str, Array]:
    return {"x": np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)}


def same(a: dict[str, Array], b: dict[str, Array]) -> None:
    assert a.keys() == b.keys()
    for name, value in a.items():
        np.testing.assert_array_equal(value, b[name])


def test_the_fixture_has_integer_layers_and_a_float_one(network: Graph) -> None:
    names = {op.name for op in network.ops}
    assert {"npu.conv", "npu.table", "top.cumsum", "npu.quantize", "npu.dequantize"} <= names


def test_any_tensor_can_be_fetched_as_reals_or_as_integers(network: Graph) -> None:
    names = network.tensor_names()
    assert {"c", "r", "s", "y"} <= set(names)
    reals = IntegerEngine(network, fetch=ALL_TENSORS).run(sample())
    raw = IntegerEngine(network, fetch=names, raw=True).run(sample())
    assert set(names) <= reals.keys() == raw.keys()
    for op in network.ops:
        for value in op.results:
            name, kind = value_name(value), quant_of(value)
            if kind is not None and name in raw:
                assert raw[name].dtype == kind.dtype.numpy
                expected = ((raw[name].astype(int) - kind.zero_point) * kind.scale).astype(np.float32)
                np.testing.assert_array_equal(reals[name], expected)
                assert reals[name].flags.c_contiguous and raw[name].flags.c_contiguous


def test_what_is_fetched_does_not_change_the_outputs(network: Graph) -> None:
    plain = IntegerEngine(network).run(sample())
    assert list(plain) == ["y", "c"]
    for name in network.tensor_names():
        found = IntegerEngine(network, fetch=[name]).run(sample())
        np.testing.assert_array_equal(found["y"], plain["y"])


def test_it_is_near_float() -> None:
    graph = imported([helper.make_node("Relu", ["c"], ["y"])], {"y": 1})
    exact, found = FloatEngine(graph, threads=1).run(sample()), IntegerEngine(integer(graph)).run(sample())
    assert np.abs(exact["y"] - found["y"]).max() < 2


def test_runs_leave_each_others_results_alone(network: Graph) -> None:
    engine = IntegerEngine(network, fetch=["c", "r"])
    first = engine.run(sample(1))
    kept = {name: value.copy() for name, value in first.items()}
    second = engine.run(sample(2))
    same(first, kept)
    assert (second["y"] != first["y"]).any()
    same(engine.run(sample(1)), first)


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_and_recording_change_nothing(network: Graph, threads: int) -> None:
    expected = IntegerEngine(network, fetch=ALL_TENSORS, record=False).run(sample())
    same(IntegerEngine(network, fetch=ALL_TENSORS, threads=threads).run(sample()), expected)


def test_several_threads_may_call_one_engine(network: Graph) -> None:
    engine = IntegerEngine(network)
    expected = [engine.run(sample(seed)) for seed in range(8)]
    with ThreadPoolExecutor(2) as pool:
        for found, wanted in zip(
            pool.map(lambda seed: engine.run(sample(seed)), range(8)), expected, strict=True
        ):
            same(found, wanted)


def test_a_profile_names_every_step(network: Graph) -> None:
    steps = IntegerEngine(network).profile(sample())
    assert any(name == "npu.conv 'c'" for name, _ in steps)
    assert all(seconds >= 0 for _, seconds in steps)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "input 'x' is missing.*float32 of shape 1×4×6×6"),
        ({"X": np.zeros(SHAPE, np.float32)}, "no input 'X'.*The inputs are: x"),
        (sample() | {"z": np.zeros(1)}, "no input 'z'"),
        ({"x": np.zeros((1, 4, 6, 5), np.float32)}, "has shape 1×4×6×5.*1×4×6×6"),
        ({"x": np.zeros((4, 6, 6), np.float32)}, "has shape 4×6×6"),
        ({"x": np.float32(3)}, "a scalar"),
        ({"x": np.zeros(SHAPE, np.complex64)}, "type complex64, which does not convert"),
        ({"x": np.full(SHAPE, "a")}, "which does not convert"),
    ],
)
def test_wrong_inputs_are_refused_in_words(network: Graph, inputs: dict[str, Any], message: str) -> None:
    engine = IntegerEngine(network)
    with pytest.raises(InputDataError, match=message):
        engine.run(inputs)
    engine.run(sample())


def test_inputs_that_convert_are_converted(network: Graph) -> None:
    engine = IntegerEngine(network)
    rounded = {"x": np.rint(sample()["x"] * 3)}
    expected = engine.run(rounded)
    for dtype in (np.float64, np.int8, np.int64):
        same(engine.run({"x": rounded["x"].astype(dtype)}), expected)
    same(engine.run({"x": np.asfortranarray(rounded["x"])}), expected)


def test_an_unknown_tensor_is_named(network: Graph) -> None:
    with pytest.raises(UnknownTensorError, match="'nothing'"):
        IntegerEngine(network, fetch=["nothing"])


def test_an_input_that_is_an_output_is_a_copy() -> None:
    graph = Graph.empty([("x", tensor_type((2, 3), "f32")), ("t", tensor_type((), "f32"))])
    graph.set_outputs(
        [("a", graph.inputs[0].value), ("b", graph.inputs[0].value), ("t", graph.inputs[1].value)]
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = IntegerEngine(graph).run({"x": x, "t": np.float32(5)})
    assert found["t"].shape == ()
    x[:] = 0
    for name in ("a", "b"):
        np.testing.assert_array_equal(found[name], [[0, 1, 2], [3, 4, 5]])


def test_an_integer_value_may_be_an_output() -> None:
    graph = Graph.empty([("x", tensor_type((2, 3), "f32"))])
    to = QuantType.of("i8", 0.5, 3)
    op = npu.Quantize.make(graph.inputs[0].value, to=to, name="q")
    graph.block.add_op(op)
    graph.set_outputs([("q", op.y)])
    x = np.array([[0.0, 0.5, -1.0], [100.0, -100.0, 0.2]], np.float32)
    assert IntegerEngine(graph, raw=True).run({"x": x})["q"].tolist() == [[3, 4, 1], [127, -128, 3]]
    assert IntegerEngine(graph).run({"x": x})["q"].tolist() == [[0.0, 0.5, -1.0], [62.0, -65.5, 0.0]]


def test_a_constant_may_be_an_output() -> None:
    graph = Graph.empty([])
    op = graph.add_weight("k", np.float32([1, 2]))
    graph.block.add_op(op)
    graph.set_outputs([("k", op.output)])
    assert IntegerEngine(graph).run({})["k"].tolist() == [1, 2]


def test_an_empty_program_runs() -> None:
    graph = Graph.empty([])
    graph.set_outputs([])
    engine = IntegerEngine(graph)
    assert engine.run({}) == {}
    assert engine.profile({}) == []


def test_float_layers_may_have_any_shapes() -> None:
    """NonZero has an open dimension, Squeeze without axes of it no known rank."""
    nodes = [
        helper.make_node("NonZero", ["c"], ["places"]),
        helper.make_node("Squeeze", ["places"], ["squeezed"]),
        helper.make_node("Cast", ["squeezed"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Relu", ["real"], ["y"]),
    ]
    graph = imported(nodes, {"y": 1, "c": 1})
    quantized = integer(graph)
    assert [str(op.results[0].type) for op in quantized.ops if isinstance(op, top.Onnx)] == [
        "tensor<4x?xi64>",
        "tensor<*xi64>",
        "tensor<*xf32>",
        "tensor<*xf32>",
    ]
    engine = IntegerEngine(quantized, fetch=ALL_TENSORS)
    for seed in (1, 2):
        found = engine.run(sample(seed))
        np.testing.assert_array_equal(found["y"], np.stack(np.nonzero(found["c"])).astype(np.float32))


def test_a_network_that_stayed_float_is_the_float_network() -> None:
    graph = imported([helper.make_node("Relu", ["c"], ["y"])], {"y": 1})
    kept = quantize(graph, {}, lambda op: None)
    same(IntegerEngine(kept).run(sample()), FloatEngine(graph, threads=1).run(sample()))


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16"])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("axis", [1, -1])
def test_the_place_of_an_extreme_is_found_in_integers(
    scheme: str, largest: bool, last: bool, axis: int
) -> None:
    node = helper.make_node(
        "ArgMax" if largest else "ArgMin", ["c"], ["y"], axis=axis, keepdims=0, select_last_index=int(last)
    )
    quantized = integer(imported([node], {"y": 7}), SCHEMES[scheme])
    assert "npu.dequantize" not in {op.name for op in quantized.ops}
    found = IntegerEngine(quantized, fetch=["c"], raw=True).run(sample())
    values = np.flip(found["c"], axis) if last else found["c"]
    expected = values.argmax(axis) if largest else values.argmin(axis)
    if last:
        expected = found["c"].shape[axis] - 1 - expected
    assert found["y"].dtype == np.int64
    np.testing.assert_array_equal(found["y"], expected)


def test_the_place_of_an_extreme_of_float_values_stays_float() -> None:
    graph = imported([helper.make_node("ArgMax", ["x"], ["y"], axis=1)], {"y": 7, "c": 1})
    quantized = integer(graph)
    assert any("what it compares is float" in why for why in quantized.float_reasons.values())
    np.testing.assert_array_equal(
        IntegerEngine(quantized).run(sample())["y"], sample()["x"].argmax(1, keepdims=True)
    )


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16", "pow2"])
@pytest.mark.parametrize("kind", ["ReduceMax", "ReduceMin"])
@pytest.mark.parametrize("axes", [[1], [2, 3], [0, 2], [-1]])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_an_extreme_keeps_the_type_of_what_it_is_chosen_from(
    scheme: str, kind: str, axes: list[int], keepdims: int
) -> None:
    node = helper.make_node(kind, ["c"], ["y"], axes=axes, keepdims=keepdims)
    quantized = integer(imported([node], {"y": 1}), SCHEMES[scheme])
    found = IntegerEngine(quantized, fetch=["c", "y"], raw=True).run(sample())
    value, operand = quantized.find("y"), quantized.find("c")
    assert value is not None and operand is not None
    assert quant_of(value) == quant_of(operand)
    choose = np.max if kind == "ReduceMax" else np.min
    np.testing.assert_array_equal(found["y"], choose(found["c"], tuple(axes), keepdims=bool(keepdims)))


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 5), (2, 6, 3, 4), (1, 6, 2, 3, 2)])
def test_shuffled_channels_are_groups_and_members_exchanged(shape: tuple[int, ...]) -> None:
    graph = lang.build({"y": lang.shuffle_channel(lang.input("x", shape) * 1.0, group=3, name="y")})
    graph = quantize(graph, dict.fromkeys(["x", *graph.tensor_names()], (-2.0, 2.0)))
    x = np.random.default_rng(0).uniform(-2, 2, shape).astype(np.float32)
    found = IntegerEngine(graph, ALL_TENSORS, threads=1).run({"x": x})
    before = next(value for name, value in found.items() if name not in ("x", "y") and value.shape == shape)
    grouped = before.reshape(shape[0], 3, 2, *shape[2:]).swapaxes(1, 2)
    np.testing.assert_array_equal(found["y"], grouped.reshape(shape))
