"""Training with masks: weights that are masked are zero at every step and at the end, on a schedule that masks more and more.

Masks are buffers of the module, so that a checkpoint has them and a killed run goes on with the same. They are chosen anew, by
the magnitudes of the moment, whenever the schedule keeps fewer weights of a block than before; a weight that was masked is zero,
and is never among those that stay as long as there are others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from math import ceil
from typing import Any

import torch

from npuc.arithmetic.sparsity import SparsityPattern
from npuc.engine.torch import TopModule
from npuc.errors import TrainingError
from npuc.train.sparsity.masks import magnitude_mask, prunable_weights


def kept_at(pattern: SparsityPattern, progress: float) -> int:
    """Values that are kept of a block when a share of the schedule is done: from all of them to N, quickly at first, as the cube
    of what is left of the schedule (after Zhu and Gupta, "To prune, or not to prune", 2017).

    >>> [kept_at(SparsityPattern(4, 16), part) for part in (0.0, 0.25, 0.5, 0.75, 1.0)]
    [16, 10, 6, 5, 4]
    """
    left = max(0.0, 1.0 - progress) ** 3
    return pattern.kept + ceil((pattern.block - pattern.kept) * left)


class SparseTraining:
    """Keeps the masked weights of a module at zero.

        sparse = SparseTraining(module, {"body.weight": 1}, SparsityPattern(2, 4), steps=1000)
        fit(module, data, before_step=sparse.before_step)
        sparse.finish()

    `steps` are those of the schedule; with 0 all masks are there from the first step on. In a loop of one's own, call
    `update(step)` before each step of the optimizer.
    """

    def __init__(
        self, module: Any, parameters: Mapping[str, int], pattern: SparsityPattern, steps: int = 0
    ) -> None:
        self.module, self.pattern, self.steps = module, pattern, steps
        known = dict(module.named_parameters())
        self.parameters = {name: known[name] for name in parameters}
        self.axes = dict(parameters)
        if not parameters:
            raise TrainingError(
                f"no weight of the network can be {pattern} sparse",
                fix=f"Sparse layers have multiples of {pattern.block} input channels; use a pattern of shorter blocks",
            )
        for index, (name, parameter) in enumerate(self.parameters.items()):
            buffer = _buffer(index)
            module.register_buffer(buffer, torch.ones_like(parameter, dtype=torch.bool))
            parameter.register_hook(lambda gradient, at=buffer: gradient * getattr(module, at))
            self.axes[name] = parameters[name] % parameter.dim()
        module.register_buffer("sparsity_kept", torch.tensor(pattern.block))

    def before_step(self, epoch: int, step: int, steps: int) -> None:
        """What `fit` calls: epochs count from 1, steps of an epoch from 0."""
        self.update((epoch - 1) * steps + step)

    def update(self, step: int) -> None:
        """Choose masks anew if the schedule keeps fewer weights now, and set what is masked to zero."""
        progress = 1.0 if not self.steps else step / self.steps
        kept = min(kept_at(self.pattern, progress), int(self.module.sparsity_kept))
        with torch.no_grad():
            if kept < int(self.module.sparsity_kept):
                self._choose(kept)
            self._clear()

    def finish(self) -> None:
        """The masks of the pattern, and zeros for all that is masked: what EMA or momentum have left there is gone."""
        with torch.no_grad():
            if int(self.module.sparsity_kept) > self.pattern.kept:
                self._choose(self.pattern.kept)
            self._clear()

    def detach(self) -> None:
        """Take the masks off the module; its weights stay as they are."""
        for index in range(len(self.parameters)):
            with suppress(AttributeError):
                delattr(self.module, _buffer(index))
        with suppress(AttributeError):
            delattr(self.module, "sparsity_kept")

    def _choose(self, kept: int) -> None:
        self.module.sparsity_kept.fill_(kept)
        for index, (name, parameter) in enumerate(self.parameters.items()):
            # A weight that is masked has lost, whatever momentum has made of it since.
            magnitude = parameter.detach().cpu().numpy() * getattr(self.module, _buffer(index)).cpu().numpy()
            mask = magnitude_mask(magnitude, kept, self.pattern.block, self.axes[name])
            getattr(self.module, _buffer(index)).copy_(torch.from_numpy(mask))

    def _clear(self) -> None:
        for index, parameter in enumerate(self.parameters.values()):
            parameter.mul_(getattr(self.module, _buffer(index)))


def _buffer(index: int) -> str:
    return f"sparsity_mask_{index}"


def sparse_parameters(module: Any, pattern: SparsityPattern, exclude: Collection[str] = ()) -> dict[str, int]:
    """The parameters of a module that may become sparse, by name, and the axis of their blocks.

    Of a network that npuc has made a module of (`TrainableNetwork`, a QAT module) those of `prunable_weights`; of any other
    module the weights of its convolutions and linear layers, which `exclude` calls by the names of their modules.
    """
    bodies = [part for part in module.modules() if isinstance(part, TopModule)]
    if not bodies:
        return _of_layers(module, pattern, exclude)
    names = {id(parameter): name for name, parameter in module.named_parameters()}
    entries = prunable_weights(bodies[0].graph, pattern, exclude)
    places = {names.get(id(bodies[0].weight(entry.ref))): entry for entry in entries if not entry.reason}
    return {name: entry.axis for name, entry in places.items() if name is not None}


def _of_layers(module: Any, pattern: SparsityPattern, exclude: Collection[str]) -> dict[str, int]:
    turned = (torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d)
    plain = (torch.nn.Linear, torch.nn.Conv1d, torch.nn.Conv2d, torch.nn.Conv3d)
    chosen: dict[str, int] = {}
    for name, part in module.named_modules():
        if name in exclude or not isinstance(part, (*plain, *turned)):
            continue
        axis = 0 if isinstance(part, turned) else 1
        groups = part.groups if axis == 0 else 1
        if part.weight.shape[axis] // groups % pattern.block == 0:
            chosen[f"{name}.weight" if name else "weight"] = axis
    return chosen
