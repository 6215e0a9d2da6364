"""Names of the original network that a program no longer has: its nodes, and tensors that passes fused away.

A user knows layers by the names of the nodes of the file, by those of its tensors, or both. The importer records which tensor a
node makes and which tensor the first reader of a tensor makes; from that every command finds the layer that a name stands for,
whatever passes did in between: a tensor that is no longer there is part of the layer behind it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from npuc.errors import UnknownTensorError


@dataclass(frozen=True)
class TensorMatch:
    """The tensor of a program that a name stands for."""

    name: str
    fused: bool = False
    """What the name was given to is no longer there: it became part of the layer that makes this tensor."""


@dataclass(frozen=True)
class Origins:
    """What the nodes of the original network were called."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    """The tensor (the first, if there are several) that a node makes, by the name of the node."""
    readers: Mapping[str, str] = field(default_factory=dict)
    """The tensor that the first reader of a tensor makes."""

    def __bool__(self) -> bool:
        return bool(self.nodes or self.readers)

    @staticmethod
    def of(nodes: Iterable[tuple[str, Iterable[str], Iterable[str]]]) -> Origins:
        """From (name, operands, results) of all nodes in order. A name that several nodes have stands for none.

        >>> Origins.of([("conv", ["x"], ["c"]), ("relu", ["c"], ["r"])]).find("conv", {"x", "r"})
        TensorMatch(name='r', fused=True)
        """
        first_results: dict[str, str] = {}
        twice: set[str] = set()
        readers: dict[str, str] = {}
        tensors: set[str] = set()
        for name, operands, results in nodes:
            first = next((result for result in results if result), "")
            if not first:
                continue
            tensors.update(filter(None, results))
            for operand in operands:
                if operand and operand != first:
                    readers.setdefault(operand, first)
            if name in first_results:
                twice.add(name)
            elif name:
                first_results[name] = first
        named = {
            name: tensor
            for name, tensor in first_results.items()
            if name not in twice and name not in tensors
        }
        return Origins(named, {tensor: behind for tensor, behind in readers.items() if tensor in tensors})

    def find(self, name: str, known: Collection[str]) -> TensorMatch | None:
        """The tensor that a name stands for in a program with these tensors."""
        if name in known:
            return TensorMatch(name)
        tensor = self.nodes.get(name, name)
        if tensor in known:
            return TensorMatch(tensor)
        visited = {tensor}
        while (behind := self.readers.get(tensor)) is not None and behind not in visited:
            if behind in known:
                return TensorMatch(behind, fused=True)
            visited.add(behind)
            tensor = behind
        return None

    def names_of(self, known: Collection[str]) -> dict[str, tuple[str, ...]]:
        """For each tensor of a program, the names of nodes and fused tensors that stand for the layer that makes it."""
        ends: dict[str, str | None] = {}
        for tensor in self.readers:
            path: list[str] = []
            at: str | None = tensor
            while at is not None and at not in known and at not in ends:
                ends[at] = None
                path.append(at)
                at = self.readers.get(at)
            end = at if at is None or at in known else ends[at]
            ends.update(dict.fromkeys(path, end))
        by_tensor: dict[str, list[str]] = {}
        for tensor, end in ends.items():
            if end is not None:
                by_tensor.setdefault(end, []).append(tensor)
        for node, tensor in self.nodes.items():
            end = tensor if tensor in known else ends.get(tensor)
            if end is not None and node not in known:
                by_tensor.setdefault(end, []).append(node)
        return {tensor: tuple(names) for tensor, names in by_tensor.items()}

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {"nodes": dict(self.nodes), "readers": dict(self.readers)}


def texts(content: Any) -> dict[str, str]:
    """A table of names from a file: what is no text is left out."""
    if not isinstance(content, Mapping):
        return {}
    return {k: v for k, v in content.items() if isinstance(k, str) and isinstance(v, str)}


def nearest(
    name: str, known: Iterable[str], origins: Origins, count: int = 3, cutoff: float = 0.4
) -> list[str]:
    """The tensors that a user may have meant: by their own names, or by those of their nodes."""
    tensors = list(dict.fromkeys(filter(None, known)))
    have = set(tensors)
    nodes = {node: match.name for node in origins.nodes if (match := origins.find(node, have)) is not None}
    near = get_close_matches(name, [*tensors, *nodes], count, cutoff)
    return list(dict.fromkeys(nodes.get(match, match) for match in near))


def unknown_tensor(
    name: str, known: Collection[str], origins: Origins, what: str = "tensor or layer"
) -> UnknownTensorError:
    """The error for a name that no tensor has: into which layer it went, or what is nearest."""
    match = origins.find(name, known)
    if match is not None and match.fused:
        return UnknownTensorError(
            f"'{name}' is no longer there: it became part of the layer '{match.name}'",
            fix=f"Name '{match.name}', or import the network with --no-canonical to keep every tensor",
        )
    near = nearest(name, known, origins, 5)
    fix = f"The nearest names are: {', '.join(near)}" if near else "'npuc show' lists the names of a program"
    return UnknownTensorError(f"there is no {what} '{name}'", fix=fix)
