"""Verifier rules, ladder steps, data sets and metrics of plugins."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from npuc import lang
from npuc.datasets.data import DataLocation, find_dataset
from npuc.datasets.sample import Observation
from npuc.errors import VerificationError
from npuc.ir import load_graph, save_graph
from npuc.metrics.measuring import METRICS, parse_metric
from npuc.plugins import load
from npuc.plugins.api import verifier
from npuc.quant.ladder import QuantizationContext, StepResult, run_steps
from npuc.quant.scheme import SCHEMES
from support.paths import PLUGINS


def test_a_verifier_rule_refuses_a_network_wherever_it_is_verified(tmp_path: Path) -> None:
    x = lang.input("x", (1, 70000))
    graph = lang.build({"y": lang.softmax(x, name="scores")})
    save_graph(graph, tmp_path / "m.mlir")
    load(PLUGINS / "house_rules.py")
    words = r"layer 'scores': a softmax over 70000 classes \(verifier rule 'wide-softmax'\)"
    with pytest.raises(VerificationError, match=words):
        graph.verify()
    with pytest.raises(VerificationError, match=words):
        load_graph(tmp_path / "m.mlir")
    lang.build({"y": lang.softmax(lang.input("x", (1, 7)))}).verify()


def test_a_verifier_rule_that_fails_is_named() -> None:
    @verifier("broken")
    def broken(graph: Any) -> Any:
        raise KeyError("what")

    with pytest.raises(VerificationError, match="the verifier rule 'broken' failed: KeyError: 'what'"):
        lang.build({"y": lang.relu(lang.input("x", (1, 7)))})


def test_a_step_of_the_ladder_is_climbed() -> None:
    load(PLUGINS / "house_rules.py")
    rng = np.random.default_rng(0)
    x = lang.input("x", (1, 3, 8, 8))
    graph = lang.build({"y": lang.conv(x, rng.standard_normal((4, 3, 3, 3)).astype(np.float32), name="head")})
    samples = [{"x": rng.standard_normal((1, 3, 8, 8)).astype(np.float32)} for _ in range(8)]
    results: list[StepResult] = []
    context = QuantizationContext(graph, samples, lambda op: SCHEMES["int8"])
    best = run_steps(context, ["wide-outputs"], report=results.append)
    assert [(step_result.name, step_result.kept) for step_result in results] == [("wide-outputs", True)]
    assert best.notes == ("outputs of 16 bits",)


def test_a_data_set_and_a_metric_are_found_by_name(tmp_path: Path) -> None:
    load(PLUGINS / "evaluation.py")
    path = tmp_path / "numbers.lines"
    path.write_text("1 0.5 2 3\n0 4 5 6\n")
    found = find_dataset(DataLocation(path)).open(DataLocation(path))
    assert [entry.truth for entry in found.entries] == [1, 0]
    np.testing.assert_array_equal(found.read(found.entries[1]).tensors, np.array([4, 5, 6], np.float32))
    made = parse_metric("saturation").metric
    record = made.observe(Observation("a", {"y": np.array([1, 2, 2, 2])}, None))
    assert record == 0.75
    assert made.measure([0.75, 0.25], [None, None], np.ones((1, 2)))["saturation"] == [0.5]
    assert METRICS["saturation"].lower_is_better
