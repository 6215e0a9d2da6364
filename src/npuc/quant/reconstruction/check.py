"""Whether what a block has learned serves the network: the outputs of a block are not what counts in the end."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npuc.quant.reconstruction.blocks import Block
from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.student import Cache, Student


class Check:
    """How far the outputs of the network are from float, if the blocks from one on are as their learners have them now.

    That is measured on the samples from `begin` on.
    """

    def __init__(
        self,
        student: Student,
        blocks: Sequence[Block],
        learners: Sequence[Learner | None],
        inputs: Cache,
        begin: int,
        batch: int,
    ) -> None:
        self._student, self._blocks, self._learners = student, blocks, learners
        self._begin, self._batch = begin, batch
        self._inputs = inputs
        made = {value for block in blocks for value in block.outputs}
        self._outputs = [port.value for port in student.module.graph.outputs if port.value in made]
        self._goals: list[Cache] = []

    def error(self, begin: int, rough: Cache) -> float:
        """The squared error of all outputs that these blocks make, each relative to its size."""
        with torch.no_grad():
            if not self._goals:
                self._goals = self._ends(0, self._inputs, exact=True)
            found = self._ends(begin, rough, exact=False)
        total = 0.0
        for value in found[0]:
            goal = torch.cat([part[value] for part in self._goals])
            lost = torch.cat([part[value] for part in found]) - goal
            total += float(lost.square().mean() / goal.square().mean().clamp(min=1e-12))
        return total

    def _ends(self, begin: int, cache: Cache, *, exact: bool) -> list[Cache]:
        """The outputs, a batch of samples each."""
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
                given = {value: values[value] for value in block.inputs if value in values}
                values |= self._student.run(block, self._student.entered(given, after), weights, after)
            made = [value for value in self._outputs if value in values]
            ends.append({value: values[value] for value in made if values[value].is_floating_point()})
        return ends
