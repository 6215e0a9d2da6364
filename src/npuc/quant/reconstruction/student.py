"""The float network with the integer network's roundings in between, and the values that it has so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npuc.engine.torch import After, TopModule
from npuc.ir import Value, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.reconstruction.blocks import Block
from npuc.quant.reconstruction.fake import fake_quantized

Cache = dict[Value, Any]
"""Values of all samples."""


class Student:
    """A network that rounds every value as its integer form does."""

    def __init__(self, module: TopModule, types: Mapping[str, QuantType]) -> None:
        self.module = module
        self.types: dict[Value, QuantType] = {}
        """Of the values that the integer network has; a learner may give some others."""
        self.late: frozenset[Value] = frozenset()
        """Values that are rounded where a block reads them, not where one makes them."""
        for step in module.steps:
            for value in step.results:
                if (kind := types.get(value_name(value))) is not None:
                    self.types[value] = kind
        for port in module.graph.inputs:
            kind = types.get(f"{port.name}/quantized") or types.get(port.name)
            if kind is not None:
                self.types[port.value] = kind

    def after(self, value: Value, tensor: Any) -> Any:
        """A value as the integer network has it."""
        kind = self.types.get(value)
        return tensor if kind is None else fake_quantized(tensor, kind)

    def noisy(self, after: After, part: float, generator: Any) -> After:
        """What `after` does, but for a random part of the elements, which stay as they are (QDrop)."""

        def apply(value: Value, tensor: Any) -> Any:
            if value not in self.types:
                return tensor
            keep = torch.rand(tensor.shape, generator=generator, device=tensor.device) < part
            return torch.where(keep, tensor, after(value, tensor))

        return apply

    def entered(self, cache: Cache, after: After | None) -> Cache:
        """Values as a block reads them."""
        if after is None:
            return cache
        return {value: after(value, t) if value in self.late else t for value, t in cache.items()}

    def run(self, block: Block, given: Cache, weights: Any = None, after: After | None = None) -> Cache:
        """The outputs of a block for what it reads."""

        def apply(value: Value, tensor: Any) -> Any:
            return tensor if after is None or value in self.late else after(value, tensor)

        found: Cache = self.module.run(block.steps, given, block.outputs, weights=weights, after=apply)
        return found

    def whole(
        self, block: Block, cache: Cache, batch: int, weights: Any = None, after: After | None = None
    ) -> list[Cache]:
        """A block over all samples, a batch at a time."""
        known = {value: cache[value] for value in block.inputs if value in cache}
        count = next(iter(known.values())).shape[0]
        parts = [{value: t[at : at + batch] for value, t in known.items()} for at in range(0, count, batch)]
        return [self.run(block, self.entered(part, after), weights, after) for part in parts]


def extend(cache: Cache, parts: Sequence[Cache]) -> None:
    """Add what a block gave, a batch each."""
    for value in parts[0]:
        cache[value] = torch.cat([part[value].detach() for part in parts])
