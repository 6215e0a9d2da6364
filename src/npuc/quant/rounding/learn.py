"""Learning roundings, block by block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from npuc.arrays import Array
from npuc.ir import Graph
from npuc.ir.dtypes import QuantType
from npuc.quant.layers import IntegerLayer
from npuc.quant.reconstruction.blocks import LayerBlock
from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.learning import Pace, Report, reconstruct
from npuc.quant.reconstruction.student import Student
from npuc.quant.rounding.soft import SoftRounding


@dataclass(frozen=True)
class LearningOptions(Pace):
    """The options of learned rounding; rates are those of Adam."""

    weight_rate: float = 3e-2
    """The learning rate of the roundings."""
    bias_rate: float = 1e-4
    """The learning rate of biases, relative to the magnitude of a block's biases; 0 keeps them."""
    decided: float = 0.01
    """The weight of the regularization term that drives roundings to 0 or 1."""
    warm: float = 0.2
    """The share of the iterations before that term is used."""


def learn(
    source: Graph,
    layers: Sequence[IntegerLayer],
    types: Mapping[str, QuantType],
    samples: Sequence[Mapping[str, Array]],
    options: LearningOptions,
    device: str = "cpu",
    threads: int = 1,
    report: Report = lambda done, total: None,
) -> list[SoftRounding]:
    """The learned roundings of the layers. `types` are the types of the integer network's tensors, by name."""
    by_op = {layer.float_op: layer for layer in layers}
    learned: list[SoftRounding] = []

    def make(student: Student, block: LayerBlock) -> Learner | None:
        roundings = [SoftRounding(by_op[step.op], device) for step in block.steps if step.op in by_op]
        learned.extend(roundings)
        return _Roundings(student, block, roundings, options) if roundings else None

    reconstruct(source, by_op, types, samples, options, make, device, threads, report)
    return learned


class _Roundings(Learner):
    """Learns the roundings and the biases of a block."""

    def __init__(
        self, student: Student, block: LayerBlock, mine: Sequence[SoftRounding], options: LearningOptions
    ) -> None:
        super().__init__(student, block)
        self._mine, self._options = mine, options
        self._count = sum(rounding.alpha.numel() for rounding in mine)

    def groups(self) -> list[dict[str, Any]]:
        options = self._options
        groups: list[dict[str, Any]] = [
            {"params": [r.alpha for r in self._mine], "lr": options.weight_rate},
        ]
        biases = [r.bias for r in self._mine if r.bias is not None]
        if options.bias_rate and biases:
            size = float(np.mean([float(bias.detach().abs().mean()) for bias in biases])) + 1e-6
            groups.append({"params": biases, "lr": options.bias_rate * size})
        return groups

    def weights(self, hard: bool) -> dict[str, Any]:
        refs = self.student.module.refs
        weights = {}
        for rounding in self._mine:
            op = rounding.layer.float_op
            place = op.b if hasattr(op, "b") else op.weight
            weights[refs[place]] = rounding.hard() if hard else rounding.soft()
            if rounding.bias is not None and op.bias is not None:
                weights[refs[op.bias]] = rounding.bias
        return weights

    def loss(self, error: Any, iteration: int) -> Any:
        options = self._options
        warm = int(options.warm * options.iterations)
        if iteration < warm:
            return error
        # The term becomes sharper as the roundings converge.
        progress = (iteration - warm) / max(1, options.iterations - warm)
        sharpness = 2 + 18 * 0.5 * (1 + np.cos(progress * np.pi))
        undecided = sum(r.undecided(sharpness) for r in self._mine) / self._count
        return error + options.decided * undecided * float(error.detach()) * 100
