"""One form for matrix products, convolutions, pools and arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.engine import IntegerEngine
from npuc.ir import Value, npu, shape_of, top, value_name
from npuc.quant import SCHEMES, quantize
from support.graphs import Builder, build
from support.passes import kinds, only, transformed

F = np.float32
RANDOM = np.random.default_rng(1)


def array(*shape: int, low: float = -1.0) -> Array:
    return RANDOM.uniform(low, 1.0, shape).astype(F)


def number(value: float) -> Array:
    return np.asarray(value, F)


def test_matmul_and_add_are_one() -> None:
    graph = build(
        {"x": (2, 3, 4)}, lambda b, x: b(top.Add, array(5), b(top.MatMul, x, array(4, 5)), name="y")
    )
    after = transformed(graph, "canonical-matmul")
    op: Any = only(after, "matmul")
    assert op.bias is not None and value_name(op.y) == "y"


def test_a_permute_of_b_is_a_property() -> None:
    def network(b: Builder, q: Value, k: Value) -> Value:
        return b(top.MatMul, q, b(top.Permute, k, order=(0, 2, 1)))

    after = transformed(build({"q": (2, 3, 4), "k": (2, 5, 4)}, network), "canonical-matmul")
    op: Any = only(after, "matmul")
    assert op.transpose_b and kinds(after) == {"matmul": 1}


def test_a_constant_of_one_matrix_has_rank_two() -> None:
    graph = build({"x": (2, 3, 6, 4)}, lambda b, x: b(top.MatMul, x, array(1, 1, 4, 5)))
    op: Any = only(transformed(graph, "canonical-matmul"), "matmul")
    assert shape_of(op.b) == (4, 5)


def test_a_constant_that_gives_the_result_its_rank_stays() -> None:
    graph = build({"x": (3, 4)}, lambda b, x: b(top.MatMul, x, array(1, 4, 5)))
    op: Any = only(transformed(graph, "canonical-matmul"), "matmul")
    assert shape_of(op.b) == (1, 4, 5)


def test_folded_rows_are_unfolded() -> None:
    def network(b: Builder, x: Value) -> Value:
        rows = b(top.Reshape, x, shape=(6, 4))
        return b(top.Reshape, b(top.Add, b(top.MatMul, rows, array(4, 5)), array(5)), shape=(2, 3, 5))

    assert kinds(transformed(build({"x": (2, 3, 4)}, network), "canonical-matmul")) == {"matmul": 1}


def test_reshapes_that_mix_columns_stay() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Reshape, b(top.MatMul, b(top.Reshape, x, shape=(6, 4)), array(4, 6)), shape=(2, 3, 6))

    assert kinds(transformed(build({"x": (2, 4, 3)}, network), "canonical-matmul"))["reshape"] == 2


ONE_AXIS: dict[str, Any] = {
    "conv": lambda b, x: b(
        top.Conv, x, array(6, 2, 3), array(6), strides=(2,), pads=(1, 2), dilations=(2,), group=2
    ),
    "deconv": lambda b, x: b(
        top.Deconv, x, array(4, 3, 3), None, strides=(2,), pads=(1, 0), dilations=(1,), output_padding=(1,)
    ),
    "max_pool": lambda b, x: b(top.MaxPool, x, kernel=(3,), strides=(2,), pads=(1, 0), dilations=(1,)),
    "avg_pool": lambda b, x: b(
        top.AvgPool, x, kernel=(3,), strides=(2,), pads=(1, 0), dilations=(1,), count_include_pad=True
    ),
}


@pytest.mark.parametrize("name", ONE_AXIS)
def test_one_spatial_axis_becomes_two(name: str) -> None:
    after = transformed(build({"x": (2, 4, 9)}, ONE_AXIS[name]), "canonical-conv")
    op: Any = only(after, name)
    assert len(shape_of(op.x)) == 4 and kinds(after)["reshape"] == 2


def test_a_computed_kernel_is_reshaped() -> None:
    def network(b: Builder, x: Value, w: Value) -> Value:
        return b(top.Conv, x, w, None, strides=(1,), pads=(0, 0), dilations=(1,))

    after = transformed(build({"x": (1, 4, 9), "w": (2, 4, 3)}, network), "canonical-conv")
    assert kinds(after)["reshape"] == 3


def test_reshapes_cancel_between_layers_of_one_axis() -> None:
    def network(b: Builder, x: Value) -> Value:
        for _ in range(3):
            y = b(top.Conv, x, array(4, 4, 3), array(4), strides=(1,), pads=(1, 1), dilations=(1,))
            x = b(top.Add, b(top.Sigmoid, y), x)
        return x

    after = transformed(build({"x": (1, 4, 9)}, network), "canonical-conv,move-reshapes")
    assert kinds(after) == {"reshape": 2, "conv": 3, "sigmoid": 3, "add": 3}


@pytest.mark.parametrize("kind,pool", [("mean", "avg_pool"), ("max", "max_pool")])
@pytest.mark.parametrize("keep", [True, False])
def test_spatial_reductions_are_pools(kind: str, pool: str, keep: bool) -> None:
    graph = build({"x": (2, 3, 4, 5)}, lambda b, x: b(top.Reduce, x, kind=kind, axes=(-1, 2), keepdims=keep))
    expected = {pool: 1} if keep else {pool: 1, "reshape": 1}
    assert kinds(transformed(graph, "canonical-pool")) == expected


def test_a_mean_over_width_and_then_height_is_one_pool() -> None:
    def network(b: Builder, x: Value) -> Value:
        rows = b(top.Reduce, x, kind="mean", axes=(3,), keepdims=False)
        return b(top.Reduce, rows, kind="mean", axes=(2,), keepdims=False)

    assert kinds(transformed(build({"x": (2, 3, 4, 5)}, network), "canonical-pool")) == {
        "avg_pool": 1,
        "reshape": 1,
    }


@pytest.mark.parametrize("axes", [(1,), (3,), (1, 2), (1, 2, 3)])
def test_other_reductions_stay(axes: tuple[int, ...]) -> None:
    graph = build({"x": (2, 3, 4, 5)}, lambda b, x: b(top.Reduce, x, kind="mean", axes=axes))
    assert kinds(transformed(graph, "canonical-pool")) == {"reduce": 1}


Window = tuple[int, int, tuple[int, int]]
"""Kernel, stride and pads of an axis of 8 elements."""


def means(x: Array, axis: int, window: Window) -> Array:
    """By a loop: a window begins before the end padding and ends with it at the latest."""
    kernel, stride, (before, after) = window
    width = 8 + before + after
    starts = range(0, min(8 + before, width - kernel + stride), stride)
    padded = np.pad(x, [(before, after) if i == axis else (0, 0) for i in range(x.ndim)])
    parts = [padded.take(range(i, min(i + kernel, width)), axis).mean(axis) for i in starts]
    return np.stack(parts, axis)


@pytest.mark.parametrize(
    ("rows", "columns", "forms"),
    [
        ((3, 2, (0, 0)), (3, 2, (0, 0)), {"avg_pool": 1}),
        ((3, 2, (0, 0)), (3, 2, (1, 0)), {"pad": 1, "avg_pool": 1}),
        ((3, 2, (1, 1)), (3, 3, (1, 1)), {"pad": 1, "avg_pool": 1}),  # no column begins in the padding
        ((3, 2, (1, 1)), (2, 4, (0, 1)), {"pad": 1, "avg_pool": 1}),  # nor where windows lie apart
    ],
)
def test_padding_counts_in_a_mean_and_what_lies_beyond_does_not(
    rows: Window, columns: Window, forms: dict[str, int]
) -> None:
    kernel, strides, pads = zip(rows, columns, strict=True)
    window: dict[str, Any] = {"kernel": kernel, "strides": strides, "dilations": (1, 1), "ceil_mode": True}
    window |= {"pads": tuple(np.transpose(pads).reshape(-1).tolist()), "count_include_pad": True}
    graph = build({"x": (1, 2, 8, 8)}, lambda b, x: b(top.AvgPool, x, **window, name="y"))
    after = transformed(graph, "canonical-pool")
    assert kinds(after) == forms
    x = array(1, 2, 8, 8)
    expected = means(means(x, 2, rows), 3, columns)
    for scheme, atol in (("f32", 1e-6), ("int8", 0.02)):
        integers = quantize(after, dict.fromkeys([*after.tensor_names(), "x"], (-1.0, 1.0)), SCHEMES[scheme])
        assert any(isinstance(op, npu.AvgPool | npu.FloatAvgPool) for op in integers.ops)
        np.testing.assert_allclose(IntegerEngine(integers).run({"x": x})["y"], expected, atol=atol)
        # Not in canonical form, it has no integer form.
        plain = quantize(graph, dict.fromkeys([*graph.tensor_names(), "x"], (-1.0, 1.0)), SCHEMES[scheme])
        np.testing.assert_allclose(IntegerEngine(plain).run({"x": x})["y"], expected, atol=atol)


ARITHMETIC: dict[str, tuple[Any, str]] = {
    "c + x": (lambda b, x: b(top.Add, number(2.0), x), "add"),
    "x - c": (lambda b, x: b(top.Sub, x, array(3)), "add"),
    "x / 4": (lambda b, x: b(top.Div, x, number(4.0)), "mul"),
    "x / 3": (lambda b, x: b(top.Div, x, number(3.0)), "div"),
    "1 / x": (lambda b, x: b(top.Div, number(1.0), x), "reciprocal"),
    "x ^ 1": (lambda b, x: b(top.Pow, b(top.Neg, x), number(1.0)), "neg"),
    "x ^ 2": (lambda b, x: b(top.Pow, x, number(2.0)), "mul"),
    "x ^ 0.5": (lambda b, x: b(top.Pow, x, number(0.5)), "sqrt"),
    "x ^ -0.5": (lambda b, x: b(top.Pow, x, number(-0.5)), "rsqrt"),
    "x ^ -1": (lambda b, x: b(top.Pow, x, number(-1.0)), "reciprocal"),
    "x ^ 3": (lambda b, x: b(top.Pow, x, number(3.0)), "pow"),
    "max(x, 0)": (lambda b, x: b(top.Max, x, number(0.0)), "relu"),
    "max(x, 1)": (lambda b, x: b(top.Max, x, number(1.0)), "clip"),
    "min(max(x, 0), 6)": (lambda b, x: b(top.Min, b(top.Max, x, number(0.0)), number(6.0)), "relu"),
    "clip(x, 0, 6)": (lambda b, x: b(top.Clip, x, min=0.0, max=6.0), "relu"),
    "prelu of one slope": (lambda b, x: b(top.PRelu, x, np.full((3,), 0.25, F)), "leaky_relu"),
    "prelu": (lambda b, x: b(top.PRelu, x, array(3)), "prelu"),
    "leaky relu, 0": (lambda b, x: b(top.LeakyRelu, x, alpha=0.0), "relu"),
    "1 / sqrt(x)": (lambda b, x: b(top.Div, number(1.0), b(top.Sqrt, x)), "rsqrt"),
    "reciprocal(sqrt(x))": (lambda b, x: b(top.Reciprocal, b(top.Sqrt, x)), "rsqrt"),
}


@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_has_one_spelling(name: str) -> None:
    function, expected = ARITHMETIC[name]
    # |x| + 1 keeps roots and reciprocals away from where they are not defined.
    graph = build({"x": (2, 3)}, lambda b, x: function(b, b(top.Softplus, x)))
    assert kinds(transformed(graph, "canonical-arithmetic")) == {"softplus": 1, expected: 1}


def test_constants_come_second() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: b(top.Mul, array(3), x, relu=True))
    op: Any = only(transformed(graph, "canonical-arithmetic"), "mul")
    assert op.relu and op.a is op.parent_block().args[0]


def test_integer_arithmetic_keeps_its_spelling() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Div, b(top.Sub, x, np.asarray(3, np.int32)), np.asarray(2, np.int32))

    assert kinds(transformed(build({"x": ((2, 3), "i32")}, network), "canonical-arithmetic")) == {
        "sub": 1,
        "div": 1,
    }
