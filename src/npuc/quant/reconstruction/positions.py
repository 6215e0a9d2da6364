"""The positions of power-of-two scales in a block, searched together by the output of the block.

A position that is best for a tensor alone is not best for what reads it: a finer one clips, and how much that matters, the
layers behind it decide, whose weights have positions of their own. Gradients are of little use for whole steps, and a block
has few positions: each is moved by one step, up and down, and stays where the output of the block is closest to float.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.nn.functional import mse_loss

from npuc.quant.reconstruction.learner import Learner
from npuc.quant.reconstruction.student import Cache

_SWEEPS = 2
"""How often all positions of a block are tried; later sweeps rarely move one."""
_LESS = 0.98
"""A move has to leave at most this share of the error, so that samples that are not tried gain, too."""


def search_positions(learner: Learner, rough: Cache, goals: Cache, samples: Sequence[int], rows: int) -> int:
    """Move the positions of a learner to where the error of its block on some samples is least; returns how often one moved.

    `rough` are the inputs from the integer network, `goals` the float outputs of the block; `rows` samples are run at once.
    """
    positions = learner.positions
    if not positions:
        return 0
    moves = 0
    with torch.no_grad():
        best = _error(learner, rough, goals, samples, rows)
        for _ in range(_SWEEPS):
            before = moves
            for position in positions:
                for change in (-1.0, 1.0):
                    position += change
                    error = _error(learner, rough, goals, samples, rows)
                    if error < _LESS * best:
                        best, moves = error, moves + 1
                        break
                    position -= change
            if moves == before:
                break
    return moves


def _error(learner: Learner, rough: Cache, goals: Cache, samples: Sequence[int], rows: int) -> float:
    """The squared error of the outputs of a block, each relative to its magnitude."""
    student, block, weights = learner.student, learner.block, learner.weights(hard=True)
    total = {value: torch.zeros((), device=goal.device) for value, goal in goals.items()}
    signal = {value: torch.zeros((), device=goal.device) for value, goal in goals.items()}
    for at in range(0, len(samples), rows):
        some: Any = list(samples[at : at + rows])
        inputs = {value: rough[value][some] for value in block.inputs if value in rough}
        outputs = student.run(block, student.entered(inputs, learner.after), weights, learner.after)
        for value, goal in goals.items():
            total[value] += mse_loss(outputs[value], goal[some], reduction="sum")
            signal[value] += goal[some].square().sum()
    return sum(float(total[value] / signal[value].clamp(min=1e-12)) for value in goals)
