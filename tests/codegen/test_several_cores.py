"""Several cores whose constants run ahead of barriers: the bits of graph mode, no races, and channels of their own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from npuc.program.isa import QUEUES
from npuc.quant import quantize
from npuc.schedule import search
from npuc.schedule.artifact import BarrierStep
from npuc.schedule.listing import listing, parse_listing
from npuc.schedule.search_space import search_space
from npuc.schedule.tiler import Choices
from support.networks.backend import drawn_network, machine
from support.networks.drawn_schemes import drawn_scheme
from support.programs.equal_modes import check

LOCAL = (16 << 10, 48 << 10, 256 << 10, 2 << 20)
CORES = ((2, 0), (3, 32 << 10), (4, 256 << 10), (2, 64 << 10))
"""Cores, and bytes of shared memory."""


@pytest.fixture(autouse=True)
def only_what_runs_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave the other ways to run a network on several cores out of the search."""

    def points(*args: Any) -> Any:
        tried = search_space(*args)
        return [entry for entry in tried if entry[1].get("choices", Choices()).ahead > 1] or tried

    monkeypatch.setattr(search, "search_space", points)


def test_random_networks_give_the_same_bits() -> None:
    kinds = set()
    for seed in range(32):
        graph, ranges = drawn_network(seed)
        made = quantize(graph, ranges, drawn_scheme(seed, np.random.default_rng(seed)))
        try:
            done = check(made, machine(LOCAL[seed % 4], *CORES[seed // 4 % 4]), 1)
        except Exception as error:
            raise AssertionError(f"network {seed}") from error
        for part in done.parts if done is not None else ():
            decided = part.schedule.schedule_decisions
            if decided.cores == 1:
                continue
            for group in decided.decisions.groups:
                kinds.add("channels" if group.splits_channels(decided.cores) else "rows")
            barriers = [step for step in part.schedule.cores[0].steps if isinstance(step, BarrierStep)]
            assert {step.instructions[0].queue for step in barriers} <= {QUEUES[1]}
            if barriers:
                kinds.add("barriers")
                assert parse_listing(listing(part.schedule)) == part.schedule
    assert kinds == {"channels", "rows", "barriers"}
