"""Layers are records: they print, compare, and answer from their fields alone."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.codegen.compile_model import CompileOptions, compile_program
from npuc.flow import quantize_network
from npuc.ir import result_names, top
from npuc.schedule.constants import Constants
from npuc.schedule.layers import Layer, LayerOp, Tile
from npuc.schedule.network import Network, WithTableOp
from npuc.schedule.rules import find_rule
from npuc.schedule.rules.elementwise import AddOp, MaxPoolOp
from npuc.schedule.rules.linear import ConvOp, FullyConnectedOp
from npuc.target import load_target


def network(bias: float = 0.5) -> Network:
    """A convolution with a table behind it, a pool, a depthwise convolution, a sum and a fully connected layer."""
    rng = np.random.default_rng(3)

    def weights(*shape: int) -> Any:
        return rng.uniform(-1, 1, shape).astype(np.float32)

    x = lang.input("x", (1, 3, 16, 12))
    y = lang.sigmoid(
        lang.conv(x, weights(8, 3, 3, 3), np.full(8, bias, np.float32), strides=2, pads=1, name="stem")
    )
    y = lang.max_pool(y, kernel=2, strides=2, name="pool")
    deep = lang.conv(y, weights(8, 1, 3, 3), pads=1, group=8, name="deep")
    flat = lang.reshape(deep + y, shape=(1, 8 * 4 * 3))
    graph = lang.build({"y": lang.matmul(flat, weights(8 * 4 * 3, 10))})
    ranges = {port.name: (-1.0, 1.0) for port in graph.inputs}
    for op in graph.ops:
        if not isinstance(op, top.WeightOp):
            ranges |= dict.fromkeys(result_names(op), (-6.0, 6.0))
    target = load_target("edge-1t")
    integers = quantize_network(graph, ranges, None, target).graph
    (part,) = compile_program(integers, target, CompileOptions(0)).parts
    return part.network


def whole(layer: Layer) -> Tile:
    rows = (0, layer.outputs[0].rows)
    inputs = tuple((0, tensor.storage.rows) for tensor in layer.inputs)
    return Tile(rows, (0, layer.channels), inputs, rows)


def test_a_layer_says_what_it_computes() -> None:
    by_kind = {layer.kind: layer.op for layer in network().layers}
    stem = by_kind["conv"]
    pool, fully = by_kind["max_pool"], by_kind["matmul"]
    assert isinstance(pool, MaxPoolOp) and pool.window.kernel == (2, 2) and pool.x.shape == (1, 8, 8, 6)
    assert isinstance(fully, FullyConnectedOp) and fully.weights.arrays["weight"].shape == (10, 96, 1, 1)
    assert isinstance(by_kind["add"], AddOp) and not by_kind["add"].subtract
    assert isinstance(stem, ConvOp) and stem.groups == 8
    table = next(layer.op for layer in network().layers if isinstance(layer.op, WithTableOp))
    assert isinstance(table.computed, ConvOp) and table.computed.window.stride == (2, 2)
    assert table.computed.weights.requantization.kind == "single_rounding"


def test_layers_of_the_same_network_are_equal_and_print_the_same() -> None:
    first, second = network(), network()
    assert first.layers == second.layers and first.layers[0] is not second.layers[0]
    assert [hash(layer) for layer in first.layers] == [hash(layer) for layer in second.layers]
    assert repr(first.layers) == repr(second.layers)
    text = repr(first.layers[0])
    assert "ConvOp(" in text and "stride=(2, 2)" in text and "weight=int8[8x3x3x3]" in text
    assert "0x" not in text and "function" not in text


def test_another_number_makes_another_layer() -> None:
    first, second = network(), network(bias=0.25)
    unlike = [a.name for a, b in zip(first.layers, second.layers, strict=True) if a != b]
    assert unlike == [first.layers[0].name]


def test_equal_layers_give_equal_instructions() -> None:
    for a, b in zip(network().layers, network().layers, strict=True):
        tile = whole(a)
        assert a.templates(tile) == b.templates(tile)
        assert a.constants(tile.channels) == b.constants(tile.channels)
        assert a.constant_size(tile.channels) == a.constants(tile.channels).size
        assert a.constants(tile.channels).packed().size == a.constant_size(tile.channels)


def test_no_field_of_a_layer_is_code() -> None:
    assert find_rule(object()) is None  # loads all rules
    kinds = list(LayerOp.__subclasses__())
    for kind in kinds:
        kinds += kind.__subclasses__()
    ours = [kind for kind in kinds if kind.__module__.startswith("npuc.")]
    assert len(ours) > 25
    for kind in ours:
        assert dataclasses.is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
        for field in dataclasses.fields(kind):
            assert "Callable" not in str(field.type) and "Any" not in str(field.type), (kind, field.name)


@pytest.mark.parametrize("changed", ["name", "type", "number", "order"])
def test_constants_compare_by_name_type_and_number(changed: str) -> None:
    arrays = {"weight": np.arange(6, dtype=np.int8), "bias": np.ones(2, np.int32)}
    other = {name: array.copy() for name, array in arrays.items()}
    assert Constants(arrays) == Constants(other)
    if changed == "name":
        other["shift"] = other.pop("bias")
    elif changed == "type":
        other["weight"] = other["weight"].astype(np.int16)
    elif changed == "number":
        other["weight"][3] = 7
    else:
        other = dict(reversed(other.items()))
    assert Constants(arrays) != Constants(other)
