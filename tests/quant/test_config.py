"""The configuration: three levels, and mistakes that are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc.errors import QuantizationError
from npuc.ir import Graph, shown_name, tensor_type, top
from npuc.ir.definition import TopOp
from npuc.quant.config import QuantizationConfig, first_and_last


@pytest.fixture
def graph() -> Graph:
    graph = Graph.empty([("x", tensor_type((1, 2, 4, 4), "f32"))])
    value = graph.inputs[0].value
    for name in ("stem", "body", "head"):
        weight = graph.add_weight(f"{name}/w", np.ones((2, 2, 1, 1), np.float32))
        conv = top.Conv.make(
            value,
            weight.output,
            None,
            strides=(1, 1),
            pads=(0,) * 4,
            dilations=(1, 1),
            name=f"{name}_out",
            layer=name,
        )
        graph.block.add_op(weight)
        graph.block.add_op(conv)
        value = conv.y
    silu = top.SiLU.make(value, name="y")
    graph.block.add_op(silu)
    graph.set_outputs([("y", silu.y)])
    return graph


def chosen(graph: Graph, config: QuantizationConfig) -> list[str]:
    scheme_of = config.resolve(graph)
    ops = [op for op in graph.ops if isinstance(op, TopOp) and not isinstance(op, top.WeightOp)]
    schemes = [scheme_of(op) for op in ops]
    return ["float" if s is None else f"{s.activation}/{s.weight}" for s in schemes]


def schemes_by_name(config: QuantizationConfig, graph: Graph) -> dict[str, Any]:
    """What every layer gets, in plain values, as `layers` of a configuration has them."""
    scheme_of = config.resolve(graph)
    schemes = {}
    for op in graph.ops:
        if isinstance(op, TopOp) and not isinstance(op, top.WeightOp):
            scheme = scheme_of(op)
            schemes[shown_name(op)] = "float" if scheme is None else scheme.to_dict()
    return schemes


def test_the_levels_override_each_other(graph: Graph) -> None:
    assert chosen(graph, QuantizationConfig()) == ["i8/i8"] * 4
    assert chosen(graph, QuantizationConfig(types={"silu": "float"}))[3] == "float"
    config = QuantizationConfig(
        types={"conv": "int16"}, layers={"st*": {"weight": "i16"}, "head_out": "float"}
    )
    assert chosen(graph, config) == ["i16/i16", "i16/i8", "float", "i8/i8"]


def test_the_first_and_last_layers_with_weights(graph: Graph) -> None:
    assert first_and_last(graph) == ("stem_out", "head_out")


def test_the_effective_configuration_names_every_layer(graph: Graph) -> None:
    effective = schemes_by_name(QuantizationConfig(layers={"body": "float"}), graph)
    assert list(effective) == ["stem_out", "body_out", "head_out", "y"]
    assert effective["body_out"] == "float" and effective["stem_out"]["activation"] == "i8"
    again = schemes_by_name(QuantizationConfig(layers=effective), graph)
    assert again == effective


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (QuantizationConfig(scheme="int9"), "no scheme 'int9'"),
        (QuantizationConfig(layers={"hed": "int16"}), "no layer 'hed'.*'head'"),
        (QuantizationConfig(types={"convv": "int16"}), "no op 'convv'.*'conv'"),
        (QuantizationConfig(scheme={"wieght": "i8"}), "no 'wieght'.*'weight'"),
        (QuantizationConfig(scheme={"weight": "i17"}), "cannot be 'i17'.*i2, i3, i4"),
        (QuantizationConfig(scheme={"per_channel": 1}), "cannot be 1"),
        (QuantizationConfig(scheme={"requant": "pow2"}), "needs power-of-two scales"),
    ],
)
def test_mistakes_are_named_with_what_would_be_right(
    graph: Graph, config: QuantizationConfig, words: str
) -> None:
    with pytest.raises(QuantizationError, match=f"(?s){words}"):
        config.resolve(graph)


def test_steps_of_the_ladder_have_rates_by_layer(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(
        "ladder:\n  adaquant:\n    weight_rate: 0.5\n    layers:\n      st*: {bias_rate: 0}\n      stem: {bias_rate: 0.25}\n"
    )
    config = QuantizationConfig.load(path)
    config.resolve(graph)
    options = config.ladder.adaquant
    assert options.rates(["stem_out", "stem"]).bias_rate == 0.25
    assert options.rates(["stem_out"]).bias_rate == 0 and options.rates(["stem_out"]).weight_rate == 0.5
    assert options.rates(["body"]) == options
    wrong = {"adaquant": {"layers": {"sten": {"weight_rate": 0.1}}}}
    with pytest.raises(QuantizationError, match=r"ladder\.adaquant\.layers: .*'sten'.*'stem'"):
        QuantizationConfig.model_validate({"ladder": wrong}).resolve(graph)


@pytest.mark.parametrize(
    "text",
    [
        "scheme: [1",
        "nonsense: 1",
        "layers: 3",
        "- a",
        "ladder: {adaquant: {weight_rate: -1}}",
        "ladder: {adaquant: {weight_rate: .nan}}",
        "ladder: {adaquant: {iterations: 0}}",
        "ladder: {adaquant: {layers: {a: {iterations: 3}}}}",
        "ladder: {soar: 1}",
    ],
)
def test_a_bad_file_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "q.yaml"
    path.write_text(text)
    with pytest.raises(QuantizationError, match=r"q\.yaml"):
        QuantizationConfig.load(path)
