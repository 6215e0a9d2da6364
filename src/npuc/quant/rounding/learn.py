"""Learning the roundings of one block after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from npuc.engine.torch import After, TopModule
from npuc.ir import Graph, Value, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.layers import IntegerLayer
from npuc.quant.rounding.blocks import Block, cut_blocks
from npuc.quant.rounding.soft import SoftRounding, fake_quantized

Array = np.ndarray[Any, Any]
Cache = dict[Value, Any]


@dataclass(frozen=True)
class LearningOptions:
    """How long and how fast; rates are of Adam."""

    iterations: int = 400
    """For each block."""
    batch: int = 16
    weight_rate: float = 3e-2
    """Of the roundings."""
    bias_rate: float = 1e-4
    """Of biases, relative to the size of a block's outputs; 0 leaves them."""
    dropped: float = 0.5
    """The part of activations that stays float while learning (QDrop)."""
    decided: float = 0.01
    """The weight of the term that drives roundings to 0 or 1."""
    warm: float = 0.2
    """The part of the iterations before that term begins."""
    seed: int = 0


def learn(
    source: Graph,
    layers: Sequence[IntegerLayer],
    types: Mapping[str, QuantType],
    samples: Sequence[Mapping[str, Array]],
    options: LearningOptions,
    device: str = "cpu",
    threads: int = 1,
    report: Callable[[int, int], None] = lambda done, total: None,
) -> list[SoftRounding]:
    """The learned roundings of the layers. `types` are those of the integer network's tensors, by name."""
    torch.set_num_threads(threads)
    generator = torch.Generator(device).manual_seed(options.seed)
    module = TopModule(source).to(device)
    by_op = {layer.real: layer for layer in layers}
    outputs = [port.value for port in source.outputs]
    blocks = cut_blocks(module.steps, by_op, outputs)
    inputs = {
        port.value: torch.from_numpy(np.concatenate([np.asarray(s[port.name]) for s in samples])).to(device)
        for port in source.inputs
    }
    student = _Student(module, types)
    real: Cache = dict(inputs)
    rough: Cache = {value: student.after(value, tensor) for value, tensor in inputs.items()}
    learned: list[SoftRounding] = []
    for index, block in enumerate(blocks):
        with torch.no_grad():
            _extend(real, student.whole(block, real, options.batch))
        mine = [SoftRounding(by_op[step.op], device) for step in block.steps if step.op in by_op]
        if mine:
            _learn_block(student, block, mine, rough, real, options, generator)
            learned += mine
        with torch.no_grad():
            weights = student.weights(mine, hard=True)
            _extend(rough, student.whole(block, rough, options.batch, weights, student.after))
        needed = {value for later in blocks[index + 1 :] for value in later.inputs}
        for cache in (real, rough):
            for value in [value for value in cache if value not in needed]:
                del cache[value]
        report(index + 1, len(blocks))
    return learned


class _Student:
    """The float network with the integer network's roundings in between."""

    def __init__(self, module: TopModule, types: Mapping[str, QuantType]) -> None:
        self.module = module
        self._types: dict[Value, QuantType] = {}
        for step in module.steps:
            for value in step.results:
                if (kind := types.get(value_name(value))) is not None:
                    self._types[value] = kind
        for port in module.graph.inputs:
            kind = types.get(f"{port.name}/quantized") or types.get(port.name)
            if kind is not None:
                self._types[port.value] = kind

    def after(self, value: Value, tensor: Any) -> Any:
        """A value as the integer network has it."""
        kind = self._types.get(value)
        return tensor if kind is None else fake_quantized(tensor, kind)

    def noisy(self, part: float, generator: Any) -> Callable[[Value, Any], Any]:
        """The same, but for a random part of the elements, which stay as they are."""

        def apply(value: Value, tensor: Any) -> Any:
            kind = self._types.get(value)
            if kind is None:
                return tensor
            keep = torch.rand(tensor.shape, generator=generator, device=tensor.device) < part
            return torch.where(keep, tensor, fake_quantized(tensor, kind))

        return apply

    def whole(
        self, block: Block, cache: Cache, batch: int, weights: Any = None, after: After | None = None
    ) -> list[dict[Value, Any]]:
        """A block over all samples, a batch at a time."""
        given = {value: cache[value] for value in block.inputs if value in cache}
        count = next(iter(given.values())).shape[0]
        return [
            self.module.run(
                block.steps,
                {value: tensor[at : at + batch] for value, tensor in given.items()},
                block.outputs,
                weights=weights,
                after=after,
            )
            for at in range(0, count, batch)
        ]

    def weights(self, roundings: Sequence[SoftRounding], hard: bool) -> dict[str, Any]:
        """What the layers of a block compute with, by the names of the weights."""
        found = {}
        for rounding in roundings:
            op = rounding.layer.real
            place = op.b if hasattr(op, "b") else op.weight
            found[self.module.refs[place]] = rounding.hard() if hard else rounding.soft()
            if rounding.bias is not None and op.bias is not None:
                found[self.module.refs[op.bias]] = rounding.bias
        return found


def _learn_block(
    student: _Student,
    block: Block,
    mine: Sequence[SoftRounding],
    rough: Cache,
    real: Cache,
    options: LearningOptions,
    generator: Any,
) -> None:
    count = next(iter(rough[value].shape[0] for value in block.inputs if value in rough))
    goals = {value: real[value] for value in block.outputs if real[value].is_floating_point()}
    sizes = {value: float(goal.square().mean().clamp(min=1e-12)) for value, goal in goals.items()}
    groups: list[dict[str, Any]] = [{"params": [r.alpha for r in mine], "lr": options.weight_rate}]
    biases = [r.bias for r in mine if r.bias is not None]
    if options.bias_rate and biases:
        size = float(np.mean([float(bias.detach().abs().mean()) for bias in biases])) + 1e-6
        groups.append({"params": biases, "lr": options.bias_rate * size})
    optimizer = torch.optim.Adam(groups)
    warm = int(options.warm * options.iterations)
    weights_count = sum(r.alpha.numel() for r in mine)
    device = mine[0].alpha.device
    for iteration in range(options.iterations):
        chosen = torch.randint(0, count, (min(options.batch, count),), generator=generator, device=device)
        part = _mixed(block, rough, real, chosen, options.dropped, generator)
        found = student.module.run(
            block.steps, part, block.outputs,
            weights=student.weights(mine, hard=False), after=student.noisy(options.dropped, generator),
        )  # fmt: skip
        loss = sum(
            (found[value] - goal[chosen]).square().mean() / sizes[value] for value, goal in goals.items()
        )
        if iteration >= warm:
            # From forgiving to strict, as the roundings settle.
            progress = (iteration - warm) / max(1, options.iterations - warm)
            sharpness = 2 + 18 * 0.5 * (1 + np.cos(progress * np.pi))
            undecided = sum(r.undecided(sharpness) for r in mine) / weights_count
            loss = loss + options.decided * undecided * float(loss.detach()) * 100
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def _mixed(block: Block, rough: Cache, real: Cache, chosen: Any, part: float, generator: Any) -> Cache:
    """Inputs of a block: mostly as the integer network has them, some elements as float has them."""
    found = {}
    for value in block.inputs:
        if value not in rough:
            continue
        a, b = rough[value][chosen], real[value][chosen]
        if not a.is_floating_point():
            found[value] = a
            continue
        keep = torch.rand(a.shape, generator=generator, device=a.device) < part
        found[value] = torch.where(keep, b, a)
    return found


def _extend(cache: Cache, parts: Sequence[dict[Value, Any]]) -> None:
    for value in parts[0]:
        cache[value] = torch.cat([part[value].detach() for part in parts])
