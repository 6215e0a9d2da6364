"""Permutes, reshapes, slices and concats: merged, moved, cancelled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.ir import Value, shape_of, top, value_name
from support.graphs import Builder, build
from support.passes import kinds, only, transformed

F = np.float32
RANDOM = np.random.default_rng(2)
TO_LAST, TO_FIRST = (0, 2, 3, 1), (0, 3, 1, 2)


def array(*shape: int) -> Array:
    return RANDOM.uniform(-1, 1, shape).astype(F)


def test_permutes_merge() -> None:
    graph = build(
        {"x": (2, 3, 4, 5)}, lambda b, x: b(top.Permute, b(top.Permute, x, order=TO_LAST), order=TO_LAST)
    )
    op: Any = only(transformed(graph, "merge-reshapes"), "permute")
    assert op.order == TO_FIRST


def test_permutes_merge_in_the_right_order() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Permute, b(top.Permute, x, order=(1, 0, 2, 3)), order=(0, 2, 1, 3))

    op: Any = only(transformed(build({"x": (2, 3, 4, 5)}, network), "merge-reshapes"), "permute")
    assert op.order == (1, 2, 0, 3)


def test_inverse_permutes_cancel() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Permute, b(top.Permute, b(top.Relu, x), order=TO_LAST), order=TO_FIRST, name="y")

    after = transformed(build({"x": (2, 3, 4, 5)}, network), "merge-reshapes")
    assert kinds(after) == {"relu": 1} and value_name(after.outputs[0].value) == "y"


def test_a_permute_of_ones_is_a_reshape() -> None:
    graph = build({"x": (2, 3, 1, 1)}, lambda b, x: b(top.Permute, x, order=TO_LAST))
    assert kinds(transformed(graph, "merge-reshapes")) == {"reshape": 1}


def test_reshapes_merge() -> None:
    graph = build({"x": (2, 3, 4)}, lambda b, x: b(top.Reshape, b(top.Reshape, x, shape=(24,)), shape=(6, 4)))
    assert kinds(transformed(graph, "merge-reshapes")) == {"reshape": 1}


def test_reshapes_back_and_forth_cancel() -> None:
    graph = build(
        {"x": (2, 12)}, lambda b, x: b(top.Neg, b(top.Reshape, b(top.Reshape, x, shape=(24,)), shape=(2, 12)))
    )
    assert kinds(transformed(graph, "merge-reshapes")) == {"neg": 1}


INDIFFERENT: dict[str, Any] = {
    "unary": lambda b, x: b(top.Sigmoid, x),
    "number": lambda b, x: b(top.Add, x, np.asarray(2.0, F)),
    "per channel": lambda b, x: b(top.Mul, x, array(3)),
    "full constant": lambda b, x: b(top.Sub, array(2, 4, 5, 3), x),
    "prelu": lambda b, x: b(top.PRelu, x, array(3)),
    "chain": lambda b, x: b(top.Tanh, b(top.Add, b(top.Neg, x), array(3))),
    "two uses": lambda b, x: b(top.Mul, x, b(top.Sigmoid, x)),
    "softmax": lambda b, x: b(top.Softmax, x, axis=-1),
    "pad": lambda b, x: b(top.Pad, x, pads=(0, 1, 2, 0, 0, 0, 0, 0), value=0.5),
    "slice": lambda b, x: b(top.Slice, x, offset=(0, 1, 4, 0), steps=(1, 2, -1, 1), shape=(2, 2, 5, 2)),
    "tile": lambda b, x: b(top.Tile, x, repeats=(1, 2, 1, 3)),
    "reduce": lambda b, x: b(top.Reduce, x, kind="mean", axes=(1, 2)),
    "concat": lambda b, x: b(top.Concat, [x, b(top.Relu, x)], axis=3),
    "concat with constant": lambda b, x: b(top.Concat, [x, array(2, 4, 5, 1)], axis=-1),
    "where": lambda b, x: b(top.Where, b(top.Compare, x, np.asarray(0.0, F), mode="less"), x, array(3)),
    "cast": lambda b, x: b(top.Cast, b(top.Cast, x, to="f16"), to="f32"),
    "quantize": lambda b, x: b(
        top.Dequantize, b(top.Quantize, x, np.full(3, 0.1, F), axis=3, to="ui8"), np.full(3, 0.1, F), axis=-1
    ),
}


@pytest.mark.parametrize("name", INDIFFERENT)
def test_permutes_cancel_across(name: str) -> None:
    def network(b: Builder, x: Value) -> Value:
        y = INDIFFERENT[name](b, b(top.Permute, x, order=TO_LAST))
        return b(top.Permute, y, order=TO_FIRST, name="y")

    after = transformed(
        build({"x": (2, 3, 4, 5)}, network), "move-permutes", tolerance=2e-2 if name == "cast" else 1e-4
    )
    assert "permute" not in kinds(after)
    assert value_name(after.outputs[0].value) == "y"


def test_a_reduction_that_drops_the_axes_needs_no_permute() -> None:
    def network(b: Builder, x: Value) -> Value:
        y = b(top.Permute, x, order=TO_LAST)
        return b(top.Reduce, y, kind="mean", axes=(1, 2), keepdims=False, name="mean")

    after = transformed(build({"x": (2, 3, 4, 5)}, network), "move-permutes")
    assert kinds(after) == {"reduce": 1} and value_name(after.outputs[0].value) == "mean"


def test_two_permutes_become_one_behind_a_sum() -> None:
    def network(b: Builder, x: Value, z: Value) -> Value:
        return b(top.Add, b(top.Permute, x, order=TO_LAST), b(top.Permute, z, order=TO_LAST), name="sum")

    after = transformed(build({"x": (2, 3, 4, 5), "z": (2, 3, 4, 5)}, network), "move-permutes")
    assert kinds(after) == {"add": 1, "permute": 1} and value_name(after.outputs[0].value) == "sum"


def test_a_split_crosses_with_all_its_parts() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        parts = b(top.Split, b(top.Permute, x, order=TO_LAST), axis=3, sizes=(1, 2), name=["a", "b"])
        return [b(top.Permute, part, order=TO_FIRST) for part in parts]

    assert kinds(transformed(build({"x": (2, 3, 4, 5)}, network), "move-permutes")) == {"split": 1}


STAYS: dict[str, Any] = {
    "a lone permute": lambda b, x: b(top.Sigmoid, b(top.Permute, x, order=TO_LAST)),
    "different orders": lambda b, x: b(
        top.Add, b(top.Permute, x, order=(0, 2, 1, 3)), b(top.Permute, b(top.Relu, x), order=(1, 0, 2, 3))
    ),
    "an output inside": lambda b, x: [
        s := b(top.Sigmoid, b(top.Permute, x, order=TO_LAST)),
        b(top.Softmax, s, axis=1),
    ],
}


@pytest.mark.parametrize("name", STAYS)
def test_permutes_stay_where_nothing_is_saved(name: str) -> None:
    graph = build({"x": (4, 4, 4, 4)}, STAYS[name])
    assert kinds(transformed(graph, "move-permutes")) == kinds(graph)


def test_an_output_inside_a_region_is_permuted_for() -> None:
    def network(b: Builder, x: Value) -> dict[str, Value]:
        s = b(top.Sigmoid, b(top.Permute, x, order=TO_LAST), name="inside")
        return {"inside": s, "y": b(top.Permute, b(top.Neg, s), order=TO_FIRST, name="y")}

    after = transformed(build({"x": (2, 3, 4, 5)}, network), "move-permutes")
    assert kinds(after) == {"sigmoid": 1, "neg": 1, "permute": 1}
    assert [value_name(port.value) for port in after.outputs] == ["inside", "y"]


RESHAPED: dict[str, Any] = {
    "unary": lambda b, x: b(top.Sigmoid, x),
    "number": lambda b, x: b(top.Add, x, np.full((1, 1, 1), 2.0, F)),
    "per channel": lambda b, x: b(top.Mul, x, array(3, 1)),
    "chain": lambda b, x: b(top.Mul, x, b(top.Sigmoid, b(top.Add, x, array(2, 3, 5)))),
}


@pytest.mark.parametrize("name", RESHAPED)
def test_reshapes_cancel_across(name: str) -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(
            top.Reshape, RESHAPED[name](b, b(top.Reshape, x, shape=(2, 3, 5))), shape=(2, 3, 1, 5), name="y"
        )

    after = transformed(build({"x": (2, 3, 1, 5)}, network), "move-reshapes")
    assert "reshape" not in kinds(after) and value_name(after.outputs[0].value) == "y"


def test_a_constant_with_no_place_on_the_other_side_keeps_the_reshape() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Reshape, b(top.Add, b(top.Reshape, x, shape=(3, 4)), array(4)), shape=(2, 6))

    assert kinds(transformed(build({"x": (2, 6)}, network), "move-reshapes"))["reshape"] == 2


def cut(b: Builder, x: Value, begin: int, end: int, axis: int = 1, step: int = 1, **more: Any) -> Value:
    shape = list(shape_of(x))
    offset, steps = [0] * len(shape), [1] * len(shape)
    offset[axis], steps[axis] = begin, step
    shape[axis] = (end - begin + step - 1) // step
    return b(top.Slice, x, offset=offset, steps=steps, shape=shape, **more)


SIMPLER: dict[str, tuple[Any, dict[str, int]]] = {
    "slice of slice": (lambda b, x: cut(b, cut(b, x, 1, 7, step=2), 1, 3), {"slice": 1}),
    "slice of a slice backwards": (
        lambda b, x: b(top.Slice, cut(b, x, 1, 7), offset=(0, 5, 0), steps=(1, -2, 1), shape=(2, 3, 3)),
        {"slice": 1},
    ),
    "slice of concat": (
        lambda b, x: cut(b, b(top.Concat, [x, b(top.Neg, x)], axis=1), 9, 12),
        {"slice": 1, "neg": 1},
    ),
    "a whole part": (lambda b, x: cut(b, b(top.Concat, [x, b(top.Neg, x)], axis=1), 8, 16), {"neg": 1}),
    "slice across parts": (
        lambda b, x: cut(b, b(top.Concat, [x, x], axis=1), 6, 10),
        {"slice": 1, "concat": 1},
    ),
    "nested concat": (
        lambda b, x: b(top.Concat, [b(top.Concat, [x, b(top.Neg, x)], axis=1), x], axis=-2),
        {"concat": 1, "neg": 1},
    ),
    "nested concat, other axis": (
        lambda b, x: b(top.Concat, [b(top.Concat, [x, x], axis=0)] * 2, axis=1),
        {"concat": 2},
    ),
    "rejoined": (
        lambda b, x: b(top.Neg, b(top.Concat, [cut(b, x, 0, 3), cut(b, x, 3, 8)], axis=1)),
        {"neg": 1},
    ),
    "rejoined in part": (
        lambda b, x: b(top.Concat, [cut(b, x, 1, 3), cut(b, x, 3, 6)], axis=1),
        {"slice": 1},
    ),
    "rejoined among others": (
        lambda b, x: b(top.Concat, [b(top.Neg, x), cut(b, x, 1, 3), cut(b, x, 3, 6)], axis=1),
        {"slice": 1, "concat": 1, "neg": 1},
    ),
    "split and rejoined": (
        lambda b, x: b(
            top.Neg, b(top.Concat, b(top.Split, x, axis=1, sizes=(2, 3, 3), name=["a", "b", "c"]), axis=1)
        ),
        {"neg": 1},
    ),
    "swapped": (
        lambda b, x: b(top.Concat, [cut(b, x, 4, 8), cut(b, x, 0, 4)], axis=1),
        {"split": 1, "concat": 1},
    ),
    "one part of a split": (
        lambda b, x: b(top.Split, x, axis=1, sizes=(2, 6), name=["a", "b"])[1],
        {"slice": 1},
    ),
    "a partition": (
        lambda b, x: b(top.Add, b(top.Sigmoid, cut(b, x, 4, 8)), cut(b, x, 0, 4)),
        {"split": 1, "sigmoid": 1, "add": 1},
    ),
    "a partition of less than all": (
        lambda b, x: b(top.Add, b(top.Sigmoid, cut(b, x, 3, 6)), cut(b, x, 0, 3)),
        {"slice": 2, "sigmoid": 1, "add": 1},
    ),
    "not a partition": (
        lambda b, x: b(top.Add, b(top.Sigmoid, cut(b, x, 3, 7)), cut(b, x, 0, 4)),
        {"slice": 2, "sigmoid": 1, "add": 1},
    ),
}


@pytest.mark.parametrize("name", SIMPLER)
def test_slices_and_concats(name: str) -> None:
    function, expected = SIMPLER[name]
    assert kinds(transformed(build({"x": (2, 8, 3)}, function), "simplify-slices")) == expected


def test_parts_of_a_new_split_keep_their_names() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        return [cut(b, x, 4, 8, name="high"), cut(b, x, 0, 4, name="low")]

    after = transformed(build({"x": (2, 8, 3)}, network), "simplify-slices")
    assert [value_name(port.value) for port in after.outputs] == ["high", "low"]
