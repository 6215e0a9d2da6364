"""Dead code, common subexpressions, identities, constants."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.ir import Value, top, value_name
from npuc.ir.passes import run_pipeline
from npuc.transform import fold_constants
from support.graphs import Builder, build
from support.passes import kinds, transformed

F = np.float32


def test_dead_ops_and_their_weights_go() -> None:
    def network(b: Builder, x: Value) -> Value:
        b(top.Mul, b(top.Relu, x), np.ones(3, F))
        return b(top.Neg, x)

    after = transformed(build({"x": (2, 3)}, network), "eliminate-dead-code")
    assert kinds(after) == {"neg": 1}
    assert len(after.weights) == 0


def test_equal_ops_are_computed_once() -> None:
    def network(b: Builder, x: Value) -> Value:
        one, other = b(top.Relu, x, limit=6.0), b(top.Relu, x, limit=6.0)
        return b(top.Add, b(top.Mul, one, np.full(3, 2, F)), b(top.Mul, other, np.full(3, 2, F)))

    after = transformed(build({"x": (2, 3)}, network), "eliminate-common-subexpressions")
    assert kinds(after) == {"relu": 1, "mul": 1, "add": 1}
    assert len(after.used_weights()) == 1


def test_ops_that_differ_in_a_property_stay() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: b(top.Add, b(top.Relu, x), b(top.Relu, x, limit=6.0)))
    assert kinds(transformed(graph, "eliminate-common-subexpressions"))["relu"] == 2


def test_random_ops_are_neither_merged_nor_folded() -> None:
    def noise(b: Builder) -> Value:
        node = {"op_type": "RandomNormal", "version": 1, "onnx_attributes": {"shape": (2, 3)}}
        properties = top.Onnx.make([], **node, arguments=(), outputs_used=(0,)).properties
        op = top.Onnx.create(properties=properties, result_types=[b.graph.block.args[0].type])
        b.graph.block.add_op(op)
        return op.results[0]

    graph = build({"x": (2, 3)}, lambda b, x: b(top.Add, x, b(top.Sub, noise(b), noise(b))))
    after = run_pipeline(graph, "eliminate-common-subexpressions,fold-constants")
    assert kinds(after)["onnx"] == 2


def test_two_outputs_may_share_one_value_and_keep_their_names() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: {"p": b(top.Relu, x, name="p"), "q": b(top.Relu, x, name="q")})
    after = transformed(graph, "eliminate-common-subexpressions")
    assert [port.name for port in after.outputs] == ["p", "q"]
    assert kinds(after) == {"relu": 1}


IDENTITIES: dict[str, Any] = {
    "reshape": lambda b, x: b(top.Reshape, x, shape=(1, 4, 6, 6)),
    "permute": lambda b, x: b(top.Permute, x, order=(0, 1, 2, 3)),
    "slice": lambda b, x: b(top.Slice, x, offset=(0,) * 4, steps=(1,) * 4, shape=(1, 4, 6, 6)),
    "pad": lambda b, x: b(top.Pad, x, pads=(0,) * 8),
    "concat": lambda b, x: b(top.Concat, [x], axis=1),
    "split": lambda b, x: b(top.Split, x, axis=1, sizes=(4,)),
    "expand": lambda b, x: b(top.Expand, x, shape=(1, 4, 6, 6)),
    "tile": lambda b, x: b(top.Tile, x, repeats=(1, 1, 1, 1)),
    "cast": lambda b, x: b(top.Cast, x, to="f32"),
    "add 0": lambda b, x: b(top.Add, x, np.zeros((4, 1, 1), F)),
    "0 + x": lambda b, x: b(top.Add, np.zeros((), F), x),
    "sub 0": lambda b, x: b(top.Sub, x, np.zeros((), F)),
    "mul 1": lambda b, x: b(top.Mul, x, np.ones((1, 4, 1, 1), F)),
    "div 1": lambda b, x: b(top.Div, x, np.ones((), F)),
    "scale": lambda b, x: b(top.Scale, x, np.ones(4, F), np.zeros(4, F)),
    "clip": lambda b, x: b(top.Clip, x, min=-np.inf, max=np.inf),
    "resize": lambda b, x: b(top.Resize, x, sizes=(1, 4, 6, 6), mode="linear", coordinates="align_corners"),
    "shuffle": lambda b, x: b(top.ShuffleChannel, x, group=4),
    "relu": lambda b, x: b(top.Relu, b(top.Relu, x)),
    "leaky relu": lambda b, x: b(top.LeakyRelu, x, alpha=1.0),
    "max of one": lambda b, x: b(top.Max, x, x),
    "max pool": lambda b, x: b(
        top.MaxPool, x, kernel=(1, 1), strides=(1, 1), pads=(0,) * 4, dilations=(1, 1)
    ),
}


@pytest.mark.parametrize("name", IDENTITIES)
def test_identities_go(name: str) -> None:
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: b(top.Relu, IDENTITIES[name](b, b(top.Neg, x))))
    assert kinds(transformed(graph, "remove-identities")) == {"neg": 1, "relu": 1}


NOT_IDENTITIES: dict[str, Any] = {
    "reversed": lambda b, x: b(top.Slice, x, offset=(0, 3, 0, 0), steps=(1, -1, 1, 1), shape=(1, 4, 6, 6)),
    "grows": lambda b, x: b(top.Add, x, np.zeros((2, 4, 1, 1), F)),
    "resize": lambda b, x: b(
        top.Resize, x, sizes=(1, 4, 6, 6), mode="nearest", coordinates="tf_half_pixel_for_nn", rounding="ceil"
    ),
    "1 - x": lambda b, x: b(top.Sub, np.zeros((), F), x),
    "shuffle": lambda b, x: b(top.ShuffleChannel, x, group=2),
}


@pytest.mark.parametrize("name", NOT_IDENTITIES)
def test_near_identities_stay(name: str) -> None:
    graph = build({"x": (1, 4, 6, 6)}, lambda b, x: b(top.Relu, NOT_IDENTITIES[name](b, b(top.Neg, x))))
    assert sum(kinds(transformed(graph, "remove-identities")).values()) == 3


def test_integers_are_left_alone() -> None:
    graph = build({"x": ((2, 3), "i32")}, lambda b, x: b(top.Add, x, np.zeros((), np.int32)))
    assert kinds(transformed(graph, "remove-identities,canonical-arithmetic")) == {"add": 1}


def test_an_identity_with_a_fused_relu_becomes_a_relu() -> None:
    graph = build({"x": (2, 3)}, lambda b, x: b(top.Add, x, np.zeros((), F), relu=True, relu_limit=1.0))
    assert kinds(transformed(graph, "remove-identities")) == {"relu": 1}


def test_an_output_keeps_its_name_when_its_op_goes() -> None:
    def network(b: Builder, x: Value) -> dict[str, Value]:
        return {"y": b(top.Reshape, b(top.Relu, x, name="inner"), shape=(2, 3), name="y")}

    after = transformed(build({"x": (2, 3)}, network), "remove-identities")
    assert value_name(after.outputs[0].value) == "y"


def test_a_reduction_over_ones_is_a_reshape() -> None:
    graph = build({"x": (2, 1, 3)}, lambda b, x: b(top.Reduce, x, kind="sum", axes=(1,), keepdims=False))
    assert kinds(transformed(graph, "remove-identities")) == {"reshape": 1}


def test_constants_are_folded_through_several_ops() -> None:
    def network(b: Builder, x: Value) -> Value:
        exponent = b(top.Exp, np.linspace(0, 1, 3, dtype=F), name="e")
        return b(top.Mul, x, b(top.Reshape, b(top.Sqrt, exponent), shape=(1, 3), name="folded"))

    after = transformed(build({"x": (2, 3)}, network), "fold-constants")
    assert kinds(after) == {"mul": 1}
    constant = after.constant(after.find("folded"))
    assert constant is not None
    np.testing.assert_allclose(constant, np.sqrt(np.exp(np.linspace(0, 1, 3)))[None], rtol=1e-6)


def test_a_constant_output_keeps_its_name() -> None:
    graph = build({"x": (3,)}, lambda b, x: {"c": b(top.Exp, np.zeros(3, F), name="c"), "y": b(top.Neg, x)})
    after = transformed(graph, "fold-constants")
    assert value_name(after.outputs[0].value) == "c"
    assert kinds(after) == {"neg": 1}


def test_results_beyond_the_limit_are_not_folded() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Add, x, b(top.Exp, np.zeros((64, 64), F)))

    graph = build({"x": (64, 64)}, network)
    assert kinds(transformed(graph, "fold-constants{limit=16383}")) == {"exp": 1, "add": 1}
    assert kinds(transformed(graph, "fold-constants{limit=16384}")) == {"add": 1}


def test_a_long_chain_on_one_constant_is_folded_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """All results together have a limit, for all may be in memory at once: the weight counts twice, a result once."""

    def network(b: Builder, x: Value) -> Value:
        held: Any = np.zeros(256, F)
        for _ in range(10):
            held = b(top.Tanh, held)
        return b(top.Add, x, held)

    graph = build({"x": (256,)}, network)
    monkeypatch.setattr(fold_constants, "_ALLOWED", 3 * 1024)
    assert kinds(run_pipeline(graph, "fold-constants")) == {"tanh": 5, "add": 1}
    monkeypatch.setattr(fold_constants, "_ALLOWED", 8 * 1024)
    assert kinds(run_pipeline(graph, "fold-constants")) == {"add": 1}


def test_an_expansion_that_would_blow_up_is_not_folded() -> None:
    def network(b: Builder, x: Value) -> Value:
        return b(top.Add, x, b(top.Expand, np.zeros((1, 8), F), shape=(1 << 16, 8)))

    assert kinds(run_pipeline(build({"x": (1, 8)}, network), "fold-constants"))["expand"] == 1


def test_a_quantized_weight_keeps_its_dequantize() -> None:
    def network(b: Builder, x: Value) -> Value:
        weight = b(top.Dequantize, np.ones((3, 2), np.int8), np.asarray(0.5, F), np.asarray(0, np.int8))
        return b(top.MatMul, x, weight)

    assert kinds(transformed(build({"x": (2, 3)}, network), "fold-constants"))["dequantize"] == 1


def test_what_cannot_be_evaluated_stays_and_the_rest_is_folded() -> None:
    def network(b: Builder, x: Value) -> list[Value]:
        bad = b(top.Gather, np.zeros((3,), F), np.asarray([7], np.int64))
        return [b(top.Add, x, bad), b(top.Add, x, b(top.Exp, np.zeros(3, F)))]

    after = run_pipeline(build({"x": (3,)}, network), "fold-constants")
    assert kinds(after) == {"gather": 1, "add": 2}
