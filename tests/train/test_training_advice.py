"""Advice on quantization-aware training and sparsity: what it depends on."""

from __future__ import annotations

import math

import numpy as np

from npuc import lang
from npuc.ir import Graph
from npuc.quant.layer_schemes import LayerSchemes
from npuc.quant.scheme import SCHEMES
from npuc.target import Target
from npuc.train.advice import advise_qat, advise_sparsity
from support.networks.backend import machine


def network(channels: int) -> Graph:
    weight = np.ones((4, channels, 1, 1), np.float32)
    return lang.build({"y": lang.conv(lang.input("x", (1, channels, 4, 4)), weight)})


def skipping(*patterns: str) -> Target:
    description = machine(64 << 10).to_dict()
    description["compute"]["sparsity"] = list(patterns)
    return Target.from_dict(description)


def test_training_is_advised_where_integers_are_far_from_float() -> None:
    schemes = LayerSchemes.of(network(8), SCHEMES["int4-weights"])
    far, near = advise_qat(schemes, 12.0), advise_qat(schemes, 45.0)
    assert far.advised and "npuc train qat" in far.text and "1 layer has fewer than 8 bits" in far.text
    assert not near.advised and "Calibration suffices" in near.text
    assert "are those of float" in advise_qat(LayerSchemes.of(network(8)), math.inf).text


def test_sparsity_is_advised_where_the_machine_skips_zeros_of_the_network() -> None:
    assert "name one by '--target'" in advise_sparsity(network(8), None).text
    assert "skips no zeros" in advise_sparsity(network(8), machine(64 << 10)).text
    advice = advise_sparsity(network(8), skipping("1:4", "2:4"))
    assert advice.advised and "1 of 1 weight can be 2:4 sparse" in advice.text and "50%" in advice.text
    assert "No layer has whole blocks of 4" in advise_sparsity(network(6), skipping("2:4")).text
