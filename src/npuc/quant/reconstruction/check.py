"""Checks whether what a block has learned improves the outputs of the network, not only those of the block."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npuc.quant.reconstruction.blocks import LayerBlock
from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.student import Cache, Student


class OutputCheck:
    """The distance of the network's outputs from float, with the current parameters of the blocks from one on.

    It is measured on the samples from `begin` on.
    """

    def __init__(
        self,
        student: Student,
        blocks: Sequence[LayerBlock],
        learners: Sequence[Learner | None],
        inputs: Cache,
        begin: int,
        batch: int,
    ) -> None:
        self._student, self._blocks, self._learners = student, blocks, learners
        self._begin, self._batch = begin, batch
        self._inputs = inputs
        block_outputs = {value for block in blocks for value in block.outputs}
        self._outputs = [port.value for port in student.module.graph.outputs if port.value in block_outputs]
        self._goals: list[Cache] = []

    def error(self, begin: int, rough: Cache) -> float:
        """The squared error of all outputs of these blocks, each relative to its magnitude."""
        with torch.no_grad():
            if not self._goals:
                self._goals = self._ends(0, self._inputs, exact=True)
            outputs = self._ends(begin, rough, exact=False)
        total = 0.0
        for value in outputs[0]:
            goal = torch.cat([part[value] for part in self._goals])
            lost = torch.cat([part[value] for part in outputs]) - goal
            total += float(lost.square().mean() / goal.square().mean().clamp(min=1e-12))
        return total

    def _ends(self, begin: int, cache: Cache, *, exact: bool) -> list[Cache]:
        """The outputs, one entry per batch."""
        count = next(iter(cache.values())).shape[0]
        first = self._learners[begin]
        after = None if exact else self._student.after if first is None else first.after
        parts = [
            (block, None if exact or learner is None else learner.weights(hard=True))
            for block, learner in zip(self._blocks[begin:], self._learners[begin:], strict=True)
        ]
        ends = []
        for at in range(self._begin, count, self._batch):
            values = {value: tensor[at : at + self._batch] for value, tensor in cache.items()}
            for block, weights in parts:
                inputs = {value: values[value] for value in block.inputs if value in values}
                values |= self._student.run(block, self._student.entered(inputs, after), weights, after)
            available = [value for value in self._outputs if value in values]
            ends.append({value: values[value] for value in available if values[value].is_floating_point()})
        return ends
