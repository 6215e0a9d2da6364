"""Batch norms, scales, relus and pads go into their neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.arrays import Array
from npuc.ir import Value, top, value_name
from support.graphs import Builder, build
from support.passes import kinds, only, transformed

F = np.float32
RANDOM = np.random.default_rng(0)


def array(*shape: int, low: float = -1.0) -> Array:
    return RANDOM.uniform(low, 1.0, shape).astype(F)


def conv(
    b: Builder,
    x: Value,
    out: int = 4,
    group: int = 1,
    pad: int = 0,
    bias: bool = True,
    kernel: int = 3,
    **more: Any,
) -> Value:
    channels = x.type.get_shape()[1]
    window = {"strides": (1, 1), "pads": (pad,) * 4, "dilations": (1, 1), "group": group}
    weight = array(out, channels // group, kernel, kernel)
    return b(top.Conv, x, weight, array(out) if bias else None, **window, **more)


def deconv(b: Builder, x: Value, group: int = 2) -> Value:
    window = {"strides": (2, 2), "pads": (1,) * 4, "dilations": (1, 1), "output_padding": (1, 1)}
    return b(top.Deconv, x, array(x.type.get_shape()[1], 3, 3, 3), None, group=group, **window)


def batch_norm(b: Builder, x: Value, **more: Any) -> Value:
    c = x.type.get_shape()[1]
    return b(top.BatchNorm, x, array(c), array(c), array(c), array(c, low=0.1), epsilon=1e-3, **more)


def scale(b: Builder, x: Value, **more: Any) -> Value:
    c = x.type.get_shape()[1]
    return b(top.Scale, x, array(c), array(c), **more)


def test_batch_norm_is_a_scale() -> None:
    graph = build({"x": (2, 4, 5, 5)}, lambda b, x: batch_norm(b, x))
    assert kinds(transformed(graph, "fold-batch-norm")) == {"scale": 1}


def test_batch_norm_with_computed_parameters_stays() -> None:
    graph = build(
        {"x": (2, 4), "m": (4,)},
        lambda b, x, m: b(top.BatchNorm, x, array(4), array(4), m, array(4, low=0.1)),
    )
    assert kinds(transformed(graph, "fold-batch-norm")) == {"batch_norm": 1}


AFTER: dict[str, Any] = {
    "conv": lambda b, x: conv(b, x, pad=1),
    "conv without bias": lambda b, x: conv(b, x, bias=False),
    "grouped conv": lambda b, x: conv(b, x, group=2),
    "depthwise conv": lambda b, x: conv(b, x, out=8, group=4),
    "deconv": lambda b, x: deconv(b, x),
    "matmul": lambda b, x: b(top.MatMul, b(top.Reshape, x, shape=(4, 36)), array(36, 5), array(5)),
    "matmul, transposed": lambda b, x: b(
        top.MatMul, b(top.Reshape, x, shape=(4, 36)), array(5, 36), transpose_b=True
    ),
}


@pytest.mark.parametrize("name", AFTER)
def test_a_chain_of_scales_folds_into_the_op_before(name: str) -> None:
    def network(b: Builder, x: Value) -> Value:
        y = scale(b, batch_norm(b, AFTER[name](b, x)))
        y = b(top.Mul, b(top.Sub, y, np.asarray(0.5, F)), np.asarray([2.0], F))
        return b(top.Div, b(top.Neg, y), np.asarray(3.0, F))

    after = transformed(build({"x": (1, 4, 6, 6)}, network), "fold-batch-norm,fold-scale")
    assert set(kinds(after)) <= {"conv", "deconv", "matmul", "reshape"}


BEFORE: dict[str, Any] = {
    "conv": lambda b, x: conv(b, x),
    "grouped conv": lambda b, x: conv(b, x, group=2, out=6),
    "depthwise conv": lambda b, x: conv(b, x, out=8, group=4),
}


@pytest.mark.parametrize("name", BEFORE)
def test_a_scale_folds_into_the_op_behind_it(name: str) -> None:
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: BEFORE[name](b, scale(b, x)))
    assert kinds(transformed(graph, "fold-scale")) == {"conv": 1}


def test_a_scale_folds_into_the_matmul_behind_it() -> None:
    graph = build(
        {"x": (2, 3, 4)},
        lambda b, x: b(top.MatMul, b(top.Add, b(top.Mul, x, array(4)), array(4)), array(4, 5)),
    )
    after = transformed(graph, "fold-scale")
    assert kinds(after) == {"matmul": 1}


def test_padding_keeps_an_offset_in_front_of_a_conv_but_not_a_factor() -> None:
    offset = build({"x": (1, 4, 6, 6)}, lambda b, x: conv(b, scale(b, x), pad=1))
    assert kinds(transformed(offset, "fold-scale")) == {"scale": 1, "conv": 1}
    factor = build({"x": (1, 4, 6, 6)}, lambda b, x: conv(b, b(top.Mul, x, array(4, 1, 1)), pad=1))
    assert kinds(transformed(factor, "fold-scale")) == {"conv": 1}


def test_a_deconv_takes_a_factor_but_not_an_offset_from_before() -> None:
    factor = build({"x": (1, 4, 6, 6)}, lambda b, x: deconv(b, b(top.Mul, x, array(4, 1, 1))))
    assert kinds(transformed(factor, "fold-scale")) == {"deconv": 1}
    offset = build({"x": (1, 4, 6, 6)}, lambda b, x: deconv(b, b(top.Add, x, array(4, 1, 1))))
    assert kinds(transformed(offset, "fold-scale")) == {"deconv": 1, "add": 1}


def test_a_value_that_others_use_is_not_folded_away() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        y = conv(b, x)
        return [y, scale(b, y)]

    assert kinds(transformed(build({"x": (1, 4, 6, 6)}, network), "fold-scale")) == {"conv": 1, "scale": 1}


def test_a_relu_stands_between() -> None:
    before = build({"x": (1, 4, 6, 6)}, lambda b, x: scale(b, conv(b, x, relu=True)))
    assert kinds(transformed(before, "fold-scale")) == {"conv": 1, "scale": 1}
    behind = build({"x": (1, 4, 6, 6)}, lambda b, x: conv(b, scale(b, x, relu=True)))
    assert kinds(transformed(behind, "fold-scale")) == {"conv": 1, "scale": 1}


def test_the_relu_of_a_folded_op_survives() -> None:
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: scale(b, conv(b, x), relu=True, relu_limit=0.5, name="y"))
    after = transformed(graph, "fold-scale")
    op: Any = only(after, "conv")
    assert (op.relu, op.relu_limit, value_name(op.y)) == (True, 0.5, "y")


def test_constants_along_another_axis_are_not_folded() -> None:
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: b(top.Mul, conv(b, x), array(4)))
    assert kinds(transformed(graph, "fold-scale")) == {"conv": 1, "mul": 1}


def test_scales_without_a_neighbour_merge() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(
            top.Mul,
            scale(b, b(top.Add, b(top.Mul, b(top.Relu, x), array(4, 1, 1)), array(1))),
            array(1, 4, 1, 1),
        )

    assert kinds(transformed(build({"x": (1, 4, 6, 6)}, network), "fold-scale")) == {"relu": 1, "scale": 1}


def test_a_fold_that_overflows_is_left() -> None:
    def network(b: Builder, x: Value) -> Value:
        weight = np.full((2, 4, 1, 1), 3e38, F)
        y = b(top.Conv, x, weight, None, strides=(1, 1), pads=(0,) * 4, dilations=(1, 1))
        return b(top.Mul, y, np.asarray(10.0, F))

    graph = build({"x": (1, 4, 2, 2)}, network)
    from npuc.ir.passes import run_pipeline

    assert kinds(run_pipeline(graph, "fold-scale")) == {"conv": 1, "mul": 1}


FUSABLE: dict[str, Any] = {
    "conv": lambda b, x: conv(b, x),
    "deconv": lambda b, x: deconv(b, x),
    "matmul": lambda b, x: b(top.MatMul, x, array(6, 5)),
    "add": lambda b, x: b(top.Add, x, b(top.Neg, x)),
    "sub": lambda b, x: b(top.Sub, x, b(top.Sigmoid, x)),
    "mul": lambda b, x: b(top.Mul, x, b(top.Sigmoid, x)),
    "scale": lambda b, x: scale(b, x),
}

RELUS: dict[str, Any] = {
    "relu": (lambda b, x: b(top.Relu, x, name="y"), 0.0),
    "relu6": (lambda b, x: b(top.Relu, x, limit=6.0, name="y"), 6.0),
    "clip": (lambda b, x: b(top.Clip, x, min=0.0, max=0.25, name="y"), 0.25),
    "max": (lambda b, x: b(top.Max, x, np.zeros((), F), name="y"), 0.0),
    "max, min": (lambda b, x: b(top.Min, b(top.Max, np.zeros(1, F), x), np.full(1, 0.5, F), name="y"), 0.5),
    "twice": (lambda b, x: b(top.Relu, b(top.Relu, x, limit=0.5), name="y"), 0.5),
}


@pytest.mark.parametrize("relu", RELUS)
@pytest.mark.parametrize("name", FUSABLE)
def test_relus_fuse(name: str, relu: str) -> None:
    function, limit = RELUS[relu]
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: function(b, FUSABLE[name](b, x)))
    after = transformed(graph, "fuse-relu")
    assert not kinds(after).keys() & {"relu", "clip", "max", "min"}
    op: Any = after.outputs[0].value.owner
    assert (op.relu, op.relu_limit, value_name(op.results[0])) == (True, limit, "y")


def test_a_relu_stays_where_its_input_is_needed() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        y = conv(b, x)
        return [y, b(top.Relu, y)]

    assert kinds(transformed(build({"x": (1, 4, 6, 6)}, network), "fuse-relu")) == {"conv": 1, "relu": 1}


def test_other_clips_and_integers_stay() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: b(top.Clip, b(top.Add, x, x), min=-1.0, max=1.0))
    assert kinds(transformed(graph, "fuse-relu")) == {"add": 1, "clip": 1}
    integers = build(
        {"x": ((2, 3), "i32")}, lambda b, x: b(top.Max, b(top.Add, x, x), np.zeros((), np.int32))
    )
    assert kinds(transformed(integers, "fuse-relu")) == {"add": 1, "max": 1}


def pool(b: Builder, kind: Any, x: Value, **more: Any) -> Value:
    return b(kind, x, **{"kernel": (3, 3), "strides": (2, 2), "pads": (0,) * 4, "dilations": (1, 1), **more})


def pad(
    b: Builder, x: Value, value: float = 0.0, mode: str = "constant", pads: Any = (0, 0, 1, 2, 0, 0, 0, 1)
) -> Value:
    return b(top.Pad, x, pads=pads, value=value, mode=mode)


PADDED: dict[str, Any] = {
    "conv": lambda b, x: conv(b, pad(b, x), pad=1),
    "average pool": lambda b, x: pool(b, top.AvgPool, pad(b, x)),
    "average pool that counts": lambda b, x: pool(
        b, top.AvgPool, pad(b, x, pads=(0, 0, 1, 1, 0, 0, 0, 1)), pads=(1, 0, 0, 1), count_include_pad=True
    ),
    "max pool, minus infinity": lambda b, x: pool(b, top.MaxPool, pad(b, x, -np.inf)),
    "max pool, lowest": lambda b, x: pool(b, top.MaxPool, pad(b, x, float(np.finfo(F).min))),
    "max pool after relu": lambda b, x: pool(b, top.MaxPool, pad(b, b(top.Relu, x))),
    "max pool after concat of sigmoids": lambda b, x: pool(
        b, top.MaxPool, pad(b, b(top.Concat, [b(top.Sigmoid, x), b(top.Relu, x)], axis=1))
    ),
}


@pytest.mark.parametrize("name", PADDED)
def test_pads_fuse(name: str) -> None:
    after = transformed(build({"x": (1, 4, 6, 6)}, PADDED[name]), "fuse-pad")
    assert "pad" not in kinds(after)


NOT_PADDED: dict[str, Any] = {
    "conv, not zero": lambda b, x: conv(b, pad(b, x, 1.0)),
    "conv, reflect": lambda b, x: conv(b, pad(b, x, mode="reflect")),
    "conv, crop": lambda b, x: conv(b, pad(b, x, pads=(0, 0, -1, 0, 0, 0, 0, 0))),
    "conv, channels": lambda b, x: conv(b, pad(b, x, pads=(0, 1, 0, 0, 0, 1, 0, 0))),
    "average pool with padding of its own": lambda b, x: pool(b, top.AvgPool, pad(b, x), pads=(1, 0, 0, 0)),
    "average pool, ceil": lambda b, x: pool(b, top.AvgPool, pad(b, x), ceil_mode=True),
    "max pool, zeros": lambda b, x: pool(b, top.MaxPool, pad(b, x)),
    "max pool, a window of padding": lambda b, x: pool(
        b, top.MaxPool, pad(b, b(top.Relu, x), pads=(0, 0, 3, 0, 0, 0, 0, 0))
    ),
    "max pool, positive": lambda b, x: pool(b, top.MaxPool, pad(b, b(top.Relu, x), 1.0)),
}


@pytest.mark.parametrize("name", NOT_PADDED)
def test_other_pads_stay(name: str) -> None:
    after = transformed(build({"x": (1, 4, 6, 6)}, NOT_PADDED[name]), "fuse-pad")
    assert kinds(after)["pad"] == 1


def test_two_pointwise_convs_are_one() -> None:
    graph = build(
        {"x": (1, 4, 6, 6)}, lambda b, x: conv(b, conv(b, x, out=3, kernel=1), out=8, kernel=1, bias=False)
    )
    assert kinds(transformed(graph, "merge-pointwise-convs")) == {"conv": 1}
    three = build(
        {"x": (1, 4, 6, 6)},
        lambda b, x: conv(b, conv(b, conv(b, x, kernel=1), kernel=1), kernel=1, relu=True),
    )
    after = transformed(three, "merge-pointwise-convs")
    assert kinds(after) == {"conv": 1} and next(op for op in after.ops if isinstance(op, top.Conv)).relu


NOT_MERGED: dict[str, Any] = {
    "a relu between": lambda b, x: conv(b, conv(b, x, kernel=1, relu=True), kernel=1),
    "a larger kernel": lambda b, x: conv(b, conv(b, x), kernel=1),
    "padding": lambda b, x: conv(b, conv(b, x, kernel=1), kernel=1, pad=1),
    "groups": lambda b, x: conv(b, conv(b, x, out=4, kernel=1), kernel=1, group=2, out=4),
}


@pytest.mark.parametrize("name", NOT_MERGED)
def test_other_convs_stay_two(name: str) -> None:
    graph = build({"x": (1, 4, 6, 6)}, NOT_MERGED[name])
    assert kinds(transformed(graph, "merge-pointwise-convs")) == {"conv": 2}


def test_a_conv_whose_value_others_use_is_not_merged() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        y = conv(b, x, kernel=1)
        return [y, conv(b, y, kernel=1)]

    assert kinds(transformed(build({"x": (1, 4, 6, 6)}, network), "merge-pointwise-convs")) == {"conv": 2}
