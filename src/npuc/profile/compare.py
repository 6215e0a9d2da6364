"""Two profiles side by side: what a layer took in one and in the other, and what limits it in each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from npuc.profile.report import Report


@dataclass(frozen=True)
class Change:
    """A layer, or a subgraph of the CPU, in two models; None where a model does not have it. Times are microseconds."""

    name: str
    before: float | None
    after: float | None
    limits: tuple[str, str] = ("", "")
    """What limits it in each; empty for what runs on the CPU."""

    @property
    def difference(self) -> float:
        """What it takes more."""
        return (self.after or 0.0) - (self.before or 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "name": self.name,
            "a": self.before,
            "b": self.after,
            "difference": self.difference,
            "a_limited_by": self.limits[0],
            "b_limited_by": self.limits[1],
        }


def compare(a: Report, b: Report) -> dict[str, Any]:
    """The summaries of both, and by name their layers and what they have on the CPU, the greatest change first."""
    before, after = a.as_dict(), b.as_dict()
    return {
        "a": {key: before[key] for key in ("model", "target", "summary")},
        "b": {key: after[key] for key in ("model", "target", "summary")},
        "layers": _ranked(changes_of(a, b)),
        "host": _ranked(_matched(_host(a), _host(b))),
    }


def changes_of(a: Report, b: Report) -> list[Change]:
    """The layers of two models; the n-th of a name belongs to the n-th of that name."""
    return _matched(_layers(a), _layers(b))


_Entry = tuple[str, float, str]
"""Name, microseconds, limit."""


def _matched(a: Iterable[_Entry], b: Iterable[_Entry]) -> list[Change]:
    both = _numbered(a), _numbered(b)
    changes = []
    for key in dict.fromkeys((*both[0], *both[1])):
        (before, left), (after, right) = (side.get(key, (None, "")) for side in both)
        changes.append(Change(key[0], before, after, (left, right)))
    return changes


def _numbered(entries: Iterable[_Entry]) -> dict[tuple[str, int], tuple[float | None, str]]:
    counts: Counter[str] = Counter()
    numbered: dict[tuple[str, int], tuple[float | None, str]] = {}
    for name, time, limit in entries:
        numbered[name, counts[name]] = time, limit
        counts[name] += 1
    return numbered


def _layers(report: Report) -> list[_Entry]:
    return [
        (layer.name, layer.cycles / report.machine.clock * 1e6, layer.limited_by(report.machine.cores))
        for layer in report.layers
    ]


def _host(report: Report) -> list[_Entry]:
    """Subgraphs by their layers: their own names are only numbers."""
    return [
        (", ".join(subgraph.layers) or subgraph.name, subgraph.seconds * 1e6, "")
        for subgraph in report.host
        if subgraph.seconds is not None
    ]


def _ranked(changes: list[Change]) -> list[dict[str, Any]]:
    return [change.as_dict() for change in sorted(changes, key=lambda change: -abs(change.difference))]
