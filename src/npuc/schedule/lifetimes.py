"""When tensors are made and read: what crosses a cut between layers, and what of it waits in DRAM."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from npuc.schedule.layers import Tensor
from npuc.schedule.network import Network


@dataclass
class Lifetimes:
    """Those of the tensors of a network; a tensor is named by its storage."""

    network: Network
    spill_distance: int = field(default=0, kw_only=True)
    """A tensor that no layer touches for more layers than this waits in DRAM; 0: none does."""
    _on_chip: dict[int, list[Tensor]] = field(default_factory=dict, init=False)

    @cached_property
    def uses(self) -> dict[Tensor, list[int]]:
        """Storage to the layers that read it."""
        readers_of: dict[Tensor, list[int]] = {}
        for index, layer in enumerate(self.network.layers):
            for tensor in layer.inputs:
                readers = readers_of.setdefault(tensor.storage, [])
                if not readers or readers[-1] != index:
                    readers.append(index)
        return readers_of

    @cached_property
    def producers(self) -> dict[Tensor, int]:
        """Storage to the layer that makes it; -1 for inputs."""
        layers_by_tensor = {tensor.storage: -1 for tensor in self.network.inputs}
        for index, layer in enumerate(self.network.layers):
            layers_by_tensor.update({tensor: index for tensor in layer.outputs})
        return layers_by_tensor

    @cached_property
    def results(self) -> set[Tensor]:
        """The storage of the network's outputs."""
        return set(self.network.stored_results)

    @cached_property
    def last_use(self) -> dict[Tensor, int]:
        """Storage to the last layer that reads it; results are read after all layers."""
        last_readers = {tensor: max(self.uses.get(tensor, [-1])) for tensor in self.producers}
        return {**last_readers, **dict.fromkeys(self.results, len(self.network.layers))}

    def dies(self, tensor: Tensor, index: int) -> bool:
        """Whether nothing needs a tensor after a layer."""
        return self.last_use[tensor] == index and self.producers[tensor] >= 0

    @cached_property
    def crossing(self) -> list[list[Tensor]]:
        """For each cut (before layer i), the tensors that were made before and are read after."""
        count = len(self.network.layers)
        cuts: list[list[Tensor]] = [[] for _ in range(count + 1)]
        for tensor, at in self.producers.items():
            last = max(self.uses.get(tensor, [at]), default=at)
            for cut in range(at + 1, last + 1):
                cuts[cut].append(tensor)
        return cuts

    def is_spilled(self, tensor: Tensor, cut: int) -> bool:
        """Whether a tensor that crosses a cut is in DRAM there because it is not needed soon."""
        if not self.spill_distance:
            return False
        following = next((use for use in self.uses.get(tensor, ()) if use >= cut), cut)
        previous = max([self.producers[tensor], *(use for use in self.uses.get(tensor, ()) if use < cut)])
        return following - previous > self.spill_distance

    def on_chip(self, cut: int) -> list[Tensor]:
        """What is in local memory at a cut whose tensors stay there."""
        if cut not in self._on_chip:
            self._on_chip[cut] = [tensor for tensor in self.crossing[cut] if not self.is_spilled(tensor, cut)]
        return self._on_chip[cut]
