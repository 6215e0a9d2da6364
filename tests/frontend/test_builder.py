"""The builder of all importers: names, constants, what is taken back; and the layouts of tensors, on the example of its page."""

from __future__ import annotations

import numpy as np
import pytest

from npuc.errors import UsageError
from npuc.frontend.builder import Builder, LayerBuilder
from npuc.frontend.layout import Absent, LayoutBuilder, LayoutTensor
from npuc.frontend.support import Names
from npuc.ir import Graph, Weight, dtype_of, layer_name, shape_of, tensor_type, top, value_name


def graph(*shape: int) -> Graph:
    return Graph.empty([("x", tensor_type(shape, "f32"))])


def test_names_are_given_once_and_can_be_taken_back() -> None:
    names = Names()
    assert [names.unique(name) for name in ("a", "a.1", "a", "a", "b")] == ["a", "a.1", "a.2", "a.3", "b"]
    mark = names.mark()
    assert [names.unique(name) for name in ("a", "c", "kept")] == ["a.4", "c", "kept"]
    names.rewind(mark, ["kept"])
    assert [names.unique(name) for name in ("kept", "c", "a")] == ["kept.1", "c", "a.4"]


def test_results_get_their_names_when_the_layer_is_done() -> None:
    builder = Builder(graph(1, 4))
    (port,) = builder.graph.inputs
    layer = LayerBuilder(builder, "y", layer="node 7")
    half = layer.literal(np.array(0.5, np.float32), "half")
    product = layer.emit(top.Mul, port.value, half)
    relu = layer.emit(top.Relu, product.y)
    assert value_name(product.y) == ""
    layer.finish({relu.y: "y"})
    assert [value_name(value) for value in (half, product.y, relu.y)] == ["y/half", "y/mul", "y"]
    assert layer_name(relu) == "node 7" and layer.emitted == []


def test_a_rule_that_gives_up_leaves_only_constants() -> None:
    builder = Builder(graph(1, 4))
    (port,) = builder.graph.inputs
    layer = LayerBuilder(builder, "y")
    mark = builder.mark()
    layer.literal(np.zeros(3, np.float32), "w")
    layer.emit(top.Relu, port.value)
    layer.finish({})
    layer.emit(top.Relu, port.value)
    layer.give_up(mark)
    assert [op.name for op in builder.graph.ops] == ["top.weight"]
    assert builder.unique("y/relu") == "y/relu" and builder.unique("y/w") == "y/w.1"


def test_constants_are_stored_once() -> None:
    builder = Builder(graph(1, 4))
    tied = np.ones(4, np.float32)
    assert builder.store_for(tied, tied, "a") is builder.store_for(tied, tied, "b")
    assert builder.store_for(tied.copy(), tied, "b") is not builder.store_for(tied, tied, "b")
    assert builder.shared(tied, "c") is builder.shared(tied.copy(), "d")
    inner = Builder(builder.graph, builder, "loop/")
    assert inner.store_for(tied, tied, "e") is builder.stored(tied)
    assert value_name(inner.store(tied, "e")) == "loop/e"


def test_what_only_onnx_has_is_kept_with_its_reason() -> None:
    builder = Builder(graph(1, 4))
    layer = LayerBuilder(builder, "y")
    types = [tensor_type((2, -1), "i64")]
    (places,) = layer.onnx("NonZero", [builder.graph.inputs[0].value], types, "how many depends on data")
    op = places.owner
    assert isinstance(op, top.Onnx) and (op.op_type, op.domain, op.version) == ("NonZero", "", 13)
    (mine,) = layer.onnx("Mine", [places], types, "nobody knows it", {"by": 2}, domain="com.example")
    assert isinstance(mine.owner, top.Onnx) and mine.owner.version == 1


def test_a_chain_of_convolutions_is_turned_at_its_ends() -> None:
    builder = LayoutBuilder(graph(1, 8, 8, 3))
    x = LayoutTensor(builder.graph.inputs[0].value, name="x")
    kernel = LayoutTensor(weight=Weight.of(np.zeros((16, 3, 3, 3), np.float32)), name="k")
    tensors = [x]
    for name, channels in (("y", 3), ("z", 16)):
        weight = builder.store(np.zeros((16, channels, 3, 3), np.float32), f"{name}/k")
        conv = top.Conv.make(
            builder.value_of(tensors[-1], second=True), weight, None, strides=[1, 1],
            pads=[0] * 4, dilations=[1, 1], group=1,
        )  # fmt: skip
        tensors.append(LayoutTensor(builder.append(conv, name).y, second=True, name=name))
    assert tensors[-1].shape == (1, 4, 4, 16) and tensors[-1].dtype == dtype_of("f32")
    plain = builder.value_of(tensors[-1])
    assert shape_of(plain) == (1, 4, 4, 16) and builder.value_of(tensors[-1]) is plain
    turns = [value_name(op.y) for op in builder.graph.ops if isinstance(op, top.Permute)]
    assert turns == ["x/channels_second", "z/channels_last"]
    assert builder.is_turned(x) and not builder.is_turned(kernel)
    assert shape_of(builder.value_of(kernel, second=True)) == (16, 3, 3, 3)
    assert builder.is_turned(kernel) and not kernel.is_turned


def test_an_input_that_was_cut_off_is_asked_for_when_somebody_looks() -> None:
    builder = LayoutBuilder(graph(1, 4))
    with pytest.raises(UsageError, match="still need the input 'gone'"):
        builder.value_of(Absent("gone"))
