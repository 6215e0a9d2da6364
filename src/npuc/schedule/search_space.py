"""The ways to schedule a network that each level of optimization tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any

from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network
from npuc.schedule.tiler import Choices

Way = Mapping[str, Any]
"""Arguments of `npuc.schedule.search.assembled`."""


def ways_of(level: int, cores: int, network: Network, local: int, fixed: Way) -> list[tuple[int, Way]]:
    """The ways that a level tries, each with the lowest level that does; `fixed` arguments are in all of them.

    Those that come to the same for this network in `local` bytes of local memory are there once.
    """
    usual = Choices()
    ways: list[tuple[int, Way]] = [
        *([(1, {"level": 1, "cores": cores})] if cores > 1 else []),
        (1, {"level": 1}),
        (0 if level == 0 else 2, {"level": 0}),
        (2, {"level": 1, "far": 8}),
        (2, {"level": 1, "transfer_weight": 0.4}),
        (2, {"level": 1, "choices": replace(usual, chunk=usual.chunk // 2)}),
    ]
    for far in (0, 5, 12):
        for weight in (0.4, 1.0, 2.5):
            for chunk, busy in ((160 * 1024, 1500), (48 * 1024, 800)):
                choices = replace(usual, chunk=chunk, busy=busy)
                ways.append((3, {"level": 1, "far": far, "transfer_weight": weight, "choices": choices}))
    # Groups that are planned with all memory may not pack; a limit is to be made the most of all the same.
    ways.append((1 if level and fixed.get("local_memory") else 3, {"level": 1, "memory": local}))
    tried = [(least, {**way, **fixed}) for least, way in ways if least <= level]
    if "pins" in fixed:
        tried = [(least, way) for least, way in tried if way["level"] > 0]
    gap = _longest_wait(network)
    first: dict[Any, tuple[int, Way]] = {}
    for least, way in tried:
        first.setdefault(_effect(way, gap, local), (least, way))
    return list(first.values())


def _effect(way: Way, gap: int, local: int) -> Any:
    """What of a way makes a difference: no tensor may wait long enough to be far, and blocks of constants may be as small as
    local memory wants them anyway."""
    choices = way.get("choices") or Choices()
    far = way.get("far", 0)
    return (
        way["level"],
        way.get("cores", 1),
        way.get("transfer_weight", 1.0),
        far if gap > far else 0,
        replace(choices, chunk=min(choices.chunk, way.get("memory", local) // 8)),
        way.get("memory"),
    )


def _longest_wait(network: Network) -> int:
    """The most layers between two that touch the same tensor."""
    touched: dict[Tensor, list[int]] = {tensor.storage: [-1] for tensor in network.inputs}
    for number, layer in enumerate(network.layers):
        for tensor in (*layer.inputs, *layer.outputs):
            touched.setdefault(tensor.storage, []).append(number)
    return max((later - one for steps in touched.values() for one, later in pairwise(steps)), default=0)
