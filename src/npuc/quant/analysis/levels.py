"""Changes of a layer's scheme, in the form in which they are written in a configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from npuc.quant.analysis.finding import some
from npuc.quant.config import Level
from npuc.quant.scheme import SCHEMES, Scheme


@dataclass(frozen=True)
class SchemeChange:
    """The current and the proposed scheme of a layer."""

    old: Scheme
    new: Scheme

    @property
    def level(self) -> Level:
        """The level to write for the layer: the name of a scheme, or the fields that differ.

        >>> SchemeChange(SCHEMES["int8"], SCHEMES["int16"]).level
        'int16'
        >>> SchemeChange(SCHEMES["int8"], Scheme(weight="i16")).level
        {'weight': 'i16'}
        """
        named = next((name for name, known in SCHEMES.items() if known == self.new), None)
        old, new = self.old.to_dict(), self.new.to_dict()
        return named or {name: value for name, value in new.items() if value != old[name]}

    def also(self, other: SchemeChange) -> SchemeChange:
        """Both changes of one layer combined; both start from the same scheme."""
        return SchemeChange(
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
    """A tensor or weights that can get more bits."""

    @property
    def wide(self) -> Mapping[str, SchemeChange]:
        """The scheme changes that its layers need, by name."""


def around(tensor: Widened) -> str:
    """The advice to give a tensor more bits."""
    layers = some([f"{name}: {change}" for name, change in tensor.wide.items()])
    return f"16 bits for the layers around it (layers: {{{layers}}}); --hybrid writes the worst to a file"
