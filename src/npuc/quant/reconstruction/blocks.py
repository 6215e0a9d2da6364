"""The network as a sequence of blocks of a few layers with weights, cut where the fewest values cross."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from npuc.ir import Value

MOST_LAYERS = 4
"""The number of layers with weights after which a block ends, even if several values cross."""


@dataclass(frozen=True)
class LayerBlock:
    """Consecutive steps, the values that they read from earlier blocks, and those that later blocks read."""

    steps: tuple[Any, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]

    @property
    def passed_on(self) -> list[Value]:
        """Outputs that no step of the block reads."""
        read = {value for step in self.steps for value in step.needs}
        return [value for value in self.outputs if value not in read]


def cut_blocks(
    steps: Sequence[Any], weighted: Collection[Any], outputs: Collection[Value]
) -> list[LayerBlock]:
    """Blocks that end where a single value crosses, or where they have enough layers.

    `weighted` are the ops whose weights are learned, `outputs` the values that are needed after the last step.
    """
    last: dict[Value, int] = {value: len(steps) for value in outputs}
    for index, step in enumerate(steps):
        for value in step.needs:
            last[value] = max(last.get(value, 0), index)
    blocks: list[LayerBlock] = []
    live: set[Value] = set()
    begin, layers = 0, 0
    for index, step in enumerate(steps):
        live |= set(step.results)
        live = {value for value in live if last.get(value, -1) > index}
        layers += step.op in weighted
        if layers and (len(live) <= 1 or layers >= MOST_LAYERS):
            blocks.append(_block(steps, begin, index + 1, last))
            begin, layers = index + 1, 0
    if begin < len(steps):
        blocks.append(_block(steps, begin, len(steps), last))
    return blocks


def _block(steps: Sequence[Any], begin: int, end: int, last: dict[Value, int]) -> LayerBlock:
    part = tuple(steps[begin:end])
    results = {value for step in part for value in step.results}
    inputs = dict.fromkeys(value for step in part for value in step.needs if value not in results)
    outputs = [value for step in part for value in step.results if last.get(value, -1) >= end]
    return LayerBlock(part, tuple(inputs), tuple(outputs))
