"""Ops that integers have no form of, replaced by ops that have one: what a network computes stays, and other networks stay."""

from __future__ import annotations

import numpy as np
import pytest

from npuc import lang
from npuc.calib.random_inputs import random_inputs
from npuc.engine import FloatEngine
from npuc.flow import expanded
from npuc.ir import Graph, top
from npuc.transform import canonicalize
from npuc.transform.expansions import expansions_of
from support.networks.composite_ops import EXPANDED, IMAGE, MATRIX


def built(name: str) -> Graph:
    return canonicalize(lang.build({"y": EXPANDED[name]()}))


@pytest.mark.parametrize("name", EXPANDED)
def test_onnx_runtime_gives_the_same_before_and_after(name: str) -> None:
    graph = built(name)
    simpler = expanded(graph)
    simpler.verify()
    assert not set(expansions_of(simpler).split(",")) - {"", "gather-to-slice", "fold-scale", "scale-to-conv"}
    assert simpler is not graph
    assert [port.name for port in simpler.outputs] == ["y"]
    inputs = random_inputs(graph, 1)
    expected = FloatEngine(graph, threads=1).run(inputs)["y"]
    got = FloatEngine(simpler, threads=1).run(inputs)["y"]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize(
    "network",
    [
        lang.cumsum(lang.cast(MATRIX, to="i64"), axis=1),
        lang.reduce(lang.input("x", (2, 1025)), kind="prod", axes=(1,)),
        lang.reduce(lang.cast(MATRIX, to="i64"), kind="prod", axes=(1,)),
        lang.gather_elements(lang.cast(MATRIX, to="i64"), lang.input("j", (3, 2), "i64"), axis=1),
        lang.resize(IMAGE, sizes=(1, 4, 12, 10), mode="linear"),
        lang.resize(IMAGE, sizes=(1, 4, 12, 10), mode="nearest"),
        lang.pad(IMAGE, pads=(0, 0, 1, 2, 0, 0, 1, 2), mode="reflect"),
        lang.pad(MATRIX, pads=(1, 1, 1, 1)),
        lang.max_pool(IMAGE, kernel=2),
    ],
)
def test_what_has_a_form_of_its_own_or_none_stays(network: lang.Tensor) -> None:
    graph = lang.build({"y": network})
    assert expanded(graph) is graph


def test_a_convolution_of_a_volume_is_one_sum() -> None:
    kinds = [type(op) for op in expanded(built("conv:volume")).ops]
    assert kinds.count(top.Conv) == 1 and top.Add not in kinds


def test_a_long_running_sum_stays() -> None:
    graph = lang.build({"y": lang.cumsum(lang.input("x", (1, 1025)), axis=1)})
    assert expanded(graph) is graph
