"""Where the weights of a layer are: in the tree of a `.keras` file, or in the lists of an `.h5` file.

In a `.keras` file every object has a group of its own, with its variables by number and its parts by attribute; layers go
by their class, counted, and (in newer files) by their name. In an `.h5` file a layer has a list of all its weights.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from npuc.arrays import Array
from npuc.errors import InvalidModelError
from npuc.frontend.keras.hdf5 import Folder

_LAYERS = ("layers", "_layer_checkpoint_dependencies", "layer_checkpoint_dependencies")


class KerasWeights(Protocol):
    """The weights of a layer, of a model, or of a part of one."""

    def arrays(self) -> list[Array]:
        """Its own variables in order."""
        ...

    def part(self, *names: str) -> KerasWeights:
        """The weights of a part, by one of the names that it may have; all of them, where parts have no names."""
        ...

    def two(self, first: str, second: str) -> tuple[KerasWeights, KerasWeights]:
        """The weights of two parts of one kind."""
        ...

    def layer(self, name: str, kind: str, number: int) -> KerasWeights:
        """The weights of a layer of a model: by its name, or as layer `number` of its class."""
        ...


def snake_case(name: str) -> str:
    """A class as Keras names its group.

    >>> [snake_case(name) for name in ("Conv2D", "BatchNormalization", "PReLU")]
    ['conv2d', 'batch_normalization', 'p_re_lu']
    """
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


@dataclass(frozen=True)
class ArchiveWeights:
    """A group of a `.keras` file; None where an object has no variables."""

    folder: Folder | None

    def arrays(self) -> list[Array]:
        """Its own variables in order."""
        held = None if self.folder is None else self.folder.folder("vars")
        if held is None:
            return []
        names = sorted((n for n in held.names() if n.isdigit()), key=int)
        return [held.array(name) for name in names]

    def part(self, *names: str) -> ArchiveWeights:
        """The weights of a part."""
        for name in names:
            folder = None if self.folder is None else self.folder.folder(name)
            if folder is not None:
                return ArchiveWeights(folder)
        return ArchiveWeights(None)

    def two(self, first: str, second: str) -> tuple[ArchiveWeights, ArchiveWeights]:
        """The weights of two parts."""
        return self.part(first), self.part(second)

    def layer(self, name: str, kind: str, number: int) -> ArchiveWeights:
        """The weights of a layer of a model."""
        if self.folder is None:
            return ArchiveWeights(None)
        for root in _LAYERS:
            group = self.folder.folder(root)
            if group is None:
                continue
            named = {}
            for entry in group.names():
                inner = group.folder(entry)
                own = None if inner is None else (inner.folder("vars") or inner)
                title = "" if own is None else own.text("name") or (inner.text("name") if inner else "")
                if title:
                    named[title] = entry
            counted = snake_case(kind) + (f"_{number}" if number else "")
            place = named.get(name) or (counted if not named or counted not in named.values() else None)
            folder = group.folder(place) if place else None
            if folder is None and name in group.names():
                folder = group.folder(name)
            return ArchiveWeights(folder)
        return ArchiveWeights(None)


@dataclass(frozen=True)
class LegacyWeights:
    """Weights by path, in order: of a layer, or of all layers under one name."""

    folder: Folder
    paths: Sequence[str]
    layers: dict[str, Sequence[str]] | None = None
    """By layer, for a whole model."""

    @staticmethod
    def of(folder: Folder) -> LegacyWeights:
        """All weights of a model."""
        layers: dict[str, Sequence[str]] = {}
        for name in folder.texts("layer_names"):
            inner = folder.folder(name)
            paths = [] if inner is None else inner.texts("weight_names")
            layers[name] = [f"{name}/{path}" for path in paths]
        return LegacyWeights(folder, [], layers)

    def arrays(self) -> list[Array]:
        """The weights in order."""
        return [self.folder.array(path) for path in self.paths]

    def part(self, *names: str) -> LegacyWeights:
        """All weights: the parts of a layer are in one list."""
        return self

    def layer(self, name: str, kind: str, number: int) -> LegacyWeights:
        """The weights of a layer of a model."""
        if self.layers is not None:
            return LegacyWeights(self.folder, self.layers.get(name, ()))
        # A model inside a model has all its weights in one list, in which the paths name the layers.
        own = [path for path in self.paths if name in path.split("/")[1:-1]]
        return LegacyWeights(self.folder, own)

    def two(self, first: str, second: str) -> tuple[LegacyWeights, LegacyWeights]:
        """One half of the list each."""
        if len(self.paths) % 2:
            raise InvalidModelError("a layer of two has an odd number of weights")
        half = len(self.paths) // 2
        return LegacyWeights(self.folder, self.paths[:half]), LegacyWeights(self.folder, self.paths[half:])
