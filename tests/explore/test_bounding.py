"""Bounds of many machines at once are those of each machine alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from npuc.explore.bounding import bounded, buffered_bounds, figures_of, lower_bounds
from npuc.explore.networks import ExploredNetwork, prepare
from npuc.explore.space import Space
from npuc.schedule.bounds import bounds
from npuc.target import load_target


@pytest.mark.parametrize("bits", ["", "16x4"])
def test_they_are_those_of_the_scheduler_to_the_cycle(root: Path, tmp_path: Path, bits: str) -> None:
    base = load_target("edge-1t")
    network = ExploredNetwork(root / "examples" / "digits.onnx")
    graph = prepare(network, 0, (bits,), base, tmp_path).graphs()[0]
    known = bounded(graph, base)
    assert len(known.subgraphs) == 1 and known.macs > 0
    for lanes in ("1x4x1", "16x4x2"):
        space = Space.of(
            base,
            {
                "lanes": [lanes],
                "local_memory": ["256B", "4KiB", "512KiB"],
                "bandwidth": ["1GB/s", "5GB/s", "24GB/s"],
                "cores": [1, 3],
                "decoder": ["none", "4B/cycle", "64B/cycle"],
                "banks": [1],
            },
        )
        targets = [space.target(number) for number in range(space.size)]
        found = buffered_bounds(known, targets[0], [figures_of(target) for target in targets])
        wanted = [bounds(known.subgraphs[0].network, target) for target in targets]
        np.testing.assert_array_equal(found[:, 0], [bound.buffered for bound in wanted])
        np.testing.assert_array_equal(found[:, 1], [bound.bytes for bound in wanted])
        assert len(set(found[:, 0])) > 8


def test_seconds_are_those_of_the_npu_and_of_the_cpu_behind_it(root: Path, tmp_path: Path) -> None:
    base = load_target("edge-1t")
    graph = prepare(ExploredNetwork(root / "examples" / "digits.onnx"), 0, ("",), base, tmp_path).graphs()[0]
    known = replace(bounded(graph, base), host=0.25)
    figures = [figures_of(base), replace(figures_of(base), clock=2 * figures_of(base).clock)]
    cycles = buffered_bounds(known, base, figures)
    found = lower_bounds(known, base, figures)
    np.testing.assert_allclose(found[:, 0], cycles[:, 0] / [one.clock for one in figures] + 0.25)
    np.testing.assert_array_equal(found[:, 1], cycles[:, 1])
