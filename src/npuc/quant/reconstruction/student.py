"""The student: the float network with the roundings of the integer network inserted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npuc.engine.torch import After, TopModule
from npuc.ir import Value, value_name
from npuc.ir.dtypes import QuantType
from npuc.quant.reconstruction.blocks import LayerBlock
from npuc.quant.reconstruction.fake import DropMasks, fake_quantized

Cache = dict[Value, Any]
"""Values of all samples."""


class Student:
    """A network that quantizes every value as its integer form does."""

    def __init__(self, module: TopModule, types: Mapping[str, QuantType]) -> None:
        self.module = module
        self.types: dict[Value, QuantType] = {}
        """The types of values in the integer network; learners may change some."""
        self.rounded_on_read: frozenset[Value] = frozenset()
        """Values that are rounded by the blocks that read them, not by the block that computes them."""
        for step in module.steps:
            for value in step.results:
                if (kind := types.get(value_name(value))) is not None:
                    self.types[value] = kind
        for port in module.graph.inputs:
            kind = types.get(f"{port.name}/quantized") or types.get(port.name)
            if kind is not None:
                self.types[port.value] = kind

    def after(self, value: Value, tensor: Any, keep: Any = None) -> Any:
        """A value quantized as in the integer network, but for the elements where the mask `keep` is 1."""
        kind = self.types.get(value)
        return tensor if kind is None else fake_quantized(tensor, kind, keep=keep)

    def noisy(self, after: Callable[..., Any], masks: DropMasks) -> After:
        """`after` applied to all but a random share of the elements, which stay float (QDrop)."""
        return lambda value, tensor: (
            after(value, tensor, masks(tensor) if masks.share else None) if value in self.types else tensor
        )

    def entered(self, cache: Cache, after: After | None) -> Cache:
        """The values as a block reads them: those that are rounded on read are quantized."""
        if after is None:
            return cache
        return {value: after(value, t) if value in self.rounded_on_read else t for value, t in cache.items()}

    def run(self, block: LayerBlock, inputs: Cache, weights: Any = None, after: After | None = None) -> Cache:
        """The outputs of a block for given inputs."""

        def apply(value: Value, result: Any) -> Any:
            tensor = in_double(result)
            return tensor if after is None or value in self.rounded_on_read else after(value, tensor)

        outputs: Cache = self.module.run(block.steps, inputs, block.outputs, weights=weights, after=apply)
        return outputs

    def run_all(
        self, block: LayerBlock, cache: Cache, batch: int, weights: Any = None, after: After | None = None
    ) -> list[Cache]:
        """Run a block over all samples, one batch at a time."""
        known = {value: cache[value] for value in block.inputs if value in cache}
        count = next(iter(known.values())).shape[0]
        parts = [{value: t[at : at + batch] for value, t in known.items()} for at in range(0, count, batch)]
        return [self.run(block, self.entered(part, after), weights, after) for part in parts]


def in_double(tensor: Any) -> Any:
    """A tensor of floats in float64, in which networks learn; a conversion to float32 in the network gives others."""
    return tensor.double() if tensor.is_floating_point() else tensor


def extend(cache: Cache, parts: Sequence[Cache]) -> None:
    """Add the outputs of a block, given per batch, to the cache."""
    for value in parts[0]:
        cache[value] = torch.cat([part[value].detach() for part in parts])
