"""The search space of schedules: the points that each level of optimization tries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network
from npuc.schedule.tiler import Choices

_AHEAD = 256
"""Barriers that constants are loaded ahead of."""
_ROOM = 0.6
"""The part of local memory that groups are planned with where the rest is for constants that come ahead."""
SearchPoint = Mapping[str, Any]
"""Arguments of `npuc.schedule.search.assembled`."""


def search_space(
    level: int, cores: int, network: Network, local: int, fixed: SearchPoint
) -> list[tuple[int, SearchPoint]]:
    """The points that a level tries, each with the lowest level that does; `fixed` arguments are in all of them.

    Those that come to the same for this network in `local` bytes of local memory are there once.
    """
    usual = Choices()
    points: list[tuple[int, SearchPoint]] = [
        *([(1, {"level": 1, "cores": cores})] if cores > 1 else []),
        *(_on_cores(cores, usual, local) if cores > 1 else []),
        (1, {"level": 1}),
        *_with_seams(usual),
        (0 if level == 0 else 2, {"level": 0}),
        (2, {"level": 1, "spill_distance": 8}),
        (2, {"level": 1, "transfer_weight": 0.4}),
        (2, {"level": 1, "choices": replace(usual, chunk=usual.chunk // 2)}),
    ]
    for seams, spill_distance, weight in product((2, 1), (0, 5, 12), (0.4, 1.0, 2.5)):
        for chunk, busy in ((160 * 1024, 1500), (48 * 1024, 800)):
            choices = replace(usual, chunk=chunk, busy=busy, seams=seams)
            point = {"spill_distance": spill_distance, "transfer_weight": weight, "choices": choices}
            points.append((3, {"level": 1, **point}))
    # Groups that are planned with all memory may not pack; a limit is to be made the most of all the same.
    points.append((1 if level and fixed.get("local_memory") else 3, {"level": 1, "memory": local}))
    tried = [(lowest, {**point, **fixed}) for lowest, point in points if lowest <= level]
    if "pins" in fixed:
        tried = [(lowest, point) for lowest, point in tried if point["level"] > 0]
    gap = _longest_wait(network)
    first: dict[Any, tuple[int, SearchPoint]] = {}
    for lowest, point in tried:
        first.setdefault(_effect(point, gap, local), (lowest, point))
    return list(first.values())


def _with_seams(usual: Choices) -> list[tuple[int, SearchPoint]]:
    """Points whose groups may keep seams, for memories that hold little.

    What moves between groups takes room from what comes ahead, so transfers weigh more than their cycles, and constants come in
    small blocks. Tensors that wait for long do so in DRAM, in one of them.
    """
    choices = replace(usual, seams=2, chunk=usual.chunk // 4)
    point = {"level": 1, "transfer_weight": 2.0, "choices": choices}
    return [(1, point), (1, {**point, "spill_distance": 8})]


def _on_cores(cores: int, usual: Choices, local: int) -> list[tuple[int, SearchPoint]]:
    """Points with constants that run ahead of barriers: with care, in blocks of the usual size or small ones, or as early as
    there is room for them.

    Tensors behind a block of constants in the queue wait for it, and all cores share the channel: small blocks hold them up less.
    There groups leave some of the memory to constants that come ahead.
    """
    points: list[tuple[int, SearchPoint]] = []
    few = {"memory": int(_ROOM * local)}
    for weight, patience, chunk, more in (
        (0.5, usual.patience, usual.chunk, {}),
        (0.5, usual.patience, usual.chunk // 3, few),
        (0.0, 1 << 20, usual.chunk, {}),
    ):
        choices = replace(usual, ahead=_AHEAD, patience=patience, chunk=chunk)
        points.append(
            (1, {"level": 1, "cores": cores, "transfer_weight": weight, "choices": choices, **more})
        )
    return points


def _effect(point: SearchPoint, gap: int, local: int) -> Any:
    """What of a point makes a difference.

    A spill distance matters only if some tensor waits longer; blocks of constants may be as small as local memory needs them
    anyway.
    """
    choices = point.get("choices") or Choices()
    spill_distance = point.get("spill_distance", 0)
    return (
        point["level"],
        point.get("cores", 1),
        point.get("transfer_weight", 1.0),
        spill_distance if gap > spill_distance else 0,
        replace(choices, chunk=min(choices.chunk, point.get("memory", local) // 8)),
        point.get("memory"),
    )


def _longest_wait(network: Network) -> int:
    """The most layers between two that touch the same tensor."""
    touched: dict[Tensor, list[int]] = {tensor.storage: [-1] for tensor in network.inputs}
    for number, layer in enumerate(network.layers):
        for tensor in (*layer.inputs, *layer.outputs):
            touched.setdefault(tensor.storage, []).append(number)
    return max(
        (later - earlier for steps in touched.values() for earlier, later in pairwise(steps)), default=0
    )
