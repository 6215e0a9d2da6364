"""Once-for-all with a user's own module: subnets share its weights, are trained together, and are cut out.

    elastic = ElasticModule(ModuleChannels(model, images[:1]), choices)
    elastic.active = elastic.smallest               # forward is that subnet now; gradients go to the shared weights
    small = elastic.cut(elastic.active)             # a module of its own

The search is evolutionary: widths of the best subnets are changed and mixed, for each range of multiply-adds by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from npuc.activity import activity
from npuc.errors import UsageError
from npuc.train.modules.channels import ModuleChannels, unmasked

_TRIES = 300
"""Draws for a subnet in a range of multiply-adds before it is given up."""


class ElasticModule(torch.nn.Module):  # type: ignore[misc]
    """A module of which one subnet is active: masks over its weights, to which gradients flow.

    `choices` has the widths that each group may have, largest first; groups that are not there stay whole. A narrow subnet has
    the channels that were most important at the begin, so that subnets are nested.
    """

    def __init__(self, channels: ModuleChannels, choices: Mapping[str, Sequence[int]]) -> None:
        super().__init__()
        self.channels = channels
        self.choices = {name: sorted(set(widths), reverse=True) for name, widths in choices.items()}
        self.module = unmasked(channels.module)
        self._scores = channels.importance()
        self._masks: dict[tuple[int, ...], dict[str, Any]] = {}
        self.active = self.largest

    @property
    def largest(self) -> dict[str, int]:
        """The widths of the largest subnet."""
        return {name: widths[0] for name, widths in self.choices.items()}

    @property
    def smallest(self) -> dict[str, int]:
        """The widths of the smallest one."""
        return {name: widths[-1] for name, widths in self.choices.items()}

    def drawn(self, rng: np.random.Generator) -> dict[str, int]:
        """Random widths."""
        return {name: widths[int(rng.integers(len(widths)))] for name, widths in self.choices.items()}

    def check(self, widths: Mapping[str, int]) -> None:
        """An error for widths that no subnet has."""
        for name in self.choices.keys() | widths.keys():
            if name not in self.choices or widths.get(name) not in self.choices[name]:
                raise UsageError(
                    f"a subnet has no width {widths.get(name)} for '{name}'",
                    fix=f"The widths are {self.choices.get(name, 'those of other layers')}",
                )

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The outputs of the active subnet."""
        key = tuple(self.active[name] for name in self.choices)
        if key not in self._masks:
            self._masks = {**self._masks, key: self.channels.masks(self._selection(self.active))}
        tensors = dict(self.module.named_parameters())
        masked = {
            name: tensors[name] * mask.to(tensors[name])
            for name, mask in self._masks[key].items()
            if name in tensors
        }
        return torch.func.functional_call(self.module, masked, args, kwargs)

    def _selection(self, widths: Mapping[str, int]) -> dict[str, list[int]]:
        return self.channels.dropped(widths, self._scores)

    def reset_statistics(self) -> None:
        """Batch norms begin with no statistics: a subnet needs those of its own, which training does not keep."""
        for part in self.module.modules():
            if isinstance(part, torch.nn.modules.batchnorm._NormBase):
                part.reset_running_stats()

    def cut(self, widths: Mapping[str, int]) -> Any:
        """A subnet as a module of its own, with the weights as they are now."""
        self.check(widths)
        return self.channels.over(self.module).slim(self._selection(widths))


@dataclass(frozen=True)
class Subnet:
    """A subnet that a search has measured."""

    name: str
    """How it came about."""
    widths: dict[str, int]
    macs: float
    score: float


def search_subnets(
    elastic: ElasticModule,
    ranges: Sequence[tuple[float, float]],
    measure: Callable[[ElasticModule], float],
    *,
    population: int = 16,
    generations: int = 10,
    mutations: int = 8,
    mutation: float = 0.2,
    crossovers: int = 4,
    seed: int = 0,
) -> list[Subnet | None]:
    """The best subnet in each range of multiply-adds; None where there is none.

    `measure` is called with the module after its subnet was made active; more is better. In each of the `generations`, the widths
    of the best subnet of every range are changed (each with the probability `mutation`) and mixed.
    """
    rng = np.random.default_rng(seed)
    low, high = min(least for least, _ in ranges), max(most for _, most in ranges)
    best: list[Subnet | None] = [None] * len(ranges)
    drawn: set[tuple[int, ...]] = set()

    def take(name: str, widths: dict[str, int]) -> bool:
        key = tuple(widths.values())
        if key in drawn:
            return False
        drawn.add(key)
        macs = elastic.channels.macs(widths)
        places = [at for at, (least, most) in enumerate(ranges) if least <= macs <= most]
        if not places:
            return False
        elastic.active = widths
        subnet = Subnet(name, widths, macs, measure(elastic))
        for at in places:
            if (kept := best[at]) is None or subnet.score > kept.score:
                best[at] = subnet
        return True

    active = elastic.active
    with activity("searching subnets", population + generations * (mutations + crossovers)) as step:
        for number in range(population):
            _first(f"net_{number}", lambda: elastic.drawn(rng), take)
            step()
        for generation in range(generations):
            parents = [subnet for subnet in best if subnet is not None]
            for number in range(mutations + crossovers):
                kind, at = ("mutate", number) if number < mutations else ("crossover", number - mutations)
                if parents:
                    share = mutation if kind == "mutate" else 0.5

                    def child(
                        share: float = share, kind: str = kind, parents: list[Subnet] = parents
                    ) -> dict[str, int]:
                        first = parents[int(rng.integers(len(parents)))].widths
                        second = parents[int(rng.integers(len(parents)))].widths
                        other = elastic.drawn(rng) if kind == "mutate" else second
                        return {n: other[n] if rng.random() < share else first[n] for n in first}

                    _first(f"net_evo_{generation}_{kind}_{at}", child, take)
                step()
    elastic.active = active
    if not any(best):
        least, most = (elastic.channels.macs(widths) for widths in (elastic.smallest, elastic.largest))
        raise UsageError(
            f"no subnet has between {low / 1e6:g} and {high / 1e6:g} million multiply-adds",
            fix=f"Subnets have {least / 1e6:g} to {most / 1e6:g} million",
        )
    return best


def _first(
    name: str, draw: Callable[[], dict[str, int]], take: Callable[[str, dict[str, int]], bool]
) -> None:
    """Draw until one is taken."""
    for _ in range(_TRIES):
        if take(name, draw()):
            return
