"""Networks built in Python: what they compute, how they are named, and what is said of a mistake."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.arrays import Array
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_program
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import NetworkError
from npuc.flow import quantize_network
from npuc.images.preprocess import Preprocess
from npuc.ir import print_graph, result_names, shape_of
from npuc.lang import ops
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator
from npuc.target import load_target
from support.networks.every_op import CASES, RNG, M, P, W, network_of, values


def run(outputs: dict[str, lang.Tensor], **inputs: Array) -> dict[str, Array]:
    found: dict[str, Array] = FloatEngine(lang.build(outputs)).run(inputs)
    return found


@pytest.mark.parametrize("name", ops.__all__)
def test_every_op_is_a_function_that_can_be_built_and_run(name: str) -> None:
    graph = network_of(name, CASES[name])
    got = FloatEngine(graph).run(random_inputs(graph))
    assert [got[port.name].shape for port in graph.outputs] == [
        shape_of(port.value) for port in graph.outputs
    ]


def test_a_block_computes_what_numpy_says() -> None:
    x = lang.input("x", (2, 8))
    w, b = values(8, 8), values(8)
    h = lang.relu(x @ w + b)
    y = (h - x) * 0.5 / 2.0 + -h
    data = values(2, 8)
    hidden = np.maximum(data @ w + b, 0)
    wanted = (hidden - data) * 0.5 / 2.0 - hidden
    np.testing.assert_allclose(run({"y": y}, x=data)["y"], wanted, rtol=1e-5, atol=1e-5)


def test_numbers_and_arrays_on_the_left_are_operands() -> None:
    x = lang.input("x", (2, 3))
    data = values(2, 3)
    got = run({"a": 1.0 - x, "b": np.ones(3, np.float32) * x, "c": 2 / (x * x + 1)}, x=data)
    np.testing.assert_allclose(got["a"], 1 - data, rtol=1e-6)
    np.testing.assert_allclose(got["b"], data, rtol=1e-6)
    np.testing.assert_allclose(got["c"], 2 / (data * data + 1), rtol=1e-5)


@pytest.mark.parametrize(
    "key",
    [
        0,
        -1,
        slice(1, 3),
        (0, ..., slice(None, None, 2)),
        (slice(None), None, 2),
        (..., -1),
        slice(None, None, -1),
    ],
)
def test_indexing_is_numpys(key: Any) -> None:
    x = lang.input("x", (4, 5, 6))
    data = values(4, 5, 6)
    got = run({"y": x[key] * 1.0}, x=data)["y"]
    assert np.array_equal(got, data[key])


@pytest.mark.parametrize("name", ["add", "sub", "mul", "truediv"])
@pytest.mark.parametrize("left", [False, True])
@pytest.mark.parametrize("other", [3.0, np.arange(1, 7, dtype=np.float32)], ids=["number", "array"])
def test_operators_are_those_of_arrays(name: str, left: bool, other: Any) -> None:
    x, data, apply = lang.input("x", (4, 6)), values(4, 6) + 5, getattr(operator, name)
    got = run({"y": apply(other, x) if left else apply(x, other)}, x=data)["y"]
    np.testing.assert_allclose(got, apply(other, data) if left else apply(data, other), rtol=1e-6)


def test_a_tensor_tells_what_it_is() -> None:
    x = lang.input("x", (4, 6))
    assert (x.shape, x.dtype, x.name, x.data) == ((4, 6), "f32", "x", None)
    assert repr(x) == "<Tensor 'x' f32 [4, 6]>" and repr(lang.relu(x)) == "<Tensor f32 [4, 6]>"
    constant = lang.constant(np.arange(3))
    assert constant.data is not None and constant.data.tolist() == [0, 1, 2] and constant.dtype == "i64"
    data = values(4, 6)
    np.testing.assert_array_equal(run({"y": -x}, x=data)["y"], -data)


def test_windows_take_one_number_or_one_an_axis_or_all() -> None:
    for pads in (1, (1, 1), (1, 1, 1, 1)):
        assert lang.conv(P, W, pads=pads).shape == (1, 6, 6, 6)
    assert lang.conv(P, W, strides=(2, 1)).shape == (1, 6, 2, 4)
    assert lang.max_pool(P, kernel=2, strides=2).shape == (1, 4, 3, 3)


def test_names_are_the_users_and_the_rest_is_numbered_by_kind() -> None:
    x = lang.input("x", (1, 4, 6, 6))
    y = lang.conv(lang.relu(lang.conv(x, W, pads=1, name="stem")), values(2, 6, 1, 1))
    names = [name for op in lang.build({"z": lang.relu(y)}).ops for name in result_names(op)]
    assert names == ["constant1", "stem", "relu1", "constant2", "conv1", "z"]


def test_parts_serve_several_networks_and_the_text_is_always_the_same() -> None:
    x = lang.input("x", (1, 4, 6, 6))
    shared = lang.conv(x, W, name="stem")
    one, two = lang.build({"y": lang.relu(shared)}), lang.build({"y": lang.relu(shared)})
    assert print_graph(one) == print_graph(two)
    assert [port.name for port in lang.build({"a": shared, "b": shared}).outputs] == ["a", "b"]


def test_preprocessing_travels() -> None:
    steps = Preprocess.from_dict({"mean": [127.5], "scale": [0.01], "layout": "nchw"})
    x = lang.input("x", (1, 3, 8, 8), preprocess=steps)
    assert lang.build({"y": lang.relu(x)}).inputs[0].preprocess == steps.to_dict()


def network() -> lang.Tensor:
    x = lang.input("x", (1, 3, 12, 12))
    y = lang.conv(x, values(8, 3, 3, 3), values(8), pads=1, relu=True)
    z = lang.conv(y, values(8, 8, 3, 3) * 0.2, pads=1) + y
    return lang.matmul(lang.reduce(z, kind="mean", axes=(2, 3), keepdims=False), values(8, 5))


def both_modes(graph: Any) -> None:
    inputs = random_inputs(graph, 1)
    done = compile_program(graph, load_target("edge-4t"))
    wanted = IntegerEngine(graph, raw=True).run(inputs)
    got = Simulator(done.model).run(inputs)
    for name, array in wanted.items():
        assert np.array_equal(array, got[name]), name
        assert len(np.unique(array)) > 2


def test_it_quantizes_and_compiles_like_an_imported_network() -> None:
    graph = lang.build({"y": network()})
    ranges = {name: (-6.0, 6.0) for name in ["x", *graph.tensor_names()]}
    both_modes(quantize(graph, ranges, SCHEMES["int8"]))


def test_quantization_parameters_make_calibration_needless() -> None:
    x = lang.quantized(lang.input("x", (1, 3, 12, 12)), 0.05, 3)
    integers = RNG.integers(-127, 128, (8, 3, 3, 3), dtype=np.int8)
    weight = lang.constant(integers, scale=[0.01 + 0.001 * i for i in range(8)], zero_point=0)
    bias = lang.constant(
        RNG.integers(-500, 500, 8, dtype=np.int32), scale=[0.05 * (0.01 + 0.001 * i) for i in range(8)]
    )
    y = lang.quantized(lang.conv(x, weight, bias, pads=1), 0.1, -4)
    done = quantize_network(lang.build({"y": y}))
    both_modes(done.graph)


def test_a_custom_op_has_the_shape_that_its_function_states() -> None:
    x = lang.input("x", (2, 3))
    (y,) = lang.custom("Twice", [x], lambda x: [((*x.shape, 2), x.dtype)], attributes={"k": 2}, name="t")
    assert y.shape == (2, 3, 2)
    text = print_graph(lang.build({"y": lang.relu(y)}))
    assert "npuc.custom" in text and "Twice" in text
    (z,) = lang.custom("Einsum", [x, x], [((2, 2), "f32")], domain="", attributes={"equation": "ij,kj->ik"})
    data = values(2, 3)
    np.testing.assert_allclose(run({"z": z}, x=data)["z"], data @ data.T, rtol=1e-5)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: lang.conv(P, values(6, 3, 3, 3), name="stem"), "lang.conv 'stem': 4 channels"),
        (lambda: lang.conv(P, values(6, 4, 9, 9)), "lang.conv"),
        (lambda: P @ values(9, 9), "lang.matmul"),
        (lambda: M + values(3, 3), "do not broadcast"),
        (lambda: lang.input("x", (0, 2)), "below 1"),
        (lambda: lang.input("", (2,)), "needs a name"),
        (lambda: lang.build({}), "needs an output"),
        (lambda: lang.build({"y": lang.constant([1.0])}), "no input"),
        (lambda: lang.build({"y": lang.relu(lang.relu(M, name="a"), name="a")}), "called 'a'"),
        (lambda: M[3], "does not fit axis 0"),
        (lambda: M[0, 0, 0], "3 entries"),
        (lambda: lang.quantized(M, 0.0), "above 0"),
        (lambda: lang.quantized(M, 0.1, 300), "outside"),
        (lambda: lang.custom("A", [M], lambda x: [(3, "f32")]), "custom op 'A'"),
        (lambda: lang.compare(M, 0.0, mode="nearly"), "lang.compare"),
    ],
)
def test_a_mistake_is_named(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(NetworkError) as caught:
        make()
    assert words in caught.value.paragraph()
