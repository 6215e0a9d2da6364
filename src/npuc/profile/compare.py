"""Two profiles side by side: what a layer took in one and in the other."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from npuc.profile.report import Figures, Report


@dataclass(frozen=True)
class Change:
    """A layer in two models; None where a model does not have it. Times are microseconds."""

    name: str
    before: float | None
    after: float | None

    @property
    def difference(self) -> float:
        """What it takes more."""
        return (self.after or 0.0) - (self.before or 0.0)


def compare(a: Report, b: Report) -> dict[str, Any]:
    """The summaries of both, and their layers by name, the greatest change first."""
    changes = sorted(changes_of(a, b), key=lambda one: -abs(one.difference))
    before, after = a.as_dict(), b.as_dict()
    return {
        "a": {key: before[key] for key in ("model", "target", "summary")},
        "b": {key: after[key] for key in ("model", "target", "summary")},
        "layers": [
            {"name": one.name, "a": one.before, "b": one.after, "difference": one.difference}
            for one in changes
        ],
    }


def changes_of(a: Report, b: Report) -> list[Change]:
    """The layers of two models; the n-th of a name belongs to the n-th of that name."""
    before, after = _times(a), _times(b)
    return [Change(key[0], before.get(key), after.get(key)) for key in dict.fromkeys((*before, *after))]


def _times(report: Report) -> dict[tuple[str, int], float]:
    seen: Counter[str] = Counter()
    found: dict[tuple[str, int], float] = {}
    for layer in report.layers:
        found[layer.name, seen[layer.name]] = _microseconds(report, layer)
        seen[layer.name] += 1
    return found


def _microseconds(report: Report, layer: Figures) -> float:
    return layer.cycles / report.machine.clock * 1e6
