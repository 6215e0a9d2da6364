"""Changes to what a layer computes with, as a user would write them in a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from npuc.quant.analysis.finding import some
from npuc.quant.config import Level
from npuc.quant.scheme import SCHEMES, Scheme


@dataclass(frozen=True)
class Change:
    """What a layer has, and what it should have."""

    old: Scheme
    new: Scheme

    @property
    def level(self) -> Level:
        """What to write for the layer: the name of a scheme, or the fields that differ.

        >>> Change(SCHEMES["int8"], SCHEMES["int16"]).level
        'int16'
        >>> Change(SCHEMES["int8"], Scheme(weight="i16")).level
        {'weight': 'i16'}
        """
        named = next((name for name, known in SCHEMES.items() if known == self.new), None)
        old, new = self.old.to_dict(), self.new.to_dict()
        return named or {name: value for name, value in new.items() if value != old[name]}

    def also(self, other: Change) -> Change:
        """Both changes of one layer; both start from the same scheme."""
        return Change(
            self.old,
            dataclasses.replace(
                self.new,
                **{
                    field.name: getattr(other.new, field.name)
                    for field in dataclasses.fields(Scheme)
                    if getattr(other.new, field.name) != getattr(other.old, field.name)
                },
            ),
        )

    def __str__(self) -> str:
        """The level in one line of YAML."""
        level = self.level
        if isinstance(level, str):
            return level
        return "{" + ", ".join(f"{key}: {value}" for key, value in level.items()) + "}"


class Widened(Protocol):
    """Something that more bits can be given to."""

    @property
    def wide(self) -> Mapping[str, Change]:
        """What its layers need for that, by name."""


def around(tensor: Widened) -> str:
    """Advice to give more bits to a tensor."""
    layers = some([f"{name}: {change}" for name, change in tensor.wide.items()])
    return f"16 bits for the layers around it (layers: {{{layers}}}); --hybrid writes the worst to a file"
