"""Networks built in Python: what they compute, how they are named, and what is said of a mistake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.codegen.compile_model import compile_program
from npuc.engine import FloatEngine, IntegerEngine
from npuc.errors import NetworkError
from npuc.flow import quantize_network
from npuc.ir import print_graph, result_names
from npuc.ir.preprocess import Preprocess
from npuc.lang import ops
from npuc.quant import SCHEMES, quantize
from npuc.sim import Simulator
from npuc.target import load_target

Array = np.ndarray[Any, Any]
RNG = np.random.default_rng(3)
W = RNG.standard_normal((6, 4, 3, 3)).astype(np.float32)


def values(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def run(outputs: dict[str, lang.Tensor], **inputs: Array) -> dict[str, Array]:
    found: dict[str, Array] = FloatEngine(lang.build(outputs)).run(inputs)
    return found


P = lang.input("p", (1, 4, 6, 6))
M = lang.input("m", (2, 8))
B = lang.input("b", (2, 8), "i1")
I = lang.input("i", (2, 3), "i64")  # noqa: E741
S = lang.input("s", (5, 2, 8))

CASES: dict[str, Callable[[], Any]] = {
    **{
        name: (lambda name=name: getattr(lang, name)(M))
        for name in [
            "abs",
            "acos",
            "acosh",
            "asin",
            "asinh",
            "atan",
            "atanh",
            "ceil",
            "celu",
            "cos",
            "cosh",
            "elu",
            "erf",
            "exp",
            "floor",
            "gelu",
            "hard_sigmoid",
            "hard_swish",
            "leaky_relu",
            "log",
            "log_softmax",
            "mish",
            "neg",
            "reciprocal",
            "relu",
            "round",
            "rsqrt",
            "selu",
            "sigmoid",
            "sign",
            "silu",
            "sin",
            "sinh",
            "softmax",
            "softplus",
            "softsign",
            "sqrt",
            "tan",
            "tanh",
            "thresholded_relu",
            "l2_norm",
            "layer_norm",
            "rms_norm",
        ]
    },
    **{
        name: (lambda name=name: getattr(lang, name)(M, 2.0))
        for name in ["add", "sub", "mul", "div", "max", "min", "mod", "pow"]
    },
    "arg": lambda: lang.arg(M, axis=1),
    "attention": lambda: lang.attention(
        values(1, 2, 4, 8), values(1, 2, 5, 8), values(1, 2, 5, 8), scale=0.3
    ),
    "avg_pool": lambda: lang.avg_pool(P, kernel=2, strides=2),
    "batch_norm": lambda: lang.batch_norm(P, values(4), values(4), values(4), np.ones(4, np.float32)),
    "cast": lambda: lang.cast(M, to="i32"),
    "clip": lambda: lang.clip(M, min=-1, max=1),
    "compare": lambda: lang.compare(M, 0.0, mode="less"),
    "concat": lambda: lang.concat([M, values(2, 3)], axis=1),
    "conv": lambda: lang.conv(P, W, pads=1),
    "cumsum": lambda: lang.cumsum(M, axis=1),
    "deconv": lambda: lang.deconv(P, values(4, 2, 2, 2), strides=2),
    "depth_to_space": lambda: lang.depth_to_space(P, block=2),
    "dequantize": lambda: lang.dequantize(lang.quantize(M, 0.1, np.uint8(3)), 0.1, np.uint8(3)),
    "expand": lambda: lang.expand(M, shape=(3, 2, 8)),
    "gather": lambda: lang.gather(M, I, axis=1),
    "gather_elements": lambda: lang.gather_elements(M, I, axis=1),
    "gather_nd": lambda: lang.gather_nd(M, np.zeros((3, 1), np.int64)),
    "grid_sample": lambda: lang.grid_sample(P, values(1, 5, 5, 2)),
    "group_norm": lambda: lang.group_norm(P, groups=2),
    "gru": lambda: lang.gru(S, values(1, 9, 8), values(1, 9, 3), hidden=3),
    "instance_norm": lambda: lang.instance_norm(P),
    "logical": lambda: lang.logical(B, B, mode="and"),
    "lrn": lambda: lang.lrn(P, size=3),
    "lstm": lambda: lang.lstm(S, values(1, 12, 8), values(1, 12, 3), hidden=3),
    "matmul": lambda: lang.matmul(M, values(8, 3), values(3)),
    "max_pool": lambda: lang.max_pool(P, kernel=(3, 3), pads=(1, 1), strides=2),
    "not_": lambda: lang.not_(B),
    "one_hot": lambda: lang.one_hot(I, [0.0, 1.0], depth=4),
    "pad": lambda: lang.pad(M, pads=(0, 1, 0, 2)),
    "permute": lambda: lang.permute(P, order=(0, 2, 3, 1)),
    "prelu": lambda: lang.prelu(P, values(4, 1, 1)),
    "quantize": lambda: lang.quantize(M, 0.1, np.int8(3), to="i8"),
    "reduce": lambda: lang.reduce(P, kind="mean", axes=(2, 3)),
    "reshape": lambda: lang.reshape(M, shape=(4, 4)),
    "resize": lambda: lang.resize(P, sizes=(1, 4, 12, 12), mode="linear"),
    "rnn": lambda: lang.rnn(S, values(1, 3, 8), values(1, 3, 3), hidden=3),
    "scale": lambda: lang.scale(P, values(4), values(4)),
    "scatter_elements": lambda: lang.scatter_elements(M, I, values(2, 3), axis=1),
    "scatter_nd": lambda: lang.scatter_nd(M, np.zeros((1, 1), np.int64), values(1, 8)),
    "shuffle_channel": lambda: lang.shuffle_channel(P, group=2),
    "slice": lambda: lang.slice(M, offset=(0, 1), steps=(1, 2), shape=(2, 3)),
    "space_to_depth": lambda: lang.space_to_depth(P, block=2),
    "split": lambda: lang.split(M, axis=1, sizes=(3, 5)),
    "tile": lambda: lang.tile(M, repeats=(2, 1)),
    "topk": lambda: lang.topk(M, k=2),
    "where": lambda: lang.where(B, M, 0.0),
}


@pytest.mark.parametrize("name", ops.__all__)
def test_every_op_is_a_function_that_can_be_built_and_run(name: str) -> None:
    made = CASES[name]()
    results = made if isinstance(made, tuple) else (made,)
    outputs = {f"y{index}": tensor for index, tensor in enumerate(results)}
    if name == "attention":  # of constants alone
        outputs["y0"] = lang.add(outputs["y0"], lang.reduce(M, kind="sum", axes=(0, 1)))
    graph = lang.build(outputs)
    got = FloatEngine(graph).run(random_inputs(graph))
    assert [got[key].shape for key in outputs] == [tensor.shape for tensor in outputs.values()]


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
